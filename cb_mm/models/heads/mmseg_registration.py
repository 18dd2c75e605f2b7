"""Registration of parts built on mmseg's, without importing mmseg's models.

``import mmseg.models`` takes seconds, which no tool for detection and no ``--help`` should spend.
mmseg's registry has a list of modules that it imports when it is first asked for a part. Ours are
added to that list, so that they are available in any config, after mmseg's own.
"""

from __future__ import annotations

from importlib.util import find_spec

_LOCATIONS = (
    'cb_mm.models.heads.fast_uper_head',
    'cb_mm.models.ops.upsampled_loss',
    'cb_mm.models.segmentors.sliding',
)


def register() -> None:
    """Let mmseg's model registry import our modules; do nothing without mmseg."""
    if find_spec('mmseg') is None:
        return
    from mmseg.registry import MODELS

    MODELS._locations += [name for name in _LOCATIONS if name not in MODELS._locations]
    MODELS._imported = False  # look again, if it has looked already


register()
