"""Repeated augmentation whose samples can be replayed after a kill."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mmengine.registry import DATA_SAMPLERS
from mmpretrain.datasets.samplers import RepeatAugSampler

from .replay import SampleIndex, seed_samples


@DATA_SAMPLERS.register_module()
class ReplayRepeatSampler(RepeatAugSampler):
    """mmpretrain's sampler: each image three times in a row, so that processes share its copies.

    An epoch is as many samples as the data set has images, hence a third of the images.
    """

    def __init__(self, dataset: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(dataset, *args, **kwargs)
        seed_samples(dataset, self.seed)

    def __iter__(self) -> Iterator[SampleIndex]:
        first = self.epoch * self.num_selected_samples * self.world_size + self.rank
        for k, index in enumerate(super().__iter__()):
            yield SampleIndex(index, first + k * self.world_size)
