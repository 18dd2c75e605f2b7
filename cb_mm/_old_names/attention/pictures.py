"""Moved to cb_mm.fileio.images."""

from cb_mm._old_names import moved

moved(__name__, 'cb_mm.fileio.images')
