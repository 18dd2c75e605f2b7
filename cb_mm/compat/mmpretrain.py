"""The only place that imports mmpretrain, or explains its absence."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io

from ..errors import UserError
from . import families as family
from . import mmpretrain_guard

#: family -> the extra of cb_mm that brings the right mmpretrain
_EXTRAS = {'onedl': 'pretrain', 'openmmlab': 'pretrain-openmmlab'}


def open_mmpretrain() -> None:
    """Import mmpretrain's parts, so that configs can name them.

    `mmpretrain_guard` makes that possible beside a new transformers.

    Raises:
        UserError: mmpretrain is not installed, or does not work here.
    """
    if importlib.util.find_spec('mmpretrain') is None:
        raise UserError(f'classification needs mmpretrain. Run: {_install_command()}')
    mmpretrain_guard.install()
    try:
        # One of its data sets prints that an optional package is absent.
        with contextlib.redirect_stdout(io.StringIO()):
            for part in ('models', 'datasets', 'evaluation', 'engine', 'visualization'):
                importlib.import_module(f'mmpretrain.{part}')
    except (ImportError, AssertionError) as error:  # it asserts the versions of mmcv and mmengine
        raise UserError(
            f'mmpretrain does not work here: {error}. Run: {_install_command()}'
        ) from error


def _install_command() -> str:
    extra = _EXTRAS.get(family.current_family() or '', 'pretrain')
    return f'pip install "cb_mm[{extra}]"'
