"""Whatever changes a figure makes it another test: its results are not mixed with the old ones."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
from mmengine.config import Config
from mmengine.registry import TRANSFORMS

from cb_mm.compat import families as family
from cb_mm.errors import UserError
from cb_mm.robustness.identity import (
    config_digest,
    data_digest,
    evaluator_digest,
    loaded_files,
    short_names,
)
from cb_mm.robustness.sweep import SweepOptions, sweep


def test(model, out, *options, **more):
    """A sweep over one image, clean unless more is asked for."""
    words = ['test_dataloader.num_workers=0', 'test_dataloader.persistent_workers=False', *options]
    more = {'data_root': str(model.data), 'limit': 1, 'seed': 0, **more}
    where = dict(checkpoint=str(model.checkpoint), out=str(out), cfg_options=words)
    return sweep(SweepOptions(str(model.config), **where, **more))


test.__test__ = False  # it is no test


def alter(file: Path) -> None:
    """One pixel changed, in as many bytes, at the same time."""
    stat, pixels = file.stat(), cv2.imread(str(file), cv2.IMREAD_UNCHANGED)
    pixels[0, 0] = pixels[0, 0] % 100 + 1
    cv2.imwrite(str(file), pixels, [cv2.IMWRITE_PNG_COMPRESSION, 0])
    assert file.stat().st_size == stat.st_size
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_a_file_changed_at_equal_size_is_seen(seg, tmp_path):
    data = tmp_path / 'data'
    shutil.copytree(seg.data, data)
    files = [min((data / name / 'validation').iterdir()) for name in ('images', 'annotations')]
    for file in files:  # as PNG without compression: all files of one shape are of one size
        pixels = cv2.imread(str(file), cv2.IMREAD_UNCHANGED)
        content = cv2.imencode('.png', pixels, [cv2.IMWRITE_PNG_COMPRESSION, 0])[1].tobytes()
        file.write_bytes(content)
    files[0] = files[0].rename(files[0].with_suffix('.png'))
    options = ['test_dataloader.dataset.img_suffix=.png']
    test(seg, tmp_path / 'out', *options, data_root=str(data))
    for file in files:
        content = file.read_bytes()
        alter(file)
        with pytest.raises(UserError, match='different: data'):
            test(seg, tmp_path / 'out', *options, data_root=str(data))
        file.write_bytes(content)  # touched, that is all
    test(seg, tmp_path / 'out', *options, data_root=str(data))


def test_seed_version_and_device_are_part_of_it(seg, tmp_path, monkeypatch):
    out = tmp_path / 'out'
    test(seg, out)
    header = json.loads((out / 'results.jsonl').read_text().splitlines()[0])
    assert header['identity']['device'] == 'cpu'
    assert {'cb_mm', 'torch', 'numpy'} < set(header['identity']['software'])
    with pytest.raises(UserError, match=r'different: seed \(0 there, 1 here\)\.'):
        test(seg, out, seed=1)
    monkeypatch.setattr(family, '__version__', '9.9')
    with pytest.raises(UserError, match=r'different: cb_mm \(\S+ there, 9\.9 here\)\.'):
        test(seg, out)


def test_photographs_of_frost_are_part_of_it(seg, tmp_path):
    """By their content; a test without frost has no use for them."""
    ice, out = tmp_path / 'ice', tmp_path / 'out'
    ice.mkdir()
    cv2.imwrite(str(ice / 'a.png'), np.full((50, 50, 3), 77, np.uint8))
    more = dict(corruption=['frost=3'], repeats=1)
    test(seg, out, **more, frost_pictures=str(ice))
    shutil.copytree(ice, tmp_path / 'same')
    test(seg, out, **more, frost_pictures=str(tmp_path / 'same'))
    cv2.imwrite(str(ice / 'a.png'), np.full((50, 50, 3), 78, np.uint8))
    for folder in (str(ice), None):
        with pytest.raises(UserError, match='different: frost_pictures'):
            test(seg, out, **more, frost_pictures=folder)
    with pytest.raises(UserError, match='no frost is tested'):
        test(seg, tmp_path / 'other', frost_pictures=str(ice))


def test_frost_of_different_ice_is_not_compared(seg, tmp_path):
    ice, first = tmp_path / 'ice', tmp_path / 'drawn'
    ice.mkdir()
    cv2.imwrite(str(ice / 'a.png'), np.full((50, 50, 3), 77, np.uint8))
    more = dict(corruption=['frost=3'], repeats=1, limit=1)
    test(seg, first, **more)
    photographed = dict(**more, frost_pictures=str(ice))
    for option in ('compare', 'reference'):
        with pytest.raises(UserError, match=f'`{option}`: frost of .* has other ice, drawn'):
            test(seg, tmp_path / 'new', **photographed, **{option: str(first)})
    test(seg, tmp_path / 'photographed', **photographed)
    with pytest.raises(UserError, match='has other ice, photographed'):
        test(seg, tmp_path / 'new', **more, compare=str(tmp_path / 'photographed'))
    # Without frost on one side, there is nothing to mix up.
    test(seg, tmp_path / 'clean', repeats=1, limit=1, compare=str(tmp_path / 'photographed'))


def test_results_of_an_earlier_version_are_told_apart(seg, tmp_path):
    """Before, the identity held neither versions nor annotations; files were known by size."""
    out = tmp_path / 'out'
    test(seg, out)
    lines = [json.loads(line) for line in (out / 'results.jsonl').read_text().splitlines()]
    for name in ('annotations', 'device', 'software'):
        del lines[0]['identity'][name]
    lines[0]['identity']['data'] = '0' * 16
    lines[1]['kind'] = 'cell'
    (out / 'results.jsonl').write_text('\n'.join(map(json.dumps, lines)) + '\n')
    with pytest.raises(UserError, match=r'different: data.*cb_mm \(not recorded there, .* here\)'):
        test(seg, out)


def test_an_attack_depends_on_sampler_and_truth_pipeline(det, tmp_path):
    out, step = tmp_path / 'out', 'train_dataloader.dataset.pipeline.1.'
    test(det, out, fgsm=[2])
    assert det.prepared().train_dataloader.dataset.pipeline[1].type == 'LoadAnnotations'
    with pytest.raises(UserError, match=r'different: config'):
        test(det, out, 'model.train_cfg.rcnn.sampler.num=16', fgsm=[2])
    with pytest.raises(UserError, match=r'different: attack'):
        test(det, out, f'{step}poly2mask=False', fgsm=[2])


def test_the_label_maps_that_cityscapes_reads_count(seg, tmp_path):
    """Not those that the pipeline loads: mmseg's metric finds others beside them."""
    for name in ('labelTrainIds', 'labelIds'):
        (tmp_path / f'a_{name}.png').write_text(name)
    maps = [str(tmp_path / 'a_labelTrainIds.png'), None]
    metric = dict(type='mmseg.CityscapesMetric', output_dir='out')
    both = [dict(type='IoUMetric'), metric]
    before = evaluator_digest(both, maps)
    plain = evaluator_digest(both[:1], maps)
    (tmp_path / 'a_labelTrainIds.png').write_text('others')
    assert evaluator_digest(both, maps) == before
    (tmp_path / 'a_labelIds.png').write_text('others')
    assert evaluator_digest(both, maps) != before
    assert evaluator_digest(both[:1], maps) == plain == evaluator_digest(both[:1])
    (tmp_path / 'a_labelIds.png').unlink()
    with pytest.raises(UserError, match=r'a_labelIds\.png of the test data does not exist'):
        evaluator_digest(metric, maps)


def test_the_digest_of_the_metric_gets_the_label_maps(seg, tmp_path, monkeypatch):
    """The package that CityscapesMetric needs is not there: only what it would be given."""
    from cb_mm.robustness import identity

    given = []
    monkeypatch.setattr(identity, 'evaluator_digest', lambda *a: given.append(a) or '0' * 16)
    test(seg, tmp_path / 'out')
    ((_, maps),) = given
    assert maps == [str(min((Path(seg.data) / 'annotations' / 'validation').iterdir()))]


def test_the_annotations_of_the_metric_count(det, tmp_path):
    file = tmp_path / 'truth.json'
    shutil.copy(det.data / 'annotations' / 'instances_val2017.json', file)
    option = f'test_evaluator.ann_file={file}'
    test(det, tmp_path / 'out', option)
    content = json.loads(file.read_text())
    content['annotations'][0]['iscrowd'] = 1
    file.write_text(json.dumps(content))
    with pytest.raises(UserError, match='different: annotations'):
        test(det, tmp_path / 'out', option)


def test_files_that_metrics_read_and_write(tmp_path):
    folder = tmp_path / 'maps'
    folder.mkdir()
    (folder / 'a.png').write_bytes(b'1')
    settings = dict(type='CocoPanopticMetric', seg_prefix=str(folder))
    before = evaluator_digest([settings])
    (folder / 'a.png').write_bytes(b'2')
    assert evaluator_digest([settings]) != before
    written = tmp_path / 'results.json'
    own = dict(type='CocoMetric', outfile_prefix=str(written))
    before = evaluator_digest(own)
    written.write_text('[]')
    assert evaluator_digest(own) == before, 'what a metric writes is no input'


def test_every_annotation_counts(tmp_path):
    """Labels of classifiers, boxes, long arrays: all of it, but for where the files lie."""
    info = {'img_path': str(tmp_path / 'a.jpg'), 'xml_path': '/somewhere/a.xml', 'gt_label': 3,
            'instances': [{'bbox': [1, 2]}], 'proposals': np.arange(5000.0),
            'label_map': {0: 1}}  # fmt: skip
    (tmp_path / 'a.jpg').write_bytes(b'picture')

    def digest(**changes):
        return data_digest(['a.jpg'], [{**info, **changes}], [])

    longer = info['proposals'].copy()
    longer[2500] += 1
    changes = [dict(gt_label=4), dict(instances=[{'bbox': [1, 3]}]), dict(proposals=longer),
               dict(label_map={0: 2}), dict(label_map={0: 1, 'x': 2, (1, 2): 3})]  # fmt: skip
    assert len({digest(), *(digest(**change) for change in changes)}) == 1 + len(changes)
    assert digest(xml_path='/elsewhere/a.xml') == digest()
    moved = tmp_path / 'moved.jpg'
    shutil.copy(tmp_path / 'a.jpg', moved)
    assert digest(img_path=str(moved)) == digest()


def test_only_neutral_settings_of_the_loader_are_left_out():
    def digest(**changes):
        loader = dict(batch_size=1, num_workers=2, sampler=dict(type='DefaultSampler'))
        loader['dataset'] = dict(type='D', data_root='a', pipeline=[dict(type='T', timeout=1)])
        model = dict(type='M', train_cfg=dict(sampler=dict(num=1), drop_last=True))
        parts = dict(model=model, test_dataloader=loader, test_evaluator=dict(type='E'))
        config = Config(parts)
        config.merge_from_dict(changes)
        return config_digest(config)

    same = {'test_dataloader.num_workers': 0, 'test_dataloader.sampler.shuffle': False,
            'test_dataloader.dataset.data_root': 'b'}  # fmt: skip
    assert {digest(**{key: value}) for key, value in same.items()} == {digest()}
    others = {'model.train_cfg.sampler.num': 2, 'model.train_cfg.drop_last': False,
              'test_dataloader.dataset.pipeline.0.timeout': 2, 'test_dataloader.batch_size': 2,
              'data_preprocessor': dict(mean=[1])}  # fmt: skip
    assert len({digest(), *(digest(**{k: v}) for k, v in others.items())}) == 1 + len(others)


@pytest.mark.parametrize(
    ('paths', 'names'),
    [
        (['data/a/1.png', 'data/b/2.png'], ['a/1.png', 'b/2.png']),
        (['/data/a/1.png'], ['1.png']),
        (['5', '6'], ['5', '6']),
        (['/data/img/1.png', '/data/img/../../home/2.png'], ['data/img/1.png', 'home/2.png']),
        (['1.png', '/data/2.png'], None),
        (['../1.png', '../../2.png', '3.png'], None),
        ([], []),
    ],
)
def test_names_of_images_stay_in_the_folder_that_is_written(paths, names):
    """Annotations choose the paths, and pictures are written under the names."""
    found = short_names(paths)
    assert names in (None, found)
    assert len(set(found)) == len(paths)
    assert not [name for name in found if os.path.isabs(name) or '..' in name.split('/')]


@pytest.mark.parametrize(
    ('step', 'labels'),
    [
        (dict(type='mmdet.LoadAnnotations', with_bbox=True, with_mask=True), False),
        (dict(type='mmdet.LoadAnnotations', with_seg=True), True),
        (dict(type='mmseg.LoadAnnotations'), True),
    ],
    ids=lambda value: value['type'] if isinstance(value, dict) else '',
)
def test_which_files_a_pipeline_loads(step, labels):
    keys, others = loaded_files([TRANSFORMS.build(step)])
    assert ('seg_map_path' in keys) == labels
    assert not others


def test_files_of_loaders_that_cannot_be_built_here():
    """One needs a package that is not on the registry, the other is somebody's own."""
    panoptic = type('LoadPanopticAnnotations', (), dict(with_seg=False, with_mask=True))()
    assert loaded_files([panoptic]) == ({'img_path', 'seg_map_path'}, False)
    assert loaded_files([type('LoadDepth', (), {})()]) == ({'img_path'}, True)


def test_label_maps_that_are_never_loaded_need_not_be_there(det, tmp_path):
    """mmdet's Mask2Former for COCO names panoptic maps that its pipeline does not load."""
    config = tmp_path / 'prefixed.py'
    config.write_text(
        det.config.read_text()
        + "test_dataloader['dataset']['data_prefix'] = dict(img='val2017/', seg='nowhere/')\n"
    )
    words = ['test_dataloader.num_workers=0', 'test_dataloader.persistent_workers=False']
    options = dict(checkpoint=str(det.checkpoint), data_root=str(det.data), limit=1)
    out = sweep(SweepOptions(str(config), out=str(tmp_path / 'out'), cfg_options=words, **options))
    assert (out / 'results.md').is_file()
