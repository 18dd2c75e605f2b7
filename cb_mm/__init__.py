"""Vision Transformers with Context Broadcasting for mmsegmentation and mmdetection.

Importing the package registers everything in mmengine's root registries, which mmseg and mmdet
both search: ``backbone=dict(type='ViTCB', ...)`` then works in anyone's config, with
``custom_imports = dict(imports=['cb_mm'])``.
"""

import sys as _sys
from importlib.util import find_spec as _find_spec
from itertools import pairwise as _pairwise

from . import _old_names
from .version import __version__

__all__ = ['__version__', 'add_context_broadcast', 'remove_context_broadcast']
__path__.append(_old_names.folder())


def _running_doctor() -> bool:
    """True under ``python -m cb_mm.doctor``, which must start where nothing else imports."""
    return ('-m', 'cb_mm.doctor') in _pairwise(_sys.orig_argv)


def _register() -> None:
    if any(_find_spec(name) is None for name in ('mmengine', 'mmcv')):
        from .compat.families import NO_FAMILY

        raise ImportError(NO_FAMILY)
    try:
        # The ops come first: mmdet cannot be imported without them.
        from .compat import debug_prints, mmcv_ops

        debug_prints.install()
        mmcv_ops.install()
        from .checkpoints import read as checkpoint
        from .compat import mmpretrain_guard
        from .engine.hooks import checkpoint as safe_checkpoints

        checkpoint.install()
        safe_checkpoints.install()
        mmpretrain_guard.install()
        from . import corruption, models  # noqa: F401
        from .datasets.samplers import replay  # noqa: F401
        from .engine.hooks import mean_loss  # noqa: F401
        from .engine.hooks import provenance as provenance_hook  # noqa: F401
        from .engine.optim import bfloat16, layer_decay  # noqa: F401
    except (ImportError, RuntimeError) as error:  # RuntimeError: torch and torchvision differ
        raise ImportError(
            f'cb_mm cannot start here: {error}\n'
            'Run "python -m cb_mm.doctor": it says what does not fit and how to fix it.'
        ) from error


def __getattr__(name: str) -> object:
    # On demand: the doctor imports this package where torch may not be there.
    if name in ('add_context_broadcast', 'remove_context_broadcast'):
        from .models.broadcast import insert as insertion

        return getattr(insertion, name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


if not _running_doctor():
    _register()
