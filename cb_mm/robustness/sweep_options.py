"""What can be asked of a sweep, with the default of each option."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mmengine.evaluator import BaseMetric
from torch.utils.data import DataLoader

from ..engine.training import RunOptions
from ..fileio.figures import USUAL_FORMATS


@dataclass
class SweepOptions(RunOptions):
    """The options of a sweep; `cb_mm.apis.evaluate_robustness` says what each one means.

    Attributes:
        data_loader: A loader that is built already; ``config`` then only describes it.
        metrics: Metrics that are built already; ``config`` then only describes them.
        extra_metrics: Names of metrics to add: 'calibration', 'boundary'.
    """

    checkpoint: str | Path | None = None
    corruption: Sequence[str] = ()
    severity: int | None = None
    suite: str | None = None
    fgsm: Sequence[float] = ()
    attacks: Sequence[str] = ()
    attack_steps: int | None = None
    attack_step_size: float | None = None
    attack_restarts: int | None = None
    random_start: bool = True
    repeats: int = 5
    limit: int | None = None
    frost_pictures: str | Path | None = None
    out: str | Path | None = None
    save_corrupted: str | None = None
    show_dir: str | None = None
    html: bool = False
    formats: Sequence[str] = USUAL_FORMATS
    compare: str | Path | None = None
    reference: str | Path | None = None
    detect: float = 1.0
    cache_mb: int = 2048
    test_set: str | None = None
    data_loader: DataLoader | None = None
    metrics: Sequence[BaseMetric] | None = None
    extra_metrics: Sequence[str] = ()
