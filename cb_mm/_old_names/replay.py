"""Moved to cb_mm.datasets.samplers.replay, and the hook to cb_mm.engine.hooks.replay."""

import importlib

from cb_mm._old_names import warn

PLACES = ('cb_mm.datasets.samplers.replay', 'cb_mm.engine.hooks.replay')

warn(__name__, ' and '.join(PLACES), stacklevel=2)
for place in PLACES:
    content = vars(importlib.import_module(place))
    globals().update({key: value for key, value in content.items() if not key.startswith('__')})
