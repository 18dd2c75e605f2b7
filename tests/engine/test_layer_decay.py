from __future__ import annotations

import importlib
import logging
from pathlib import Path

import pytest
import timm
import torch
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.optim import AmpOptimWrapper, build_optim_wrapper
from mmengine.registry import MODELS, DefaultScope
from torch import nn

from cb_mm.engine.optim.layer_decay import layer_powers
from cb_mm.errors import UserError
from cb_mm.models import ViTCB

REPO = Path(__file__).resolve().parents[2]
LR, WD, DECAY = 1e-3, 0.05, 0.5


class Model(nn.Module):
    """What mmseg and mmdet have in common: a backbone and something behind it."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.decode_head = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))


def vit(**options) -> ViTCB:
    arch = {'embed_dim': 24, 'depth': 4, 'num_heads': 2, 'img_size': 32, 'reg_tokens': 2,
            'init_values': 0.1}  # fmt: skip
    return ViTCB(
        arch, **{'broadcast': 'cb_s', 'layers': 'upper', 'out_indices': (0, 1, 2, 3), **options}
    )


def build(model: nn.Module, wrapper: str = 'OptimWrapper', optimizer=None, **paramwise):
    cfg = {
        'type': wrapper,
        'optimizer': optimizer or {'type': 'AdamW', 'lr': LR, 'weight_decay': WD},
        'constructor': 'ViTLayerDecayConstructor',
        'paramwise_cfg': {'layer_decay': DECAY, **paramwise},
    }
    return build_optim_wrapper(model, Config({'o': cfg}).o)


def by_name(model: nn.Module, optim_wrapper) -> dict[str, tuple[float, float]]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {
        names[id(parameter)]: (group['lr'], group['weight_decay'])
        for group in optim_wrapper.optimizer.param_groups
        for parameter in group['params']
    }


def test_rate_of_every_layer():
    model = Model(vit())
    rates = {name: lr for name, (lr, _) in by_name(model, build(model)).items()}
    for name, rate in rates.items():
        if name.startswith('backbone.blocks.'):
            expected = LR * DECAY ** (4 - int(name.split('.')[2]))
        elif name.startswith(('backbone.pyramid.', 'decode_head.')):
            expected = LR
        else:
            expected = LR * DECAY**5  # the embeddings
        assert rate == pytest.approx(expected), name
    trainable = {name for name, p in model.named_parameters() if p.requires_grad}
    assert set(rates) == trainable
    assert 'backbone.norm.weight' not in rates  # it does not run


def test_what_has_no_weight_decay():
    model = Model(vit())
    decays = {name: decay for name, (_, decay) in by_name(model, build(model)).items()}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        tokens = ('cls_token', 'reg_token', 'pos_embed')
        exempt = (
            name.endswith(('.bias', '.gamma', 'broadcast.scale', *tokens))
            or 'norm' in name
            or name == 'decode_head.1.weight'
            or name == 'backbone.pyramid.steps.0.1.weight'
        )
        assert decays[name] == (0.0 if exempt else WD), name
    assert sum('broadcast.scale' in name for name in decays) == 2


def test_distillation_token():
    model = Model(ViTCB('deit_tiny_distilled_patch16_224'))
    groups = by_name(model, build(model))
    assert groups['backbone.dist_token'] == (pytest.approx(LR * DECAY**13), 0.0)


@pytest.mark.parametrize(
    ('options', 'block', 'power'),
    [
        ({'out_indices': (0, 1), 'pyramid': False}, 1, 1),  # blocks 2 and 3 never run
        ({'frozen_stages': 2}, 2, 2),
        ({'pyramid': False}, 3, 1),
    ],
)
def test_powers_count_from_the_last_block_that_trains(options, block, power):
    powers = dict(layer_powers(Model(vit(**options))))
    assert powers[f'backbone.blocks.{block}.mlp.fc1.weight'] == power


def test_wrapped_model_and_amp():
    model = Model(vit())
    wrapped = nn.DataParallel(model)  # has `.module`, as every wrapper of mmengine
    assert by_name(model, build(wrapped)) == by_name(model, build(model))
    if torch.cuda.is_available():
        assert isinstance(build(model, 'AmpOptimWrapper'), AmpOptimWrapper)


def test_custom_keys_multiply():
    model = Model(vit())
    keys = {'decode_head': {'lr_mult': 10.0}, 'blocks.3': {'lr_mult': 2.0, 'decay_mult': 0.1}}
    groups = by_name(model, build(model, custom_keys=keys))
    assert groups['decode_head.0.weight'] == (pytest.approx(10 * LR), WD)
    lr, decay = groups['backbone.blocks.3.mlp.fc1.weight']
    assert (lr, decay) == (pytest.approx(LR * DECAY * 2), pytest.approx(WD * 0.1))


@pytest.mark.parametrize('turned', [False, True])
def test_overlapping_custom_keys_are_read_as_mmengine_reads_them(turned):
    """The longest that fits, and of two of the same length the first in the alphabet."""
    keys = {
        'backbone': {'lr_mult': 2.0},
        'blocks.1': {'lr_mult': 3.0, 'decay_mult': 0.5},
        'backbone.blocks.1.mlp': {'decay_mult': 0.1},
        'mlp.fc2': {'lr_mult': 5.0},  # fits what the one before fits
        'fc1.weight': {'lr_mult': 7.0},
        'mlp.fc1.we': {'lr_mult': 11.0},  # as long as the one before
    }
    if turned:
        keys = dict(reversed(keys.items()))
    model = Model(vit())
    ours = by_name(model, build(model, custom_keys=keys, layer_decay=1.0))
    options = {'norm_decay_mult': 0.0, 'bias_decay_mult': 0.0, 'flat_decay_mult': 0.0}
    cfg = {
        'optimizer': {'type': 'AdamW', 'lr': LR, 'weight_decay': WD},
        'paramwise_cfg': {**options, 'custom_keys': keys},
    }
    theirs = by_name(model, build_optim_wrapper(model, Config({'o': cfg}).o))
    weights = [name for name in ours if name.endswith('.weight') and 'mlp' in name]
    assert len(weights) == 8
    for name in weights:
        assert ours[name] == pytest.approx(theirs[name]), name
    first = ours['backbone.blocks.0.mlp.fc1.weight']
    assert first == (pytest.approx(LR * 7), pytest.approx(WD))
    inner = ours['backbone.blocks.1.mlp.fc2.weight']
    assert inner == (pytest.approx(LR), pytest.approx(WD * 0.1))


@pytest.mark.parametrize(
    'name', ['swin_tiny_patch4_window7_224', 'pvt_v2_b0', 'mixer_s16_224', 'deit_tiny_patch16_224']
)
def test_any_timm_model(name):
    model = Model(timm.create_model(name, num_classes=0))
    powers = dict(layer_powers(model))
    groups = by_name(model, build(model))
    assert set(groups) == {key for key, p in model.named_parameters() if p.requires_grad}
    assert max(powers.values()) >= 4
    assert groups['decode_head.0.weight'][0] == LR
    first = min(groups, key=lambda key: groups[key][0])
    assert any(word in first for word in ('stem', 'patch_embed', 'pos_embed', 'cls_token'))


def test_training_step_moves_the_head_most():
    torch.manual_seed(0)
    model = vit(pyramid=False)
    optim_wrapper = build(model, optimizer={'type': 'SGD', 'lr': 1.0, 'weight_decay': 0.0})
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    loss = sum(p.square().sum() for p in model.parameters()) / 2  # gradient = the weight itself
    optim_wrapper.update_params(loss)
    step = {n: ((p - before[n]).norm() / before[n].norm()) for n, p in model.named_parameters()}
    for i in range(4):
        name = f'blocks.{i}.mlp.fc1.weight'
        assert step[name].item() == pytest.approx(DECAY ** (4 - i), rel=1e-4)


def test_few_groups_and_full_rate_first():
    lines: list[str] = []
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: lines.extend(record.getMessage().splitlines())
    logger = MMLogger.get_current_instance()
    logger.addHandler(handler)
    groups = build(Model(vit())).optimizer.param_groups
    logger.removeHandler(handler)
    assert len(groups) == 2 * 6  # embeddings, four blocks, the rest; with and without decay
    assert groups[0]['lr'] == LR
    assert len(lines) == 1 + 6
    assert lines[0] == 'layer-wise lr decay 0.5:'


@pytest.mark.parametrize(
    ('scope', 'config'), [('mmseg', 'upernet_vit_ti_cb_s.py'), ('mmdet', 'mask_rcnn_vit_ti_cb.py')]
)
def test_real_configs_of_both_tasks(scope, config):
    cfg = Config.fromfile(REPO / 'configs' / config)
    models = importlib.import_module(f'{scope}.models')
    assert models
    with DefaultScope.overwrite_default_scope(scope):
        model = MODELS.build(cfg.model)
        cfg.optim_wrapper.update(
            constructor='ViTLayerDecayConstructor', paramwise_cfg={'layer_decay': DECAY}
        )
        groups = by_name(model, build_optim_wrapper(model, cfg.optim_wrapper))
    assert set(groups) == {name for name, p in model.named_parameters() if p.requires_grad}
    rate = cfg.optim_wrapper.optimizer.lr
    heads = {lr for name, (lr, _) in groups.items() if not name.startswith('backbone.')}
    assert heads == {rate}
    assert groups['backbone.pos_embed'] == (pytest.approx(rate * DECAY**13), 0.0)
    assert groups['backbone.blocks.11.attn.qkv.weight'][0] == pytest.approx(rate * DECAY)


@pytest.mark.parametrize(
    ('call', 'message'),
    [
        (lambda: build(Model(vit()), decay_rate=0.9), "has 'decay_rate'"),
        (lambda: build(Model(vit()), norm_decay_mult=0.5), "has 'norm_decay_mult'"),
        (lambda: build(Model(vit()), layer_decay=0.0), 'layer_decay=0.0'),
        (lambda: build(Model(vit()), layer_decay=1.5), 'layer_decay=1.5'),
        (lambda: build(Model(vit()), optimizer={'type': 'AdamW'}), 'needs an lr'),
        (lambda: build(Model(nn.Linear(2, 2))), 'Model has none'),
    ],
)
def test_wrong_options_say_what_is_wrong(call, message):
    with pytest.raises(UserError, match=message):
        call()
