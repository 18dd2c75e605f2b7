"""Sparse attention: the patterns, parity with the masked dense product, and what it does not do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
from pathlib import Path

import forked
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cb_mm.apis.benchmark_report import count_multiplications
from cb_mm.attention import capture
from cb_mm.errors import UserError
from cb_mm.models import ViTCB
from cb_mm.models.attention.sparse import sparse_attention
from cb_mm.models.attention.sparse_pattern import COMBINATIONS, SparsePattern, make_plan

REPO = Path(__file__).resolve().parents[2]
SMALL = dict(patch_size=8, embed_dim=48, depth=3, num_heads=3)
GRIDS = [((14, 14), 1), ((5, 11), 0), ((9, 6), 5), ((1, 7), 1)]


def seeded(*size: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def heads(tokens: int, dtype: torch.dtype = torch.float32, width: int = 16) -> list[Tensor]:
    """Queries, scaled, keys and values."""
    q, k, v = (seeded(2, 3, tokens, width, seed=i, dtype=dtype) for i in range(3))
    return [x.requires_grad_() for x in (q * width**-0.5, k, v)]


def dense(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """The masked dense product."""
    logits = (q @ k.transpose(-2, -1)).masked_fill(~mask, float('-inf'))
    return logits.softmax(-1) @ v


@pytest.mark.parametrize('name', COMBINATIONS)
@pytest.mark.parametrize(('grid', 'prefix'), GRIDS)
@pytest.mark.parametrize('layout', ['grid', 'sequence'])
def test_parity_with_the_masked_dense_product(name, grid, prefix, layout):
    pattern = dataclasses.replace(SparsePattern.read(name), layout=layout)
    plan = make_plan(pattern, grid, prefix)
    q, k, v = heads(plan.tokens)
    ours, theirs = sparse_attention(q, k, v, plan), dense(q, k, v, plan.mask())
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    grad = seeded(*ours.shape, seed=9)
    for a, b in zip(
        torch.autograd.grad(ours, (q, k, v), grad),
        torch.autograd.grad(theirs, (q, k, v), grad),
        strict=True,
    ):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    random=st.integers(0, 4),
    window=st.sampled_from([0, 1, 3, 5]),
    spread=st.integers(0, 6),
    block=st.integers(1, 6),
    layout=st.sampled_from(['grid', 'sequence']),
    grid=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    prefix=st.integers(0, 5),
)
def test_any_pattern_on_any_grid(random, window, spread, block, layout, grid, prefix):
    if not (random or window or spread):
        return
    plan = make_plan(SparsePattern(random, window, spread, block, layout), grid, prefix)
    mask = plan.mask()
    assert mask.any(1).all()  # every token has something to attend to
    assert mask[:prefix].all()  # prefix tokens are global
    assert mask[:, :prefix].all()
    assert mask.sum() == plan.pairs
    q, k, v = heads(plan.tokens, torch.float64, width=4)
    ours, theirs = sparse_attention(q, k, v, plan), dense(q, k, v, mask)
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)
    for a, b in zip(
        torch.autograd.grad(ours.square().sum(), (q, k, v)),
        torch.autograd.grad(theirs.square().sum(), (q, k, v)),
        strict=True,
    ):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=0)


def test_window_of_single_tokens_by_hand():
    plan = make_plan(SparsePattern(0, 3, 0, block=1), (6, 5))
    rows, columns = np.divmod(np.arange(30), 5)
    near = (abs(rows[:, None] - rows) <= 1) & (abs(columns[:, None] - columns) <= 1)
    assert np.array_equal(plan.mask().numpy(), near)


def test_window_of_a_sequence_by_hand():
    plan = make_plan(SparsePattern(0, 5, 0, block=1, layout='sequence'), (6, 5))
    place = np.arange(30)
    assert np.array_equal(plan.mask().numpy(), abs(place[:, None] - place) <= 2)


def test_window_of_blocks_by_hand():
    plan = make_plan(SparsePattern(0, 1, 0, block=4), (6, 9), prefix=1)
    rows, columns = np.divmod(np.arange(54), 9)
    block = rows // 4 * 3 + columns // 4
    mask = plan.mask().numpy()
    assert np.array_equal(mask[1:, 1:], block[:, None] == block)


def test_random_keys_are_as_many_as_asked_and_not_in_the_window():
    plan = make_plan(SparsePattern(random=4, window=0, global_tokens=0, block=1), (8, 8))
    assert (plan.mask().sum(1) == 4).all()
    window = make_plan(SparsePattern(0, 3, 0, block=1), (8, 8)).mask()
    both = make_plan(SparsePattern(4, 3, 0, block=1), (8, 8)).mask()
    assert (both & window).equal(window)
    assert ((both & ~window).sum(1) == 4).all()


def test_random_blocks_run_out():
    mask = make_plan(SparsePattern(random=50, window=3, global_tokens=0, block=4), (9, 9)).mask()
    assert mask.all()


def test_random_keys_are_spread_over_all_blocks():
    counts = sum(
        make_plan(SparsePattern(4, 0, 0, 1, seed=seed), (8, 8)).mask().sum(0) for seed in range(64)
    )
    assert counts.min() > 0.7 * 256  # 4 × 64 for each key on average
    assert counts.max() < 1.3 * 256


def test_random_keys_depend_on_seed_layer_and_grid_alone():
    def mask(layer: int = 0, **options) -> Tensor:
        return make_plan(SparsePattern(**options), (14, 14), 1, layer).mask()

    assert mask().equal(mask())
    assert not mask().equal(mask(layer=1))
    assert not mask().equal(mask(seed=1))


def test_global_tokens_see_all_and_are_seen_by_all():
    plan = make_plan(SparsePattern(0, 0, 5, block=4), (7, 9), prefix=2)
    mask = plan.mask()
    assert len(plan.global_tokens) == 7
    assert mask[plan.global_tokens].all()
    assert mask[:, plan.global_tokens].all()
    others = [i for i in range(65) if i not in plan.global_tokens.tolist()]
    assert not mask[others][:, others].any()


@pytest.mark.parametrize(
    ('count', 'grid'), [(16, (32, 32)), (16, (14, 14)), (5, (3, 40)), (7, (9, 2)), (99, (5, 6))]
)
def test_global_patches_are_spread_over_the_image(count, grid):
    plan = make_plan(SparsePattern(0, 0, count), grid)
    found = plan.global_tokens.tolist()
    assert len(set(found)) == len(found) == min(count, grid[0] * grid[1])
    rows, columns = np.divmod(found, grid[1])
    for places, size in ((rows, grid[0]), (columns, grid[1])):  # their middle is the image's
        assert abs(np.mean(places) + 0.5 - size / 2) <= max(1, 0.1 * size)
    if count == 16:
        quarters = {(r < grid[0] / 2, c < grid[1] / 2) for r, c in zip(rows, columns, strict=True)}
        assert len(quarters) == 4


def test_work_grows_linearly():
    """Multiplications, which are counted, not timed; the dense product does 16 times as many."""

    def work(side: int) -> int:
        plan = make_plan(SparsePattern(), (side, side), 1)
        q, k, v = (seeded(1, 2, plan.tokens, 16, seed=i) for i in range(3))
        with torch.no_grad():
            return count_multiplications(lambda: sparse_attention(q, k, v, plan))

    small, large = work(32), work(64)
    assert 3.5 < large / small < 5
    q, k, v = (seeded(1, 2, 4097, 16, seed=i) for i in range(3))
    full = count_multiplications(lambda: F.scaled_dot_product_attention(q, k, v))
    assert large < 0.08 * full


def model(attention, **options) -> ViTCB:
    torch.manual_seed(0)
    options = {'pyramid': False, 'img_size': 64, 'out_indices': (1, 2), **options}
    return ViTCB(SMALL, attention=attention, **options)


def test_takes_the_weights_of_a_plain_vit_and_equals_it_when_all_is_attended():
    plain, sparse = model(None).eval(), model(dict(random=99, block=2)).eval()
    assert list(sparse.state_dict()) == list(plain.state_dict())
    sparse.load_state_dict(plain.state_dict())
    with torch.no_grad():
        for a, b in zip(*(m(seeded(2, 3, 72, 40)) for m in (plain, sparse)), strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize('attention', [*COMBINATIONS, dict(window=5, block=1, layout='sequence')])
def test_captured_maps_are_the_pattern(attention):
    vit = model(attention).eval()
    for parameter in vit.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    with torch.no_grad(), capture(vit, keep=True) as maps:
        vit(seeded(1, 3, 64, 88))
    assert len(maps) == 3
    pattern = SparsePattern.read(attention)
    for layer, found in maps.items():
        mask = make_plan(pattern, (8, 11), 1, layer).mask()
        assert found.shape == (1, 3, 89, 89)
        assert (found[:, :, ~mask] == 0).all()
        assert (found[:, :, mask] > 0).all()
        torch.testing.assert_close(found.sum(-1), torch.ones(1, 3, 89))


def test_trains_a_step_on_images_of_several_sizes():
    vit = model('R+W+G', broadcast='cb', drop_path_rate=0.1, with_cp=True).train()
    optimizer = torch.optim.AdamW([p for p in vit.parameters() if p.requires_grad], 1e-3)
    for size in ((64, 64), (40, 100), (72, 33)):
        optimizer.zero_grad()
        maps = vit(seeded(2, 3, *size))
        assert maps[0].shape[2:] == (-(-size[0] // 8), -(-size[1] // 8))
        sum(m.float().square().mean() for m in maps).backward()
        optimizer.step()
    for name, parameter in vit.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
        assert parameter.isfinite().all(), name


AUTOCAST = """
import torch
from cb_mm.models import ViTCB
from cb_mm.models.attention.sparse import sparse_attention
from cb_mm.models.attention.sparse_pattern import SparsePattern, make_plan

plan = make_plan(SparsePattern(), (14, 14), 1)
torch.manual_seed(0)
q, k, v = ((0.25 ** (i == 0) * torch.randn(2, 3, 197, 16)).requires_grad_() for i in range(3))
logits = (q @ k.transpose(-2, -1)).masked_fill(~plan.mask(), float('-inf'))
exact = logits.softmax(-1) @ v
halves = [x.detach().bfloat16().requires_grad_() for x in (q, k, v)]
found = sparse_attention(*halves, plan)
assert found.dtype == torch.bfloat16
assert (found - exact).norm() < 0.02 * exact.norm()
exact.square().sum().backward()
found.float().square().sum().backward()
for a, b in zip(halves, (q, k, v)):
    assert a.grad.dtype == torch.bfloat16
    assert (a.grad - b.grad).norm() < 0.02 * b.grad.norm()

for attention in ('R+W+G', 'uniform_a', 'uniform_b', 'uniform_c'):
    torch.manual_seed(0)
    model = ViTCB(dict(embed_dim=48, depth=3, num_heads=3, patch_size=8), attention=attention,
                  img_size=64, out_indices=(1, 2), pyramid=False)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    x, losses = torch.randn(2, 3, 72, 64), []
    for _ in range(5):
        with torch.autocast('cpu', dtype=torch.bfloat16):
            maps = model(x)
        loss = sum(m.float().square().mean() for m in maps)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], (attention, losses)
    exact = model.eval()(x)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        near = model(x)
    for a, b in zip(exact, near):
        assert (a - b).norm() < 0.05 * a.norm(), (attention, (a - b).norm() / a.norm())
print('trained')
"""


def test_half_precision_and_autocast(tmp_path):
    # In a process of its own: some virtual machines announce AMX and then forbid it, and oneDNN's
    # bfloat16 kernels end the whole process there unless they are told to do without.
    done = forked.run('-c', AUTOCAST, cwd=tmp_path, env=forked.WITHOUT_AMX)
    assert done.out.strip() == 'trained', done.err[-3000:]


def test_copies_and_pickles_work_on_their_own_grid():
    vit = model('R+W').eval()
    twin = pickle.loads(pickle.dumps(copy.deepcopy(vit)))
    with torch.no_grad():
        expected = vit(seeded(1, 3, 64, 64))
        twin(seeded(1, 3, 40, 48))
        assert vit.blocks[0].attn.grid is not twin.blocks[0].attn.grid
        assert twin.blocks[0].attn.grid is twin.blocks[2].attn.grid
        for a, b in zip(twin(seeded(1, 3, 64, 64)), expected, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize(
    ('attention', 'message'),
    [
        ('R+G+W', "attention='R+G+W' is not one of"),
        (dict(random=0, window=0, global_tokens=0), 'are all 0'),
        (dict(window=4), 'window=4 is not odd'),
        (dict(block=0), 'block=0 is not a number >= 1'),
        (dict(random=1.5), 'random=1.5'),
        (dict(windows=3), 'Did you mean "window"'),
        (dict(layout='ring'), "layout='ring'"),
        (dict(global_ends=True), "are for layout='sequence'"),
        (dict(redraw=1), 'redraw=1 is not True or False'),
        (dict(layout='sequence', queries='W+R'), "queries='W+R'"),
        (dict(layout='sequence', prefix_in_blocks=True, added_tokens=2), 'leave out prefix_in'),
    ],
)
def test_wrong_options_say_what_is_wrong(attention, message):
    with pytest.raises(UserError, match=re.escape(message)):
        model(attention)


def test_patches_without_any_key_are_refused():
    """Only added tokens are attended to, and there are none of them before the patches."""
    pattern = SparsePattern(random=0, window=0, global_tokens=0, added_tokens=2)
    with pytest.raises(UserError, match=r'some patches of a \(4, 4\) grid have no key at all'):
        make_plan(pattern, (4, 4))
    assert make_plan(pattern, (4, 4), prefix=2).mask()[2:].sum(1).tolist() == [2] * 16


def test_dropout_of_the_attention_is_refused():
    with pytest.raises(UserError, match='attn_drop_rate does not work with'):
        ViTCB({**SMALL, 'attn_drop_rate': 0.1}, attention='W', out_indices=(0,), pyramid=False)


def test_recomputing_an_earlier_image_uses_its_own_grid():
    vit = model('W', with_cp=True).train()
    losses = [vit(seeded(1, 3, *size))[1].square().mean() for size in ((64, 64), (40, 100))]
    sum(losses).backward()
    found = vit.blocks[0].attn.qkv.weight.grad.clone()
    twin = model('W').train()
    for size in ((64, 64), (40, 100)):
        twin(seeded(1, 3, *size))[1].square().mean().backward()
    torch.testing.assert_close(found, twin.blocks[0].attn.qkv.weight.grad)


def test_dropped_patches_are_refused():
    vit = ViTCB(
        {**SMALL, 'patch_drop_rate': 0.5}, attention='W', out_indices=(0,), pyramid=False
    ).train()
    with pytest.raises(UserError, match='Patch dropout'):
        vit(seeded(1, 3, 64, 64))


#: The pattern of the sparse-attention paper's code, scaled down.
BIGBIRD = dict(
    random=1, window=3, global_tokens=0, global_ends=True, block=5, layout='sequence',
    prefix_in_blocks=True, per_head=True, redraw=True, projection=False,
)  # fmt: skip


def test_first_and_last_run_are_global_and_random_runs_are_others():
    plan = make_plan(SparsePattern(1, 3, 0, 5, 'sequence', global_ends=True), (8, 8), 1)
    assert plan.global_tokens.tolist() == [0, *range(1, 6), *range(61, 65)]  # the class token too
    pattern = SparsePattern(
        1, 3, 0, 5, 'sequence', global_ends=True, prefix_in_blocks=True, per_head=True
    )
    plan = make_plan(pattern, (8, 8), 1)
    runs = plan.mask().unflatten(0, (13, 5)).unflatten(2, (13, 5)).all(3).all(1)
    assert plan.global_tokens.tolist() == [*range(5), *range(60, 65)]
    assert runs[[0, -1]].all()
    assert runs[:, [0, -1]].all()
    # own run, two neighbours, both ends, one random run; at the ends a neighbour is global
    assert runs[1:-1].sum(1).tolist() == [5, *[6] * 9, 5]


def test_heads_have_their_own_random_runs_and_parity_with_the_masked_dense_product():
    vit = model(BIGBIRD).eval()
    attention = vit.blocks[1].attn
    vit(seeded(1, 3, 64, 64))
    masks = attention.mask(65, torch.device('cpu'))
    assert masks.shape == (3, 65, 65)
    assert not masks[0].equal(masks[1])
    q, k, v = heads(65)
    torch.testing.assert_close(attention.mix(q, k, v), dense(q, k, v, masks), atol=1e-5, rtol=1e-5)
    assert not any('attn.proj' in key for key in vit.state_dict())
    with torch.no_grad(), capture(vit, keep=True) as maps:
        vit(seeded(1, 3, 64, 64))
    assert (maps[1][:, ~masks] == 0).all()


def test_runs_are_redrawn_in_training_from_torchs_generator():
    vit = model(BIGBIRD, with_cp=True)
    x, attention = seeded(1, 3, 64, 64), vit.blocks[0].attn

    def masks(seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        return [attention.mask(65, torch.device('cpu')) for _ in range(2)]

    vit.eval()(x)
    assert masks(0)[0].equal(masks(1)[1])
    vit.train()
    assert not masks(0)[0].equal(masks(0)[1])  # every forward pass
    assert masks(0)[1].equal(masks(0)[1])  # and the same again from the same seed
    # Recomputing in the backward pass uses the runs of the forward pass.
    gradients = []
    for recompute in (True, False):
        vit.set_grad_checkpointing(recompute)
        vit.zero_grad()
        torch.manual_seed(7)
        vit(x)[1].square().mean().backward()
        gradients.append(attention.qkv.weight.grad.clone())
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(
    ('queries', 'updated'),
    [('R', range(5)), ('W', range(5, 60)), ('G', range(60, 65)), ('R+W+G', range(65))],
)
def test_queries_without_a_result(queries, updated):
    """In the code of the sparse-attention paper the labels choose these runs."""
    attention = model({**BIGBIRD, 'queries': queries}).eval()
    attention(seeded(1, 3, 64, 64))
    q, k, v = heads(65)
    mixed = attention.blocks[0].attn.mix(q, k, v)
    other = [i for i in range(65) if i not in updated]
    assert (mixed[:, :, other] == 0).all()
    assert (mixed[:, :, list(updated)] != 0).any(-1).all()
    everything = model(BIGBIRD).eval()
    everything(seeded(1, 3, 64, 64))
    expected = everything.blocks[0].attn.mix(q, k, v)
    assert mixed[:, :, list(updated)].equal(expected[:, :, list(updated)])


def test_added_tokens_are_global():
    vit = model(dict(random=0, window=1, global_tokens=0, added_tokens=4, block=2)).train()
    vit(seeded(1, 3, 64, 64))[0].mean().backward()
    assert vit.num_prefix_tokens == 5
    assert vit.reg_token.shape == (1, 4, 48)
    assert vit.reg_token.grad.abs().sum() > 0
    mask = vit.blocks[0].attn.mask(69, torch.device('cpu'))
    assert mask[:5].all()
    assert mask[:, :5].all()
    assert not mask[5:, 5:].all()


def test_mean_of_all_tokens():
    vit = model('W', out_type='mean').eval()
    taken: list[Tensor] = []
    vit.blocks[-1].register_forward_hook(lambda module, args, out: taken.append(out))
    with torch.no_grad():
        (found,) = vit(seeded(2, 3, 64, 64))
        assert found.shape == (2, 48)
        assert found.equal(vit.norm(taken[0].mean(1)))


@pytest.mark.parametrize(('queries', 'silent'), [('R', 0), ('W', 4), ('G', 4)])
def test_a_single_block_is_the_first_one(queries, silent):
    pattern = SparsePattern(layout='sequence', queries=queries)
    assert len(make_plan(pattern, (2, 2)).silent) == silent
