"""The families of timm that TimmCB takes: each trainable parameter gets a gradient.

DistributedDataParallel stops in its second step otherwise. A probe over all 73 classes of timm 1.0
that TimmCB takes found four that did; here is a small model of every kind, those four first.
"""

from __future__ import annotations

import pytest
import torch

from cb_mm.models import TimmCB

#: model of timm -> arguments that make it small, and the size of its images
HOSTS: dict[str, tuple[dict, int]] = {
    'cait_xxs24_224': (dict(depth=2), 224),
    'volo_d1_224': (dict(img_size=64), 64),
    'xcit_nano_12_p8_224': (dict(depth=2), 64),
    'poolformerv2_s12': ({}, 64),
    'beit_base_patch16_224': (dict(embed_dim=24, depth=2, num_heads=2), 224),
    'davit_tiny': (
        dict(depths=(1, 1, 1, 1), embed_dims=(16, 16, 32, 32), num_heads=(1, 1, 2, 2)), 64,
    ),
    'edgenext_xx_small': ({}, 64),
    'efficientformer_l1': (dict(depths=(1, 1, 1, 1)), 224),
    'efficientvit_b0': ({}, 64),
    'eva02_tiny_patch14_224': (dict(embed_dim=24, depth=2, num_heads=2), 56),
    'fastvit_t8': ({}, 64),
    'hiera_tiny_224': (dict(embed_dim=16, stages=(1, 1, 1, 1)), 224),
    'levit_128s': ({}, 224),
    'mobilevit_xxs': ({}, 64),
    'pvt_v2_b0': ({}, 64),
    'rdnet_tiny': ({}, 64),
    'resnet10t': ({}, 64),
    'test_convnext': ({}, 64),
    'test_efficientnet': ({}, 64),
    'test_vit': ({}, 64),
    'tiny_vit_5m_224': (dict(depths=(1, 1, 1, 1)), 64),
}  # fmt: skip


@pytest.mark.parametrize('name', HOSTS)
def test_every_trainable_parameter_gets_a_gradient_and_no_other_would(name):
    arguments, size = HOSTS[name]
    model = TimmCB(name, model_kwargs=arguments)
    trainable = {key for key, value in model.named_parameters() if value.requires_grad}
    model.requires_grad_(True)
    maps = model(torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0)))
    sum(one.square().mean() for one in maps).backward()
    reached = {key for key, value in model.named_parameters() if value.grad is not None}
    assert trainable == reached


def test_what_is_frozen_keeps_its_keys():
    """A checkpoint from before, or one of timm, loads as it is."""
    model = TimmCB('cait_xxs24_224', model_kwargs=dict(depth=2))
    assert not model.model.cls_token.requires_grad
    assert 'model.cls_token' in model.state_dict()
