"""Every kind of fault is made in a copy of a sound data set, and must be found and named."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mmengine.config import Config
from PIL import Image
from pycocotools import mask as coco_mask
from tool import main_of

from cb_mm.datasets import check, check_ade20k, check_coco, require_valid, write_scenes
from cb_mm.datasets.checks.coco_records import _unpack
from cb_mm.datasets.checks.files import exif_orientation
from cb_mm.datasets.checks.findings import KINDS, Report
from cb_mm.datasets.checks.registry import CHECKS, DatasetCheck
from cb_mm.datasets.class_folders import ClassFolders
from cb_mm.engine.training import check_data
from cb_mm.errors import UserError

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope='session')
def scenes(tmp_path_factory):
    return write_scenes(tmp_path_factory.mktemp('data') / 'scenes', 4, 2, (64, 96))


@pytest.fixture
def ade(scenes, tmp_path):
    return Path(shutil.copytree(scenes.ade20k, tmp_path / 'ade20k'))


@pytest.fixture
def coco(scenes, tmp_path):
    return Path(shutil.copytree(scenes.coco, tmp_path / 'coco'))


def kinds(report) -> set[str]:
    return {problem.kind for problem in report.problems if problem.kind != 'count'}


def cut(path: Path, share: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


def save_png(path: Path, values: np.ndarray) -> None:
    assert cv2.imwrite(str(path), values)


IMAGE = 'images/training/ADE_train_00000002.jpg'
LABEL = 'annotations/training/ADE_train_00000002.png'


def jpeg_with_preview_cut(path: Path) -> None:
    """A cut file whose EXIF preview still has its own end marker."""
    data = path.read_bytes()
    preview = b'Exif\0\0' + data[:800] + b'\xff\xd9'
    segment = b'\xff\xe1' + (len(preview) + 2).to_bytes(2, 'big') + preview
    path.write_bytes((data[:2] + segment + data[2:])[:-50])


ADE_FAULTS = {
    'cut JPEG': (lambda r: cut(r / IMAGE, 0.6), 'truncated', IMAGE),
    'JPEG without its last bytes': (lambda r: cut(r / IMAGE, 0.999), 'truncated', IMAGE),
    'cut JPEG with preview': (lambda r: jpeg_with_preview_cut(r / IMAGE), 'truncated', IMAGE),
    'empty JPEG': (lambda r: (r / IMAGE).write_bytes(b''), 'unreadable', IMAGE),
    'web page for JPEG': (lambda r: (r / IMAGE).write_text('<html>404'), 'unreadable', IMAGE),
    'cut PNG': (lambda r: cut(r / LABEL, 0.5), 'label-unreadable', LABEL),
    'empty PNG': (lambda r: (r / LABEL).write_bytes(b''), 'label-unreadable', LABEL),
    'label 151': (
        lambda r: save_png(r / LABEL, np.full((64, 96), 151, np.uint8)),
        'label-range',
        LABEL,
    ),
    'label 255': (
        lambda r: save_png(r / LABEL, np.full((64, 96), 255, np.uint8)),
        'label-255',
        LABEL,
    ),
    'nothing labelled': (
        lambda r: save_png(r / LABEL, np.zeros((64, 96), np.uint8)),
        'label-empty',
        LABEL,
    ),
    'colour labels': (
        lambda r: save_png(r / LABEL, np.ones((64, 96, 3), np.uint8)),
        'label-colour',
        LABEL,
    ),
    '16-bit labels': (
        lambda r: save_png(r / LABEL, np.ones((64, 96), np.uint16)),
        'label-colour',
        LABEL,
    ),
    'other size': (
        lambda r: save_png(r / LABEL, np.ones((96, 64), np.uint8)),
        'label-size',
        LABEL,
    ),
    'no label map': (lambda r: (r / LABEL).unlink(), 'label-missing', IMAGE),
    'no image': (lambda r: (r / IMAGE).unlink(), 'label-alone', LABEL),
    'other suffix': (
        lambda r: (r / IMAGE).rename((r / IMAGE).with_suffix('.jpeg')),
        'suffix',
        IMAGE[:-4] + '.jpeg',
    ),
    'no folder': (
        lambda r: shutil.rmtree(r / 'annotations/validation'),
        'missing-folder',
        'annotations/validation',
    ),
    'no images': (
        lambda r: [p.unlink() for p in (r / 'images/validation').iterdir()],
        'no-images',
        'images/validation',
    ),
    'grey-scale': (
        lambda r: save_png(r / IMAGE, np.ones((64, 96), np.uint8)),
        'grey-scale',
        IMAGE,
    ),
    'four channels': (
        lambda r: Image.new('CMYK', (96, 64)).save(r / IMAGE),
        'four-channel',
        IMAGE,
    ),
}


@pytest.mark.parametrize('fault', ADE_FAULTS)
def test_ade20k_fault_is_found_and_named(ade, fault):
    spoil, kind, file = ADE_FAULTS[fault]
    assert not kinds(check_ade20k(ade))
    spoil(ade)
    report = check_ade20k(ade)
    found = [problem for problem in report.problems if problem.kind == kind]
    assert [problem.file for problem in found] == [file], report.text()
    assert found[0].remedy
    assert report.ok == (not any(KINDS[k].level == 'error' for k in kinds(report)))
    if found[0].level == 'error':
        with pytest.raises(UserError) as caught:
            require_valid(report)
        assert file in str(caught.value) or report.errors[0].file in str(caught.value)


def test_labels_follow_the_number_of_classes(ade):
    assert check_ade20k(ade, num_classes=127).ok
    report = check_ade20k(ade, num_classes=5)
    assert {p.kind for p in report.errors} == {'label-range'}
    assert '0 to 5 are allowed' in report.errors[0].message


def test_palette_label_maps_are_fine(ade):
    picture = Image.open(ade / LABEL)
    values = np.asarray(picture)
    paletted = Image.fromarray(values, mode='P')
    paletted.putpalette(bytes(range(256)) * 3)
    paletted.save(ade / LABEL)
    assert Image.open(ade / LABEL).mode == 'P'
    assert not kinds(check_ade20k(ade))


def full_2021(root: Path, scenes) -> Path:
    folder = root / 'ADE20K_2021_17_01/images/ADE/training/urban/street'
    folder.mkdir(parents=True)
    (folder / 'ADE_train_00016869_seg.png').write_bytes(b'x')
    (root / 'ADE20K_2021_17_01/index_ade20k.pkl').write_bytes(b'x')
    return root / 'ADE20K_2021_17_01'


def full_2016(root: Path, scenes) -> Path:
    folder = root / 'ADE20K_2016_07_26/images/training/a/abbey'
    folder.mkdir(parents=True)
    (folder / 'ADE_train_00000970_parts_1.png').write_bytes(b'x')
    return root / 'ADE20K_2016_07_26'


def flattened(root: Path, scenes) -> Path:
    folder = root / 'images/training'
    folder.mkdir(parents=True)
    (folder / 'ADE_train_00000970_seg.png').write_bytes(b'x')
    return root


@pytest.mark.parametrize(
    ('make', 'kind', 'words'),
    [
        (full_2021, 'wrong-release', ['ADEChallengeData2016.zip', 'full ADE20K release']),
        (full_2016, 'wrong-release', ['ADEChallengeData2016.zip', 'full ADE20K release']),
        (flattened, 'wrong-release', ['ADEChallengeData2016.zip']),
        (lambda r, s: full_2021(r, s).parent, 'wrong-release', ['ADEChallengeData2016.zip']),
        (
            lambda r, s: Path(shutil.copytree(s.ade20k, r / 'ADEChallengeData2016')).parent,
            'wrong-folder',
            ['/ADEChallengeData2016, not in'],
        ),
        (lambda r, s: s.ade20k / 'images', 'wrong-folder', ['/ade20k, not in']),
        (lambda r, s: s.ade20k / 'images/training', 'wrong-folder', ['/ade20k, not in']),
        (lambda r, s: s.coco, 'other-data-set', ['layout of COCO']),
        (lambda r, s: r, 'missing-folder', ['images/training']),
    ],
)
@pytest.mark.parametrize('quick', [True, False])
def test_ade20k_wrong_folder_is_recognised(tmp_path, scenes, make, kind, words, quick):
    report = check_ade20k(make(tmp_path, scenes), quick=quick)
    assert {p.kind for p in report.errors} == {kind}
    with pytest.raises(UserError) as caught:
        require_valid(report)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ('make', 'kind', 'words'),
    [
        (lambda s: s.root, 'wrong-folder', '/coco, not in'),
        (lambda s: s.coco / 'val2017', 'wrong-folder', '/coco, not in'),
        (lambda s: s.ade20k, 'other-data-set', 'layout of ADE20K'),
    ],
)
def test_coco_wrong_folder_is_recognised(scenes, make, kind, words):
    report = check_coco(make(scenes), quick=True)
    assert [p.kind for p in report.errors] == [kind]
    assert words in report.errors[0].message


JSON = 'annotations/instances_train2017.json'


def edit(change):
    """A fault that changes the training annotations of a COCO copy."""

    def spoil(root: Path) -> None:
        document = json.loads((root / JSON).read_text())
        result = change(document)
        (root / JSON).write_text(json.dumps(document if result is None else result))

    return spoil


def annotation(**values):
    """A fault that sets keys of the first polygon annotation."""

    def change(document: dict) -> None:
        first = next(a for a in document['annotations'] if not a['iscrowd'])
        first.update(values)

    return edit(change)


def without(section: str, key: str):
    return edit(lambda d: d[section][0].__delitem__(key))


def image_path(root: Path, number: int) -> Path:
    document = json.loads((root / JSON).read_text())
    return root / 'train2017' / document['images'][number]['file_name']


NAN = float('nan')
SECTIONS = ('images', 'annotations', 'categories')

# fault -> (how to make it, kind, level)
COCO_FAULTS = {
    'cut JSON': (lambda r: cut(r / JSON, 0.7), 'json'),
    'empty JSON': (lambda r: (r / JSON).write_bytes(b''), 'json'),
    'binary JSON': (lambda r: (r / JSON).write_bytes(b'\x80\x81' * 99), 'json'),
    'JSON list': (edit(lambda d: [d]), 'json'),
    'bottomless JSON': (lambda r: (r / JSON).write_text('[' * 200_000), 'json'),
    'no images': (edit(lambda d: d.__delitem__('images')), 'json-section'),
    'no annotations key': (edit(lambda d: d.__delitem__('annotations')), 'json-section'),
    'no categories': (edit(lambda d: d.__delitem__('categories')), 'json-section'),
    'images not a list': (edit(lambda d: d.update(images={'a': 1})), 'json-section'),
    'no annotations': (edit(lambda d: d.update(annotations=[])), 'no-annotations'),
    'image record a number': (edit(lambda d: d['images'].append(7)), 'json-record'),
    'annotation record null': (edit(lambda d: d['annotations'].append(None)), 'json-record'),
    'category record a name': (edit(lambda d: d['categories'].append('cat')), 'json-record'),
    **{f'image without {k}': (without('images', k), 'json-record')
       for k in ('id', 'file_name', 'width', 'height')},
    **{f'annotation without {k}': (without('annotations', k), 'json-record')
       for k in ('id', 'image_id', 'category_id', 'bbox', 'area', 'iscrowd', 'segmentation')},
    'category without name': (without('categories', 'name'), 'json-record'),
    'image width 0': (edit(lambda d: d['images'][0].update(width=0)), 'json-record'),
    'image id a string': (edit(lambda d: d['images'][0].update(id='9')), 'json-record'),
    'path out of the folder': (
        edit(lambda d: d['images'][0].update(file_name='../../etc/passwd')), 'image-path'),
    'absolute path': (
        edit(lambda d: d['images'][0].update(file_name='/etc/passwd')), 'image-path'),
    'iscrowd 2': (annotation(iscrowd=2), 'json-record'),
    'image id twice': (
        edit(lambda d: d['images'][1].update(id=d['images'][0]['id'])), 'duplicate-id'),
    'annotation id twice': (
        edit(lambda d: d['annotations'][1].update(id=d['annotations'][0]['id'])), 'duplicate-id'),
    'category id twice': (
        edit(lambda d: d['categories'][1].update(id=d['categories'][0]['id'])), 'duplicate-id'),
    'file listed twice': (
        edit(lambda d: d['images'].append({**d['images'][0], 'id': 1})), 'duplicate-file'),
    'unknown image': (annotation(image_id=123456), 'unknown-image'),
    'unknown category': (annotation(category_id=999), 'unknown-category'),
    'category a list': (annotation(category_id=[1]), 'unknown-category'),
    'NaN box': (annotation(bbox=[NAN, 1, 5, 5]), 'box'),
    'infinite box': (annotation(bbox=[0, 0, float('inf'), 5]), 'box'),
    'box of three': (annotation(bbox=[1, 2, 3]), 'box'),
    'box of strings': (annotation(bbox=['1', '2', '3', '4']), 'box'),
    'box null': (annotation(bbox=None), 'box'),
    'huge number in box': (annotation(bbox=[10**400, 0, 1, 1]), 'box'),
    'negative box': (annotation(bbox=[20, 20, -5, 8]), 'box-negative'),
    'zero-area box': (annotation(bbox=[20, 20, 0, 8]), 'box-empty'),
    'box outside': (annotation(bbox=[500, 500, 5, 5]), 'box-outside'),
    'box over the edge': (annotation(bbox=[80, 40, 60, 60]), 'box-overhang'),
    'box elsewhere': (
        annotation(bbox=[0, 0, 3, 3], segmentation=[[80, 50, 90, 50, 90, 60]]), 'box-mismatch'),
    'NaN area': (annotation(area=NAN), 'area'),
    'negative area': (annotation(area=-3), 'area'),
    'zero area': (annotation(area=0), 'box-empty'),
    'empty outline': (annotation(segmentation=[]), 'segmentation'),
    'outline of two corners': (annotation(segmentation=[[1, 1, 5, 5]]), 'segmentation'),
    'odd outline': (annotation(segmentation=[[1, 1, 5, 5, 9, 9, 3]]), 'segmentation'),
    'NaN outline': (annotation(segmentation=[[1, 1, NAN, 5, 9, 9]]), 'segmentation'),
    'nested outline': (annotation(segmentation=[[[1, 1], [5, 5], [9, 1]] * 2]), 'segmentation'),
    'outline of strings': (annotation(segmentation=[['1'] * 6]), 'segmentation'),
    'outline a number': (annotation(segmentation=5), 'segmentation'),
    'outline outside': (
        annotation(segmentation=[[200, 200, 260, 200, 260, 260]]), 'segmentation-outside'),
    'run lengths of another size': (
        annotation(segmentation={'size': [9, 9], 'counts': [81]}), 'segmentation'),
    'run lengths too short': (
        annotation(segmentation={'size': [64, 96], 'counts': [10, 10]}), 'segmentation'),
    'negative run lengths': (
        annotation(segmentation={'size': [64, 96], 'counts': [-10, 64 * 96 + 10]}), 'segmentation'),
    'empty run lengths': (
        annotation(segmentation={'size': [64, 96], 'counts': [64 * 96]}), 'segmentation'),
    'broken packed run lengths': (
        annotation(segmentation={'size': [64, 96], 'counts': 'PPYo1~~~'}), 'segmentation'),
    'no JSON file': (lambda r: (r / JSON).unlink(), 'missing-file'),
    'no image folder': (lambda r: shutil.rmtree(r / 'train2017'), 'missing-folder'),
    'empty image folder': (
        lambda r: [p.unlink() for p in (r / 'train2017').iterdir()], 'no-images'),
    'image missing': (lambda r: image_path(r, 1).unlink(), 'image-missing'),
    'image cut': (lambda r: cut(image_path(r, 1), 0.5), 'truncated'),
    'image undecodable': (lambda r: image_path(r, 1).write_bytes(b'GIF89a'), 'unreadable'),
    'image of another size': (
        lambda r: cv2.imwrite(str(image_path(r, 1)), np.zeros((30, 40, 3), np.uint8)),
        'image-size'),
    'image not listed': (
        lambda r: shutil.copy(image_path(r, 1), r / 'train2017/extra.jpg'), 'image-unlisted'),
    'grey-scale image': (
        lambda r: cv2.imwrite(str(image_path(r, 1)), np.zeros((64, 96), np.uint8)), 'grey-scale'),
}  # fmt: skip

#: Faults that a run gets over: mmdet leaves such annotations out, or clips them.
MILD = {
    'box-empty',
    'box-overhang',
    'box-mismatch',
    'duplicate-file',
    'image-unlisted',
    'grey-scale',
}


@pytest.mark.parametrize('fault', COCO_FAULTS)
def test_coco_fault_is_found_and_named(coco, fault):
    spoil, kind = COCO_FAULTS[fault]
    before = check_coco(coco)
    assert before.ok, before.text()
    assert not before.warnings, before.text()
    spoil(coco)
    report = check_coco(coco)
    found = [problem for problem in report.problems if problem.kind == kind]
    assert found, report.text()
    assert found[0].file.startswith(('train2017', 'annotations/instances_train2017.json'))
    assert (found[0].level == 'error') == (kind not in MILD)
    if kind in MILD:
        assert report.ok, report.text()
    else:
        with pytest.raises(UserError, match=r'tools/check_data\.py --dataset coco'):
            require_valid(report)


def test_faults_name_the_annotation_and_its_image(coco):
    annotation(bbox=[NAN, 1, 5, 5])(coco)
    record = json.loads((coco / JSON).read_text())['annotations'][0]
    message = check_coco(coco).errors[0].message
    assert f'annotation {record["id"]} ' in message
    assert f'image {record["image_id"]}, {record["image_id"]:012d}.jpg' in message


def give_orientation(path: Path, value: int) -> None:
    """Write the EXIF tag of a camera that was held otherwise; the pixels stay as they are."""
    tags = Image.Exif()
    tags[0x0112] = value
    with Image.open(path) as picture:
        picture.load()
    picture.save(path, exif=tags)


@pytest.mark.parametrize('value', range(1, 9))
def test_images_that_are_turned_without_their_label_map_are_found(ade, value):
    give_orientation(ade / IMAGE, value)
    report = check_ade20k(ade)
    if value == 1:
        assert report.ok
        return
    (problem,) = report.errors
    assert (problem.kind, problem.file) == ('orientation', IMAGE)
    assert f'EXIF orientation {value}' in problem.message
    assert 'exiftool' in problem.remedy


@pytest.mark.parametrize('value', range(1, 9))
def test_images_that_are_turned_without_their_annotation_are_found(coco, value):
    path = image_path(coco, 1)
    give_orientation(path, value)
    found = [(problem.kind, problem.file) for problem in check_coco(coco).errors]
    assert found == ([] if value == 1 else [('orientation', f'train2017/{path.name}')])


def test_annotations_of_the_turned_image_are_fine(ade, coco):
    """Where the sides are swapped, sizes show that the annotation fits what a viewer shows."""
    give_orientation(ade / IMAGE, 6)
    save_png(ade / LABEL, np.ones((96, 64), np.uint8))
    assert check_ade20k(ade).ok

    def swap(document: dict) -> None:
        document['images'][1].update(width=64, height=96)
        document['annotations'] = [
            a for a in document['annotations'] if a['image_id'] != document['images'][1]['id']
        ]

    give_orientation(image_path(coco, 1), 8)
    edit(swap)(coco)
    assert check_coco(coco).ok


def test_formats_that_opencv_does_not_turn_are_fine(ade):
    """OpenCV follows the tag of JPEG, PNG and TIFF; of WebP only some versions do."""
    for suffix in ('jpeg', 'png', 'tiff', 'webp'):
        tags = Image.Exif()
        tags[0x0112] = 3
        stored = Image.fromarray(np.arange(12 * 8 * 3, dtype=np.uint8).reshape(8, 12, 3))
        stored.save(ade / f'x.{suffix}', exif=tags)
        raw = np.frombuffer((ade / f'x.{suffix}').read_bytes(), np.uint8)
        as_read = cv2.imdecode(raw, cv2.IMREAD_COLOR)
        as_stored = cv2.imdecode(raw, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
        # Of a TIFF, OpenCV and Pillow give the turned image whatever they are told.
        turned = suffix == 'tiff' or not np.array_equal(as_read, as_stored)
        assert exif_orientation(ade / f'x.{suffix}') == (3 if turned else 1)
        assert turned or suffix == 'webp'


def class_folders(root: Path, **parts: list[str]) -> Path:
    for part, names in parts.items():
        (root / part).mkdir(parents=True)
        for name in names:
            (root / part / name).mkdir()
            save_png(root / part / name / 'a.png', np.zeros((8, 8, 3), np.uint8))
    return root


@pytest.mark.parametrize('quick', [True, False])
def test_an_empty_train_folder_beside_val(tmp_path, quick):
    root = class_folders(tmp_path / 'x', train=[], val=['cat', 'dog'])
    assert check('imagenet', root, quick=quick, splits=['val'], num_classes=2).ok
    (problem,) = check('imagenet', root, quick=quick, num_classes=2).errors
    assert (problem.kind, problem.file) == ('no-class-folders', 'train')
    data = ClassFolders(data_root=str(root), data_prefix='val', pipeline=[])
    assert sorted({info['gt_label'] for info in map(data.get_data_info, range(2))}) == [0, 1]


@pytest.mark.parametrize('quick', [True, False])
@pytest.mark.parametrize('dataset', ['ade20k', 'coco', 'imagenet'])
def test_empty_folders_and_lists_are_findings(scenes, tmp_path, dataset, quick):
    """Everything that may be empty is, in turn: errors, never an exception."""
    source = {
        'ade20k': lambda: scenes.ade20k,
        'coco': lambda: scenes.coco,
        'imagenet': lambda: class_folders(tmp_path / 'y', train=['a', 'b'], val=['a', 'b']),
    }[dataset]()
    folders = [path.relative_to(source) for path in source.rglob('*') if path.is_dir()]
    for number, folder in enumerate(folders):
        root = Path(shutil.copytree(source, tmp_path / str(number)))
        shutil.rmtree(root / folder)
        (root / folder).mkdir()
        assert not check(dataset, root, quick=quick).ok or dataset == 'imagenet', folder
    (tmp_path / 'bare').mkdir()
    assert not check(dataset, tmp_path / 'bare', quick=quick).ok
    for sections in itertools.product((True, False), repeat=3) if dataset == 'coco' else ():
        root = Path(shutil.copytree(source, tmp_path / f'json{sections}'))
        names = [n for n, kept in zip(SECTIONS, sections, strict=True) if not kept]
        edit(lambda document, names=names: document.update({name: [] for name in names}))(root)
        assert check_coco(root, quick=quick).ok == all(sections), names


def test_a_symlink_loop_is_a_finding(ade, tmp_path):
    for folder in ('images/training', 'annotations/training'):
        for name in ('loop', 'loop.jpg', 'loop.png'):
            (ade / folder / name).symlink_to(name)
    found = {p.kind: p.message for p in check_ade20k(ade).errors}
    assert set(found) == {'unreadable', 'label-unreadable'}
    assert 'symbolic links' in found['unreadable']
    (tmp_path / 'round').symlink_to('round')
    with pytest.raises(UserError, match=r'round.*does not exist'):
        check_ade20k(tmp_path / 'round')
    root = class_folders(tmp_path / 'z', val=['cat'])
    (root / 'val' / 'again').symlink_to('..')
    (root / 'train').symlink_to('train')
    assert {p.kind for p in check('imagenet', root).errors} == {'missing-folder'}


def test_names_that_are_not_utf8_are_named(ade, coco, tmp_path, capsys):
    """In all three layouts; on a screen that takes nothing but UTF-8, and in the JSON file."""
    odd = os.fsdecode(b'caf\xe9')
    for old in (IMAGE, LABEL):
        (ade / old).rename((ade / old).with_name(odd + old[-4:]))
    image_path(coco, 1).rename(coco / 'train2017' / f'{odd}.jpg')
    folders = class_folders(tmp_path / 'z', train=['cat'], val=['cat'])
    (folders / 'val/cat/a.png').rename(folders / f'val/cat/{odd}.png')
    for dataset, root in (('ade20k', ade), ('coco', coco), ('imagenet', folders)):
        for quick in ((), ('--quick',)):
            words = ['--dataset', dataset, str(root), '--json', str(tmp_path / 'f.json'), *quick]
            main_of('check_data.py')(words)
            text = capsys.readouterr().out
            text.encode()
            assert 'its name is not UTF-8' in text
            assert 'caf\\xe9' in text
            json.loads((tmp_path / 'f.json').read_text())['problems'][0]['file'].encode()


def test_all_kinds_are_exercised_here():
    ade = {kind for _, kind, _ in ADE_FAULTS.values()}
    coco = {kind for _, kind in COCO_FAULTS.values()}
    elsewhere = {'wrong-release', 'wrong-folder', 'other-data-set', 'count', 'class-missing'}
    # In test_pretraining.py, with the data set that reads them.
    folders = {'no-class-folders', 'class-empty', 'class-unknown', 'class-count'}
    others = {'image-empty', 'orientation', 'name'}
    # In test_length.py and test_own_masks.py, with a config's data set.
    configured = {'label-unknown', 'class-absent', 'label-lossy', 'head-too-small'}
    configured |= {'head-too-large', 'category-unused'}
    vqa = {'answer-missing'}  # in test_vqa.py
    pairs = {'not-converted', 'resized'}  # in test_label_pairs.py
    assert ade | coco | elsewhere | folders | others | configured | vqa | pairs == set(KINDS)


def test_classes_without_a_category_are_found(coco):
    assert check_coco(coco, classes=['person', 'bus']).ok
    report = check_coco(coco, classes=['person', 'unicorn'])
    assert {p.kind for p in report.errors} == {'class-missing'}
    assert 'unicorn' in report.errors[0].message


def test_images_without_annotations_are_a_note(coco):
    def drop_first(document: dict) -> None:
        first = document['images'][0]['id']
        document['annotations'] = [a for a in document['annotations'] if a['image_id'] != first]

    edit(drop_first)(coco)
    report = check_coco(coco)
    assert kinds(report) == {'image-empty'}
    assert report.ok


def test_packed_run_lengths_are_read_as_pycocotools_does(coco):
    rng = np.random.default_rng(1)
    for share in (0.01, 0.3, 0.5, 0.99):
        mask = np.asfortranarray(
            cv2.blur((rng.random((64, 96)) < share).astype(np.float32), (5, 5)) > share
        ).astype(np.uint8, order='F')
        mask[3, 5] = 1
        packed = coco_mask.encode(mask)
        counts = _unpack(packed['counts'].decode())
        again = coco_mask.frPyObjects({'size': [64, 96], 'counts': counts}, 64, 96)
        assert again['counts'] == packed['counts']
    outline = {'size': [64, 96], 'counts': packed['counts'].decode()}
    annotation(segmentation=outline)(coco)
    assert check_coco(coco).ok


def test_only_the_asked_splits_are_looked_at(ade, coco):
    shutil.rmtree(ade / 'images/training')
    assert not check_ade20k(ade, quick=True).ok
    assert check_ade20k(ade, quick=True, splits=['validation']).ok
    shutil.rmtree(coco / 'train2017')
    (coco / JSON).unlink()
    assert not check_coco(coco, quick=True).ok
    assert check_coco(coco, quick=True, splits=['val2017']).ok


def test_quick_reads_names_of_all_files_but_few_of_them(ade):
    for number in range(40):
        shutil.copy(ade / IMAGE, ade / f'images/training/more_{number:02d}.jpg')
        shutil.copy(ade / LABEL, ade / f'annotations/training/more_{number:02d}.png')
    report = check_ade20k(ade, quick=True)
    assert report.ok
    assert report.counts['training images'] == 44
    assert report.counts['training pairs read'] == 3
    (ade / 'images/training/more_01.jpg').write_bytes(b'')
    assert check_ade20k(ade, quick=True).ok
    assert not check_ade20k(ade).ok
    (ade / 'annotations/training/more_01.png').unlink()
    assert {p.kind for p in check_ade20k(ade, quick=True).errors} == {'label-missing'}


def test_quick_looks_at_both_ends_of_a_large_annotation_file(coco, monkeypatch):
    from cb_mm.datasets.checks import coco as module

    monkeypatch.setattr(module, 'QUICK_JSON_BYTES', 100)
    assert check_coco(coco, quick=True).ok
    cut(coco / JSON, 0.9)
    assert [p.kind for p in check_coco(coco, quick=True).errors] == ['json']


def test_many_files_are_reported_in_order_whatever_the_threads(ade):
    for number in range(60):
        shutil.copy(ade / IMAGE, ade / f'images/training/more_{number:02d}.jpg')
        shutil.copy(ade / LABEL, ade / f'annotations/training/more_{number:02d}.png')
    for number in (55, 3, 31):
        (ade / f'images/training/more_{number:02d}.jpg').write_bytes(b'')
    steps = []
    for workers in (1, 4):
        report = check_ade20k(
            ade, workers=workers, progress=lambda jobs, n: steps.append(n) or jobs
        )
        names = [Path(p.file).stem for p in report.errors]
        assert names == ['more_03', 'more_31', 'more_55']
    assert steps == [64, 64]


def test_real_data_passes(shared):
    ade = check_ade20k(shared / 'data/ade20k_mini')
    assert ade.ok, ade.text()
    assert not ade.warnings
    assert ade.counts['training pairs read'] == 6
    coco = check_coco(shared / 'data/coco_mini')
    assert coco.ok, coco.text()
    assert not coco.warnings
    assert kinds(coco) == {'grey-scale', 'image-empty'}
    assert coco.counts['train2017 annotations'] == 1409


def test_missing_folder_and_unknown_data_set_are_user_errors(scenes, tmp_path):
    with pytest.raises(UserError, match='Did you mean "scenes'):
        check_ade20k(scenes.root.with_name('scene'))
    with pytest.raises(UserError, match='is a file'):
        check_coco(scenes.root / 'scenes.json')
    with pytest.raises(UserError, match='Did you mean "ade20k'):
        check('ade20', scenes.ade20k)


# Any JSON at all: text, numbers (NaN and huge ones too), lists, objects with the keys COCO uses.
KEYS = ['id', 'image_id', 'category_id', 'file_name', 'width', 'height', 'bbox', 'area', 'name']
KEYS += ['iscrowd', 'segmentation', 'size', 'counts', 'images', 'annotations', 'categories']
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
ANY_JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=7) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=25,
)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_json_whatever_makes_the_check_fall_over(scenes, tmp_path, data):
    """One value anywhere in a sound file is replaced by arbitrary JSON."""
    root = tmp_path / 'coco'
    if not root.exists():
        shutil.copytree(scenes.coco, root)
    document = json.loads((scenes.coco / JSON).read_text())
    document['annotations'] = document['annotations'][:6]
    node, key = {'all': document}, 'all'
    for _ in range(data.draw(st.integers(0, 5))):
        inner = node[key]
        if not isinstance(inner, dict | list) or not inner:
            break
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        node, key = inner, data.draw(st.sampled_from(keys))
    node[key] = data.draw(ANY_JSON)
    top = document if node is not None and key != 'all' else node['all']
    (root / JSON).write_text(json.dumps(top))
    report = check_coco(root)
    report.text()
    json.dumps(report.to_dict())


def test_tool_exit_codes_and_output(scenes, ade, tmp_path, capsys):
    main = main_of('check_data.py')
    assert main(['--dataset', 'ade20k', str(scenes.ade20k), '--quick']) == 0
    assert 'fine: 0 errors' in capsys.readouterr().out
    assert main(['--dataset', 'coco', str(scenes.coco)]) == 0
    for name in ('00000001', '00000002', '00000003'):
        cut(ade / f'images/training/ADE_train_{name}.jpg', 0.5)
    out = tmp_path / 'found.json'
    command = ['--dataset', 'ade20k', str(ade), '--json', str(out), '--examples', '2']
    assert main(command) == 1
    shown = capsys.readouterr().out
    assert 'error: image is cut short (truncated): 3' in shown
    assert shown.count('ends too early') == 2
    assert '... and 1 more' in shown
    found = json.loads(out.read_text())
    assert not found['ok']
    assert sum(p['kind'] == 'truncated' for p in found['problems']) == 3
    assert set(found['problems'][0]) == {'level', 'kind', 'file', 'message', 'remedy'}


@pytest.mark.parametrize(
    'words',
    [
        ['--dataset', 'ade20k', 'no/such/folder'],
        ['--dataset', 'ade', '.'],
        ['.'],
        ['--dataset', 'coco', '.', '--num-classes', '3'],
        ['--dataset', 'ade20k', '.', '--num-classes', '0'],
        ['--dataset', 'ade20k', '.', '--split', 'train2017'],
        ['--dataset', 'ade20k', '.', '--workers', '0'],
        ['--dataset', 'ade20k', '.', '--quik'],
    ],
)
def test_tool_refuses_wrong_commands(words, capsys):
    try:
        code = main_of('check_data.py')(words)
    except SystemExit as stop:  # argparse
        code = stop.code
    assert code == 2
    assert 'error' in capsys.readouterr().err


def test_tool_says_when_the_result_cannot_be_written(scenes, tmp_path, capsys):
    (tmp_path / 'file').write_text('')
    target = tmp_path / 'file' / 'found.json'
    code = main_of('check_data.py')(
        ['--dataset', 'ade20k', str(scenes.ade20k), '--json', str(target)]
    )
    assert code == 2
    assert str(target) in capsys.readouterr().err


def training_on(**dataset) -> Config:
    return Config(dict(train_dataloader=dict(dataset=dataset)))


ADE = dict(type='ADE20KDataset')
COCO = dict(type='CocoDataset')


@pytest.mark.parametrize(
    'dataset',
    [
        dict(
            ADE, data_prefix=dict(img_path='images/training', seg_map_path='annotations/training')
        ),
        dict(COCO, data_prefix=dict(img='val2017/'), ann_file='annotations/instances_val2017.json'),
    ],
)
def test_training_looks_at_the_split_that_it_reads(dataset, tmp_path):
    with pytest.raises(UserError, match=r'training|val2017'):
        check_data(training_on(data_root=str(tmp_path), **dataset), ['train'])


@pytest.mark.parametrize(
    'dataset',
    [
        dict(ADE, data_prefix=dict(img_path='my/images', seg_map_path='my/labels')),
        dict(ADE, data_prefix=dict(img_path='images/training', seg_map_path='labels/training')),
        dict(COCO, data_prefix=dict(img='photos/'), ann_file='annotations/instances_mine.json'),
        dict(type='BaseSegDataset', data_prefix=dict(img_path='images/train')),
    ],
)
def test_files_in_places_of_ones_own_are_not_looked_for_elsewhere(dataset, tmp_path):
    check_data(training_on(data_root=str(tmp_path), **dataset), ['train'])


def test_one_entry_is_all_that_a_data_set_needs(tmp_path, monkeypatch):
    """By name and from a config, a new data set is found by its entry in CHECKS alone."""
    calls = []

    def run(root, **options):
        calls.append((root, options))
        return Report('mine', Path(root), True)

    entry = DatasetCheck(
        'mine', 'MyDataset', ('all',), run, lambda dataset: 'all', lambda dataset, model: {'x': 1}
    )
    monkeypatch.setitem(CHECKS, 'mine', entry)
    assert check('mine', tmp_path, quick=True).ok
    check_data(training_on(data_root=str(tmp_path), type='mmseg.MyDataset'), ['train'])
    assert calls == [
        (tmp_path, {'quick': True}),
        (str(tmp_path), {'quick': True, 'splits': ['all'], 'x': 1}),
    ]


def test_the_tool_offers_every_check():
    splits = main_of('check_data.py').__globals__['SPLITS']
    assert splits == {name: entry.splits for name, entry in CHECKS.items()}
