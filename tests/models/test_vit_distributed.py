"""ViTCB in DistributedDataParallel: two real processes over gloo."""

from __future__ import annotations

import copy
import datetime
import functools
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from forked import call_ranks
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
from torch.nn.parallel import DistributedDataParallel

WORLD = 2
pytestmark = pytest.mark.slow  # one start of two processes for all
CASES = [
    {'with_cp': False, 'broadcast': 'cb'},
    {'with_cp': True, 'broadcast': 'cb_s'},
    {'with_cp': True, 'broadcast': 'cb_s', 'frozen_stages': 2},
    {'with_cp': False, 'broadcast': 'cb_s', 'out_indices': (0, 1), 'pyramid': False},
]


def _loss(maps) -> torch.Tensor:
    return sum(m.square().mean() for m in maps)


def _train(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        'gloo',
        init_method=f'file://{folder}/store',
        rank=rank,
        world_size=WORLD,
        timeout=datetime.timedelta(seconds=250),
    )
    from cb_mm.models import ViTCB

    grads = []
    for case in CASES:
        torch.manual_seed(0)
        arch = {'embed_dim': 24, 'depth': 4, 'num_heads': 3}
        model = ViTCB(
            arch, **{'out_indices': (0, 1, 2, 3), 'layers': 'all', 'img_size': 32, **case}
        )
        alone = copy.deepcopy(model)
        # find_unused_parameters stays off: a parameter without a gradient would raise in step 2.
        wrapped = DistributedDataParallel(model)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        generator = torch.Generator().manual_seed(rank)
        first = None
        for _ in range(3):
            x = torch.randn(2, 3, 32, 48, generator=generator)
            optimizer.zero_grad()
            _loss(wrapped(x)).backward()
            if first is None:
                first = {n: p.grad.clone() for n, p in model.named_parameters() if p.requires_grad}
                _loss(alone(x)).backward()
            optimizer.step()
        own = {n: p.grad for n, p in alone.named_parameters() if p.requires_grad}
        last = {n: p.detach() for n, p in model.named_parameters()}
        grads.append({'shared': first, 'own': own, 'last': last})
    grads += [_sharded(5000), _hosted(rank), _sharded(20_000)]
    torch.save(grads, f'{folder}/rank{rank}.pt')
    dist.barrier()
    dist.destroy_process_group()


def _hosted(rank: int) -> dict:
    """Two steps with a host whose class token no map needs."""
    from cb_mm.models import TimmCB

    torch.manual_seed(0)
    model = TimmCB('xcit_nano_12_p8_224', 'cb', model_kwargs=dict(depth=2))
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        _loss(wrapped(torch.randn(2, 3, 32, 32) + rank)).backward()
        optimizer.step()
    return {n: p.detach() for n, p in model.named_parameters()}


def _sharded(least: int) -> dict:
    """Maps of a model that FSDP shards in parts of this size, and of the same model whole."""
    from cb_mm.models import ViTCB

    torch.manual_seed(0)
    arch = {'embed_dim': 24, 'depth': 4, 'num_heads': 3}
    model = ViTCB(arch, 'cb', img_size=32, out_indices=(0, 1, 2, 3), pyramid=False)
    whole = copy.deepcopy(model)
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=least)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # torch would rather have its next version used
        sharded = FullyShardedDataParallel(
            model, auto_wrap_policy=policy, device_id=torch.device('cpu'), use_orig_params=True
        )
        x = torch.randn(2, 3, 32, 48, generator=torch.Generator().manual_seed(5))
        maps = sharded(x)
        _loss(maps).backward()
        units = [name for name, part in sharded.named_modules()
                 if isinstance(part, FullyShardedDataParallel)]  # fmt: skip
    return {'maps': [m.detach() for m in maps], 'units': units,
            'whole': [m.detach() for m in whole(x)]}  # fmt: skip


@pytest.fixture(scope='module')
def ranks(tmp_path_factory) -> list[list[dict]]:
    folder: Path = tmp_path_factory.mktemp('gloo')
    call_ranks(_train, str(folder))
    return [torch.load(folder / f'rank{rank}.pt', weights_only=True) for rank in range(WORLD)]


@pytest.mark.parametrize('case', range(len(CASES)))
def test_gradients_are_the_mean_over_processes(ranks, case):
    one, two = (rank[case] for rank in ranks)
    assert one['shared'].keys() == one['own'].keys()
    for name, grad in one['shared'].items():
        mean = (one['own'][name] + two['own'][name]) / 2
        torch.testing.assert_close(grad, mean, rtol=1e-3, atol=1e-6, msg=name)
        torch.testing.assert_close(grad, two['shared'][name], rtol=0, atol=0)


@pytest.mark.parametrize('case', range(len(CASES)))
def test_processes_hold_the_same_weights_after_training(ranks, case):
    one, two = (rank[case]['last'] for rank in ranks)
    for name, value in one.items():
        assert torch.equal(value, two[name]), name


def test_blocks_can_be_sharded_one_by_one(ranks):
    """By a user's own FSDP with torch's policy by size, which looks into lists alone."""
    for rank in ranks:
        found = rank[len(CASES)]
        assert sum('blocks.' in unit for unit in found['units']) == 4, found['units']
        for map_, whole in zip(found['maps'], found['whole'], strict=True):
            torch.testing.assert_close(map_, whole)


def test_blocks_that_are_too_small_to_be_sharded_are_not_sharded_together(ranks):
    """The forward pass calls them one by one, and would find no weights."""
    for rank in ranks:
        found = rank[len(CASES) + 2]
        assert not any('blocks' in unit for unit in found['units']), found['units']
        for map_, whole in zip(found['maps'], found['whole'], strict=True):
            torch.testing.assert_close(map_, whole)


def test_a_host_with_parts_that_no_map_needs_trains(ranks):
    one, two = (rank[len(CASES) + 1] for rank in ranks)
    assert all(torch.equal(value, two[name]) for name, value in one.items())
