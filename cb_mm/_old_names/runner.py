"""Moved to cb_mm.engine.training."""

from cb_mm._old_names import moved

moved(__name__, 'cb_mm.engine.training')
