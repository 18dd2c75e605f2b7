"""Every class of timm that TimmCB takes: each trainable parameter gets a gradient.

DistributedDataParallel stops in its second step otherwise; XCiT, CaiT, VOLO and PoolFormer did. One
model per class, on tensors without memory, so that all of them take less than a minute. The two
classes of Gemma 4 read a number of a tensor, which such tensors do not have, and are left out.
"""

from __future__ import annotations

import pytest
import timm
import torch

from cb_mm.models import TimmCB

HOSTS = [
    'test_vit',
    'test_byobnet',
    'beit_base_patch16_224',
    'poolformer_s12',
    'cait_xxs24_224',
    'coatnet_pico_rw_224',
    'test_convnext',
    'cpubone_t0',
    'csatv2',
    'davit_tiny',
    'deepseek_vit_412m',
    'deepseek_vit_412m_enc',
    'vovnet39a',
    'test_resnet',
    'edgenext_small',
    'efficientformer_l1',
    'efficientformerv2_s0',
    'test_efficientnet',
    'efficientvim_m1',
    'efficientvit_b0',
    'efficientvit_m0',
    'eva02_tiny_patch14_224',
    'fasternet_t0',
    'fastvit_t8',
    'mobilenetv3_small_050',
    'focalnet_tiny_lrf',
    'gcvit_tiny',
    'ghostnet_050',
    'gmlp_ti16_224',
    'hgnet_tiny',
    'hiera_tiny_224',
    'hieradet_small',
    'iformer_t',
    'inception_next_atto',
    'inception_v4',
    'lcnetv2_small',
    'levit_128',
    'localvit_tiny_patch16_224',
    'lowformer_b0',
    'test_mambaout',
    'mobilenetv5_300m',
    'mobilenetv5_300m_enc',
    'mvitv2_tiny',
    'naflexvit_base_patch16_gap',
    'nest_tiny',
    'nextvit_small',
    'pit_ti_224',
    'pvt_v2_b0',
    'qwen3_vit_88m',
    'rdnet_tiny',
    'regnetx_004_tv',
    'repghostnet_050',
    'repvit_m1',
    'resnetv2_18',
    'rexnet_100',
    'samvit_base_patch16',
    'shvit_s1',
    'starnet_s1',
    'swiftformer_s',
    'swin_s3_tiny_224',
    'swinv2_tiny_window8_256',
    'swinv2_cr_tiny_224',
    'tiny_vit_5m_224',
    'tnt_b_patch16_224',
    'tresnet_l',
    'twins_svt_small',
    'vit_relpos_small_patch16_224',
    'volo_d1_224',
    'xcit_nano_12_p8_224',
]


def without_and_with_gradient(model: TimmCB, images: torch.Tensor) -> tuple[set[str], set[str]]:
    """Return the names of what is trainable, and of what the maps need when all is."""
    trainable = {key for key, value in model.named_parameters() if value.requires_grad}
    model.requires_grad_(True)
    sum(one.square().mean() for one in model(images)).backward()
    return trainable, {key for key, value in model.named_parameters() if value.grad is not None}


@pytest.mark.parametrize('name', HOSTS)
def test_every_trainable_parameter_gets_a_gradient_and_no_other_would(name):
    if name not in timm.list_models(name):
        pytest.skip(f'timm {timm.__version__} has no {name}')
    with torch.device('meta'):
        model = TimmCB(name)
    size = timm.get_pretrained_cfg(name).input_size[-1]
    trainable, reached = without_and_with_gradient(
        model, torch.empty(2, 3, size, size, device='meta')
    )
    assert trainable == reached


def test_the_count():
    assert len(set(HOSTS)) == len(HOSTS) == 69


@pytest.mark.parametrize(
    ('name', 'arguments', 'size'),
    [
        ('xcit_nano_12_p8_224', dict(depth=2), 64),
        ('poolformerv2_s12', {}, 64),
        ('volo_d1_224', dict(img_size=64), 64),
    ],
)
def test_the_same_with_numbers(name, arguments, size):
    model = TimmCB(name, model_kwargs=arguments)
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    trainable, reached = without_and_with_gradient(model, images)
    assert trainable == reached


def test_what_is_frozen_keeps_its_keys():
    """A checkpoint from before, or one of timm, loads as it is."""
    model = TimmCB('cait_xxs24_224', model_kwargs=dict(depth=2))
    assert not model.model.cls_token.requires_grad
    assert 'model.cls_token' in model.state_dict()
