"""Randomness that depends on a seed and a place alone: samples, samplers, iterations."""

from __future__ import annotations

import itertools
import pickle
import random
from types import SimpleNamespace

import mmengine.dataset.sampler
import numpy as np
import pytest
import torch
from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop
from torch.utils.data import DataLoader

from cb_mm.datasets.samplers import replay
from cb_mm.datasets.samplers.replay import (
    ReplayInfiniteSampler,
    ReplaySampler,
    SampleIndex,
    derive_seed,
    seed_all,
)
from cb_mm.engine.hooks.replay import ReplayHook, _ResumedIterator


def numbers() -> tuple[float, float, float]:
    """One draw from each of the three global generators."""
    return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002


class Numbers(torch.utils.data.Dataset):
    """Samples that are nothing but chance, and the index they were asked for by."""

    def __init__(self, length: int = 10) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple:
        return int(index), numbers()


@pytest.fixture
def processes(monkeypatch):
    """Let samplers believe that they are in one of several processes."""

    def set_(rank: int, count: int) -> None:
        monkeypatch.setattr(mmengine.dataset.sampler, 'get_dist_info', lambda: (rank, count))

    return set_


# ----- seeds


def test_a_seed_is_the_same_for_ever_and_its_parts_are_kept_apart():
    assert derive_seed(0, 'sample', 3) == PINNED
    assert derive_seed(1, 23) != derive_seed(12, 3)
    assert derive_seed(0, 1) != derive_seed(1, 0)
    assert len({derive_seed(0, part) for part in range(1000)}) == 1000
    assert max(derive_seed(0, part) for part in range(1000)) > 2**31  # all 32 bits
    assert max(derive_seed(0, part) for part in range(1000)) < 2**32  # what numpy takes


PINNED = 2424358157


def test_a_draw_is_an_index_with_a_place_also_in_another_process():
    draw = SampleIndex(7, 3)
    assert (draw, draw.position) == (7, 3)
    for again in (pickle.loads(pickle.dumps(draw)), pickle.loads(pickle.dumps(draw, 2))):
        assert (type(again), again, again.position) == (SampleIndex, 7, 3)
    other = draw.at(9)
    assert (type(other), other, other.position) == (SampleIndex, 9, 3)


# ----- samples


def test_a_sample_depends_on_its_seed_and_its_place_not_on_its_batch():
    load = replay._SeededSamples(Numbers(), 5)
    first = load([SampleIndex(1, 0), SampleIndex(2, 1)])
    assert [index for index, _ in first] == [1, 2]
    assert load([SampleIndex(2, 1)]) == first[1:]
    assert load([SampleIndex(1, 1)])[0][1] == first[1][1]  # the place counts, not the index
    for one, two in zip(first[0][1], first[1][1], strict=True):
        assert one != two
    for one, two in zip(replay._SeededSamples(Numbers(), 6)([SampleIndex(1, 0)])[0][1], first[0][1],
                        strict=True):  # fmt: skip
        assert one != two


def test_loading_leaves_the_generators_of_the_process_alone():
    seed_all(3)
    expected = numbers()
    seed_all(3)
    replay._SeededSamples(Numbers(), 5)([SampleIndex(1, 0)])
    assert numbers() == expected


def test_generators_are_left_alone_by_a_sample_that_cannot_be_loaded():
    class Broken(Numbers):
        def __getitem__(self, index: int) -> tuple:
            raise OSError('no such file')

    seed_all(3)
    expected = numbers()
    seed_all(3)
    with pytest.raises(OSError, match='no such file'):
        replay._SeededSamples(Broken(), 5)([SampleIndex(1, 0)])
    assert numbers() == expected


# ----- samplers


@pytest.mark.parametrize('epoch', [0, 2])
def test_epochs_of_two_processes_are_one_stream(processes, epoch):
    whole = ReplaySampler(Numbers(), seed=4)
    whole.set_epoch(epoch)
    expected = [(int(draw), draw.position) for draw in whole]
    assert [place for _, place in expected] == list(range(10 * epoch, 10 * epoch + 10))
    parts = []
    for rank in (0, 1):
        processes(rank, 2)
        part = ReplaySampler(Numbers(), seed=4)
        part.set_epoch(epoch)
        parts.append([(int(draw), draw.position) for draw in part])
    assert [len(part) for part in parts] == [5, 5]
    assert sorted(itertools.chain(*parts), key=lambda draw: draw[1]) == expected


def test_an_endless_stream_is_shared_by_two_processes_and_can_be_entered_anywhere(processes):
    def drawn(count: int, skipped: int = 0) -> list[tuple[int, int]]:
        sampler = ReplayInfiniteSampler(Numbers(), seed=4)
        sampler.skip(skipped)
        return [(int(draw), draw.position) for draw in itertools.islice(sampler, count)]

    expected = drawn(24)
    assert [place for _, place in expected] == list(range(24))
    assert sorted(index for index, _ in expected[:10]) == list(range(10))
    assert drawn(20, 4) == expected[4:]
    for rank in (0, 1):
        processes(rank, 2)
        assert drawn(12) == expected[rank::2]
        assert drawn(9, 3) == expected[rank::2][3:]


@pytest.mark.parametrize('sampler', [ReplaySampler, ReplayInfiniteSampler])
@pytest.mark.parametrize('workers', [0, 1])
def test_a_loader_gives_each_sample_its_own_chance(sampler, workers):
    def batches(size: int, seed: int) -> list:
        data = Numbers()
        loader = DataLoader(
            data, size, sampler=sampler(data, seed=seed), num_workers=workers, collate_fn=list
        )
        return list(itertools.chain(*itertools.islice(loader, 8 // size)))

    expected = batches(4, seed=1)
    order = [int(draw) for draw in itertools.islice(sampler(Numbers(), seed=1), 8)]
    assert [index for index, _ in expected] == order
    chance = [
        replay._SeededSamples(Numbers(), 1)([SampleIndex(0, place)])[0][1] for place in range(8)
    ]
    assert [values for _, values in expected] == chance
    assert batches(2, seed=1) == expected
    assert batches(4, seed=2) != expected


# ----- resuming


def loader_of(data: Numbers, batch_size: int = 3) -> DataLoader:
    return DataLoader(
        data, batch_size, sampler=ReplayInfiniteSampler(data, seed=1), collate_fn=list
    )


@pytest.mark.parametrize('at_once', [False, True])
def test_resumed_batches_are_those_of_an_undisturbed_run(at_once):
    batches = iter(loader_of(Numbers()))
    expected = [next(batches) for _ in range(6)]
    resumed = _ResumedIterator(loader_of(Numbers()), 4)
    assert iter(resumed) is resumed
    if at_once:
        resumed.skip_iter(4)
    else:
        assert [next(resumed) for _ in range(4)] == [None] * 4
    assert [next(resumed), next(resumed)] == expected[4:]


def looped(kind: type, iteration: int, loader: DataLoader) -> SimpleNamespace:
    """A runner in the middle of a loop, as far as the hook looks at it."""
    loop = object.__new__(kind)
    loop._iter, loop.dataloader, loop.dataloader_iterator = iteration, loader, 'as it was'
    return SimpleNamespace(train_loop=loop)


def test_the_hook_enters_an_endless_stream_where_it_was_left():
    batches = iter(loader_of(Numbers()))
    expected = [next(batches) for _ in range(3)]
    runner = looped(IterBasedTrainLoop, 1, loader_of(Numbers()))
    ReplayHook().before_train_epoch(runner)
    resumed = runner.train_loop.dataloader_iterator
    assert [next(resumed), next(resumed), next(resumed)] == [None, *expected[1:]]


@pytest.mark.parametrize(
    ('kind', 'iteration', 'endless'),
    [
        (IterBasedTrainLoop, 0, True),  # from scratch
        (EpochBasedTrainLoop, 4, True),
        (IterBasedTrainLoop, 4, False),  # somebody else's sampler
    ],
)
def test_the_hook_leaves_other_loops_alone(kind, iteration, endless):
    loader = loader_of(Numbers()) if endless else DataLoader(Numbers(), 3)
    runner = looped(kind, iteration, loader)
    ReplayHook().before_train_epoch(runner)
    assert runner.train_loop.dataloader_iterator == 'as it was'


def test_the_chance_of_an_iteration_depends_on_seed_iteration_and_rank():
    def chance(seed: int, iteration: int, rank: int) -> tuple:
        runner = SimpleNamespace(seed=seed, iter=iteration, rank=rank)
        ReplayHook().before_train_iter(runner, batch_idx=iteration)
        return numbers()

    base = chance(0, 5, 0)
    assert chance(0, 5, 0) == base
    for other in (chance(1, 5, 0), chance(0, 6, 0), chance(0, 5, 1)):
        assert all(one != two for one, two in zip(other, base, strict=True))
    seed_all(derive_seed(0, 'iteration', 5, 0))
    assert numbers() == base


def test_the_hook_seeds_before_other_hooks_draw():
    assert ReplayHook.priority == 'VERY_HIGH'
