"""Stateless randomness, so that a killed and resumed training equals an uninterrupted one.

What is random about a sample depends on (seed, its place in the stream of samples), and what is
random in the model at an iteration depends on (seed, iteration, rank). No random state is carried
from one step to the next, so nothing has to be saved, and it does not matter how many workers load
the data. mmengine alone restores the weights and the data order, but neither the augmentation nor
drop path, and its original release loads and throws away all data up to the last iteration.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from mmengine.dataset import DefaultSampler, InfiniteSampler
from mmengine.registry import DATA_SAMPLERS

from ...fileio.safe_text import readable


def derive_seed(*parts: object) -> int:
    """Derive a 32-bit seed from the parts: the same in every process and version."""
    text = readable(':'.join(map(str, parts))).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), 'little')


def seed_all(seed: int) -> None:
    """Seed every generator that a model or a transform may draw from."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  (mmcv's transforms draw from the global generator)
    torch.manual_seed(seed)


@contextlib.contextmanager
def kept_generators() -> Iterator[None]:
    """Put the generators of this process back after the block."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])


class SampleIndex(int):
    """The index of a sample that also knows its place in the stream of all samples."""

    position: int

    def __new__(cls, index: int, position: int) -> SampleIndex:  # noqa: D102
        sample = super().__new__(cls, index)
        sample.position = position
        return sample

    def at(self, index: int) -> SampleIndex:
        """Return another sample in the same place."""
        return SampleIndex(index, self.position)

    def __reduce__(self) -> tuple:
        return SampleIndex, (int(self), self.position)


class _SeededSamples:
    """Loader of a batch from a data set, each sample with its own seed.

    torch's DataLoader calls it as the data set's ``__getitems__``, in whatever process loads. The
    generators of that process are left as they were: without workers it also runs the model.
    """

    def __init__(self, dataset: Any, seed: int) -> None:
        self.dataset, self.seed = dataset, seed

    def __call__(self, samples: list[SampleIndex]) -> list[Any]:
        with kept_generators():
            return [self._load(sample) for sample in samples]

    def _load(self, sample: SampleIndex) -> Any:
        seed = derive_seed(self.seed, 'sample', sample.position)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        torch.default_generator.manual_seed(seed)
        return self.dataset[sample]


def seed_samples(dataset: Any, seed: int) -> None:
    """Give every sample that a sampler names by a `SampleIndex` its own seed.

    A wrapper around the data set would have to be named in every config, and would hide the class
    that others ask for; torch looks for the method on the object, whoever has put it there.
    """
    dataset.__getitems__ = _SeededSamples(dataset, seed)


@DATA_SAMPLERS.register_module()
class ReplaySampler(DefaultSampler):
    """mmengine's sampler for epochs, whose augmentation can be replayed."""

    def __init__(self, dataset: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(dataset, *args, **kwargs)
        seed_samples(dataset, self.seed)

    def __iter__(self) -> Iterator[SampleIndex]:
        first = self.epoch * self.total_size + self.rank
        for k, index in enumerate(super().__iter__()):
            yield SampleIndex(index, first + k * self.world_size)


@DATA_SAMPLERS.register_module()
class ReplayInfiniteSampler(InfiniteSampler):
    """mmengine's endless sampler, whose augmentation can be replayed from any iteration."""

    def __init__(self, dataset: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(dataset, *args, **kwargs)
        self.skipped = 0
        seed_samples(dataset, self.seed)

    def skip(self, num_samples: int) -> None:
        """Start after that many samples of this process; nothing is loaded."""
        self.skipped = num_samples

    def __iter__(self) -> Iterator[SampleIndex]:
        for k, index in enumerate(self._indices_of_rank()):
            if k >= self.skipped:
                yield SampleIndex(index, k * self.world_size + self.rank)
