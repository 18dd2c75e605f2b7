"""Moved to cb_mm.datasets.samplers.replay, and its hook to cb_mm.engine.hooks.replay."""

import importlib
import sys

from cb_mm._old_names import moved

moved(__name__, 'cb_mm.datasets.samplers.replay')
hook = importlib.import_module('cb_mm.engine.hooks.replay').ReplayHook
vars(sys.modules[__name__])['ReplayHook'] = hook
