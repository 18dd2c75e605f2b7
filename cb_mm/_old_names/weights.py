"""Moved to cb_mm.checkpoints.backbone_weights."""

from cb_mm._old_names import moved

moved(__name__, 'cb_mm.checkpoints.backbone_weights')
