"""When each step of a run ended, noted in whatever tool it runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from mmengine.evaluator import BaseMetric
from mmengine.hooks import Hook
from mmengine.registry import HOOKS, METRICS


@METRICS.register_module()
class StepTimes(BaseMetric):
    """Append the wall time of every batch to a file; the score is the number of batches."""

    def __init__(self, file: str, **options: Any) -> None:
        super().__init__(**options)
        self.file = Path(file)

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Note the time."""
        with self.file.open('a') as stream:
            stream.write(f'{time.perf_counter()}\n')
        self.results.append(len(data_samples))

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Return how many images there were."""
        return {'images': float(sum(results))}


@HOOKS.register_module()
class StepClock(Hook):
    """Note the CPU time of the process after every training iteration, other hooks included."""

    priority = 'LOWEST'
    times: ClassVar[list[float]] = []

    def after_train_iter(self, *_: Any, **__: Any) -> None:
        """Note the time."""
        self.times.append(time.process_time())
