"""Predictions by the tool and from Python: equal to the inferencers', complete, resumed."""

from __future__ import annotations

import csv
import json
import shutil

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from pycocotools.coco import COCO
from robustness_models import SmallModel
from tool import main_of

from cb_mm.apis import predict
from cb_mm.checkpoints.load_model import load_model
from cb_mm.corruption import ImageCorruption
from cb_mm.errors import UserError
from cb_mm.prediction.categories import category_ids
from cb_mm.prediction.sheets import captioned


@pytest.fixture(scope='module')
def models(tmp_path_factory, scenes) -> dict[str, SmallModel]:
    folder = tmp_path_factory.mktemp('predict')
    data = {'seg': scenes.ade20k, 'det': scenes.coco}
    return {task: SmallModel(folder, task, data[task], own_labels=False) for task in data}


@pytest.fixture(scope='module')
def photos(scenes):
    return sorted((scenes.ade20k / 'images' / 'validation').glob('*.jpg'))


@pytest.fixture(scope='module')
def tool():
    return main_of('predict.py')


def words(model: SmallModel, *more: object) -> list[str]:
    return [str(word) for word in (model.config, model.checkpoint, *more)]


def table(folder) -> list[dict[str, str]]:
    with (folder / 'predictions.csv').open() as stream:
        return list(csv.DictReader(stream))


def test_label_maps_are_those_of_mmsegs_inferencer(models, photos, tool, tmp_path):
    from mmseg.apis import MMSegInferencer

    small = models['seg']
    files = [str(photo) for photo in photos]
    inferencer = MMSegInferencer(
        small.prepared(), str(small.checkpoint), classes=('x',) * 16, palette=[[0, 0, 0]] * 16,
        device='cpu',
    )  # fmt: skip
    theirs = inferencer(files, return_datasamples=True, batch_size=1)
    assert tool(words(small, photos[0].parent, '--out', tmp_path)) == 0
    seen = set()
    for photo, sample in zip(photos, theirs, strict=True):
        picture = Image.open(tmp_path / 'labels' / f'{photo.stem}.png')
        ours = np.array(picture)
        assert np.array_equal(ours, sample.pred_sem_seg.data[0].numpy())
        seen.update(np.unique(ours).tolist())
        assert picture.mode == 'P'
    assert len(seen) > 2, 'the model tells classes apart'
    rows = table(tmp_path)
    assert sum(int(row['pixels']) for row in rows) == len(photos) * 64 * 96
    assert sum(float(row['share']) for row in rows) == pytest.approx(len(photos))
    with (tmp_path / 'classes.csv').open() as stream:
        colours = {row['class']: row['colour'] for row in csv.DictReader(stream)}
    assert len(colours) == 16
    number = int(np.unique(ours)[0])
    painted = picture.getpalette()[3 * number : 3 * number + 3]
    assert list(colours.values())[number] == '#{:02x}{:02x}{:02x}'.format(*painted)


def test_boxes_are_those_of_mmdets_inferencer(models, scenes, tool, tmp_path):
    from mmdet.apis import DetInferencer

    small, folder = models['det'], scenes.coco / 'val2017'
    out = tmp_path / 'out'
    root = f'test_dataloader.dataset.data_root={scenes.coco}'
    more = ['--score', '0', '--cfg-options', root]
    assert tool(words(small, folder, '--out', out, *more)) == 0
    detector = DetInferencer(small.prepared(), str(small.checkpoint), device='cpu')
    found = COCO(str(out / 'predictions.json'))
    assert len(found.imgs) == 4
    total = 0
    for image in found.imgs.values():
        answer = detector(
            image['file_name'], return_datasamples=True, no_save_vis=True, print_result=False
        )
        objects = answer['predictions'][0].pred_instances
        ours = found.imgToAnns[image['id']]
        assert len(ours) == len(objects)
        total += len(ours)
        boxes = np.array([one['bbox'] for one in ours])
        boxes[:, 2:] += boxes[:, :2]
        np.testing.assert_allclose(boxes, objects.bboxes, atol=1e-5)  # width, and right
        assert [one['score'] for one in ours] == objects.scores.tolist()
        for one, mask in zip(ours, objects.masks, strict=True):
            assert np.array_equal(found.annToMask(one), mask.numpy())
    assert total > 20
    names = {one['id']: one['name'] for one in found.cats.values()}
    truth = COCO(str(scenes.coco / 'annotations' / 'instances_val2017.json'))
    assert names.items() <= {one['id']: one['name'] for one in truth.cats.values()}.items()
    assert len(names) == 6
    counted = sum(int(row['count']) for row in table(out))
    assert counted == total


def test_category_ids_without_a_file_of_annotations(models):
    from mmdet.datasets import CocoDataset

    config = models['det'].prepared()
    config.test_dataloader.dataset.data_root = 'nowhere/'
    assert category_ids(config, ['b', 'a']) == [1, 2]
    coco = category_ids(config, CocoDataset.METAINFO['classes'])
    assert (len(coco), coco[0], coco[11], coco[-1]) == (80, 1, 13, 90)


@pytest.mark.parametrize('kind', ['Config', 'built model'])
def test_from_python(kind, models, photos, tmp_path, capfd):
    small = models['seg']
    config = small.prepared()
    before, given = config.to_dict(), (config, small.checkpoint)
    more = {}
    if kind != 'Config':
        given, more = (load_model(config, small.checkpoint).train(), None), {'config': config}
    capfd.readouterr()
    found = predict(*given, photos[0], **more)
    assert capfd.readouterr() == ('', '')
    assert config.to_dict() == before
    (one,) = found
    assert (one.corruption, one.frame, one.size) == ('clean', None, (64, 96))
    assert one.pixels == one.result.pixels()
    assert one.result.labels.shape == (64, 96)
    assert found.overlay(one.name).shape[0] >= 64
    assert len(found.classes) == 16
    saved = {str(path.relative_to(tmp_path)) for path in found.save(tmp_path)}
    assert f'labels/{photos[0].stem}.png' in saved
    assert found.table() == (tmp_path / 'predictions.csv').read_text()
    if kind != 'Config':
        assert given[0].training
        with pytest.raises(UserError, match=r'^`config` is missing'):
            predict(given[0], None, photos[0])
        with pytest.raises(UserError, match=r'^`checkpoint`: the model is built'):
            predict(given[0], small.checkpoint, photos[0], **more)
    else:
        with pytest.raises(UserError, match=r'^`opacity` 2 is not between 0 and 1'):
            predict(*given, photos[0], opacity=2)


def test_detections_from_python_are_exact(models, scenes):
    small = models['det']
    photo = sorted((scenes.coco / 'val2017').glob('*.jpg'))[0]
    (one,) = predict(small.prepared(), small.checkpoint, photo)
    model = load_model(small.prepared(), small.checkpoint)
    model.cfg = small.prepared()
    from mmdet.apis import inference_detector

    theirs = inference_detector(model, str(photo)).pred_instances
    order = torch.argsort(theirs.scores, descending=True, stable=True)
    assert np.array_equal(one.result.boxes, theirs.bboxes[order].numpy())
    assert np.array_equal(one.result.scores, theirs.scores[order].numpy())
    assert np.array_equal(one.result.labels, theirs.labels[order].numpy())
    assert np.array_equal(one.result.masks, theirs.masks[order].numpy())


def test_corruption_is_that_of_a_test(models, photos, tmp_path, capsys):
    from cb_mm.apis import evaluate_robustness

    small, out = models['seg'], tmp_path / 'out'
    found = predict(
        small.prepared(), small.checkpoint, photos[:2], out=out,
        corruptions=['gaussian_noise=40', 'fog'], severity=3, side_by_side=True,
    )  # fmt: skip
    keys = ['clean', 'gaussian_noise=40', 'fog=3']
    assert [one.corruption for one in found] == keys * 2
    assert {path.name for path in out.iterdir() if path.is_dir()} == {*keys, 'overlays'}
    clean, noisy, _ = list(found)[:3]
    assert not np.array_equal(clean.result.labels, noisy.result.labels)
    # The very pixels that a test saves are in the picture.
    evaluate_robustness(
        small.prepared(), small.checkpoint, corruptions=['gaussian_noise=40'], repeats=1, limit=1,
        save_corrupted=tmp_path / 'corrupted',
    )  # fmt: skip
    saved = cv2.imread(str(tmp_path / 'corrupted/gaussian_noise=40' / f'{photos[0].stem}.png'))
    sheet = found.overlay(clean.name)
    strip = captioned(saved, 'x').shape[0] - 64
    top = 2 * strip + 64
    assert np.array_equal(sheet[top : top + 64, :96], saved[..., ::-1])
    with pytest.raises(UserError, match=r'fogg'):
        predict(small.prepared(), small.checkpoint, photos[0], corruptions=['fogg=3'])


def test_resumes_and_refuses(models, photos, tool, tmp_path, capsys):
    small, out = models['seg'], tmp_path / 'out'
    assert tool(words(small, *photos[:2], '--out', out)) == 0
    first = (out / 'predictions.jsonl').read_bytes()
    dates = {file: file.stat().st_mtime_ns for file in out.rglob('*.png')}
    assert tool(words(small, *photos, '--out', out)) == 2
    assert 'Pass --resume to skip what is finished' in capsys.readouterr().err
    assert tool(words(small, *photos, '--out', out, '--resume')) == 0
    assert (out / 'predictions.jsonl').read_bytes().startswith(first)
    assert all(file.stat().st_mtime_ns == date for file, date in dates.items()), 'skipped'
    assert len({row['image'] for row in table(out)}) == 4
    assert tool(words(small, *photos, '--out', out, '--resume', '--opacity', '0.7')) == 2
    assert 'opacity (0.5 there, 0.7 here)' in capsys.readouterr().err
    assert tool(words(small, photos[0], '--out', out, '--overwrite')) == 0
    assert len({row['image'] for row in table(out)}) == 1
    changed = tmp_path / 'changed.jpg'
    shutil.copy(photos[0], changed)
    assert tool(words(small, changed, '--out', out, '--resume')) == 0
    shutil.copy(photos[1], changed)
    assert tool(words(small, changed, '--out', out, '--resume')) == 2
    assert 'changed.jpg has changed since it was predicted' in capsys.readouterr().err


def test_a_broken_image_is_named_and_the_others_are_finished(
    models, photos, tool, tmp_path, capsys
):
    folder = tmp_path / 'photos'
    for place in ('one', 'two'):
        (folder / place).mkdir(parents=True)
        shutil.copy(photos[0], folder / place / 'same.jpg')
    for name in ('cut.jpg', 'short.jpg'):
        (folder / name).write_bytes(photos[0].read_bytes()[:600])
    assert tool(words(models['seg'], folder, '--out', tmp_path / 'out')) == 2
    said = capsys.readouterr().err
    assert 'cut.jpg' in said
    assert 'short.jpg' in said
    assert '(all other inputs were predicted)' in said
    assert 'Traceback' not in said
    labels = {
        str(f.relative_to(tmp_path / 'out')) for f in (tmp_path / 'out').rglob('labels/**/*.png')
    }
    assert labels == {'labels/one/same.png', 'labels/two/same.png'}
    assert len({row['image'] for row in table(tmp_path / 'out')}) == 2


def test_video_frame_by_frame(models, photos, tool, tmp_path, capsys):
    clip = tmp_path / 'clip.avi'
    writer = cv2.VideoWriter(str(clip), cv2.VideoWriter_fourcc(*'MJPG'), 8, (96, 64))
    for photo in [*photos, *photos]:
        writer.write(cv2.imread(str(photo)))
    writer.release()
    out = tmp_path / 'out'
    assert tool(words(models['seg'], clip, '--out', out, '--batch-size', '3')) == 0
    video = cv2.VideoCapture(str(out / 'videos' / 'clip.mp4'))
    assert int(video.get(cv2.CAP_PROP_FRAME_COUNT)) == 8
    assert video.get(cv2.CAP_PROP_FPS) == pytest.approx(8)
    there, frame = video.read()
    assert there
    assert frame.shape[0] >= 64
    assert frame.shape[1] > 96
    rows = table(out)
    assert {row['frame'] for row in rows} == {str(k) for k in range(8)}
    reader = cv2.VideoCapture(str(clip))
    from mmseg.apis import inference_model

    model = load_model(models['seg'].prepared(), models['seg'].checkpoint)
    model.cfg = models['seg'].prepared()
    lines = [json.loads(line) for line in (out / 'videos' / 'clip.jsonl').read_text().splitlines()]
    for line in lines[:2]:
        theirs = inference_model(model, reader.read()[1]).pred_sem_seg.data[0].numpy()
        pixels = np.bincount(theirs.ravel(), minlength=16)
        for number, count in line['results'][0]['pixels'].items():
            pixels[int(number)] -= count
        assert np.abs(pixels).sum() <= 12, 'a batch of three may round a pixel differently'
    assert not list(out.rglob('.*.part*'))
    assert tool(words(models['seg'], clip, '--out', out, '--resume')) == 0, 'nothing to do'
    assert tool(words(models['seg'], clip, '--out', tmp_path / 'two', '--limit', '2')) == 0
    assert len({row['frame'] for row in table(tmp_path / 'two')}) == 2
    assert tool(words(models['seg'], '96', '--out', tmp_path / 'cam')) == 2
    assert 'camera 96 cannot be opened' in capsys.readouterr().err
    frames = list(predict(models['seg'].prepared(), models['seg'].checkpoint, clip, limit=1))
    assert frames[0].frame == 0
    assert sum(frames[0].pixels.values()) == 64 * 96


def test_noise_of_a_frame_depends_on_its_number_alone():
    frame = np.full((8, 8, 3), 100, np.uint8)
    noise = ImageCorruption('gaussian_noise', level=10)
    one, again, other = (
        noise({'img': frame, 'img_path': f'clip/{number:06d}'})['img'] for number in (1, 1, 2)
    )
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_a_published_classifier_as_timm_ranks(shared, tool, tmp_path):
    import timm
    from safetensors.torch import load_file
    from timm.data import create_transform, resolve_data_config

    pytest.importorskip('mmpretrain')
    weights = shared / 'weights' / 'deit_tiny_patch16_224_in1k.safetensors'
    photos = sorted((shared / 'data' / 'imagenet_val' / 'val').glob('*/*.JPEG'))[39:45:5]
    model = timm.create_model('deit_tiny_patch16_224').eval()
    model.load_state_dict(load_file(weights))
    crop = {'crop_pct': 0.875}  # of 256, as in the config
    prepare = create_transform(**resolve_data_config(crop, model=model))
    assert tool(['imagenet_vit_ti', str(weights), *map(str, photos), '--out', str(tmp_path)]) == 0
    rows = table(tmp_path)
    assert len(rows) == 5 * len(photos)
    names = timm.data.ImageNetInfo()
    for place, photo in enumerate(photos):
        with torch.no_grad():
            inputs = prepare(Image.open(photo).convert('RGB'))[None]
            best = model(inputs).softmax(1)[0].topk(5)
        ours = rows[5 * place : 5 * place + 5]
        assert [float(row['score']) for row in ours] == pytest.approx(
            best.values.tolist(), abs=2e-2
        )
        assert ours[0]['class'] == names.index_to_description(int(best.indices[0]))
        assert [row['rank'] for row in ours] == list('12345')
