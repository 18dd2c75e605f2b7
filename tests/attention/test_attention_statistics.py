"""Every measure of attention against its definition, written out plainly."""

from __future__ import annotations

import math
from importlib import import_module

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from timm.models.vision_transformer import VisionTransformer

from cb_mm.attention import capture, measure, scale_statistics
from cb_mm.attention import statistics as statistics_module
from cb_mm.attention.layer_statistics import Running
from cb_mm.attention.measures import (
    bound,
    bridged_distance,
    broadcast_share,
    coordinates,
    entropy,
    keys_for_mass,
    prefix_mass,
    strongest,
    value_at_sink,
)
from cb_mm.attention.summary import COLUMNS, ModelSummary, record_of
from cb_mm.attention.tokens import Tokens
from cb_mm.models import ViTCB


def random_rows(*shape: int, seed: int = 0, sharpness: float = 3.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (sharpness * torch.randn(*shape, generator=generator)).softmax(-1)


def tokens_of(rows: int, columns: int, prefix: int = 1) -> Tokens:
    names = ('cls', *(f'reg{i}' for i in range(prefix - 1)))[:prefix]
    return Tokens(names, (rows, columns), (rows * 16, columns * 16), (16, 16))


@pytest.mark.parametrize('count', [1, 2, 197, 4097])
def test_entropy_of_even_and_of_single_attention(count):
    even = torch.full((2, count), 1 / count)
    torch.testing.assert_close(entropy(even), torch.full((2,), math.log(count)), atol=2e-5, rtol=0)
    assert bound(count) == math.log(count)
    single = torch.eye(count)[:3]
    assert (entropy(single) == 0).all()


def test_the_papers_bound():
    assert round(bound(197), 2) == 5.28


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 60), st.floats(0.01, 30), st.integers(0, 1000))
def test_entropy_is_scipys(count, sharpness, seed):
    rows = random_rows(3, count, seed=seed, sharpness=sharpness)
    expected = stats.entropy(rows.double().numpy(), axis=-1)
    np.testing.assert_allclose(entropy(rows).numpy(), expected, atol=2e-5)


def brute_distance(rows: np.ndarray, tokens: Tokens) -> tuple[float, float]:
    """The paper's mean over pairs, and the mean over queries of the distance bridged."""
    prefix, (height, width) = len(tokens.prefix), tokens.grid
    cells = height * width
    total = 0.0
    for i in range(cells):
        for j in range(cells):
            if i != j:
                far_y = abs((i // width + 0.5) / height - (j // width + 0.5) / height)
                far_x = abs((i % width + 0.5) / width - (j % width + 0.5) / width)
                total += float(rows[prefix + i, prefix + j]) * (far_x + far_y)
    return total / (cells * (cells - 1)), total / cells


@pytest.mark.parametrize(
    ('height', 'width', 'prefix'), [(4, 4, 1), (3, 7, 0), (5, 2, 5), (1, 6, 1)]
)
def test_distance_is_the_double_loop(height, width, prefix):
    tokens = tokens_of(height, width, prefix)
    rows = random_rows(tokens.count, tokens.count, seed=height)
    expected = brute_distance(rows.numpy(), tokens)[1]
    for step in (tokens.count, 4, 1):
        parts = [
            bridged_distance(
                rows[start : start + step], slice(start, min(start + step, tokens.count)), tokens
            )
            for start in range(0, tokens.count, step)
        ]
        joined = torch.cat(parts)
        assert joined.shape == (height * width,)
        assert joined.mean().item() == pytest.approx(expected, rel=1e-5)


def test_distance_of_known_attention():
    tokens = tokens_of(1, 2, prefix=0)
    crossed = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    assert bridged_distance(crossed, slice(0, 2), tokens).tolist() == [0.5, 0.5]
    assert bridged_distance(torch.eye(2), slice(0, 2), tokens).tolist() == [0, 0]
    y, x = coordinates(tokens_of(2, 4))
    assert y.tolist() == [0.25, 0.75]
    assert x.tolist() == [0.125, 0.375, 0.625, 0.875]


def brute_keys(row: np.ndarray, mass: float) -> float:
    held, count = 0.0, 0
    for value in sorted(row.tolist(), reverse=True):
        if held >= mass - 1e-6:
            break
        held += value
        count += 1
    return count / len(row)


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 40), st.floats(0.1, 8), st.sampled_from([0.5, 0.9, 0.99]), st.integers(0, 99))
def test_keys_for_mass_is_counting(count, sharpness, mass, seed):
    rows = random_rows(4, count, seed=seed, sharpness=sharpness)
    expected = [brute_keys(row, mass) for row in rows.double().numpy()]
    found = keys_for_mass(rows.clone(), mass).numpy()
    # A row may hold exactly the mass, to rounding: then one key more or less is right as well.
    assert np.abs(found - expected).max() <= 1 / count + 1e-6
    assert np.mean(np.abs(found - expected) > 1e-6) < 0.5


def test_keys_for_mass_of_known_attention():
    assert keys_for_mass(torch.full((1, 10), 0.1)).item() == pytest.approx(0.9)
    assert keys_for_mass(torch.full((1, 4096), 1 / 4096)).item() == pytest.approx(0.9, abs=3e-4)
    assert keys_for_mass(torch.eye(8)).tolist() == [1 / 8] * 8
    assert keys_for_mass(torch.tensor([[0.5, 0.3, 0.15, 0.05]])).item() == 0.75


def test_sorting_with_several_threads(monkeypatch):
    monkeypatch.setattr(torch, 'get_num_threads', lambda: 3)
    rows = random_rows(2, 5, 40)
    expected = [brute_keys(row, 0.9) for row in rows.flatten(0, 1).double().numpy()]
    assert keys_for_mass(rows.clone()).flatten().tolist() == pytest.approx(expected)


def test_sinks_of_known_attention():
    """One key that takes all, and none that does."""
    values = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    norms = values.norm(dim=-1)
    sink, even = torch.zeros(4, 4), torch.full((4, 4), 0.25)
    sink[:, 0] = 1
    assert strongest(sink.mean(0)).item() == 1
    assert strongest(even.mean(0), share=0.5).item() == pytest.approx(0.5)
    assert value_at_sink(sink.mean(0), norms).item() == pytest.approx(5 / 1.75)
    for rows, share in ((sink, 1.0), (even, 1.0), (torch.eye(4), 41 / 108)):
        outputs = rows @ values  # the identity: (3, 4), (1, 0), (0, 1), (0, 0)
        found = broadcast_share(outputs.sum(0), outputs.square().sum(), 4)
        assert found.item() == pytest.approx(share)


def test_prefix_mass():
    rows = random_rows(6, 14)
    tokens = tokens_of(3, 4, prefix=2)
    assert prefix_mass(rows, tokens).tolist() == pytest.approx(rows[:, :2].sum(1).tolist())


@pytest.fixture(scope='module')
def model():
    torch.manual_seed(0)
    model = VisionTransformer(
        img_size=(24, 40), patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=0,
        reg_tokens=2,
    )  # fmt: skip
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def test_a_layer_measured_is_its_whole_map_measured(model, monkeypatch):
    """Two images, in chunks of a few rows, against plain numpy on the whole map."""
    chunking = import_module('cb_mm.attention.capture')
    monkeypatch.setattr(chunking, 'CPU_CHUNK', 4 * 2 * 3 * 18 * 4)
    found = []

    def consume(layer):
        values = layer.values.double().numpy()
        found.append((measure(layer, percentiles=(15, 50)), layer.full().double().numpy(), values))

    with torch.no_grad(), capture(model, consume):
        model(torch.randn(2, 3, 24, 40))
    assert len(found) == 2
    for measured, maps, values in found:
        tokens = measured.tokens
        received, outputs = maps.mean(2), np.einsum('bhij,bhjd->bhid', maps, values)
        norms, sink = np.linalg.norm(values, axis=-1), received.argmax(-1)
        assert (tokens.grid, tokens.prefix) == ((3, 5), ('cls', 'reg0', 'reg1'))
        assert measured.bound == pytest.approx(math.log(18))
        entropies = stats.entropy(maps, axis=-1)
        expected = {
            'entropy': entropies.mean(-1),
            'class_entropy': entropies[..., 0],
            'entropy_p15': np.percentile(entropies, 15, axis=-1),
            'entropy_p50': np.percentile(entropies, 50, axis=-1),
            'prefix_mass': maps[..., :3].sum(-1).mean(-1),
            'sparsity': [[np.mean([brute_keys(r, 0.9) for r in m]) for m in h] for h in maps],
            'distance': [[brute_distance(m, tokens)[0] for m in image] for image in maps],
            'reach': [[brute_distance(m, tokens)[1] for m in image] for image in maps],
            'sink_mass': received.max(-1),
            'top_keys_mass': np.sort(received, -1)[..., -1:].sum(-1),  # 1 % of 18 keys is one
            'sink_value': [
                [norms[b, h, sink[b, h]] / norms[b, h].mean() for h in range(3)] for b in range(2)
            ],
            'broadcast': [
                [np.sum(o.mean(0) ** 2) / np.mean(np.sum(o**2, -1)) for o in image]
                for image in outputs
            ],
        }
        assert measured.heads.keys() == expected.keys()
        for name, numbers in expected.items():
            np.testing.assert_allclose(measured.heads[name], numbers, rtol=2e-4, err_msg=name)
            if '_p' not in name:
                np.testing.assert_allclose(measured.whole[name], np.mean(numbers, -1), rtol=2e-4)
        whole = np.percentile(entropies.reshape(2, -1), 15, axis=-1)
        np.testing.assert_allclose(measured.whole['entropy_p15'], whole, rtol=2e-4)


def test_sparsity_of_some_rows_is_near_that_of_all(monkeypatch):
    torch.manual_seed(0)
    model = VisionTransformer(
        img_size=128, patch_size=8, embed_dim=24, depth=1, num_heads=3, num_classes=0
    ).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    images, found = torch.randn(1, 3, 128, 128), []
    for rows in (1024, 64):
        monkeypatch.setattr(statistics_module, 'SPARSITY_ROWS', rows)
        with torch.no_grad(), capture(model, lambda layer: found.append(measure(layer))):
            model(images)
    every, some = (measured.heads for measured in found)
    assert not np.array_equal(every['sparsity'], some['sparsity'])
    np.testing.assert_allclose(every['sparsity'], some['sparsity'], atol=0.03)
    np.testing.assert_array_equal(every['entropy'], some['entropy'])


def test_without_a_class_token():
    model = VisionTransformer(
        img_size=16, patch_size=8, embed_dim=24, depth=1, num_heads=3, num_classes=0,
        class_token=False, global_pool='avg',
    ).eval()  # fmt: skip
    found = []
    with torch.no_grad(), capture(model, lambda layer: found.append(measure(layer))):
        model(torch.randn(1, 3, 16, 16))
    assert np.isnan(found[0].heads['class_entropy']).all()
    assert (found[0].heads['prefix_mass'] == 0).all()
    assert np.isfinite(found[0].heads['entropy']).all()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=2, max_size=30))
def test_running_mean_and_interval(values):
    running = Running()
    for value in values:
        running.add([value, 2 * value])
    assert running.count == len(values)
    np.testing.assert_allclose(running.mean, [np.mean(values), 2 * np.mean(values)], atol=1e-9)
    error = stats.sem(values)
    expected = error * stats.t.ppf(0.975, len(values) - 1)
    np.testing.assert_allclose(running.half_width(), [expected, 2 * expected], atol=1e-7)


def test_one_image_has_no_interval():
    running = Running()
    running.add([1.0, 2.0])
    assert np.isnan(running.half_width()).all()


def test_summary_over_images(model):
    summary = ModelSummary('ViT')
    records = []
    for seed in range(3):
        found = []
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad(), capture(model, lambda layer, f=found: f.append(measure(layer))):
            model(torch.randn(1, 3, 24, 40, generator=generator))
        records.append(record_of(found))
        summary.add(records[-1])
    values = np.array([record['layers'][1]['heads']['entropy'] for record in records])
    assert summary.images == 3
    assert summary.layers == {0: 'blocks.0.attn', 1: 'blocks.1.attn'}
    np.testing.assert_allclose(summary.heads_by_depth('entropy')[1], values.mean(0))
    mean, half = summary.by_depth('entropy')
    assert mean[1] == pytest.approx(values.mean())
    assert half[1] == pytest.approx(stats.sem(values.mean(1)) * stats.t.ppf(0.975, 2))
    rows = list(summary.rows())
    assert len(rows) == 2 * 12 * (1 + 3)
    row = next(r for r in rows if r[1:4] == (1, 2, 'entropy'))
    assert dict(zip(COLUMNS, row, strict=True))['mean'] == pytest.approx(values[:, 2].mean())
    assert summary.as_dict()['layers'][1]['heads']['entropy']['mean'] == pytest.approx(
        values.mean(0)
    )


def test_only_the_first_sizes_of_many_are_listed():
    summary = ModelSummary('ViT')
    summary.grids = {(rows, 7) for rows in range(30, 0, -1)}
    assert summary.as_dict()['grids'] == [(rows, 7) for rows in range(1, 21)]


def test_scales_of_cb_s():
    model = ViTCB(
        dict(patch_size=8, embed_dim=10, depth=4, num_heads=2), 'cb_s', 'upper',
        out_indices=(0, 1, 2, 3), pyramid=False, img_size=16,
    )  # fmt: skip
    scale = torch.linspace(-0.2, 0.7, 10)  # quantiles are at -0.11 and 0.61
    model.blocks[2].mlp.broadcast.scale.data.copy_(scale)
    found = scale_statistics(model)
    assert [(s.layer, s.name) for s in found] == [
        (2, 'blocks.2.mlp.broadcast'),
        (3, 'blocks.3.mlp.broadcast'),
    ]
    assert found[0].mean == pytest.approx(0.25)
    assert found[0].ratio == pytest.approx(0.11 / 0.61)
    low, high = np.quantile(scale.abs().numpy(), [0.1, 0.9])
    assert found[0].ratio_of_sizes == pytest.approx(low / high, rel=1e-5)
    assert found[1].mean == 0
    assert math.isnan(found[1].ratio)  # all scales are zero at first
    assert (
        scale_statistics(
            ViTCB(dict(embed_dim=24, depth=2, num_heads=3), out_indices=(0, 1), pyramid=False)
        )
        == []
    )
