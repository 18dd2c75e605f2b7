"""Moved to cb_mm.evaluation.classification."""

from cb_mm._old_names import moved

moved(__name__, 'cb_mm.evaluation.classification')
