"""--skip-broken and --skip-nan: a run goes on without what is broken, and says so."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil

import cv2
import fault_cases
import forked
import numpy as np
import pytest
import torch
from fault_cases import ADE, ALONE, COCO, IMAGE, LABEL
from mmdet.datasets import CocoDataset
from mmengine.dataset import BaseDataset
from mmengine.registry import DefaultScope
from mmseg.datasets import ADE20KDataset
from PIL import Image
from tool import SMALL_UPERNET, main_of, write_config
from torch.utils.data import DataLoader

from cb_mm.checkpoints.read import read_checkpoint
from cb_mm.datasets.checks import samples as sample_checks
from cb_mm.engine.hooks import sample_guard
from cb_mm.errors import UserError


@pytest.fixture
def folder(scenes, tmp_path):
    return fault_cases.prepare(tmp_path / 'run', scenes.ade20k.parent)


def weights(folder, work='work', name='iter_6.pth'):
    return read_checkpoint(folder / work / name)['state_dict']


def equal(a, b) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def spoil(folder) -> None:
    """Four faults of four kinds, none of them where the quick check before training looks."""
    images, labels = folder / IMAGE, folder / LABEL
    images.write_text('<html>')
    (images.parent / 'ADE_train_00000002.jpg').write_bytes(images.read_bytes()[:3])
    cv2.imwrite(str(labels.parent / 'ADE_train_00000004.png'), np.ones((96, 64), np.uint8))
    cv2.imwrite(str(labels.parent / 'ADE_train_00000006.png'), np.full((64, 96), 200, np.uint8))


@pytest.mark.slow
def test_broken_files_are_skipped_listed_and_replayed(folder):
    """With workers and without, and resumed in the middle: the same weights."""
    spoil(folder)
    whole = forked.run('train.py', *ADE, '--skip-broken', '--cfg-options', *ALONE, cwd=folder)
    assert whole.code == 0, whole.err
    assert '4 broken samples were skipped' in whole.out
    listed = (folder / 'work' / sample_guard.SKIPPED_FILE).read_text()
    for number, reason in ((2, 'OpenCV'), (3, 'OpenCV'), (4, '64 x 96'), (6, 'no class')):
        line = next(x for x in listed.splitlines() if f'_0000000{number}' in x)
        assert reason in line
    words = (*ADE[:-1], 'again', '--skip-broken', '--resume', 'work/iter_2.pth')
    again = forked.run('train.py', *words, '--cfg-options', 'train_dataloader.num_workers=2',
                       cwd=folder)  # fmt: skip
    assert again.code == 0, again.err
    assert equal(weights(folder), weights(folder, 'again'))


def test_a_validation_is_not_shortened(folder):
    (folder / 'data/ade20k/images/validation/ADE_val_00000002.jpg').write_text('')
    done = forked.run('train.py', *ADE, '--skip-broken', '--cfg-options', *ALONE, cwd=folder)
    assert done.code == 2
    assert 'ADE_val_00000002.jpg: the file is empty' in done.err
    assert (folder / 'work' / 'iter_6.pth').exists()


class Numbers(BaseDataset):
    """A data set whose broken samples are known."""

    def __init__(self, broken=()):
        self.broken = set(broken)
        super().__init__(lazy_init=True)
        self._fully_initialized = True

    def __len__(self):
        return 200

    def __getitem__(self, index):
        if index in self.broken:
            raise ValueError('no')
        return int(index)

    def get_data_info(self, index):
        return {'img_path': f'{index}.jpg'}


def test_any_data_set_and_sampler(tmp_path):
    """Also those of other people, without our samplers."""
    loader = DataLoader(Numbers({3, 4}), batch_size=5, collate_fn=list)
    sample_guard.guard(loader, skip=True, folder=tmp_path)
    assert next(iter(loader)) == [0, 1, 2, 5, 5]
    assert (tmp_path / sample_guard.SKIPPED_FILE).read_text().startswith('image 3.jpg: ValueError')
    loader = sample_guard.guard(DataLoader(Numbers({3}), batch_size=5, collate_fn=list))
    assert '3.jpg' in next(iter(loader)).message


def test_a_sampler_of_pairs(tmp_path):
    """Its samples have no neighbours to take: a broken one ends the run."""

    class Pairs(Numbers):
        def __getitem__(self, pair):
            return super().__getitem__(pair[0])

    loader = DataLoader(Pairs({1}), batch_sampler=[[(0, 'a')], [(1, 'b')]], collate_fn=list)
    batches = list(sample_guard.guard(loader, skip=True, folder=tmp_path))
    assert batches[0] == [0]
    assert 'ValueError: no' in batches[1].message


def test_all_broken_ends(tmp_path):
    loader = DataLoader(Numbers(range(200)), batch_size=2, collate_fn=list)
    batch = next(iter(sample_guard.guard(loader, skip=True, folder=tmp_path)))
    assert '100 samples in a row' in batch.message


@pytest.mark.slow
@pytest.mark.parametrize(('words', 'last'), [(ADE, 'iter_6.pth'), (COCO, 'epoch_2.pth')])
def test_a_step_is_skipped_as_if_it_had_not_been(words, last, folder):
    """Both tasks; and the norms' running means do not learn from it either."""
    nan = functools.partial(fault_cases.nan_at, 2)
    done = forked.run('train.py', *words, '--skip-nan', '--cfg-options', *ALONE, cwd=folder,
                      before=nan)  # fmt: skip
    assert done.code == 0, done.err
    assert '1 step skipped, at iteration 2: the loss was not finite.' in done.out
    state = weights(folder, name=last)
    assert all(torch.isfinite(value).all() for value in state.values())
    counts = [int(v) for key, v in state.items() if key.endswith('num_batches_tracked')]
    steps = {'iter_6.pth': 6, 'epoch_2.pth': 4}[last]
    assert all(count == steps - 1 for count in counts)


@pytest.mark.slow
def test_two_processes_decide_together(scenes, tmp_path):
    """The loss of one is NaN: both skip, both go on, and the lock is the first one's alone."""
    config = write_config(tmp_path, SMALL_UPERNET)
    first, second = forked.run_ranks(
        'train.py', config, '--data-root', scenes.ade20k, '--work-dir', tmp_path / 'work',
        '--skip-nan', '--cfg-options', *ALONE, 'train_cfg.max_iters=4', 'train_cfg.val_interval=9',
        cwd=tmp_path, before=functools.partial(fault_cases.nan_at, 3, rank=1),
    )  # fmt: skip
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert '1 step skipped, at iteration 3: the loss was not finite.' in first.out
    state = weights(tmp_path, name='iter_4.pth')
    assert all(torch.isfinite(value).all() for value in state.values())
    assert not (tmp_path / 'work' / '.lock').exists()


def test_every_ignore_index_of_a_config_may_occur():
    """CamVid's label 11: ignored by loss and metric, while the data set keeps its 255."""
    config = dict(
        model=dict(decode_head=dict(ignore_index=11), auxiliary_head=[dict(ignore_index=12)]),
        test_evaluator=dict(ignore_index=11),
    )
    ignored = sample_checks.ignored_labels(config)
    assert ignored == {11, 12}
    dataset = Numbers()
    dataset._metainfo = dict(classes=tuple('abcdefghijk'))
    rules = sample_checks.SampleRules.of(dataset, ignored)
    assert (rules.classes, rules.ignored) == (11, (11, 12, 255))
    labels = np.array([[0, 10, 11, 12, 255]] * 2)
    results = dict(gt_seg_map=labels, ori_shape=(2, 5), img_path='x')
    rules.check(results, {'gt_seg_map'})
    results['gt_seg_map'][0, 0] = 13
    with pytest.raises(UserError, match='up to 13, and there are 11 classes') as caught:
        rules.check(results, {'gt_seg_map'})
    # One label too many is most often "not labelled": what to set is said, and where.
    for place in ('decode_head', 'auxiliary_head'):
        assert f'model.{place}.ignore_index=13' in str(caught.value)
    assert 'test_evaluator.ignore_index=13' in str(caught.value)
    results['gt_seg_map'][0, 1] = 14
    with pytest.raises(UserError, match='up to 14') as caught:
        rules.check(results, {'gt_seg_map'})
    assert 'ignore_index' not in str(caught.value)


@pytest.mark.parametrize(
    ('key', 'value', 'label'),
    [
        ('gt_label', 5, 5),
        ('gt_label', -1, -1),
        ('gt_bboxes_labels', np.array([0, 7]), 7),
        ('gt_seg_map', np.array([[0, 9]] * 2), 9),
        ('gt_seg_map', np.array([[0, -3]] * 2), -3),
    ],
)
def test_a_label_that_the_model_does_not_predict_is_named(key, value, label):
    """On a GPU the loss would end the process with "device-side assert triggered"."""
    rules = sample_checks.SampleRules(classes=11, predicted=5)
    results = dict(img_path='x.jpg', seg_map_path='y.png', img=np.zeros((2, 2, 3)))
    with pytest.raises(UserError, match=rf'label {label}\b.* model predicts 5') as caught:
        rules.check({**results, key: value}, {key})
    assert 'num_classes' in str(caught.value)
    assert ('y.png' if key == 'gt_seg_map' else 'x.jpg') in str(caught.value)
    allowed = 4 if key == 'gt_label' else np.clip(value, 0, 4)
    rules.check({**results, key: allowed}, {key})


def test_a_broken_image_costs_no_finished_iteration(scenes, tmp_path):
    """What was trained before it is saved, and resumed when the file is whole again."""
    data = tmp_path / 'data'
    shutil.copytree(scenes.ade20k, data)
    write_config(tmp_path, SMALL_UPERNET, 'base.py')
    more = 'train_dataloader = dict(num_workers=0, persistent_workers=False, batch_size=2)'
    config = write_config(tmp_path, f"_base_ = ['base.py']\n{more}\ntrain_cfg = dict(max_iters=9)")
    whole = {image: image.read_bytes() for image in (data / 'images' / 'training').iterdir()}
    words = (config, '--data-root', data, '--work-dir', tmp_path / 'w', '--cfg-options',
             'default_hooks.checkpoint.interval=100')  # fmt: skip
    sorted(whole)[3].write_bytes(whole[sorted(whole)[3]][:-400])
    broken = forked.run('train.py', *words, cwd=tmp_path)
    assert broken.code == 2
    done = int(re.search(r'The (\d) finished iterations are saved as .*stopped.pth', broken.out)[1])
    assert read_checkpoint(tmp_path / 'w' / 'stopped.pth')['meta']['iter'] == done
    sorted(whole)[3].write_bytes(whole[sorted(whole)[3]])
    again = forked.run('train.py', *words[:5], '--resume', *words[5:], cwd=tmp_path)
    assert again.code == 0, again.err
    assert f'stopped.pth at iteration {done}' in again.out


def test_a_head_with_fewer_classes_than_the_data(scenes, tmp_path, capsys):
    config = write_config(tmp_path, SMALL_UPERNET)
    words = [config, '--data-root', scenes.ade20k, '--work-dir', tmp_path / 'w', '--cfg-options',
             'model.decode_head.num_classes=2', 'model.auxiliary_head.num_classes=2']  # fmt: skip
    assert main_of('train.py')([str(word) for word in words]) == 2
    assert 'but the model predicts 2. Set num_classes of every head.' in capsys.readouterr().err


def test_a_detector_with_fewer_classes_than_the_data(folder):
    """The labels of boxes: its head has them in one more module than a segmentor's."""
    options = [f'model.roi_head.{head}.num_classes=1' for head in ('bbox_head', 'mask_head')]
    done = forked.run('train.py', *COCO, '--cfg-options', *options, *ALONE, cwd=folder)
    assert done.code == 2
    assert 'and the model predicts 1 classes, from 0. Set num_classes of its head' in done.err


def loaded(dataset):
    """The first batch of a guarded loader: a sample, or the failure."""
    batch = next(iter(sample_guard.guard(DataLoader(dataset, batch_size=1, collate_fn=list))))
    return batch if isinstance(batch, sample_guard.LoadFailure) else batch[0]


def give_orientation(path, value) -> None:
    """Write the EXIF tag of a camera that was held otherwise; the pixels stay as they are."""
    tags = Image.Exif()
    tags[0x0112] = value
    with Image.open(path) as picture:
        picture.load()
    picture.save(path, exif=tags, quality=95)


@pytest.mark.parametrize('value', range(1, 9))
@pytest.mark.parametrize('task', ['segmentation', 'detection'])
def test_an_image_that_is_turned_without_its_annotation_is_refused(folder, task, value):
    """mmcv turns images as their EXIF tag says; nothing turns label maps, boxes and outlines."""
    if task == 'segmentation':
        first = folder / 'data/ade20k/images/training/ADE_train_00000001.jpg'
        kind, load = ADE20KDataset, dict(type='mmseg.LoadAnnotations', reduce_zero_label=True)
        where = dict(data_root=str(folder / 'data/ade20k'), data_prefix=dict(
            img_path='images/training', seg_map_path='annotations/training'))  # fmt: skip
    else:
        kind, load = CocoDataset, dict(type='mmdet.LoadAnnotations', with_bbox=True)
        where = dict(data_root=str(folder / 'data/coco'), data_prefix=dict(img='train2017/'),
                     ann_file='annotations/instances_train2017.json')  # fmt: skip
        records = json.loads((folder / 'data/coco' / where['ann_file']).read_text())
        first = folder / 'data/coco/train2017' / records['images'][0]['file_name']
    give_orientation(first, value)
    scope = 'mmseg' if task == 'segmentation' else 'mmdet'
    with DefaultScope.overwrite_default_scope(scope):
        sample = loaded(kind(**where, pipeline=[dict(type='LoadImageFromFile'), load]))
        as_stored = dict(type='LoadImageFromFile', color_type='color_ignore_orientation')
        same = loaded(kind(**where, pipeline=[as_stored, load]))
    assert same['img'].shape == (64, 96, 3)  # the way out that the message names
    if value == 1:
        np.testing.assert_array_equal(sample['img'], same['img'])
    else:
        assert f'{first.name} has the EXIF orientation {value}' in sample.message
        assert 'exiftool' in sample.message
        assert sample.advised


def test_a_label_map_of_the_turned_image_is_fine(folder):
    """Where the sides are swapped, the sizes show that it fits what a viewer shows."""
    root = folder / 'data/ade20k'
    give_orientation(root / 'images/training/ADE_train_00000001.jpg', 6)
    file = root / 'annotations/training/ADE_train_00000001.png'
    cv2.imwrite(str(file), np.ones((96, 64), np.uint8))
    with DefaultScope.overwrite_default_scope('mmseg'):
        sample = loaded(ADE20KDataset(
            data_root=str(root),
            data_prefix=dict(img_path='images/training', seg_map_path='annotations/training'),
            pipeline=[dict(type='LoadImageFromFile'),
                      dict(type='LoadAnnotations', reduce_zero_label=True)],
        ))  # fmt: skip
    assert sample['img'].shape[:2] == sample['gt_seg_map'].shape == (96, 64)


def test_a_step_that_fails_is_named_with_its_values(folder, tmp_path):
    """And names that are not UTF-8 are written to the list of skipped files."""
    root = folder / 'data/ade20k'
    (root / 'images/training/ADE_train_00000001.jpg').rename(
        root / 'images/training' / os.fsdecode(b'AA\xe9.jpg')
    )
    with DefaultScope.overwrite_default_scope('mmseg'):
        dataset = ADE20KDataset(
            data_root=str(root),
            data_prefix=dict(img_path='images/training', seg_map_path='annotations/training'),
            pipeline=[dict(type='LoadImageFromFile'), dict(type='Resize', scale=(0, 0))],
        )
    loader = DataLoader(dataset, batch_size=1, collate_fn=list)
    failure = next(iter(sample_guard.guard(loader, skip=True, folder=tmp_path)))
    assert '(96 x 64): the step Resize(scale=(0, 0)' in failure.message
    assert failure.advised
    listed = (tmp_path / sample_guard.SKIPPED_FILE).read_text('utf-8')
    assert 'AA\\udce9.jpg' in listed


def test_samples_that_make_no_batch_are_a_message():
    loader = DataLoader(Numbers(), batch_size=2, collate_fn=lambda _: torch.stack([1]))
    failure = next(iter(sample_guard.guard(loader)))
    assert 'collated' in failure.message
