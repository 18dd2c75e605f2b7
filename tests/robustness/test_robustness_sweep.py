"""The sweep in one process: upstream's figures, continuing, refusing, pictures, comparing."""

from __future__ import annotations

import copy
import json
import shutil
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from PIL import Image
from robustness_models import SmallModel, records, scores

from cb_mm.corruption import corrupt_dataset_cfg
from cb_mm.errors import UserError
from cb_mm.robustness import SweepOptions, read_results, sweep
from cb_mm.robustness.console_log import quiet_console
from cb_mm.robustness.passes import follow

pytestmark = pytest.mark.slow  # each test runs several sweeps


@pytest.fixture(params=['seg', 'det'])
def model(request):
    return request.getfixturevalue(request.param)


def test(model, out, *options, **more):
    """Run the sweep without workers (they are tested elsewhere)."""
    words = ['test_dataloader.num_workers=0', 'test_dataloader.persistent_workers=False', *options]
    more = {'checkpoint': str(model.checkpoint), 'data_root': str(model.data), **more}
    options = SweepOptions(str(model.config), out=str(out), seed=0, cfg_options=words, **more)
    return sweep(options, sys.stdout)


test.__test__ = False  # it is no test


PLAN = dict(corruption=['gaussian_noise=20', 'gaussian_blur=2'], repeats=2, fgsm=[0, 4])


@pytest.fixture(scope='module')
def swept(tmp_path_factory):
    """``swept(model)``: the results of `PLAN`, measured once for all tests that only look."""
    found = {}

    def results(model) -> Path:
        if model.task not in found:
            found[model.task] = tmp_path_factory.mktemp(f'swept_{model.task}')
            test(model, found[model.task], **PLAN)
        return found[model.task]

    return results


def upstream(model, *options, cell=None, folder):
    """What mmengine's own Runner says, as mmseg's and mmdet's tools/test.py run it."""
    with quiet_console():
        config = model.prepared(*options)
        config.work_dir, config.load_from = str(folder), str(model.checkpoint)
        if cell:
            loading = config.test_dataloader
            loading.dataset = corrupt_dataset_cfg(loading.dataset, cell)
        return {key: float(value) for key, value in Runner.from_cfg(config).test().items()}


def test_clean_equals_upstream_to_the_last_digit(model, swept, tmp_path):
    expected = upstream(model, folder=tmp_path / 'upstream')
    record = records(swept(model))['clean']
    assert record['upstream'] == expected
    assert any(0 < value < 100 for value in expected.values()), 'nothing was measured'
    text = (swept(model) / 'results.md').read_text()
    if model.task == 'seg':
        assert {name: round(record['metrics'][name], 2) for name in expected} == {
            name: pytest.approx(value, abs=1e-5) for name, value in expected.items()
        }
        assert f'| {record["metrics"]["mIoU"]:.2f} ' in text
    else:
        for name in ('bbox_mAP', 'segm_mAP'):
            assert round(record['metrics'][name] / 100, 3) == expected[f'coco/{name}']
            assert expected[f'coco/{name}'] > 0
    assert len(record['per_class']) == 2
    assert all(name in record['per_class'] for name in {'seg': ['IoU'], 'det': []}[model.task])


def test_corrupted_equals_upstream_with_the_transform_in_its_pipeline(model, swept, tmp_path):
    cell = dict(type='ImageCorruption', name='gaussian_noise', level=20, seed=0, repeat=1)
    expected = upstream(model, cell=cell, folder=tmp_path / 'upstream')
    found = records(swept(model))
    assert found['gaussian_noise=20_1']['upstream'] == expected
    assert found['gaussian_noise=20_0']['metrics'] != found['gaussian_noise=20_1']['metrics']


def test_per_class_and_per_image_scores_are_those_of_the_whole(seg, swept):
    record = records(swept(seg))['clean']
    known = [value for value in record['per_class']['IoU'].values() if value is not None]
    assert np.mean(known) == pytest.approx(record['metrics']['mIoU'], rel=1e-5)
    rows = (swept(seg) / 'scores' / 'clean.csv').read_text().splitlines()
    assert rows[0] == 'image,mIoU,aAcc'
    assert len(rows) == 5
    # Accuracies average, weighted by the labelled pixels (0 is not labelled).
    labels = seg.data / 'annotations' / 'validation'
    labelled = [
        np.count_nonzero(np.array(Image.open(labels / f'{Path(row.split(",")[0]).stem}.png')))
        for row in rows[1:]
    ]
    accuracy = np.average([float(row.split(',')[2]) for row in rows[1:]], weights=labelled)
    assert accuracy == pytest.approx(record['metrics']['aAcc'], abs=1e-3)


def test_detections_image_by_image(det, swept, tmp_path):
    """AP of an image alone is what upstream says when the data set is that image."""
    rows = (swept(det) / 'scores' / 'clean.csv').read_text().splitlines()
    annotations = json.loads((det.data / 'annotations' / 'instances_val2017.json').read_text())
    for place, image in enumerate(annotations['images'][:2]):
        one = {**annotations, 'images': [image]}
        one['annotations'] = [a for a in annotations['annotations'] if a['image_id'] == image['id']]
        file = tmp_path / f'{place}.json'
        file.write_text(json.dumps(one))
        files = [f'test_dataloader.dataset.ann_file={file}', f'test_evaluator.ann_file={file}']
        expected = upstream(det, *files, folder=tmp_path / 'upstream')
        name, box, mask = rows[place + 1].split(',')
        assert name == image['file_name']
        # Upstream's mAP takes 100 detections, and rounds.
        assert float(box) / 100 == pytest.approx(expected['coco/bbox_mAP'], abs=6e-4)
        assert float(mask) / 100 == pytest.approx(expected['coco/segm_mAP'], abs=6e-4)


def test_limit_equals_upstream_on_these_images_alone(model, tmp_path):
    options = ['test_dataloader.dataset.indices=2']
    if model.task == 'det':
        annotations = json.loads((model.data / 'annotations/instances_val2017.json').read_text())
        annotations['images'] = annotations['images'][:2]
        ids = {image['id'] for image in annotations['images']}
        annotations['annotations'] = [a for a in annotations['annotations'] if a['image_id'] in ids]
        file = tmp_path / 'two.json'
        file.write_text(json.dumps(annotations))
        options = [f'test_dataloader.dataset.ann_file={file}', f'test_evaluator.ann_file={file}']
    expected = upstream(model, *options, folder=tmp_path / 'upstream')
    test(model, tmp_path / 'out', limit=2)
    assert records(tmp_path / 'out')['clean']['upstream'] == expected
    assert records(tmp_path / 'out')['clean']['images'] == 2


def test_fgsm_without_a_step_is_clean(model, swept):
    found = records(swept(model))
    assert found['fgsm=0']['upstream'] == found['clean']['upstream']
    assert found['fgsm=0']['metrics'] == found['clean']['metrics']
    assert found['fgsm=4']['metrics'] != found['clean']['metrics']
    if model.task == 'seg':
        assert found['fgsm=4']['metrics']['aAcc'] < found['clean']['metrics']['aAcc']


def test_workers_batches_and_memory_do_not_change_figures(model, swept, tmp_path):
    once = swept(model)
    test(model, tmp_path / 'b', 'test_dataloader.num_workers=2', cache_mb=0, **PLAN)
    assert scores(once) == scores(tmp_path / 'b')
    if model.task == 'seg':
        test(model, tmp_path / 'c', 'test_dataloader.batch_size=4', **PLAN)
        for key, record in records(tmp_path / 'c').items():
            # The images are the same bytes; sums in other orders may turn single pixels.
            assert record['metrics'] == pytest.approx(records(once)[key]['metrics'], abs=0.05)


def test_a_finished_sweep_is_not_repeated(seg, tmp_path, capsys):
    options = dict(corruption=['gaussian_noise=10'], repeats=2)
    test(seg, tmp_path / 'out', **options)
    before = (tmp_path / 'out' / 'results.jsonl').read_bytes()
    results = json.loads((tmp_path / 'out' / 'results.json').read_text())
    capsys.readouterr()
    test(seg, tmp_path / 'out', **options)
    assert (tmp_path / 'out' / 'results.jsonl').read_bytes() == before
    assert json.loads((tmp_path / 'out' / 'results.json').read_text()) == results
    assert '3 of 3 passes, by an earlier run' in capsys.readouterr().out


def test_it_goes_on_after_the_last_whole_line(seg, tmp_path):
    options = dict(corruption=['gaussian_noise=10'], repeats=3)
    test(seg, tmp_path / 'whole', **options)
    lines = (tmp_path / 'whole' / 'results.jsonl').read_bytes().splitlines(keepends=True)
    for kept, torn in ((1, b''), (3, lines[3][:50]), (4, lines[4][:-1])):
        out = tmp_path / f'cut{kept}'
        shutil.copytree(tmp_path / 'whole' / 'scores', out / 'scores')
        (out / 'results.jsonl').write_bytes(b''.join(lines[:kept]) + torn)
        test(seg, out, **options)
        after = (out / 'results.jsonl').read_bytes().splitlines(keepends=True)
        assert after[:kept] == lines[:kept], 'what was finished was not repeated'
        assert scores(out) == scores(tmp_path / 'whole')


def test_another_command_is_refused(seg, tmp_path):
    out = tmp_path / 'out'
    test(seg, out)
    before = (out / 'results.jsonl').read_bytes()
    other = SmallModel(tmp_path, 'seg', seg.data, seed=1, own_labels=False)
    for options, word in (
        (dict(corruption=['gaussian_blur=2']), 'cells'),
        (dict(limit=3), r'images \(4 there, 3 here\)'),
        (dict(checkpoint=str(other.checkpoint)), 'checkpoint'),
    ):
        with pytest.raises(UserError, match=rf'{word}.*`out`'):
            test(seg, out, **options)
    with pytest.raises(UserError, match=r'different: config'):
        test(seg, out, 'model.decode_head.align_corners=True')
    assert (out / 'results.jsonl').read_bytes() == before
    test(seg, out, 'test_dataloader.num_workers=1', cache_mb=1)  # changes nothing that matters


def test_moved_data_are_the_same_data(model, tmp_path):
    test(model, tmp_path / 'out')
    moved = tmp_path / 'data'
    shutil.copytree(model.data, moved)
    test(model, tmp_path / 'out', data_root=f'{moved}/')
    folders = {'seg': ('images/validation', 'images/training'), 'det': ('val2017', 'train2017')}
    tested, others = (next((moved / name).iterdir()) for name in folders[model.task])
    tested.write_bytes(others.read_bytes())
    with pytest.raises(UserError, match='different: data'):
        test(model, tmp_path / 'out', data_root=str(moved))


def test_default_folder_is_one_for_each_command(seg, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = {
        test(seg, '', **options)
        for options in (dict(), dict(limit=2), dict(suite='clean'), dict(corruption=['fog=2']))
    }
    assert sorted(f.name.rsplit('_', 1)[0] for f in folders) == [
        'test_clean', 'test_clean', 'test_custom'
    ]  # fmt: skip
    assert {f.parent.as_posix() for f in folders} == {'work_dirs/seg_demo'}


def test_pictures(model, tmp_path):
    folders = dict(save_corrupted=str(tmp_path / 'saved'), show_dir=str(tmp_path / 'shown'))
    options = dict(corruption=['gaussian_noise=40'], repeats=2, fgsm=[4], limit=2)
    test(model, tmp_path / 'out', **options)
    before = (tmp_path / 'out' / 'results.jsonl').read_bytes()
    test(model, tmp_path / 'out', **options, **folders)  # asked for afterwards
    assert (tmp_path / 'out' / 'results.jsonl').read_bytes() == before
    for name, cells in (('saved', 2), ('shown', 3)):
        files = sorted((tmp_path / name).rglob('*'))
        pictures = [f for f in files if f.is_file()]
        assert len(pictures) == 2 * cells
        assert {f.suffix for f in pictures} == {'.png'}
        assert all(cv2.imread(str(f)) is not None for f in pictures)
    assert (tmp_path / 'shown' / 'clean').is_dir()
    assert not (tmp_path / 'saved' / 'clean').exists()
    stamps = {f: f.stat().st_mtime_ns for f in (tmp_path / 'saved').rglob('*.png')}
    test(model, tmp_path / 'out', **options, **folders)
    assert {f: f.stat().st_mtime_ns for f in (tmp_path / 'saved').rglob('*.png')} == stamps


def test_other_processes_end_silently_where_the_main_one_has_no_plan():
    with pytest.raises(SystemExit) as ended:
        follow(None, None)
    assert ended.value.code == 2


def test_comparing_two_models(seg, tmp_path):
    other = SmallModel(tmp_path, 'seg', seg.data, seed=1, own_labels=False)
    options = dict(corruption=['gaussian_noise=10', 'gaussian_blur=2'], repeats=3)
    test(other, tmp_path / 'other', **options)
    out = tmp_path / 'this'
    test(seg, out, compare=str(tmp_path / 'other' / 'results.json'), **options)
    rows = {row['key']: row for row in read_results(out)['comparison']['rows']}
    assert rows['gaussian_noise=10']['difference']['method'] == 'paired'
    assert rows['gaussian_blur=2']['difference']['method'] == 'single'
    mine, theirs = records(out), records(tmp_path / 'other')
    gaps = [
        mine[f'gaussian_noise=10_{k}']['metrics']['mIoU']
        - theirs[f'gaussian_noise=10_{k}']['metrics']['mIoU']
        for k in range(3)
    ]
    assert rows['gaussian_noise=10']['difference']['mean'] == pytest.approx(np.mean(gaps))
    text = (out / 'results.md').read_text()
    assert 'paired, n = 3' in text
    assert 'seg (demo), seg_0.pth minus seg (demo), seg_1.pth' in text
    assert (out / 'comparison.csv').read_text().count('\n') == 4
    with pytest.raises(UserError, match=r'different images \(4, here 2\)'):
        test(seg, tmp_path / 'few', compare=str(tmp_path / 'other'), limit=2)


def test_grey_and_four_channel_images(seg, tmp_path):
    """Whatever the file holds, the model gets three channels, and the corruption works."""
    data = tmp_path / 'data'
    shutil.copytree(seg.data, data)
    for number, file in enumerate(sorted((data / 'images' / 'validation').iterdir())):
        image = cv2.imread(str(file))
        if number == 0:
            image = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
        elif number == 1:
            alpha = np.full((*image.shape[:2], 1), 128, np.uint8)
            image = np.dstack([image, alpha])
        cv2.imwrite(str(file.with_suffix('.png')), image)
        file.unlink()
    options = dict(corruption=['gaussian_noise=10', 'fog=2', 'shot_noise=255'], repeats=1)
    out = tmp_path / 'out'
    config = tmp_path / 'png.py'
    config.write_text(
        seg.config.read_text()
        + "\ntest_dataloader = dict(dataset=dict(type='BaseSegDataset', img_suffix='.png', "
        "seg_map_suffix='.png', reduce_zero_label=True, pipeline=test_pipeline, "
        "metainfo=dict(_delete_=True, classes=[f'class {i}' for i in range(150)], "
        'palette=[[0, 0, 0]] * 150)))\n'
    )
    folders = dict(out=str(out), data_root=str(data), save_corrupted=str(tmp_path / 'saved'))
    sweep(SweepOptions(str(config), checkpoint=str(seg.checkpoint), **folders, **options))
    assert len(records(out)) == 4
    saved = [cv2.imread(str(f), cv2.IMREAD_UNCHANGED) for f in (tmp_path / 'saved').rglob('*.png')]
    assert len(saved) == 12
    assert all(image.shape == (64, 96, 3) for image in saved)


REAL_COCO = """
model['roi_head'] = dict(bbox_head=dict(num_classes=80), mask_head=dict(num_classes=80))
coco = dict(_delete_=True, type='CocoDataset', data_prefix=dict(img='val2017/'), test_mode=True,
            ann_file='annotations/instances_val2017.json', data_root='data', pipeline=test_pipeline)
test_dataloader = dict(dataset=coco)
test_evaluator = dict(ann_file='data/annotations/instances_val2017.json')
"""


def test_real_coco_with_crowds_and_images_without_objects(det, shared, tmp_path):
    """All 80 classes, and whatever real annotations hold."""
    config = tmp_path / 'real.py'
    config.write_text(det.config.read_text() + REAL_COCO)
    real = copy.copy(det)
    real.config, real.data, real.folder = config, shared / 'data' / 'coco_mini', tmp_path
    real.checkpoint = tmp_path / 'real.pth'
    with quiet_console():
        init_default_scope('mmdet')
        torch.manual_seed(0)
        model = MODELS.build(real.prepared().model)
        torch.save(model.state_dict(), real.checkpoint)
    content = json.loads((real.data / 'annotations/instances_val2017.json').read_text())
    crowds = {a['image_id'] for a in content['annotations'] if a['iscrowd']}
    there = {a['image_id'] for a in content['annotations']}
    images = content['images']
    chosen = [i for i in images if i['id'] not in there][:1]
    chosen += [i for i in images if i['id'] in crowds][:1] + images[:2]
    content['images'] = list({image['id']: image for image in chosen}.values())
    kept = {image['id'] for image in content['images']}
    assert kept & crowds
    assert kept - there
    content['annotations'] = [a for a in content['annotations'] if a['image_id'] in kept]
    file = tmp_path / 'few.json'
    file.write_text(json.dumps(content))
    files = [f'test_dataloader.dataset.ann_file={file}', f'test_evaluator.ann_file={file}']
    expected = upstream(real, *files, folder=tmp_path / 'upstream')
    test(real, tmp_path / 'out', *files, fgsm=[2])
    found = records(tmp_path / 'out')
    assert found['clean']['upstream'] == expected
    assert found['fgsm=2']['images'] == len(kept)
    rows = (tmp_path / 'out' / 'scores' / 'clean.csv').read_text().splitlines()[1:]
    assert sum(row.endswith(',,') for row in rows) >= 1, 'no AP where there is no object'


def test_real_street_scenes(seg, shared, tmp_path):
    """Table 9 on CamVid, whose unlabelled pixels are class 11."""
    config = tmp_path / 'camvid.py'
    config.write_text(
        seg.config.read_text()
        + "camvid = dict(_delete_=True, type='BaseSegDataset', data_root='data', "
        "img_suffix='.jpg', seg_map_suffix='.png', reduce_zero_label=False, ignore_index=11, "
        "metainfo=dict(classes=[f'c{k}' for k in range(16)]), "
        "data_prefix=dict(img_path='images/val', seg_map_path='annotations/val'), "
        "pipeline=[step for step in test_pipeline if step['type'] != 'LoadAnnotations'][:2] "
        "+ [dict(type='LoadAnnotations'), dict(type='PackSegInputs')])\n"
        'test_dataloader = dict(dataset=camvid)\ntest_evaluator = dict(ignore_index=11)\n'
    )
    real = copy.copy(seg)
    real.config, real.data, real.folder = config, shared / 'data' / 'camvid', tmp_path
    expected = upstream(real, 'test_dataloader.dataset.indices=6', folder=tmp_path / 'upstream')
    test(real, tmp_path / 'out', suite='table9', repeats=2, limit=6)
    found = records(tmp_path / 'out')
    assert len(found) == 1 + 3 * 2 + 2
    assert found['clean']['upstream'] == expected
    assert found['clean']['per_class']['IoU']['c11'] in (None, 0.0), (
        'unlabelled pixels are left out'
    )
