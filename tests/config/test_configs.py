"""Every config: it builds, and it says what the recipe says."""

from __future__ import annotations

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, PARAM_SCHEDULERS, init_default_scope
from tool import CONFIGS, REPO, config_file

from cb_mm.config.loading import apply_schedule, load_config, replace_sync_bn
from cb_mm.datasets import SCENE_CLASSES, SCENE_THING_CLASSES
from cb_mm.errors import UserError
from cb_mm.models import ViTCB

#: Those of classification are in test_pretraining_configs.py: they need mmpretrain.
CLASSIFIERS = [
    file.stem
    for name in ('imagenet', 'cifar10', 'cifar100', 'imagenette', 'distillation', 'hosts')
    for file in (CONFIGS / name).glob('*.py')
]
#: Those of ViLT are in test_vilt_vqa.py: they need transformers.
VQA = sorted(file.stem for file in (CONFIGS / 'vqa').glob('*.py'))
#: Their models are built in test_modern_backbones.py.
MODERN = sorted(file.stem for file in (CONFIGS / 'modern').glob('*.py'))
#: Other data sets than ADE20K; they are read in test_label_pairs.py.
OTHER_DATA = ('cityscapes', 'voc', 'coco_stuff')
#: Two of each: without a broadcast, and with CB.
OTHERS = sorted(file.stem for name in OTHER_DATA for file in (CONFIGS / name).glob('*.py'))
LEAVES = sorted(file.stem for folder in (CONFIGS, CONFIGS / 'demo') for file in folder.glob('*.py'))
UPERNET = [
    f'upernet_vit_{size}{kind}' for size in ('ti', 's', 'b') for kind in ('', '_cb', '_cb_s')
]
MASK_RCNN = [f'mask_rcnn_vit_{size}{kind}' for size in ('ti', 's', 'b') for kind in ('', '_cb')]
#: config -> layers with CB, without those that feed the FPN
TIMM = {
    'upernet_swin_t_cb': (6, 7, 8, 9, 10, 11),
    'upernet_pvtv2_b1_cb': (4, 5, 6, 7),
    'mask_rcnn_swin_t_cb': (6, 7, 8, 10),
}
DEMOS = ['demo_upernet_vit_micro_cb', 'demo_upernet_vit_ti_cb', 'demo_mask_rcnn_vit_ti_cb']


def read(name: str, schedule: str | None = None) -> Config:
    config = load_config(config_file(name))
    apply_schedule(config, schedule)
    return config


def build(config: Config) -> torch.nn.Module:
    replace_sync_bn(config)
    init_default_scope(config.default_scope)
    return MODELS.build(config.model)


def test_the_count():
    """So that a test over all configs cannot pass by finding none."""
    assert set(LEAVES) == {*UPERNET, *MASK_RCNN, *TIMM, *DEMOS}
    assert len(LEAVES) == 9 + 6 + 3 + 3
    assert len(CLASSIFIERS) == 9 + 2 + 2 + 12 + 9 + 12
    assert len(MODERN) == 4 + 5
    assert len(VQA) == 4
    kinds = ('', '_cb')
    assert sorted(f'{d}_upernet_vit_s{kind}' for d in OTHER_DATA for kind in kinds) == OTHERS


@pytest.mark.parametrize('name', [*LEAVES, *OTHERS])
def test_builds_and_says_how_to_run_it(name):
    config = read(name)
    # cuDNN measures its algorithms only where all images have one size.
    assert config.env_cfg.cudnn_benchmark == ('upernet' in name)
    model = build(config)
    backbone = model.backbone
    kind = 'cb_s' if name.endswith('_cb_s') else 'cb' if name.endswith('_cb') else None
    expected = {None: (), 'cb': (6, 7, 8, 9, 10, 11), 'cb_s': tuple(range(12))}[kind]
    if name in TIMM:
        expected = TIMM[name]
    elif 'mask_rcnn' in name:  # not in the blocks that feed the FPN
        expected = tuple(i for i in expected if i not in (3, 5, 7, 11))
    micro = 'vit_micro' in name  # 8 layers, patch 4
    if micro:
        expected = (4, 5, 6, 7)
    assert backbone.broadcast_layers == expected
    outputs = (0, 1, 2, 3) if name in TIMM else (2, 3, 4, 7) if micro else (3, 5, 7, 11)
    assert backbone.out_indices == outputs
    assert backbone.out_strides == ((2, 4, 8, 8) if micro else (4, 8, 16, 32))
    file = config_file(name)
    text = file.read_text()
    assert f'tools/train.py {file.relative_to(REPO)}' in text
    if name not in DEMOS:
        assert 'Measured by us: not yet' in text


@pytest.mark.parametrize(('size', 'millions'), [('ti', 34.06), ('s', 53.55), ('b', 127.02)])
def test_upernet_parameters_are_those_of_table_6(size, millions):
    plain = sum(p.numel() for p in build(read(f'upernet_vit_{size}')).parameters())
    assert plain / 1e6 == pytest.approx(millions, abs=0.005)
    with_cb = sum(p.numel() for p in build(read(f'upernet_vit_{size}_cb')).parameters())
    assert with_cb == plain


def learning_rates(config: Config, iterations: list[int]) -> dict[int, float]:
    """The rate at these iterations, from mmengine's own optimizer and schedulers."""
    model = torch.nn.Linear(1, 1)
    init_default_scope(config.default_scope)
    optim_wrapper = build_optim_wrapper(
        model, dict(type='OptimWrapper', optimizer=config.optim_wrapper.optimizer)
    )
    schedulers = [
        PARAM_SCHEDULERS.build(item, default_args=dict(optimizer=optim_wrapper))
        for item in config.param_scheduler
    ]
    rates = {}
    for i in range(max(iterations) + 1):
        if i in iterations:
            rates[i] = optim_wrapper.param_groups[0]['lr']
        for scheduler in schedulers:
            scheduler.step()
    return rates


def test_options_win_over_a_schedule():
    """What a user sets by name is what runs; a schedule itself is chosen, not rewritten."""
    options = ['train_cfg.max_iters=7', 'default_hooks.checkpoint.interval=5']
    config = load_config(config_file('upernet_vit_s_cb'), options, schedule='40k')
    assert (config.schedule, config.train_cfg.max_iters) == ('40k', 7)
    assert (config.train_cfg.val_interval, config.param_scheduler[1].end) == (4_000, 40_000)
    assert config.default_hooks.checkpoint.interval == 5
    for option in ('schedules.40k.train_cfg.max_iters=7', 'schedule=40k', 'test_set=x'):
        with pytest.raises(UserError, match=f'`cfg_options` {option.split("=")[0]}: '):
            load_config(config_file('upernet_vit_s_cb'), [option])


@pytest.mark.parametrize('schedule', ['40k', '160k'])
def test_upernet_schedule(schedule):
    total = {'40k': 40_000, '160k': 160_000}[schedule]
    config = read('upernet_vit_s_cb', schedule)
    assert config.schedule == schedule
    assert config.train_cfg.max_iters == total
    assert config.train_cfg.val_interval == config.default_hooks.checkpoint.interval == total // 10
    rates = learning_rates(config, [0, 1, 750, 1500, 20_000, total])
    assert rates[0] == pytest.approx(6e-5 * 1e-6, rel=1e-3)
    assert rates[750] == pytest.approx(3e-5, rel=2e-3)
    assert rates[1500] == pytest.approx(6e-5, rel=1e-3)
    assert rates[20_000] == pytest.approx(6e-5 * (total - 20_000) / (total - 1500), rel=1e-3)
    assert rates[total] == pytest.approx(0.0, abs=1e-9)


def test_default_schedule_is_160k():
    assert read('upernet_vit_s').train_cfg == read('upernet_vit_s', '160k').train_cfg
    assert read('upernet_vit_s').param_scheduler == read('upernet_vit_s', '160k').param_scheduler


def test_upernet_recipe_as_data():
    config = read('upernet_vit_s_cb')
    optimizer = config.optim_wrapper.optimizer
    assert (optimizer.type, optimizer.lr, optimizer.weight_decay) == ('AdamW', 6e-5, 0.01)
    assert tuple(optimizer.betas) == (0.9, 0.999)
    assert config.auto_scale_lr.base_batch_size == config.train_dataloader.batch_size * 8 == 16
    head, auxiliary = config.model.decode_head, config.model.auxiliary_head
    assert (head.channels, tuple(head.pool_scales), head.dropout_ratio) == (512, (1, 2, 3, 6), 0.1)
    assert head.loss_decode.loss_weight == 1.0
    assert (auxiliary.in_index, auxiliary.channels) == (2, 256)
    assert auxiliary.loss_decode.loss_weight == 0.4
    assert head.norm_cfg.type == auxiliary.norm_cfg.type == 'SyncBN'
    assert config.model.backbone.pyramid_norm_cfg.type == 'SyncBN'
    steps = {step.type: step for step in config.train_dataloader.dataset.pipeline}
    assert list(steps) == [
        'LoadImageFromFile', 'LoadAnnotations', 'RandomResize', 'RandomCrop', 'RandomFlip',
        'PhotoMetricDistortion', 'PackSegInputs',
    ]  # fmt: skip
    assert steps['LoadAnnotations'].reduce_zero_label
    assert tuple(steps['RandomResize'].scale) == (2048, 512)
    assert tuple(steps['RandomResize'].ratio_range) == (0.5, 2.0)
    assert tuple(steps['RandomCrop'].crop_size) == (512, 512)
    assert steps['RandomCrop'].cat_max_ratio == 0.75
    assert config.model.test_cfg.mode == 'whole'
    test_resize = config.test_dataloader.dataset.pipeline[1]
    assert (test_resize.type, tuple(test_resize.scale)) == ('Resize', (2048, 512))


@pytest.mark.parametrize(
    'name', ['upernet_vit_ti_cb_s', 'mask_rcnn_vit_ti_cb', 'upernet_swin_t_cb']
)
def test_what_is_not_decayed(name):
    """As in XCiT: "norm" in the name, and the position embedding; for us CB_S's scales too.

    So the batch norms of heads and pyramid decay, and so does the class token.
    """
    config = read(name)
    model = build(config)
    wrapper = build_optim_wrapper(model, config.optim_wrapper)
    names = {id(p): n for n, p in model.named_parameters()}
    free, decayed = set(), set()
    for group in wrapper.param_groups:
        for parameter in group['params']:
            if id(parameter) in names:  # mmengine adds a placeholder that carries the base lr
                (free if group['weight_decay'] == 0 else decayed).add(names[id(parameter)])
    norms = {
        f'{module_name}.{n}'
        for module_name, module in model.named_modules()
        if isinstance(module, torch.nn.LayerNorm)
        for n, p in module.named_parameters()
        if p.requires_grad
    }
    tables = ('pos_embed', 'broadcast.scale', 'relative_position_bias_table')
    special = {n for n in names.values() if n.endswith(tables)}
    assert free == norms | special
    assert {n for n in decayed if n.endswith('attn.qkv.weight')}
    if 'vit' in name:
        assert 'backbone.cls_token' in decayed
        assert 'backbone.pyramid.steps.0.1.weight' in decayed
    if 'upernet' in name:
        assert 'decode_head.fpn_bottleneck.bn.weight' in decayed


@pytest.mark.parametrize(
    ('name', 'rates'),
    [
        *((f'{kind}_vit_ti_cb', [0.0] * 12) for kind in ('upernet', 'mask_rcnn')),
        *((f'{kind}_vit_s_cb', [0.05] * 12) for kind in ('upernet', 'mask_rcnn')),
        *((f'{kind}_vit_b', [0.15] * 12) for kind in ('upernet', 'mask_rcnn')),
    ],
)
def test_drop_path_is_that_of_xcit(name, rates):
    """XCiT's T12, S12 and M24: the same rate in every block."""
    settings = {key: value for key, value in read(name).model.backbone.items() if key != 'type'}
    blocks = ViTCB(**{**settings, 'pyramid': False}).blocks
    for part in ('drop_path1', 'drop_path2'):
        assert [getattr(getattr(b, part), 'drop_prob', 0.0) for b in blocks] == rates


def test_mask_rcnn_schedule():
    """Warm-up by the iteration, then a tenth of the rate at each of two epochs."""
    config = read('mask_rcnn_vit_ti_cb')
    warm_up, steps = config.param_scheduler
    assert (warm_up.by_epoch, steps.by_epoch) == (False, True)
    config.param_scheduler = [warm_up]
    rates = learning_rates(config, [0, 250, 499, 500, 5000])
    expected = {0: 1e-7, 250: (0.001 + 0.999 * 250 / 499) * 1e-4, 499: 1e-4, 500: 1e-4, 5000: 1e-4}
    assert rates == pytest.approx(expected, rel=1e-9)
    config.param_scheduler = [steps]
    rates = learning_rates(config, [*range(12)])
    assert rates == pytest.approx({e: 1e-4 * 0.1 ** ((e >= 8) + (e >= 11)) for e in range(12)})


def test_mask_rcnn_recipe_as_data():
    config = read('mask_rcnn_vit_ti_cb')
    optimizer = config.optim_wrapper.optimizer
    assert (optimizer.type, optimizer.lr, optimizer.weight_decay) == ('AdamW', 1e-4, 0.05)
    assert config.auto_scale_lr.base_batch_size == 16
    assert config.train_cfg.max_epochs == 12
    assert list(config.param_scheduler[1].milestones) == [8, 11]
    assert (config.model.neck.out_channels, config.model.neck.num_outs) == (256, 5)
    assert config.model.backbone.skip_out_layers
    for part in ('bbox_roi_extractor', 'mask_roi_extractor'):
        assert list(config.model.roi_head[part].featmap_strides) == [4, 8, 16, 32]
    choice = next(s for s in config.train_dataloader.dataset.pipeline if s.type == 'RandomChoice')
    plain, cropped = choice.transforms
    sides = [min(scale) for scale in plain[0].scales]
    assert (min(sides), max(sides)) == (480, 800)
    assert [min(scale) for scale in cropped[0].scales] == [400, 500, 600]
    assert (cropped[1].type, tuple(cropped[1].crop_size)) == ('RandomCrop', (384, 600))
    assert cropped[2].scales == plain[0].scales


def test_swin_has_the_drop_path_of_its_authors():
    assert read('mask_rcnn_swin_t_cb').model.backbone.drop_path_rate == 0.1
    assert read('upernet_swin_t_cb').model.backbone.drop_path_rate == 0.3


def test_windows_can_be_asked_for():
    """Keys that no class of the config names, and that mmseg reads."""
    words = ('mode=slide', 'crop_size=(512,512)', 'stride=(341,341)')
    options = [f'model.test_cfg.{word}' for word in words]
    config = load_config(CONFIGS / 'upernet_vit_ti_cb.py', options)
    assert config.model.test_cfg == dict(mode='slide', crop_size=(512, 512), stride=(341, 341))


def test_demo_classes_are_those_of_the_scenes():
    for name in ('demo_upernet_vit_micro_cb', 'demo_upernet_vit_ti_cb'):
        config = read(name)
        assert tuple(config.train_dataloader.dataset.metainfo.classes) == SCENE_CLASSES
        assert config.model.decode_head.num_classes == len(SCENE_CLASSES)
    config = read('demo_mask_rcnn_vit_ti_cb')
    assert tuple(config.train_dataloader.dataset.metainfo.classes) == SCENE_THING_CLASSES


def test_every_family_has_a_readme_and_a_metafile():
    families = [
        folder for folder in CONFIGS.iterdir() if folder.is_dir() and folder.name != '_base_'
    ]
    assert {folder.name for folder in families} >= {'imagenet', 'cifar100', 'demo'}
    for folder in families:
        assert (folder / 'README.md').is_file()
        assert (folder / 'metafile.yml').is_file()


def test_a_config_that_moved_into_a_family_is_named(tmp_path):
    with pytest.raises(UserError, match=r'It is now .*configs/imagenet/imagenet_vit_s_cb\.py\.'):
        load_config(CONFIGS / 'imagenet_vit_s_cb.py')
    own = tmp_path / 'own.py'
    own.write_text(f"_base_ = ['{CONFIGS}/demo_upernet_vit_ti_cb.py']\n")
    with pytest.raises(UserError, match=r'It is now .*configs/demo/demo_upernet_vit_ti_cb\.py\.'):
        load_config(own)
