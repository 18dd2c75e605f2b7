from __future__ import annotations

import hashlib
import json
import signal
from pathlib import Path

import cv2
import forked
import numpy as np
import pytest
from pycocotools import mask as coco_mask
from scipy.ndimage import binary_fill_holes
from tool import main_of

from cb_mm.datasets import (
    SCENE_CLASSES,
    SCENE_LABELS,
    SCENE_PALETTE,
    SCENE_THING_CLASSES,
    SCENE_THINGS,
    check_ade20k,
    check_coco,
    write_scenes,
)
from cb_mm.datasets.scenes.classes import COCO_CATEGORIES
from cb_mm.datasets.scenes.files import coco_annotations, polygons, rle
from cb_mm.datasets.scenes.painter import paint_scene
from cb_mm.errors import UserError

REPO = Path(__file__).resolve().parents[2]

#: The package without its registrations: a process that starts at once.
SMALL = {'train': 5, 'val': 3, 'size': (96, 128)}


@pytest.fixture(scope='session')
def scenes(tmp_path_factory):
    return write_scenes(tmp_path_factory.mktemp('data') / 'scenes', **SMALL)


@pytest.fixture(scope='session')
def many():
    return [paint_scene('train', i, (96, 128)) for i in range(80)]


def fingerprint(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob('*'))
        if path.is_file()
    }


def test_same_seed_same_bytes_and_other_seed_other_bytes(scenes, tmp_path):
    again = write_scenes(tmp_path / 'again', **SMALL)
    assert fingerprint(again.root) == fingerprint(scenes.root)
    other = write_scenes(tmp_path / 'other', **SMALL, seed=1)
    mine, theirs = fingerprint(scenes.ade20k), fingerprint(other.ade20k)
    assert mine.keys() == theirs.keys()
    assert all(mine[name] != theirs[name] for name in mine)


def test_a_picture_does_not_depend_on_how_many_are_made(scenes, tmp_path):
    fewer = write_scenes(tmp_path / 'fewer', train=2, val=1, size=SMALL['size'])
    whole = fingerprint(scenes.ade20k)
    assert fingerprint(fewer.ade20k).items() <= whole.items()
    few = json.loads((fewer.coco / 'annotations/instances_train2017.json').read_text())
    all_ = json.loads((scenes.coco / 'annotations/instances_train2017.json').read_text())
    assert few['images'] == all_['images'][:2]
    assert few['annotations'] == all_['annotations'][: len(few['annotations'])]


def test_layouts_are_those_of_ade20k_and_coco(scenes):
    names = set(fingerprint(scenes.root))
    for i in range(1, 6):
        assert f'ade20k/images/training/ADE_train_{i:08d}.jpg' in names
        assert f'ade20k/annotations/training/ADE_train_{i:08d}.png' in names
    assert 'ade20k/annotations/validation/ADE_val_00000003.png' in names
    assert {
        'coco/annotations/instances_train2017.json',
        'coco/annotations/instances_val2017.json',
    } < (names)
    assert sum(name.startswith('coco/train2017/0000') for name in names) == 5
    assert sum(name.startswith('coco/val2017/0000') for name in names) == 3
    assert len(names) == 2 * (5 + 3) + (5 + 3) + 2 + 1


def test_the_checks_find_nothing_wrong_with_them(scenes):
    for report in (check_ade20k(scenes.ade20k), check_coco(scenes.coco, classes=SCENE_THINGS)):
        assert report.ok, report.text()
        assert not report.warnings, report.text()


def test_classes_are_many_uneven_and_all_there(many):
    pixels = np.zeros(256, np.int64)
    for scene in many:
        pixels += np.bincount(scene.labels.ravel(), minlength=256)
    assert set(np.flatnonzero(pixels)) == {0, *SCENE_LABELS.values()}
    shares = sorted(pixels[list(SCENE_LABELS.values())] / pixels.sum())
    assert len(shares) >= 10
    assert 0.15 < shares[-1] < 0.4, 'the most frequent class'
    assert shares[0] < 0.01, 'the rarest class'
    assert {thing.category for scene in many for thing in scene.things} == set(
        SCENE_THINGS.values()
    )
    assert any(thing.crowd for scene in many for thing in scene.things)
    assert {scene.kind for scene in many} == {'street', 'crossing', 'country', 'shore'}


def test_things_come_in_several_scales(many):
    people = [
        np.ptp(np.nonzero(thing.mask)[0]) + 1
        for scene in many
        for thing in scene.things
        if thing.category == SCENE_THINGS['person'] and not thing.crowd
    ]
    assert np.percentile(people, 95) > 3 * np.percentile(people, 10)


def test_water_has_the_colours_of_the_sky_above_it(many):
    apart = []
    for scene in many:
        water, sky = (scene.labels == SCENE_LABELS[name] for name in ('water', 'sky'))
        if water.sum() > 300 and sky.sum() > 300:
            apart.append(np.abs(scene.image[water].mean(0) - scene.image[sky].mean(0)).max())
    assert len(apart) >= 10
    assert np.median(apart) < 30, 'grey levels'


def test_every_pixel_of_a_thing_has_its_class(many):
    label_of = {SCENE_THINGS[name]: SCENE_LABELS[name] for name in ('person', 'car', 'bus', 'boat')}
    label_of |= {SCENE_THINGS['stop sign']: SCENE_LABELS['signboard']}
    label_of |= {SCENE_THINGS['sheep']: SCENE_LABELS['animal']}
    for scene in many:
        for thing in scene.things:
            assert (scene.labels[thing.mask] == label_of[thing.category]).all()


@pytest.mark.parametrize('size', [(32, 32), (33, 47), (64, 200), (200, 64)])
def test_any_size_can_be_painted(size):
    scene = paint_scene('val', 3, size, seed=5)
    assert scene.image.shape == (*size, 3)
    assert scene.labels.shape == size
    assert scene.image.std() > 10


def test_outlines_cover_the_masks(many):
    overlaps = []
    for thing in (thing for scene in many for thing in scene.things if not thing.crowd):
        rings = polygons(thing.mask)
        if thing.mask.sum() >= 40:
            outline = coco_mask.merge(coco_mask.frPyObjects(rings, *thing.mask.shape))
            drawn = coco_mask.decode(outline).astype(bool)
            solid = binary_fill_holes(thing.mask)
            overlaps.append((drawn & solid).sum() / (drawn | solid).sum())
    assert len(overlaps) > 100
    assert min(overlaps) > 0.85
    assert np.median(overlaps) > 0.99


def test_annotations_agree_with_pycocotools(many):
    crowds = 0
    for number, scene in enumerate(many):
        for record in coco_annotations(scene, number):
            outline = coco_mask.frPyObjects(record['segmentation'], *scene.labels.shape)
            if record['iscrowd']:
                crowds += 1
                assert record['area'] == coco_mask.area(outline)
                assert record['bbox'] == coco_mask.toBbox(outline).tolist()
            else:
                rings = [np.float32(ring).reshape(-1, 2) for ring in record['segmentation']]
                area = sum(cv2.contourArea(ring) for ring in rings)
                assert record['area'] == pytest.approx(area, abs=0.01)
                first, last = (f(np.concatenate(rings), axis=0) for f in (np.min, np.max))
                assert record['bbox'] == pytest.approx([*first, *(last - first)], abs=0.01)
                box = coco_mask.toBbox(coco_mask.merge(outline))  # of whole pixels
                assert np.abs(box - record['bbox']).max() <= 1.5
    assert crowds


@pytest.mark.parametrize('fill', ['random', 'zeros', 'ones', 'corner'])
def test_run_lengths_equal_those_of_pycocotools(fill):
    mask = np.random.default_rng(0).random((13, 7)) < 0.4
    if fill != 'random':
        mask[:] = fill == 'ones'
    if fill == 'corner':
        mask[-1, -1] = True
    packed = coco_mask.frPyObjects(rle(mask), 13, 7)
    assert (coco_mask.decode(packed).astype(bool) == mask).all()
    assert packed['counts'] == coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))['counts']


def test_mmseg_reads_the_scenes_as_ade20k(scenes):
    from mmengine.registry import DefaultScope
    from mmseg.datasets import ADE20KDataset, BaseSegDataset

    # The lists above are the real data set's names, numbers and colours.
    names = ADE20KDataset.METAINFO['classes']
    colours = ADE20KDataset.METAINFO['palette']
    assert {name: names.index(name) + 1 for name in SCENE_CLASSES} == SCENE_LABELS
    assert [tuple(colours[names.index(name)]) for name in SCENE_CLASSES] == list(SCENE_PALETTE)

    common = dict(
        data_root=str(scenes.ade20k),
        data_prefix=dict(img_path='images/training', seg_map_path='annotations/training'),
        pipeline=[dict(type='LoadImageFromFile'), dict(type='LoadAnnotations')],
    )
    with DefaultScope.overwrite_default_scope('mmseg'):
        own = ADE20KDataset(metainfo=dict(classes=SCENE_CLASSES), **common)
        full = ADE20KDataset(**common)
        plain = BaseSegDataset(reduce_zero_label=True, **common)
        assert len(own) == len(full) == len(plain) == SMALL['train']
        assert [tuple(c) for c in own.metainfo['palette']] == list(SCENE_PALETTE)
        for i in range(len(own)):
            mine, theirs = own[i]['gt_seg_map'], full[i]['gt_seg_map']
            assert own[i]['img'].shape == (96, 128, 3)
            assert np.array_equal(mine == 255, theirs == 255)
            seen = mine[mine != 255]
            assert seen.max() < len(SCENE_CLASSES)
            as_labels = np.array([SCENE_LABELS[name] for name in SCENE_CLASSES])[seen]
            assert np.array_equal(as_labels, theirs[theirs != 255] + 1)
            assert np.array_equal(theirs, plain[i]['gt_seg_map'])


def test_categories_are_those_of_coco(shared):
    file = shared / 'data/coco_mini/annotations/instances_val2017.json'
    assert json.loads(file.read_text())['categories'] == COCO_CATEGORIES


def test_mmdet_reads_the_scenes_as_coco(scenes):
    from mmdet.datasets import CocoDataset
    from mmengine.registry import DefaultScope

    document = json.loads((scenes.coco / 'annotations/instances_train2017.json').read_text())
    with DefaultScope.overwrite_default_scope('mmdet'):
        common = dict(
            data_root=str(scenes.coco),
            ann_file='annotations/instances_train2017.json',
            data_prefix=dict(img='train2017/'),
            pipeline=[
                dict(type='LoadImageFromFile'),
                dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
            ],
        )
        own = CocoDataset(metainfo=dict(classes=SCENE_THING_CLASSES), **common)
        full = CocoDataset(**common)
        assert len(own) == len(full) == SMALL['train']
        loaded = [own[i] for i in range(len(own))]
        assert sum(len(item['gt_bboxes']) for item in loaded) == len(document['annotations'])
        for i, item in enumerate(loaded):
            assert len(item['gt_masks']) == len(item['gt_bboxes'])
            assert item['img'].shape == (96, 128, 3)
            names = [own.metainfo['classes'][k] for k in item['gt_bboxes_labels']]
            assert names == [full.metainfo['classes'][k] for k in full[i]['gt_bboxes_labels']]


def test_a_finished_folder_is_returned_at_once(scenes):
    before = {p: p.stat().st_mtime_ns for p in scenes.root.rglob('*')}

    def must_not_run(_jobs):
        raise AssertionError('painted again')

    assert write_scenes(scenes.root, **SMALL, progress=must_not_run) == scenes
    assert {p: p.stat().st_mtime_ns for p in scenes.root.rglob('*')} == before


@pytest.mark.parametrize(
    ('prepare', 'options', 'words'),
    [
        (lambda root: None, {'seed': 9}, ['other scenes', 'seed 0, not 9']),
        (lambda root: None, {'size': (64, 64)}, ['other scenes', 'size']),
        (lambda root: (root / 'scenes.json').unlink(), {}, ['not empty', 'scenes.json']),
        (lambda root: (root / 'scenes.json').write_text('[]'), {}, ['not a finished set']),
        (
            lambda root: (root / 'coco/train2017/000000000009.jpg').unlink(),
            {},
            ['damaged', 'delete it'],
        ),
    ],
)
def test_anything_else_in_the_folder_is_refused(tmp_path, prepare, options, words):
    tiny = {'train': 1, 'val': 1, 'size': (32, 32)}
    root = write_scenes(tmp_path / 'scenes', **tiny).root
    prepare(root)
    before = fingerprint(root)
    with pytest.raises(UserError) as caught:
        write_scenes(root, **(tiny | options))
    assert all(word in str(caught.value) for word in [*words, str(root)])
    assert fingerprint(root) == before


@pytest.mark.parametrize(
    'options',
    [{'train': 0}, {'val': -1}, {'size': (8, 64)}, {'size': (64, 9000)}, {'seed': -1}],
)
def test_arguments_out_of_range_are_refused(tmp_path, options):
    with pytest.raises(UserError, match=next(iter(options))):
        write_scenes(tmp_path / 'scenes', **options)
    assert not any(tmp_path.iterdir())


def test_an_empty_folder_is_used_and_a_file_is_not(tmp_path):
    (tmp_path / 'empty').mkdir()
    assert write_scenes(tmp_path / 'empty', 1, 1, (32, 32)).ade20k.is_dir()
    (tmp_path / 'file').write_text('x')
    with pytest.raises(UserError, match='is a file'):
        write_scenes(tmp_path / 'file', 1, 1, (32, 32))
    with pytest.raises(UserError, match='cannot write'):
        write_scenes(tmp_path / 'file' / 'below', 1, 1, (32, 32))


def test_an_interrupted_run_leaves_nothing_behind(tmp_path):
    def interrupt(jobs):
        yield from jobs[:2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_scenes(tmp_path / 'scenes', 3, 1, (32, 32), progress=interrupt)
    assert not any(tmp_path.iterdir())


def test_a_killed_run_is_not_taken_for_a_finished_one(tmp_path):
    root = tmp_path / 'scenes'
    script = (
        'import os, signal, sys\n'
        'from cb_mm.datasets import write_scenes\n'
        'def kill(jobs):\n'
        '    yield from jobs[:2]\n'
        '    os.kill(os.getpid(), signal.SIGKILL)\n'
        'write_scenes(sys.argv[1], 3, 1, (32, 32), progress=kill)\n'
    )
    assert forked.run('-c', script, root, cwd=REPO).code == -signal.SIGKILL
    assert [p.name.startswith('.scenes.partial-') for p in tmp_path.iterdir()] == [True]
    write_scenes(root, 3, 1, (32, 32))
    assert [p.name for p in tmp_path.iterdir()] == ['scenes'], 'the leftovers are swept up'
    assert check_ade20k(root / 'ade20k').ok


def test_two_processes_may_make_the_same_folder_at_once(tmp_path):
    script = (
        'import sys\nfrom cb_mm.datasets import write_scenes\n'
        'write_scenes(sys.argv[1], 4, 2, (64, 64))\n'
    )
    runs = [forked.Forked('-c', script, tmp_path / 'scenes', cwd=REPO) for _ in range(2)]
    assert [run.wait().code for run in runs] == [0, 0]
    assert [p.name for p in tmp_path.iterdir()] == ['scenes']


def test_the_tool_writes_says_where_and_refuses_in_one_line(tmp_path, capsys):
    main = main_of('make_scenes.py')
    target = str(tmp_path / 'scenes')
    words = [target, '--train', '2', '--val', '1', '--size', '32', '48']
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert f'{target}/ade20k' in shown
    assert f'{target}/coco' in shown
    assert main([*words, '--seed', '7']) == 2
    said = capsys.readouterr().err
    assert said.startswith('error: ')
    assert said.count('\n') == 1
    with pytest.raises(SystemExit, match='2'):
        main([target, '--trian', '2'])
