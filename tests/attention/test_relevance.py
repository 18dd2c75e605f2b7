"""Rollout and the relevance of classes, against whole maps, autograd's own gradients and numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope
from torch import nn

from cb_mm.attention import capture
from cb_mm.attention.capture import LayerAttention
from cb_mm.attention.maps import parse_query
from cb_mm.attention.overlay import Look
from cb_mm.attention.relevance import class_number, rollout, run_segmentor
from cb_mm.attention.relevance_figures import draw_classes
from cb_mm.attention.subject import Subject, load_subject
from cb_mm.errors import UserError

IMAGE = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)


def segmentor(**backbone) -> nn.Module:
    arch = dict(embed_dim=24, depth=4, num_heads=2, patch_size=8, img_size=32, reg_tokens=1)
    head = dict(
        type='FastUPerHead', in_channels=[24] * 4, in_index=[0, 1, 2, 3], channels=8, num_classes=4,
        norm_cfg=dict(type='BN'), align_corners=False, pool_scales=(1, 2),
        loss_decode=dict(type='CrossEntropyLoss'),
    )  # fmt: skip
    body = dict(type='ViTCB', arch=arch, out_indices=(0, 1, 2, 3), **backbone)
    torch.manual_seed(0)
    config = dict(type='EncoderDecoder', backbone=body, decode_head=head)
    with DefaultScope.overwrite_default_scope('mmseg'):
        model = MODELS.build(Config({**config, 'test_cfg': dict(mode='whole')}))
    for parameter in model.backbone.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


@pytest.fixture(scope='module', params=['plain', 'with CB after the attention', 'frozen'])
def subject(request) -> Subject:
    options = {
        'plain': {},
        'with CB after the attention': dict(broadcast='cb', position='mlp+attn'),
        'frozen': dict(frozen_stages=4),
    }[request.param]
    return load_subject(segmentor(**options))


@pytest.mark.parametrize('query', ['cls', 'mean', '33,20'])
def test_rollout_is_the_product_of_all_layers(subject, query):
    inputs = []
    subject.model.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    found, tokens = rollout(subject, IMAGE, parse_query(query), (40, 60))
    with torch.no_grad(), capture(subject.model, keep=True) as maps:
        subject.model(inputs[0])
    whole = np.eye(tokens.count)
    for index in range(4):
        mean = maps[index][0].double().mean(0).numpy()
        whole = (np.eye(tokens.count) + mean) / 2 @ whole
    rows = {'cls': whole[0], 'mean': whole[2:].mean(0), '33,20': whole[2 + 2 * 8 + 4]}
    np.testing.assert_allclose(found, rows[query][2:].reshape(5, 8), rtol=1e-4, atol=1e-7)


def by_hand(model: nn.Module, inputs: torch.Tensor, number: int) -> np.ndarray:
    """Chefer's rule with the maps that timm forms without fused kernels, and autograd on them."""
    maps, handles = [], []
    for block in model.backbone.blocks:
        block.attn.fused_attn = False
        handles.append(
            block.attn.attn_drop.register_forward_hook(lambda m, a, out: maps.append(out))
        )
    logits = model(inputs.detach().requires_grad_(), mode='tensor')[0]
    for block, handle in zip(model.backbone.blocks, handles, strict=True):
        block.attn.fused_attn = True
        handle.remove()
    region = logits.argmax(0) == number
    gradients = torch.autograd.grad(logits[number][region].sum(), maps)
    share = region.float().reshape(5, 4, 8, 4).mean((1, 3)).flatten().numpy()  # stride 8 / 4
    start = np.concatenate([[0, 0], share / share.sum()]).astype(np.float64)
    row, begun = np.zeros_like(start), np.zeros_like(start)
    for attention, gradient in zip(reversed(maps), reversed(gradients), strict=True):
        row, begun = row + start, begun + start
        weighted = (attention * gradient).clamp(min=0)[0].double().mean(0).detach().numpy()
        row = row + row @ weighted
    return (row - begun)[2:].reshape(5, 8)


def test_relevance_is_gradient_times_attention_through_all_layers(subject, monkeypatch):
    seen = []
    handle = subject.model.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    run = run_segmentor(subject, subject.segmentor, IMAGE)
    handle.remove()
    assert run.logits.shape == (4, 20, 32)
    assert run.outputs == (0, 1, 2, 3)
    numbers = run.prediction.unique().tolist()
    assert len(numbers) > 1
    for number in numbers:
        found = run.relevance(number)
        expected = by_hand(subject.segmentor, seen[0], number)
        scale = expected.max()
        assert scale > 0
        np.testing.assert_allclose(found.values / scale, expected / scale, atol=2e-4)
        np.testing.assert_array_equal(found.region, (run.prediction == number).numpy())
    # In chunks of one row: the same.
    chunks = LayerAttention.chunks
    monkeypatch.setattr(LayerAttention, 'chunks', lambda layer, *_: chunks(layer, 1))
    again = run.relevance(numbers[0]).values
    np.testing.assert_allclose(again, run.relevance(numbers[0]).values, rtol=1e-5)


def test_a_class_that_is_not_predicted_has_no_relevance(subject):
    run = run_segmentor(subject, subject.segmentor, IMAGE)
    absent = set(range(4)) - set(run.prediction.unique().tolist())
    run.logits.data[3] = -1e9
    assert run.relevance(3) is None
    assert 3 not in run.prediction.unique()
    assert all(run.relevance(number) is None for number in absent)


def test_what_is_predicted_is_drawn_and_what_is_not_is_told(tmp_path):
    model = segmentor()
    model.dataset_meta = {'classes': ('road', 'sky', 'tree', 'car')}
    nn.init.constant_(model.decode_head.conv_seg.bias, -1e9)
    nn.init.constant_(model.decode_head.conv_seg.bias[:2], 0)
    subject = load_subject(model)
    seen = run_segmentor(subject, model, IMAGE).prediction.unique().tolist()
    name = model.dataset_meta['classes'][seen[0]]

    def draw(*classes: str):
        return draw_classes(
            tmp_path, 'a', IMAGE, [(subject, IMAGE)], classes, Look(), ['png', 'svg']
        )

    files, notes = draw(name, 'tree')
    assert [file.name for file in files] == ['a_classes.png', 'a_classes.svg']
    text = files[1].read_text()
    assert name in text
    assert 'tree' not in text
    there = ', '.join(model.dataset_meta['classes'][number] for number in seen)
    (note,) = notes
    assert note.endswith(f'predicts no pixel as tree, so it has no relevance there. It predicts '
                         f'{there}.')  # fmt: skip
    files, notes = draw('car')
    assert (files, len(notes)) == ([], 1)


def test_classes_by_name_and_number():
    names = ('road', 'sky')
    assert [class_number(name, names, 2) for name in ('sky', 0, '1')] == [1, 0, 1]
    with pytest.raises(
        UserError, match=r'no such class\. Its classes are road, sky; numbers go from 0'
    ):
        class_number('car', names, 2)
    with pytest.raises(UserError, match='have no names here'):
        class_number(2, (), 2)
