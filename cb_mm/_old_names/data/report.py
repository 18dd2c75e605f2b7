"""Moved to cb_mm.datasets.checks.findings."""

from cb_mm._old_names import moved

moved(__name__, 'cb_mm.datasets.checks.findings')
