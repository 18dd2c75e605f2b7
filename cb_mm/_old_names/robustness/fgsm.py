"""Moved to cb_mm.robustness.attacks.fgsm."""

from cb_mm._old_names import moved

moved(__name__, 'cb_mm.robustness.attacks.fgsm')
