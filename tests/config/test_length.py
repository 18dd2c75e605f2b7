"""Another length of training, and one number for pixels without a class."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import PARAM_SCHEDULERS
from PIL import Image
from tool import main_of

from cb_mm.config.ignore_index import follow_ignore_index
from cb_mm.config.length import set_length
from cb_mm.config.loading import load_config
from cb_mm.datasets.checks.configured import check_config
from cb_mm.errors import UserError


def test_iterations_scale_everything():
    config = load_config('upernet_vit_s_cb')
    set_length(config, iters=1600)  # a hundredth
    assert (config.train_cfg.max_iters, config.train_cfg.val_interval) == (1600, 160)
    warm_up, decay = config.param_scheduler
    assert (warm_up.begin, warm_up.end, decay.begin, decay.end) == (0, 15, 15, 1600)
    hooks = config.default_hooks
    assert (hooks.checkpoint.interval, hooks.logger.interval) == (160, 1)
    assert (config.schedule, config.scaled_from) == ('1600_iters', '160k')


def test_epochs_scale_everything():
    config = load_config('mask_rcnn_vit_s_cb')
    set_length(config, epochs=36)
    assert (config.train_cfg.max_epochs, config.train_cfg.val_interval) == (36, 3)
    warm_up, steps = config.param_scheduler
    assert (warm_up.end, list(steps.milestones), steps.end) == (1500, [24, 33], 36)
    assert config.default_hooks.checkpoint.interval == 3


@pytest.mark.parametrize('count', [1, 2, 7])
def test_a_very_short_run_has_a_schedule_that_mmengine_takes(count):
    config = load_config('upernet_vit_s_cb')
    set_length(config, iters=count)
    assert all(0 <= step.begin < step.end <= count for step in config.param_scheduler)
    assert config.train_cfg.val_interval == config.default_hooks.checkpoint.interval == 1


@pytest.mark.parametrize('count', [1, 2, 6, 100, 160, 320])
@pytest.mark.parametrize('warm_up', ['LinearLR', 'ConstantLR'])
@pytest.mark.parametrize('name', ['upernet_vit_s_cb', 'demo_upernet_vit_ti_cb'])
def test_a_short_run_reaches_its_learning_rate(name, warm_up, count):
    """A warm-up that is scaled to one step must not leave it at the start factor."""
    config = load_config(name)
    if warm_up == 'ConstantLR':
        config.param_scheduler[0] = dict(type=warm_up, by_epoch=False, begin=0, end=40)
    set_length(config, iters=count)
    rate = config.optim_wrapper.optimizer.lr
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    schedulers = [
        PARAM_SCHEDULERS.build(step, default_args=dict(optimizer=optimizer))
        for step in config.param_scheduler
    ]
    seen = []
    for _ in range(count):
        seen.append(optimizer.param_groups[0]['lr'])
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
    assert max(seen) == pytest.approx(rate, rel=0.05)


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'epochs': 3}, '`epochs`: the config counts iterations. Give `iters` instead'),
        ({'epochs': 3, 'iters': 3}, 'give one of them'),
        ({'iters': 0}, 'at least one'),
    ],
)
def test_a_length_that_does_not_fit(options, message):
    with pytest.raises(UserError, match=message):
        set_length(load_config('upernet_vit_s_cb'), **options)


def test_one_number_reaches_all_places():
    config = load_config('upernet_vit_ti', ['ignore_index=11'])
    model = config.model
    places = [model.decode_head, model.auxiliary_head, config.val_evaluator, config.test_evaluator]
    places += [config[f'{split}_dataloader'].dataset for split in ('train', 'val', 'test')]
    assert [place.ignore_index for place in places] == [11] * 7
    assert model.data_preprocessor.seg_pad_val == 11
    with pytest.raises(UserError, match='but 3 in a head'):
        load_config('upernet_vit_ti', ['ignore_index=11', 'model.decode_head.ignore_index=3'])
    plain = Config(dict(ignore_index=1, model=dict(type='MaskRCNN')))
    follow_ignore_index(plain)
    assert plain.model == dict(type='MaskRCNN')


@pytest.fixture
def masks(tmp_path, monkeypatch):
    """A folder of images and masks, and its config; labels 0 to 2, and 7 for nothing."""
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        mask = np.full((32, 48), number, np.uint8)
        mask[:4] = 7
        for kind, pixels in (('img', np.zeros((32, 48, 3), np.uint8)), ('ann', mask)):
            (tmp_path / kind).mkdir(exist_ok=True)
            Image.fromarray(pixels).save(tmp_path / kind / f'{number}.png')
    (tmp_path / 'own.py').write_text("""
default_scope = 'mmseg'
custom_imports = dict(imports=['cb_mm'])
model = dict(decode_head=dict(num_classes=3))
pipeline = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(9, 9)),
            dict(type='LoadAnnotations')]
train_dataloader = dict(dataset=dict(
    type='RepeatDataset', times=1, dataset=dict(
        type='BaseSegDataset', metainfo=dict(classes=('a', 'b', 'c', 'd')[:3]), img_suffix='.png',
        data_prefix=dict(img_path='img', seg_map_path='ann'), pipeline=pipeline)))
val_dataloader = dict(dataset=train_dataloader['dataset']['dataset'])
""")
    return tmp_path / 'own.py'


def test_a_label_without_a_class_is_proposed(masks, capsys):
    main = main_of('check_data.py')
    assert main([str(masks)]) == 1
    shown = capsys.readouterr().out
    assert 'label 7 in 3 of 3 train files, 12.5 % of the pixels' in shown
    assert 'set ignore_index = 7 in the config' in shown
    masks.write_text(masks.read_text() + '\nignore_index = 7\n')
    assert main([str(masks)]) == 0
    assert 'fine: 0 errors' in capsys.readouterr().out


def test_other_faults_of_a_data_set(masks):
    config = load_config(masks)
    for number in range(3):  # from 1 to 3: 0 is no class of these
        Image.fromarray(np.full((32, 48), number + 1, np.uint8)).save(f'ann/{number}.png')
    report = check_config(config, splits=['train'])
    (problem,) = report.errors
    assert problem.kind == 'label-unknown'
    assert 'reduce_zero_label=True' in problem.message
    absent = [one.message for one in report.problems if one.kind == 'class-absent']
    assert absent == ['train has none of: a']
    Image.fromarray(np.zeros((8, 8), np.uint8)).save('ann/0.png')
    (masks.parent / 'img' / '1.png').write_bytes(b'no image')
    kinds = {one.kind for one in check_config(config, splits=['train']).errors}
    assert {'label-size', 'unreadable'} <= kinds
    config.train_dataloader.dataset.dataset.data_prefix.img_path = 'nowhere'
    with pytest.raises(UserError, match='nowhere'):
        check_config(config)


def test_a_detection_set(scenes):
    config = load_config('demo_mask_rcnn_vit_ti_cb')
    for split, name in (('train', 'train2017'), ('val', 'val2017'), ('test', 'val2017')):
        config[f'{split}_dataloader'].dataset.data_root = f'{scenes.coco}/'
        assert name in config[f'{split}_dataloader'].dataset.ann_file
    report = check_config(config)
    assert report.ok, report.text()
    assert report.counts['train: images'] > 0
    assert report.counts['train: objects'] > report.counts['train: images']
