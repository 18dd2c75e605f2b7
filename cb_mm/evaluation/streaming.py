"""Metrics whose memory does not depend on the number of images.

Each image is measured as whole numbers, and whole numbers are summed. Sums of whole numbers are the
same in any order, so a score does not depend on workers, processes or batches, to the last bit.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mmengine.dist import get_rank, get_world_size
from mmengine.evaluator import BaseMetric

#: Name -> int64 counts; the states of two sets of images add up to that of both.
State = dict[str, np.ndarray]


@dataclass(frozen=True)
class Figures:
    """What a state says.

    Attributes:
        metrics: Name -> value in per cent.
        per_class: Name -> one value per class in per cent, NaN where a class does not occur.
        curves: Name -> column -> values, for a picture.
    """

    metrics: dict[str, float]
    per_class: dict[str, np.ndarray] = field(default_factory=dict)
    curves: dict[str, dict[str, list]] = field(default_factory=dict)


def merge(states: Iterable[Mapping[str, np.ndarray]]) -> State:
    """Return the sum of states; empty ones add nothing."""
    total: State = {}
    for state in states:
        for name, counts in state.items():
            total[name] = total[name] + counts if name in total else np.array(counts)
    return total


class StreamingMetric(BaseMetric):
    """A metric that keeps sums instead of a list of results.

    A subclass has ``measure``, the state of one image, and ``figures``, what a state says.

    Args:
        collect_device: As in mmengine.
        prefix: As in mmengine.
    """

    def __init__(self, collect_device: str = 'cpu', prefix: str | None = None) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix)
        self.reset()

    @abstractmethod
    def measure(self, sample: Mapping[str, Any]) -> State:
        """Return the state of one image, from the model's output and the truth in it."""

    @abstractmethod
    def figures(self, state: State) -> Figures:
        """Return what the state of all images says."""

    def reset(self) -> None:
        """Forget all images."""
        self._state: State = {}
        self._last: State = {}  # see `evaluate`
        self._images = 0

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Add the images of a batch."""
        for sample in data_samples:
            self._state = merge([self._state, self._last])
            self._last = self.measure(sample)
            self._images += 1

    def state(self) -> State:
        """Return the sums over all images of this process."""
        return merge([self._state, self._last])

    def compute_metrics(self, results: list[State]) -> dict[str, float]:
        """Return the figures of the states of all processes together."""
        return self.figures(merge(results)).metrics

    def evaluate(self, size: int) -> dict[str, float]:
        """Return the figures of all processes together, for mmengine's own loops.

        Args:
            size: Images of the data set. mmengine's sampler gives the last processes an image a
                second time where the images do not divide evenly; it is left out here.
        """
        place = (self._images - 1) * get_world_size() + get_rank()
        self.results = [self._state if place >= size else self.state()]
        self.reset()
        return super().evaluate(size)
