"""Vision Transformers with Context Broadcasting for mmsegmentation and mmdetection.

Importing the package registers everything in mmengine's root registries, which mmseg and mmdet
both search: ``backbone=dict(type='ViTCB', ...)`` then works in anyone's config, with
``custom_imports = dict(imports=['cb_mm'])``.
"""

import sys as _sys
from importlib.util import find_spec as _find_spec

from .version import __version__

__all__ = ['__version__']


def _running_doctor() -> bool:
    """True under ``python -m cb_mm.doctor``, which must start where nothing else imports."""
    words = _sys.orig_argv
    return any(pair == ('-m', 'cb_mm.doctor') for pair in zip(words, words[1:], strict=False))


def _register() -> None:
    if any(_find_spec(name) is None for name in ('mmengine', 'mmcv')):
        from .family import NO_FAMILY

        raise ImportError(NO_FAMILY)
    # The ops come first: mmdet cannot be imported without them.
    from . import mmcv_ops

    mmcv_ops.install()
    from . import checkpoint

    checkpoint.install()
    from . import models  # noqa: F401  (importing registers)


if not _running_doctor():
    _register()
