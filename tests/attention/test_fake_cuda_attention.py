"""What looks at attention stays on the model's device: on fake CUDA tensors, no GPU."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
from fake_cuda import CUDA, SECOND_DEVICE, AllSelected, counted, move_to_fake, tensors_in
from mmengine.config import ConfigDict
from mmengine.registry import init_default_scope
from mmseg.registry import MODELS

from cb_mm.attention import relevance
from cb_mm.attention.capture import LayerAttention, capture
from cb_mm.attention.measures import bridged_distance, entropy, keys_for_mass, prefix_mass
from cb_mm.attention.relevance import roll_back, run_segmentor
from cb_mm.attention.sinks import Sinks
from cb_mm.attention.subject import Subject
from cb_mm.models import ViTCB
from cb_mm.models.attention.uniform import UNIFORM_KINDS

ARCH = dict(embed_dim=24, depth=2, num_heads=3)
#: More chunks than one, of this test's layers.
CHUNK = 1000


def measured(layer: LayerAttention) -> list[torch.Tensor]:
    """Everything that the statistics compute of one layer before they leave the device."""
    sinks, found = Sinks(layer), [layer.output(slice(0, 2))]
    for which, rows in layer.chunks(CHUNK):
        sinks.add(rows)
        found += [entropy(rows), prefix_mass(rows, layer.tokens)]
        found += [bridged_distance(rows, which, layer.tokens), keys_for_mass(rows)]
    return [*found, *sinks.measures().values(), sinks.places]


@pytest.mark.parametrize('kind', [None, *UNIFORM_KINDS])
def test_measures_and_rollout(kind):
    model = ViTCB(ARCH, broadcast='cb', attention=kind, out_indices=(0, 1), pyramid=False).eval()
    layers: list[LayerAttention] = []
    found: list[torch.Tensor] = []

    def consume(layer: LayerAttention) -> None:
        layers.append(layer.kept())
        found.extend(measured(layer))

    with counted(), torch.no_grad(), capture(model, consume, verify=False):
        move_to_fake(model, CUDA)
        model(torch.empty(1, 3, 64, 48, device=CUDA))
        row = torch.zeros(layers[-1].tokens.count, device=CUDA)
        found.append(roll_back(layers, row))
    assert len(layers) == 2
    assert {tensor.device for tensor in found} == {torch.device(CUDA)}


def test_relevance_of_a_class(monkeypatch):
    """With its backward pass, on the second fake device."""
    init_default_scope('mmseg')
    config = dict(
        type='EncoderDecoder',
        backbone=dict(type='ViTCB', arch=ARCH, out_indices=(0, 1), pyramid=False),
        decode_head=dict(
            type='FastFCNHead', in_channels=24, in_index=1, channels=8, num_convs=1,
            num_classes=5, norm_cfg=dict(type='BN'), align_corners=False,
        ),
    )  # fmt: skip
    model = MODELS.build(ConfigDict(config)).eval()
    subject = Subject('model', model, (0.0,) * 3, (1.0,) * 3)
    shown: list[torch.Tensor] = []
    monkeypatch.setattr(relevance, '_on_grid', lambda row, tokens: shown.append(row))
    # The second device has no autocast, and fake tensors leave no device.
    monkeypatch.setattr(torch, 'autocast', lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(torch.Tensor, 'cpu', lambda tensor: tensor)
    monkeypatch.setattr(torch.Tensor, 'numpy', lambda tensor: tensor)
    with counted(), AllSelected():
        move_to_fake(model, SECOND_DEVICE)
        run = run_segmentor(subject, model, np.zeros((64, 48, 3), np.uint8))
        result = run.relevance(1)
    assert {one.device for one in tensors_in([*shown, result.region])} == {
        torch.device(SECOND_DEVICE)
    }
