"""DeiT's hard distillation: the loss, the frozen teacher, and what a checkpoint keeps."""

from __future__ import annotations

import copy

import pytest
import timm
import torch
import torch.nn.functional as F
from mmengine.registry import MODELS, init_default_scope
from tiny_imagenet import small_steps, write_imagenet
from tool import REPO, config_file

pytest.importorskip('mmpretrain', reason='classification needs mmpretrain')

from mmpretrain.structures import DataSample

import cb_mm.evaluation.classification  # noqa: F401  (importing registers)
from cb_mm.checkpoints.read import read_checkpoint
from cb_mm.config.loading import load_config
from cb_mm.engine.training import TrainOptions, train
from cb_mm.errors import UserError
from cb_mm.models import ViTCB

NAMES = [
    f'distilled_vit_{size}{kind}' for size in ('ti', 's', 'b') for kind in ('', '_cb', '_cb_s')
]
CLASSES = 5


@pytest.fixture
def weights(tmp_path):
    """A teacher with batch norms, in a file."""
    torch.manual_seed(1)
    file = tmp_path / 'teacher.pth'
    torch.save(timm.create_model('test_resnet', num_classes=CLASSES).state_dict(), file)
    return file


def student(weights, **changes):
    init_default_scope('mmpretrain')
    config = load_config(config_file('distilled_vit_ti_cb'))
    settings = config.model.to_dict()
    settings['backbone'] |= {'img_size': 32, 'drop_path_rate': 0.0}
    settings['head']['num_classes'] = settings['data_preprocessor']['num_classes'] = CLASSES
    settings |= {'teacher': 'test_resnet', 'teacher_weights': str(weights), **changes}
    torch.manual_seed(0)
    return MODELS.build(settings)


def batch(size: int = 3):
    torch.manual_seed(2)
    images = torch.randn(size, 3, 32, 32)
    shares = torch.rand(size, CLASSES).softmax(dim=1)  # as after Mixup
    return images, [DataSample().set_gt_score(one) for one in shares], shares


def test_the_loss_is_half_and_half(weights):
    model = student(weights)
    model.init_weights()
    model.train()
    images, samples, shares = batch()
    losses = model(images, samples, mode='loss')
    teacher = timm.create_model('test_resnet', num_classes=CLASSES).eval()
    teacher.load_state_dict(torch.load(weights))
    class_token, dist_token = model.backbone(images)[0]
    own, other = model.head.layers.head(class_token), model.head.layers.head_dist(dist_token)
    smooth = 0.9 * shares + 0.1 / CLASSES
    expected = -(smooth * own.log_softmax(dim=1)).sum(dim=1).mean() / 2
    torch.testing.assert_close(losses['loss_cls'], expected)
    expected = F.cross_entropy(other, teacher(images).argmax(dim=1)) / 2
    torch.testing.assert_close(losses['loss_dist'], expected)
    total, _ = model.parse_losses(losses)
    torch.testing.assert_close(total, losses['loss_cls'] + losses['loss_dist'])
    model.eval()
    torch.testing.assert_close(model(images, mode='tensor'), (own + other) / 2)


def test_the_teacher_is_frozen_and_not_saved(weights):
    model = student(weights)
    model.init_weights()
    teacher = model._teacher.model
    before = copy.deepcopy(teacher.state_dict())
    model.train()
    images, samples, _ = batch()
    model.parse_losses(model(images, samples, mode='loss'))[0].backward()
    assert not any(part.training for part in teacher.modules())
    assert all(p.grad is None and not p.requires_grad for p in teacher.parameters())
    assert any('running_mean' in key for key in before)
    assert all(torch.equal(before[key], value) for key, value in teacher.state_dict().items())
    assert model.backbone.dist_token.grad.abs().sum() > 0
    assert model.head.layers.head_dist.weight.grad.abs().sum() > 0
    assert not any('teacher' in key for key in model.state_dict())
    ours = {id(p) for p in model.parameters()}
    assert not any(id(p) in ours for p in teacher.parameters())
    assert copy.deepcopy(model)._teacher.model is teacher


def test_a_teacher_of_mmpretrain(tmp_path, weights):
    settings = dict(
        type='ImageClassifier',
        backbone=dict(type='ResNet', depth=18),
        neck=dict(type='GlobalAveragePooling'),
        head=dict(type='LinearClsHead', num_classes=CLASSES, in_channels=512),
    )
    model = student(weights, teacher=settings, teacher_weights=None)
    with pytest.raises(UserError, match='needs teacher_weights'):
        model.init_weights()
    init_default_scope('mmpretrain')
    torch.save({'state_dict': MODELS.build(settings).state_dict()}, tmp_path / 'other.pth')
    model = student(weights, teacher=settings, teacher_weights=str(tmp_path / 'other.pth'))
    model.init_weights()
    # By its name, as on the command line.
    named = dict(model_name='resnet18_8xb32_in1k', head=dict(num_classes=CLASSES))
    other = student(weights, teacher=named, teacher_weights=str(tmp_path / 'other.pth'))
    other.init_weights()
    torch.manual_seed(3)
    images = torch.randn(2, 3, 32, 32)
    labels = model._teacher.labels(images)
    assert labels.shape == (2,)
    assert torch.equal(other._teacher.labels(images), labels)


def test_messages(tmp_path, weights, monkeypatch):
    monkeypatch.setenv('HF_HUB_OFFLINE', '1')
    with pytest.raises(UserError, match=r'needs the weights of its teacher: .*absent\.pth'):
        student(tmp_path / 'absent.pth').init_weights()
    with pytest.raises(UserError, match=r'do not fit the teacher: .* classifier of 5 classes'):
        student(weights, teacher='test_vit').init_weights()
    with pytest.raises(UserError, match=r"'regnet_160' is not a model of timm or mm.*regnet"):
        student(weights, teacher='regnet_160').init_weights()
    with pytest.raises(UserError, match='needs head=dict'):
        student(weights, head=dict(type='DeiTClsHead', num_classes=5, in_channels=192))
    # Testing needs no teacher.
    model = student(tmp_path / 'absent.pth').eval()
    images, samples, _ = batch()
    assert len(model(images, samples, mode='predict')) == 3
    assert 'loss' in model(images, samples, mode='loss')


def test_both_prefix_tokens_take_part_in_the_mean():
    arch = 'deit_tiny_distilled_patch16_224'
    model = ViTCB(arch, broadcast='cb', layers=[11], out_type='cls', img_size=32).eval()
    mlp, seen = model.blocks[11].mlp, []
    mlp.fc2.register_forward_hook(lambda module, args, output: seen.append(output))
    mlp.register_forward_hook(lambda module, args, output: seen.append(output))
    with torch.no_grad():
        model(torch.randn(2, 3, 32, 32))
    before, after = seen
    assert before.shape[1] == 2 + 4
    torch.testing.assert_close(after, (before + before.mean(dim=1, keepdim=True)) / 2)


@pytest.mark.parametrize('name', NAMES)
def test_configs(name):
    config, text = load_config(config_file(name)), config_file(name).read_text()
    assert f'tools/train.py configs/distillation/{name}.py' in text
    base, kind = '_vit_b' in name, name.partition('_cb')[1:]
    assert config.model.teacher == 'regnety_160.deit_in1k'
    assert config.model.backbone.drop_path_rate == (0.2 if base and any(kind) else 0.1)
    init_default_scope('mmpretrain')
    with torch.device('meta'):
        model = MODELS.build(config.model)
    millions = {'ti': 5.9, 's': 22.4, 'b': 87.3}[name.split('_')[2]]
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 1) == millions


def test_resumed_equals_undisturbed(tmp_path, weights):
    data = write_imagenet(tmp_path / 'imagenet')
    teacher = timm.create_model('test_resnet', num_classes=1000)
    torch.save(teacher.state_dict(), weights)
    options = [
        *small_steps(), 'train_cfg.max_epochs=2', 'train_cfg.val_interval=9',
        'default_hooks.checkpoint.save_best=None', 'model.teacher=test_resnet',
        f'model.teacher_weights={weights}',
    ]  # fmt: skip
    config = str(REPO / 'configs/distillation/distilled_vit_ti_cb.py')
    common = dict(data_root=str(data), cfg_options=options)
    train(TrainOptions(config, work_dir=str(tmp_path / 'a'), **common))
    first = str(tmp_path / 'a' / 'epoch_1.pth')
    train(TrainOptions(config, work_dir=str(tmp_path / 'b'), resume=first, **common))
    one, other = (read_checkpoint(tmp_path / run / 'epoch_2.pth') for run in 'ab')
    assert one['state_dict'].keys() == other['state_dict'].keys()
    for key, value in one['state_dict'].items():
        assert torch.equal(value, other['state_dict'][key]), key
