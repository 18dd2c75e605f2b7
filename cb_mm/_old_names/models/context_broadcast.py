"""Moved to cb_mm.models.broadcast.context_broadcast."""

from cb_mm._old_names import moved

moved(__name__, 'cb_mm.models.broadcast.context_broadcast')
