"""Moved to cb_mm.datasets. The modules that stood here have stubs of their own."""

import importlib

from cb_mm._old_names import warn

warn(__name__, 'cb_mm.datasets')


def __getattr__(name: str) -> object:
    return getattr(importlib.import_module('cb_mm.datasets'), name)
