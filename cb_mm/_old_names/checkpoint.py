"""Moved to cb_mm.checkpoints.read."""

from cb_mm._old_names import moved

moved(__name__, 'cb_mm.checkpoints.read')
