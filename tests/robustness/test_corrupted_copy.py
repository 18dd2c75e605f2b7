"""Corrupted copies on disk: the images of the sweep, whatever wrote them, and only once."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from forked import KillWhileWriting, run
from mmengine.registry import MODELS, init_default_scope
from PIL import Image
from robustness_models import SmallModel
from tiny_imagenet import small_steps, write_imagenet
from tool import config_file

from cb_mm.apis import corrupt_dataset, evaluate_robustness
from cb_mm.config.loading import load_config
from cb_mm.corruption import corrupt, noise_generator
from cb_mm.errors import UserError
from cb_mm.robustness import corrupted_copy

NO_WORKERS = ['test_dataloader.num_workers=0', 'test_dataloader.persistent_workers=False']


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a copy, without following the links to labels."""
    return {
        os.path.relpath(os.path.join(place, name), folder): Path(place, name).read_bytes()
        for place, _, names in os.walk(folder)
        for name in names
        if not Path(place, name).is_symlink()
    }


def score(report, key: str = 'clean') -> dict:
    cell = next(cell for cell in report.cells if cell.key == key)
    return {name: value['values'] for name, value in cell.metrics.items()}


@pytest.fixture(params=['seg', 'det'])
def model(request) -> SmallModel:
    return request.getfixturevalue(request.param)


@pytest.mark.slow
def test_a_test_on_the_copy_gives_the_score_of_the_sweep(model, tmp_path):
    """To the last digit, with the plain config and the names of the original."""
    names = ['gaussian_noise=40', 'glass_blur=3']
    copy = corrupt_dataset(model.config, tmp_path / 'copy', corruptions=names,
                           data_root=model.data, seed=3)  # fmt: skip
    assert (copy.images, copy.written) == (4, 8)
    options = dict(checkpoint=model.checkpoint, cfg_options=NO_WORKERS)
    swept = evaluate_robustness(model.config, corruptions=names, repeats=1, seed=3,
                                data_root=model.data, **options)  # fmt: skip
    clean = score(swept)
    for key, folder in copy.folders.items():
        found = score(evaluate_robustness(model.config, data_root=folder, **options))
        assert found == score(swept, key)
        assert found != clean


@pytest.mark.slow
def test_a_copy_of_a_classifiers_images_has_the_crops(tmp_path, capsys):
    """In the layout of ImageNet-C, which --test-set imagenet-c reads."""
    pytest.importorskip('mmpretrain', reason='classification needs mmpretrain')
    data = write_imagenet(tmp_path / 'imagenet')
    config = config_file('imagenet_vit_ti')
    init_default_scope('mmpretrain')
    torch.manual_seed(0)
    built = MODELS.build(load_config(config, ['model.backbone.img_size=32']).model)
    torch.save({'state_dict': built.state_dict(), 'meta': {}}, tmp_path / 'model.pth')
    copy = corrupt_dataset(config, tmp_path / 'copy', corruptions=['contrast'], severity=4,
                           data_root=data, cfg_options=small_steps(), verbose=True)  # fmt: skip
    (folder,) = copy.folders.values()
    assert folder == tmp_path / 'copy' / 'contrast' / '4'
    # Without it, the crops would be resized and cropped again.
    assert f' --test-set imagenet-c --data-root {folder}/val' in capsys.readouterr().out
    written = sorted((folder / 'val').rglob('*.jpg'))
    original = sorted((data / 'val').rglob('*.jpg'))
    assert [f.relative_to(folder) for f in written] == [f.relative_to(data) for f in original]
    assert cv2.imread(str(written[0])).shape == (32, 32, 3)
    swept = evaluate_robustness(config, tmp_path / 'model.pth', corruptions=['contrast'],
                                severity=4, data_root=data, cfg_options=small_steps())  # fmt: skip
    few = ['model.backbone.img_size=32', *NO_WORKERS]
    found = evaluate_robustness(config, tmp_path / 'model.pth', test_set='imagenet-c',
                                data_root=folder / 'val', cfg_options=few)  # fmt: skip
    assert score(found) == score(swept, 'contrast=0.1')


def words(model: SmallModel, out: Path, *more: object) -> list:
    return ['--dataset', model.config, '--data-root', model.data, '--out', out,
            '--corruption', 'shot_noise', 'fog=2', '--seed', 5, *more]  # fmt: skip


@pytest.fixture(scope='module')
def whole(seg, tmp_path_factory) -> Path:
    """A copy by two workers: 4 images, six cells."""
    folder = tmp_path_factory.mktemp('copies')
    done = run('corrupt.py', *words(seg, folder / 'two', '--workers', 2), cwd=folder)
    assert done.code == 0, done.err
    assert '4 images × 6 = 24 files' in done.out
    assert '24 files written, 0 were there' in done.out
    return folder / 'two'


def test_pixels_are_those_of_the_functions(seg, whole):
    original = seg.data / 'images' / 'validation'
    for name in os.listdir(original):
        rng = noise_generator(5, 0, name, 'shot_noise', 12.0)
        image = cv2.imread(str(original / name))[..., ::-1]
        expected = corrupt(np.ascontiguousarray(image), 'shot_noise', rng, severity=3)
        file = whole / 'shot_noise' / '3' / 'images' / 'validation' / name
        assert file.read_bytes().startswith(b'\x89PNG')
        assert np.array_equal(cv2.imread(str(file))[..., ::-1], expected)
    labels = whole / 'fog' / 'level_2' / 'annotations' / 'validation'
    assert labels.is_symlink()
    assert labels.resolve() == (seg.data / 'annotations' / 'validation').resolve()


def test_same_bytes_without_workers_and_after_a_kill(seg, whole, tmp_path):
    assert len(content(whole)) == 24 + 1
    killed = tmp_path / 'killed'
    done = run('corrupt.py', *words(seg, killed), cwd=tmp_path, before=KillWhileWriting(9, 0.5))
    assert done.code == -9
    there = {name: data for name, data in content(killed).items() if name.endswith('.jpg')}
    assert 0 < len(there) < 24
    times = {name: (killed / name).stat().st_mtime_ns for name in there}
    done = run('corrupt.py', *words(seg, killed), cwd=tmp_path)
    assert done.code == 0, done.err
    assert f'{24 - len(there)} files written, {len(there)} were there' in done.out
    assert content(killed) == content(whole)
    assert {name: (killed / name).stat().st_mtime_ns for name in there} == times


def test_another_command_is_refused(seg, whole, tmp_path):
    options = dict(corruptions=['shot_noise', 'fog=2'], data_root=seg.data, seed=5)
    assert corrupt_dataset(seg.config, whole, **options).written == 0
    before = content(whole)
    for change, named in (
        (dict(seed=6), 'seed was 5, and now is 6'),
        (dict(format='jpg'), 'format was png, and now is jpg'),
        (dict(limit=2), 'its data was'),
        (dict(corruptions=['fog=2']), 'its cells was'),
    ):
        with pytest.raises(UserError, match=named):
            corrupt_dataset(seg.config, whole, **{**options, **change})
    assert content(whole) == before
    (tmp_path / 'mine').mkdir()
    (tmp_path / 'mine' / 'thesis.tex').write_text('')
    with pytest.raises(UserError, match='is not empty'):
        corrupt_dataset(seg.config, tmp_path / 'mine', **options)


def test_a_copy_among_the_images_is_refused(seg, tmp_path):
    """The next reader of the data set would find it there; a link to the folder is no way round."""
    data = tmp_path / 'data'
    shutil.copytree(seg.data, data)
    (tmp_path / 'link').symlink_to(data / 'images')
    before = content(data)
    options = dict(corruptions=['fog=2'], data_root=data, limit=1)
    for out in (
        data / 'images' / 'validation' / 'copy',
        data / 'annotations',
        tmp_path / 'link' / 'copy',
    ):
        with pytest.raises(UserError, match=r'is inside the data set .*data/'):
            corrupt_dataset(seg.config, out, **options)
    assert content(data) == before
    assert corrupt_dataset(seg.config, data / 'fog', **options).written == 1


def test_labels_are_linked_again_when_the_data_have_moved(seg, tmp_path):
    shutil.copytree(seg.data, tmp_path / 'old')
    options = dict(corruptions=['fog=2'])
    copy = corrupt_dataset(seg.config, tmp_path / 'out', data_root=tmp_path / 'old', **options)
    (labels,) = [path for path in copy.folders['fog=2'].rglob('*') if path.is_symlink()]
    (tmp_path / 'old').rename(tmp_path / 'new')
    assert not labels.exists()
    again = corrupt_dataset(seg.config, tmp_path / 'out', data_root=tmp_path / 'new', **options)
    assert again.written == 0
    assert len(list(labels.iterdir())) == copy.images


def test_jpeg_of_a_quality(seg, tmp_path):
    options = dict(corruptions=['contrast=0.5'], data_root=seg.data, format='jpg', limit=1)
    sizes = []
    for quality in (None, 20):
        corrupt_dataset(seg.config, tmp_path / f'{quality}', quality=quality, **options)
        (file,) = (tmp_path / f'{quality}').rglob('*.jpg')
        assert file.read_bytes().startswith(b'\xff\xd8')
        sizes.append(file.stat().st_size)
    assert sizes[0] > 1.5 * sizes[1]


def test_labels_beside_the_images_are_linked_one_by_one(seg, tmp_path):
    """A link to their folder would write the corrupted images over the originals."""
    data, folder = tmp_path / 'data', tmp_path / 'data' / 'all'
    shutil.copytree(seg.data / 'images' / 'validation', folder)
    shutil.copytree(seg.data / 'annotations' / 'validation', folder, dirs_exist_ok=True)
    before = content(data)
    prefix = 'test_dataloader.dataset.data_prefix'
    same = [f'{prefix}.{key}=all' for key in ('img_path', 'seg_map_path')]
    copy = corrupt_dataset(seg.config, tmp_path / 'out', corruptions=['fog=2'],
                           data_root=data, cfg_options=same)  # fmt: skip
    assert content(data) == before
    (out,) = copy.folders.values()
    assert sorted(os.listdir(out / 'all')) == sorted(os.listdir(folder))
    assert all((out / 'all' / n).is_symlink() == n.endswith('.png') for n in os.listdir(folder))


VOC_DETECTION = """
pipeline = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations', with_bbox=True)]
test_dataloader = dict(
    dataset=dict(
        type='mmdet.VOCDataset', data_root={root!r}, ann_file='VOC2007/ImageSets/Main/test.txt',
        data_prefix=dict(sub_data_root='VOC2007/'), test_mode=True, pipeline=pipeline,
    )
)
default_scope = 'mmdet'
"""
VOC_OBJECT = """<annotation><size><width>40</width><height>30</height></size><object>
<name>dog</name><bndbox><xmin>2</xmin><ymin>3</ymin><xmax>20</xmax><ymax>25</ymax></bndbox>
</object></annotation>"""


@pytest.mark.parametrize('beside', [False, True])
def test_pascal_vocs_boxes_are_linked(tmp_path, beside):
    """They are in a file for each image, in a folder that the config does not name."""
    voc = tmp_path / 'VOCdevkit' / 'VOC2007'
    files = {
        'ImageSets/Main/test.txt': b'000001\n',
        'Annotations/000001.xml': VOC_OBJECT.encode(),
        'JPEGImages/000001.jpg': cv2.imencode('.jpg', np.zeros((30, 40, 3), np.uint8))[1],
    }
    folder = 'JPEGImages' if beside else 'Annotations'
    for name, data in files.items():
        file = voc / name.replace('Annotations', folder)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(data))
    before = content(voc)
    text = VOC_DETECTION.format(root=str(voc.parent))
    if beside:
        text += "test_dataloader['dataset']['ann_subdir'] = 'JPEGImages'\n"
    (tmp_path / 'voc.py').write_text(text)
    copy = corrupt_dataset(tmp_path / 'voc.py', tmp_path / 'out', corruptions=['fog=2'])
    assert content(voc) == before
    (out,) = copy.folders.values()
    assert (out / 'VOC2007' / folder / '000001.xml').read_text() == VOC_OBJECT
    assert not (out / 'VOC2007' / 'JPEGImages' / '000001.jpg').is_symlink()


def test_a_list_of_images_inside_the_folder_of_labels(seg, tmp_path):
    """A second link, to the list, would take the place of the original."""
    data = tmp_path / 'data'
    shutil.copytree(seg.data, data)
    name = min(os.listdir(data / 'images' / 'validation')).rpartition('.')[0]
    (data / 'annotations' / 'validation' / 'some.txt').write_text(f'{name}\n')
    before = content(data)
    some = 'test_dataloader.dataset.ann_file=annotations/validation/some.txt'
    copy = corrupt_dataset(seg.config, tmp_path / 'out', corruptions=['fog=2'], data_root=data,
                           cfg_options=[some])  # fmt: skip
    assert content(data) == before
    assert copy.images == 1
    (out,) = copy.folders.values()
    assert (out / 'annotations' / 'validation').is_symlink()
    assert (out / 'annotations' / 'validation' / 'some.txt').read_text() == f'{name}\n'


@pytest.mark.parametrize(('images', 'labels'), [('.', './'), ('all', 'all/../all')])
def test_other_names_of_the_folder_of_the_images(seg, tmp_path, images, labels):
    """Linked by such a name, it would have the corrupted images written over the originals."""
    data = tmp_path / 'data'
    shutil.copytree(seg.data / 'images' / 'validation', data / images)
    shutil.copytree(seg.data / 'annotations' / 'validation', data / images, dirs_exist_ok=True)
    before = content(data)
    prefix = 'test_dataloader.dataset.data_prefix'
    same = [f'{prefix}.img_path={images}', f'{prefix}.seg_map_path={labels}']
    copy = corrupt_dataset(seg.config, tmp_path / 'out', corruptions=['fog=2'],
                           data_root=data, cfg_options=same)  # fmt: skip
    assert content(data) == before
    (out,) = copy.folders.values()
    assert not out.is_symlink()
    assert sorted(os.listdir(out / images)) == sorted(os.listdir(data / images))


def test_nothing_is_linked_outside_of_the_copy(seg, tmp_path):
    """Such a link would be a file of the folder above, such as one that a shell runs."""
    data = tmp_path / 'data'
    shutil.copytree(seg.data, data / 'inside')
    shutil.copytree(seg.data / 'annotations' / 'validation', data / '.bash_profile')
    with pytest.raises(UserError, match=r'\.bash_profile is not below data_root'):
        corrupt_dataset(
            seg.config, tmp_path / 'home' / 'out', corruptions=['fog=2'],
            data_root=data / 'inside',
            cfg_options=['test_dataloader.dataset.data_prefix.seg_map_path=../.bash_profile'],
        )  # fmt: skip
    assert not [*tmp_path.glob('home/**/.bash_profile')]


def test_too_small_a_disk_ends_it_early(seg, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(corrupted_copy.shutil, 'disk_usage', lambda _: usage)
    options = dict(corruptions=['fog=2'], data_root=seg.data)
    with pytest.raises(UserError, match=r'needs about 0\.0 GB more .judged by 3 images'):
        corrupt_dataset(seg.config, tmp_path / 'out', **options)
    monkeypatch.undo()
    assert corrupt_dataset(seg.config, tmp_path / 'out', **options).written == 1


def test_a_broken_image_is_named(seg, tmp_path):
    shutil.copytree(seg.data, tmp_path / 'data')
    broken = sorted((tmp_path / 'data' / 'images' / 'validation').iterdir())[1]
    broken.write_bytes(broken.read_bytes()[:300])
    with pytest.raises(UserError, match=broken.name):
        corrupt_dataset(seg.config, tmp_path / 'out', corruptions=['fog=2'],
                        data_root=tmp_path / 'data')  # fmt: skip


@pytest.mark.parametrize('value', [3, 6])
def test_an_image_that_is_turned_without_its_label_map_is_not_copied(seg, tmp_path, value):
    """The copy has the rotated pixels and no tag, so nobody could tell later."""
    shutil.copytree(seg.data, tmp_path / 'data')
    # The quick check at the start looks at the first, the third and the last.
    second = sorted((tmp_path / 'data' / 'images' / 'validation').iterdir())[1]
    tags = Image.Exif()
    tags[0x0112] = value
    with Image.open(second) as picture:
        picture.save(second, exif=tags)
    options = dict(corruptions=['fog=2'], data_root=tmp_path / 'data')
    with pytest.raises(UserError, match=f'{second.name} has the EXIF orientation {value}'):
        corrupt_dataset(seg.config, tmp_path / 'out', **options)
    assert not list((tmp_path / 'out').rglob(second.name))


@pytest.mark.parametrize(
    ('more', 'told'),
    [
        (['--width', '50'], '--width and --detail are for contact sheets'),
        (['--format', 'svg'], 'a copy is png or jpg'),
        (['--quality', '50'], '--quality is for --format jpg'),
        (['--workers', '-1'], '--workers -1: it must be at least 0'),
        (['picture.jpg'], 'give image files for contact sheets, or --dataset'),
    ],
)
def test_mistakes(seg, tmp_path, more, told):
    done = run('corrupt.py', *words(seg, tmp_path / 'out', *more), cwd=tmp_path)
    assert done.code == 2
    assert told in done.err
    assert not (tmp_path / 'out').exists()


def test_the_identity_is_on_disk(seg, whole):
    about = json.loads((whole / 'copy.json').read_text())
    assert (about['seed'], about['images'], len(about['cells'])) == (5, 4, 6)
    assert about['software']['cb_mm']
