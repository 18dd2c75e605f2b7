"""Moved to cb_mm.attention.layer_statistics."""

from cb_mm._old_names import moved

moved(__name__, 'cb_mm.attention.layer_statistics')
