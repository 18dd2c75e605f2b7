"""A stand-in for mmcv's compiled extension, put in place where there is none."""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import inspect
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from . import boxes, deformable_attention, deformable_convolution, focal_loss, reassembly, rois
from .missing import raise_missing

EXTENSION = 'mmcv._ext'


def get_compiler_version() -> str:
    """Return what mmcv's environment report shows."""
    return 'none (ops from torchvision, by cb_mm)'


OPS: dict[str, Callable[..., Any]] = {
    op.__name__: op
    for module in (
        boxes,
        rois,
        focal_loss,
        deformable_attention,
        deformable_convolution,
        reassembly,
    )
    for op in module.OPS
} | dict.fromkeys(('get_compiler_version', 'get_compiling_cuda_version'), get_compiler_version)


class _StandIn(ModuleType):
    """A module with every op mmcv requests; those without a stand-in raise when called."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith('__'):
            raise AttributeError(name)
        return lambda *args, **kwargs: raise_missing(name)


def source() -> str:
    """Return where mmcv's ops come from: 'compiled' or 'torchvision'."""
    return 'torchvision' if isinstance(sys.modules.get(EXTENSION), _StandIn) else 'compiled'


def install() -> str:
    """Make ``mmcv.ops`` importable and return where its ops come from. Calling it again is free."""
    if EXTENSION in sys.modules:
        return source()
    import mmcv

    try:
        importlib.import_module(EXTENSION)
    except ImportError:
        stand_in = _StandIn(EXTENSION, __doc__)
        # mmcv's own `check_ops_exist` asks for the spec.
        stand_in.__spec__ = importlib.machinery.ModuleSpec(EXTENSION, loader=None)
        vars(stand_in).update(OPS)
        sys.modules[EXTENSION] = mmcv._ext = stand_in
        _fix_early_imports()
    return source()


def _fix_early_imports() -> None:
    """Give modules that were imported before us the ops they failed to import.

    A script may import mmdet or mmseg first and reach us only through ``custom_imports``. Some of
    their modules guard ``from mmcv.ops import …`` with try/except and fall back to a placeholder,
    which would stay for the life of the process.
    """
    for module in list(sys.modules.values()):
        if getattr(module, '__name__', '').split('.')[0] not in ('mmdet', 'mmseg', 'mmpretrain'):
            continue
        for origin, name, alias in _guarded_op_imports(module):
            setattr(module, alias, getattr(importlib.import_module(origin), name))


def _guarded_op_imports(module: ModuleType) -> Iterator[tuple[str, str, str]]:
    """Yield (module, name, alias) of each ``from mmcv.ops… import name as alias`` in a try."""
    try:
        text = inspect.getsource(module)
    except (OSError, TypeError):
        return
    if 'mmcv.ops' not in text:
        return
    for block in (node for node in ast.parse(text).body if isinstance(node, ast.Try)):
        for line in block.body:
            source = line.module or '' if isinstance(line, ast.ImportFrom) else ''
            if isinstance(line, ast.ImportFrom) and source.startswith('mmcv.ops'):
                for item in line.names:
                    yield source, item.name, item.asname or item.name
