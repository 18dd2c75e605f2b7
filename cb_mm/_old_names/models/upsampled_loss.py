"""Moved to cb_mm.models.ops.upsampled_loss."""

from cb_mm._old_names import moved

moved(__name__, 'cb_mm.models.ops.upsampled_loss')
