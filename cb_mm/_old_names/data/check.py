"""Moved to cb_mm.datasets.checks.registry, and its ``require`` is called ``require_valid``."""

import sys

from cb_mm._old_names import moved

moved(__name__, 'cb_mm.datasets.checks.registry')
vars(sys.modules[__name__])['require'] = sys.modules[__name__].require_valid
