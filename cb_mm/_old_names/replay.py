"""Moved to cb_mm.datasets.samplers.replay, and its hook to cb_mm.engine.hooks.replay."""

import importlib
import sys

from cb_mm._old_names import moved

moved(__name__, 'cb_mm.datasets.samplers.replay')
sys.modules[__name__].ReplayHook = importlib.import_module('cb_mm.engine.hooks.replay').ReplayHook
