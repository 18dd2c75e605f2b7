"""Vision Transformers with Context Broadcasting for mmsegmentation and mmdetection.

Importing the package registers everything in mmengine's root registries, which mmseg and mmdet
both search: ``backbone=dict(type='ViTCB', ...)`` then works in anyone's config, with
``custom_imports = dict(imports=['cb_mm'])``. Where mmcv has no compiled ops, it supplies those that
Mask R-CNN needs. Nothing else of the host changes; see `cb_mm.safe_io` for what can be switched on.
"""

import warnings as _warnings
from importlib.util import find_spec as _find_spec

from . import _old_names
from .version import __version__

__all__ = ['__version__', 'add_context_broadcast', 'remove_context_broadcast']
__path__.append(_old_names.folder())

#: Why nothing could be registered here; None where all is well.
_failure: ImportError | None = None


def _register() -> None:
    if any(_find_spec(name) is None for name in ('mmengine', 'mmcv')):
        from .compat.families import NO_FAMILY

        raise ImportError(NO_FAMILY)
    # These come first: without the ops, or beside a transformers that its mmpretrain does not fit,
    # mmdet cannot be imported. Where neither is the case, neither does anything.
    from .compat import mmcv_ops, mmpretrain_guard

    mmcv_ops.install()
    mmpretrain_guard.install()
    from . import corruption, models, robustness  # noqa: F401
    from .attention import hook  # noqa: F401
    from .datasets.samplers import replay  # noqa: F401
    from .engine import hooks  # noqa: F401
    from .engine.optim import half_precision, layer_decay  # noqa: F401
    from .evaluation import boundary_iou, calibration, panoptic_quality  # noqa: F401


def __getattr__(name: str) -> object:
    if not name.startswith('__') and _failure is not None:
        raise _failure
    if name in ('add_context_broadcast', 'remove_context_broadcast'):
        from .models.broadcast import insert

        return getattr(insert, name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


try:
    _register()
except Exception as _error:
    # ``python -m cb_mm.doctor`` imports this package first, and must start wherever it fails: a
    # missing part is an ImportError, torch and torchvision that differ a RuntimeError, versions
    # that mmcv refuses an AssertionError. So the import goes through, with a warning; what is used
    # of the package raises the error.
    _failure = ImportError(
        f'cb_mm cannot be used here: {_error}\n'
        'Run "python -m cb_mm.doctor": it says what does not fit and how to fix it.'
    )
    _failure.__cause__ = _error
    _warnings.warn(str(_failure), RuntimeWarning, stacklevel=2)
