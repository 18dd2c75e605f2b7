"""The classification configs: what the paper's recipe says, as data, and a step of each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import torch
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, PARAM_SCHEDULERS, init_default_scope
from tiny_imagenet import SMALL_STEP, small_steps, write_imagenet, write_pictures
from tool import REPO, config_file

pytest.importorskip('mmpretrain', reason='classification needs mmpretrain')

from cb_mm.config.loading import load_config
from cb_mm.engine.training import TrainOptions, prepare_config, train

IMAGENET = [
    f'imagenet_vit_{size}{kind}' for size in ('ti', 's', 'b') for kind in ('', '_cb', '_cb_s')
]
CIFAR = ['cifar100_vit_s', 'cifar100_vit_s_cb']
MICRO = ['cifar10_vit_micro', 'cifar10_vit_micro_cb']


def read(name: str):
    return load_config(config_file(name))


def kind_of(name: str) -> str | None:
    return 'cb_s' if name.endswith('_cb_s') else 'cb' if name.endswith('_cb') else None


@pytest.mark.parametrize('name', [*IMAGENET, *CIFAR, *MICRO])
def test_says_how_to_run_it_and_whose_score_it_has(name):
    file = config_file(name)
    text = file.read_text()
    assert f'tools/train.py {file.relative_to(REPO)}' in text
    assert "the paper's" in text.lower()
    measured = {'cifar10_vit_micro': '63.66', 'cifar10_vit_micro_cb': '63.44'}
    assert f'Measured by us: {measured.get(name, "not yet")}' in text


@pytest.mark.parametrize('name', IMAGENET)
def test_recipe(name):
    config, kind, base = read(name), kind_of(name), '_vit_b' in name
    optimizer = config.optim_wrapper.optimizer
    assert (optimizer.type, optimizer.lr, optimizer.weight_decay) == ('AdamW', 1e-3, 0.05)
    assert tuple(optimizer.betas) == (0.9, 0.999)
    assert config.auto_scale_lr.base_batch_size == config.train_dataloader.batch_size * 8 == 1024
    assert config.train_cfg.max_epochs == 300
    backbone = config.model.backbone
    assert backbone.drop_path_rate == (0.2 if base and kind else 0.1)
    assert backbone.get('broadcast') == kind
    # Repeated augmentation: for all but ViT-Ti and ViT-S with CB.
    sampler = config.train_dataloader.sampler
    if kind and not base:
        assert sampler.type == 'ReplaySampler'
    else:
        assert (sampler.type, sampler.num_repeats) == ('ReplayRepeatSampler', 3)
    assert config.model.head.loss == dict(
        type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'
    )
    mixes = {mix.type: mix.alpha for mix in config.model.train_cfg.augments}
    assert mixes == {'Mixup': 0.8, 'CutMix': 1.0}


@pytest.mark.parametrize('name', IMAGENET)
def test_learning_rate(name):
    """From mmengine's own schedulers, at 10 iterations an epoch."""
    config = read(name)
    init_default_scope('mmpretrain')
    wrapper = build_optim_wrapper(
        torch.nn.Linear(1, 1), dict(type='OptimWrapper', optimizer=config.optim_wrapper.optimizer)
    )
    schedulers = []
    for item in config.param_scheduler:
        item = dict(item)
        assert item.pop('convert_to_iter_based')
        item['optimizer'] = wrapper
        kind = PARAM_SCHEDULERS.get(item.pop('type'))
        schedulers.append(kind.build_iter_from_epoch(epoch_length=10, **item))
    rates = []
    for _ in range(3001):
        rates.append(wrapper.param_groups[0]['lr'])
        for scheduler in schedulers:
            scheduler.step()
    warmup = 100 if '_vit_b_cb' in name else 50
    assert rates[0] == pytest.approx(1e-6)
    assert rates[warmup // 2] == pytest.approx(5e-4, rel=0.03)
    assert rates[warmup] == pytest.approx(1e-3, rel=1e-3)
    middle = (warmup + 3000) // 2
    assert rates[middle] == pytest.approx((1e-3 + 1e-5) / 2, rel=1e-3)
    assert rates[2999] == pytest.approx(1e-5, rel=1e-2)
    assert max(rates) == pytest.approx(1e-3, rel=1e-3)


def test_augmentation():
    config = read('imagenet_vit_s_cb')
    steps = {step.type: step for step in config.train_dataloader.dataset.pipeline}
    assert list(steps) == [
        'LoadImageFromFile', 'RandomResizedCrop', 'RandomFlip', 'RandAugment', 'RandomErasing',
        'PackInputs',
    ]  # fmt: skip
    assert (steps['RandomResizedCrop'].scale, steps['RandomResizedCrop'].interpolation) == (
        224,
        'bicubic',
    )
    augment = steps['RandAugment']
    assert (augment.policies, augment.num_policies) == ('timm_increasing', 2)
    assert (augment.magnitude_level, augment.total_level, augment.magnitude_std) == (9, 10, 0.5)
    erasing = steps['RandomErasing']
    assert (erasing.erase_prob, erasing.mode) == (0.25, 'rand')
    tests = [step.type for step in config.test_dataloader.dataset.pipeline]
    assert tests == [
        'LoadImageFromFile', 'ResizeEdge', 'CenterCrop', 'CorruptionPoint', 'PackInputs',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ('name', 'millions'),
    [('imagenet_vit_ti_cb', 5.717), ('imagenet_vit_s', 22.051), ('imagenet_vit_b', 86.568)],
)
def test_parameters_are_those_of_table_5(name, millions):
    init_default_scope('mmpretrain')
    with torch.device('meta'):
        model = MODELS.build(read(name).model)
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, abs=5e-4)


def test_what_is_not_decayed():
    """Norms, biases, tokens, the position embedding and CB_S's scales."""
    config = read('imagenet_vit_ti_cb_s')
    init_default_scope('mmpretrain')
    model = MODELS.build(config.model)
    wrapper = build_optim_wrapper(model, config.optim_wrapper)
    names = {id(p): n for n, p in model.named_parameters()}
    free = {
        names[id(p)]
        for group in wrapper.param_groups
        if group['weight_decay'] == 0
        for p in group['params']
        if id(p) in names
    }
    expected = {
        name
        for name, p in model.named_parameters()
        if p.ndim == 1 or name in ('backbone.cls_token', 'backbone.pos_embed')
    }
    assert free == expected
    assert 'backbone.blocks.0.mlp.broadcast.scale' in free


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp('data')
    cifar = root / 'cifar'
    for part, each in (('train', 4), ('test', 2)):
        write_pictures(cifar / part, ('apple', 'bear', 'bee'), each, size=(32, 32))
    return {'imagenet': write_imagenet(root / 'imagenet'), 'cifar100': cifar, 'cifar10': cifar}


@pytest.mark.parametrize('name', MICRO)
def test_the_models_of_cifar10_train_a_step(name, folders, tmp_path, monkeypatch):
    """On images as they are: neither Mixup nor CutMix."""
    monkeypatch.setattr('logging.raiseExceptions', False)
    options = TrainOptions(
        config=str(config_file(name)), data_root=str(folders['cifar10']),
        work_dir=str(tmp_path / 'work'),
        cfg_options=[*SMALL_STEP, 'train_dataloader.batch_size=12', 'train_cfg.val_interval=1'],
    )  # fmt: skip
    with losses_computed() as computed:
        runner = train(options)
    assert runner.iter == 1
    ((logits, target),) = computed
    assert logits.shape == (12, 10)
    assert sorted(target.tolist() if target.ndim == 1 else target.argmax(1).tolist()) == sorted(
        4 * [0, 1, 2]
    )


@pytest.mark.parametrize('name', [*IMAGENET, *CIFAR])
def test_every_config_trains_a_step(name, folders, tmp_path, monkeypatch):
    # mmengine's loggers keep the streams of earlier tests, which are closed by now.
    monkeypatch.setattr('logging.raiseExceptions', False)
    options = TrainOptions(
        config=str(config_file(name)),
        data_root=str(folders[name.split('_')[0]]),
        work_dir=str(tmp_path / 'work'),
        cfg_options=[
            *small_steps(name in CIFAR),
            'train_dataloader.batch_size=12',  # one step
            'default_hooks.checkpoint.interval=2',  # none: ViT-B's is a gigabyte
            'default_hooks.checkpoint.save_last=False',
            'default_hooks.checkpoint.save_best=None',
        ],
    )
    with losses_computed() as computed:
        runner = train(options)
    assert runner.iter == 1
    scalars = runner.message_hub.log_scalars
    ((logits, target),) = computed
    assert logits.shape == target.shape == (12, 100 if name in CIFAR else 1000)
    # Pictures and labels are mixed; each row of labels stays a distribution.
    assert torch.allclose(target.sum(1), target.new_ones(12))
    assert not torch.isin(target, target.new_tensor([0, 1])).all()
    smooth = 0.9 * target + 0.1 / target.shape[1]  # smoothing of 0.1, from its definition
    expected = -(smooth * logits.log_softmax(1)).sum(1).mean().item()
    assert scalars['train/loss'].current() == pytest.approx(expected, rel=1e-5)
    # Logits of fresh heads: their variance is at most 1/3, so that no class is preferred by much.
    assert logits.var(1).max() < 0.5
    assert 'val/accuracy/top5' in scalars
    assert scalars['val/validation/cross_entropy'].current() > 0


@contextlib.contextmanager
def losses_computed() -> Iterator[list[tuple[torch.Tensor, torch.Tensor]]]:
    """Collect the logits and the labels that every loss module is given."""
    found = []

    def note(module: torch.nn.Module, args: tuple) -> None:
        if type(module).__name__ == 'LabelSmoothLoss':
            found.append(tuple(arg.detach().double() for arg in args[:2]))

    handle = torch.nn.modules.module.register_module_forward_pre_hook(note)
    try:
        yield found
    finally:
        handle.remove()


def test_one_option_changes_the_number_of_classes():
    config = prepare_config(
        TrainOptions(
            config=str(config_file('imagenet_vit_ti')), cfg_options=['model.head.num_classes=3']
        )
    )
    assert config.model.data_preprocessor.num_classes == 3
    assert tuple(config.val_evaluator[0].topk) == tuple(config.test_evaluator.topk) == (1,)
