"""Hooks for any config of mmseg and mmdet: importing this package registers all of them.

docs/hooks.md says what each one is for. What a run does besides its hooks is one room up.
"""

from .checkpoint import SafeCheckpointHook
from .checkpoint_match import CheckpointMatchHook
from .finite_loss import FiniteLossHook
from .mean_loss import MeanLossHook
from .provenance import ProvenanceHook
from .replay import ReplayHook
from .sample_guard import SampleGuardHook
from .save_every import SaveEveryHook
from .start_report import StartReportHook
from .stop_on_signal import StopOnSignalHook

__all__ = [
    'CheckpointMatchHook',
    'FiniteLossHook',
    'MeanLossHook',
    'ProvenanceHook',
    'ReplayHook',
    'SafeCheckpointHook',
    'SampleGuardHook',
    'SaveEveryHook',
    'StartReportHook',
    'StopOnSignalHook',
]
