"""Moved to cb_mm.checkpoints.provenance."""

from cb_mm._old_names import moved

moved(__name__, 'cb_mm.checkpoints.provenance')
