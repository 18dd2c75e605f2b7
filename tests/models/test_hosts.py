"""Other hosts of CB as classifiers: what they classify from, their sizes, a step of training."""

from __future__ import annotations

import pytest
import timm
import torch
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from tiny_imagenet import small_steps, write_imagenet
from tool import config_file

pytest.importorskip('mmpretrain', reason='classification needs mmpretrain')

from mmpretrain.structures import DataSample

import cb_mm.evaluation.classification  # noqa: F401  (importing registers)
from cb_mm.checkpoints.read import read_checkpoint
from cb_mm.config.loading import load_config
from cb_mm.engine.training import TrainOptions, train
from cb_mm.models import TimmCB
from cb_mm.models.backbones.with_cb import with_broadcast

#: config -> epochs, millions of parameters (the paper's Table 11, or our count), blocks with CB
HOSTS = {
    'pit_b': (300, 73.8, 6),
    'mixer_s16': (300, 18.5, 4),
    'pvt_s': (120, 24.5, 8),
    'pvtv2_b1': (120, 14.0, 4),
    'localvit_ti': (150, 5.9, 6),
    'swin_t': (120, 28.3, 6),
}


@pytest.mark.parametrize('name', HOSTS)
def test_configs(name):
    epochs, millions, blocks = HOSTS[name]
    init_default_scope('mmpretrain')
    counts = []
    for kind in ('', '_cb'):
        config = load_config(config_file(f'imagenet_{name}{kind}'))
        assert config.train_cfg.max_epochs == epochs == config.param_scheduler[1].end
        assert config.param_scheduler[1].begin == config.param_scheduler[0].end
        with torch.device('cpu' if name == 'pvt_s' else 'meta'):  # mmdet's PVT looks at numbers
            model = MODELS.build(config.model)
        counts.append(sum(p.numel() for p in model.parameters()))
        assert decayed(model, config) == decayed_by_deit(model)
        assert len(getattr(model.backbone, 'broadcast_layers', ())) == (blocks if kind else 0)
    assert counts[0] == counts[1]
    assert round(counts[0] / 1e6, 1) == millions


def decayed(model, config) -> set[str]:
    wrapper = build_optim_wrapper(model, config.optim_wrapper)
    groups = [group for group in wrapper.optimizer.param_groups if group['weight_decay']]
    assert {group['weight_decay'] for group in groups} == {0.05}
    chosen = {id(parameter) for group in groups for parameter in group['params']}
    return {name for name, parameter in model.named_parameters() if id(parameter) in chosen}


def decayed_by_deit(model) -> set[str]:
    """All but vectors, biases and what timm's own model exempts; mmdet's PVT names none."""
    host = getattr(model.backbone, 'model', None)
    exempt = set(host.no_weight_decay()) if hasattr(host, 'no_weight_decay') else {'pos_embed'}
    return {
        name
        for name, parameter in model.named_parameters()
        if parameter.ndim > 1 and not any(name.endswith(f'.{one}') for one in exempt)
    }


@pytest.mark.parametrize(
    ('name', 'options'),
    [
        ('pit_ti_224', {}),
        ('mixer_s32_224', {}),
        ('pvt_v2_b0', {}),
        ('localvit_tiny_patch16_224', {'depth': 2}),
        ('swin_tiny_patch4_window7_224', {'depths': (1, 1, 1, 1)}),
    ],
)
def test_the_features_are_those_that_timm_classifies(name, options):
    torch.manual_seed(0)
    host = TimmCB(name, out_type='cls', model_kwargs=options).eval()
    images = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        (features,) = host(images)
        whole = timm.create_model(name, num_classes=0, **options).eval()
        whole.load_state_dict(host.model.state_dict())
        torch.testing.assert_close(features, whole(images))
    assert features.shape == (1, host.model.num_features)


def test_pvt_of_mmdet_is_a_classifier():
    init_default_scope('mmpretrain')
    settings = load_config(config_file('imagenet_pvt_s_cb')).model.to_dict()
    settings['backbone']['backbone'] |= {'num_layers': [1, 1, 1, 1], 'embed_dims': 8}
    settings['head'] |= {'in_channels': 64, 'num_classes': 5}
    settings['data_preprocessor']['num_classes'] = 5
    model = MODELS.build(settings).train()
    assert model.backbone.broadcast_layers == (2, 3)
    samples = [DataSample().set_gt_label(one) for one in (1, 4)]
    loss = model(torch.randn(2, 3, 64, 64), samples, mode='loss')['loss']
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())
    plain = dict(type='mmdet.PyramidVisionTransformer', num_layers=[1] * 4, embed_dims=8)
    assert type(with_broadcast(plain, None)(torch.randn(1, 3, 64, 64))) is tuple


@pytest.mark.parametrize('name', ['pit_ti_224', 'pvt_v2_b0', 'mixer_s32_224'])
def test_every_parameter_that_trains_gets_a_gradient(name):
    """Else DistributedDataParallel would stop."""
    host = TimmCB(name, broadcast='cb_s', out_type='cls').train()
    host(torch.randn(2, 3, 224, 224))[0].square().sum().backward()
    assert all(p.grad is not None for p in host.parameters() if p.requires_grad)
    assert all(p.requires_grad for p in host.parameters())


@pytest.mark.slow
def test_a_host_trains_with_our_tools(tmp_path):
    data = write_imagenet(tmp_path / 'imagenet')
    options = [one for one in small_steps() if 'img_size' not in one]
    config = str(config_file('imagenet_pvtv2_b1_cb'))
    train(
        TrainOptions(
            config, data_root=str(data), work_dir=str(tmp_path / 'work'), cfg_options=options
        )
    )
    record = read_checkpoint(tmp_path / 'work' / 'epoch_1.pth')['meta']['cb_mm']
    assert (record['broadcast'], record['layers']) == ('cb', [4, 5, 6, 7])
