"""SlidingEncoderDecoder gives what mmseg's EncoderDecoder gives, to the bit."""

from __future__ import annotations

import pytest
import torch
from mmengine.registry import init_default_scope
from mmseg.registry import MODELS

from cb_mm.config.loading import load_config


def build(kind: str, window: tuple[int, int], stride: tuple[int, int]):
    init_default_scope('mmseg')
    torch.manual_seed(0)
    config = load_config('configs/cityscapes/cityscapes_upernet_vit_s.py').model
    assert config.type == 'SlidingEncoderDecoder'
    config.type = kind
    config.backbone.update(arch='tiny', arch_changes=dict(depth=2), out_indices=(0, 1))
    config.backbone.update(pyramid=[1, 0.5], pyramid_norm_cfg=dict(type='BN'))
    head = dict(in_channels=[192, 192], in_index=[0, 1], channels=16, norm_cfg=dict(type='BN'))
    config.decode_head.update(head)
    config.auxiliary_head = None
    config.test_cfg.update(crop_size=window, stride=stride)
    return MODELS.build(config).eval()


@pytest.mark.parametrize(
    ('size', 'window', 'stride'),
    [
        ((96, 128), (64, 64), (32, 32)),
        ((100, 70), (64, 48), (43, 31)),  # windows that end with the image overlap more
        ((64, 64), (64, 64), (43, 43)),  # one window
        ((48, 200), (64, 64), (43, 43)),  # lower than a window
    ],
)
def test_logits_are_mmsegs(size, window, stride):
    ours, theirs = (build(k, window, stride) for k in ('SlidingEncoderDecoder', 'EncoderDecoder'))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    images = torch.randn(2, 3, *size)
    found = []
    for model in (ours, theirs):
        facts = [dict(img_shape=size, ori_shape=size, pad_shape=size) for _ in images]
        with torch.no_grad():
            found.append(model.inference(images, facts))
    assert found[0].shape == (2, 19, *size)
    assert torch.equal(*found)


def test_gradients_reach_the_image_through_every_window():
    model = build('SlidingEncoderDecoder', (64, 64), (43, 43))
    images = torch.randn(1, 3, 96, 128, requires_grad=True)
    size = tuple(images.shape[2:])
    facts = [dict(img_shape=size, ori_shape=size, pad_shape=size)]
    model.inference(images, facts).square().sum().backward()
    assert (images.grad.abs().amax(1) > 0).float().mean() > 0.99
