"""The gradient of softmax: against autograd, its bound, and on a model."""

from __future__ import annotations

import json

import cv2
import numpy as np
import pytest
import torch

from cb_mm.apis import softmax_gradient
from cb_mm.attention.softmax_gradient import (
    distance_from_uniform,
    gradient_figure,
    nuclear_norm,
)
from cb_mm.models import ViTCB


def test_norm_is_that_of_the_jacobian():
    logits = torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for row in logits:
        jacobian = torch.autograd.functional.jacobian(lambda s: s.softmax(-1), row)
        expected = torch.linalg.svdvals(jacobian).sum()
        torch.testing.assert_close(nuclear_norm(row.softmax(-1)), expected)


def test_uniform_rows_are_steepest():
    uniform, single = torch.full((8,), 1 / 8), torch.eye(8)[0]
    assert nuclear_norm(uniform).item() == pytest.approx(7 / 8)
    assert nuclear_norm(single) == 0
    assert distance_from_uniform(uniform) == 0
    assert distance_from_uniform(single).item() == pytest.approx(7 / 8)
    rows = torch.randn(100, 8, generator=torch.Generator().manual_seed(0)).softmax(-1)
    assert (nuclear_norm(rows) < 7 / 8).all()


def test_measures_a_model_by_layer_and_head(tmp_path):
    torch.manual_seed(0)
    arch = dict(patch_size=8, embed_dim=24, depth=2, num_heads=3)
    vit = ViTCB(arch, attention='uniform_a', img_size=32, out_indices=(1,), pyramid=False)
    for parameter in vit.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    for i in range(2):
        noise = np.random.default_rng(i).integers(0, 256, (32, 32, 3), dtype=np.uint8)
        cv2.imwrite(str(tmp_path / f'{i}.png'), noise)
    result = softmax_gradient(
        vit, images=tmp_path, names=['tiny'], out=tmp_path / 'out', formats=['png']
    )
    (found,) = result.models
    written = {file.name: file.read_bytes() for file in (tmp_path / 'out').iterdir()}
    assert {file.name: file.read_bytes() for file in result.save(tmp_path / 'copy')} == written
    assert found.norm.shape == found.distance.shape == (2, 3)
    assert found.tokens == 17
    # The last head is uniform, the others are not.
    np.testing.assert_allclose(found.norm[:, -1], 16 / 17, rtol=1e-5)
    np.testing.assert_allclose(found.distance[:, -1], 0, atol=1e-5)
    assert (found.norm[:, :-1] < 16 / 17 - 1e-3).all()
    assert (found.distance[:, :-1] > 1e-3).all()
    (record,) = json.loads((tmp_path / 'out' / 'softmax_gradient.json').read_text())
    assert record['bound'] == pytest.approx(16 / 17)
    assert np.allclose(record['norm'], found.norm)
    assert cv2.imread(str(tmp_path / 'out' / 'softmax_gradient.png')) is not None
    figure = gradient_figure([found])
    assert len(figure.axes) == 3
    assert np.allclose(figure.axes[2].lines[0].get_ydata(), found.norm.mean(1))
    assert list(figure.axes[2].lines[0].get_xdata()) == [0, 1]  # as everywhere: from layer 0
