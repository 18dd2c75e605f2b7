"""Cityscapes, ACDC, Dark Zurich, VOC and COCO-Stuff: every fault is found, every config reads."""

from __future__ import annotations

import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.registry import DATASETS, MODELS, init_default_scope
from PIL import Image
from street_data import WRITE
from tool import config_file, main_of, write_config

from cb_mm.apis import corrupt_dataset, evaluate_robustness, train
from cb_mm.config.loading import dataset_configs, load_config, set_data_root
from cb_mm.datasets import check
from cb_mm.datasets.checks.pair_sets import PAIR_SETS
from cb_mm.engine.training import check_data
from cb_mm.errors import UserError

CONFIG = {
    'cityscapes': 'cityscapes_upernet_vit_s_cb',
    'voc': 'voc_upernet_vit_s',
    'coco-stuff': 'coco_stuff_upernet_vit_s',
}


@pytest.fixture(scope='module')
def roots(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp('data')
    return {name: write(folder / name) for name, write in WRITE.items()}


def found(report) -> dict[str, list]:
    kinds: dict[str, list] = {}
    for problem in report.problems:
        kinds.setdefault(problem.kind, []).append(problem)
    return kinds


@pytest.mark.parametrize('name', WRITE)
@pytest.mark.parametrize('quick', [False, True])
def test_a_sound_tree_is_fine(roots, name, quick):
    report = check(name, roots[name], quick=quick)
    assert report.ok, report.text()
    assert set(found(report)) <= {'count', 'resized'}
    parts = PAIR_SETS[name].layouts
    assert all(report.counts[f'{part} pairs read'] >= 1 for part in parts)


def read_files(root: Path) -> tuple[Path, Path]:
    """An image and its label map that the check reads."""
    known = next(one for one in PAIR_SETS.values() if one.name == root.name)
    layout = next(iter(known.layouts.values()))
    labels = sorted((root / layout.labels).rglob(f'*{layout.label_suffix}'))[0]
    below = str(labels.relative_to(root / layout.labels)).removesuffix(layout.label_suffix)
    return root / layout.images / f'{below}{layout.image_suffix}', labels


def lose_labels(root: Path) -> None:
    read_files(root)[1].unlink()


def lose_image(root: Path) -> None:
    read_files(root)[0].unlink()


def wrong_label(root: Path) -> None:
    file = read_files(root)[1]
    values = np.array(Image.open(file))
    values[0, 0] = 200
    Image.fromarray(values).save(file)


def wrong_size(root: Path) -> None:
    file = read_files(root)[1]
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(file)


def colours(root: Path) -> None:
    file = read_files(root)[1]
    Image.fromarray(np.zeros((32, 64, 3), np.uint8)).save(file)


@pytest.mark.parametrize('name', WRITE)
@pytest.mark.parametrize(
    ('fault', 'kinds'),
    [
        (lose_labels, {'label-missing'}),
        (lose_image, {'label-alone', 'image-missing'}),
        (wrong_label, {'label-range'}),
        (wrong_size, {'label-size'}),
        (colours, {'label-colour'}),
    ],
)
def test_a_fault_is_found(roots, tmp_path, name, fault, kinds):
    root = Path(shutil.copytree(roots[name], tmp_path / name))
    fault(root)
    report = check(name, root)
    assert set(found(report)) & kinds, report.text()
    (problem,) = [p for kind in kinds for p in found(report).get(kind, [])]
    assert (root / Path(problem.file).parent).is_dir()


def test_cityscapes_without_train_ids_names_the_command(roots, tmp_path, capsys):
    root = Path(shutil.copytree(roots['cityscapes'], tmp_path / 'city'))
    for file in root.rglob('*_labelTrainIds.png'):
        file.unlink()
    assert main_of('check_data.py')(['--dataset', 'cityscapes', str(root)]) == 1
    out = capsys.readouterr().out
    assert 'CITYSCAPES_DATASET=ROOT csCreateTrainIdLabelImgs' in out
    assert 'label maps that must be made first (not-converted): 2' in out
    config = load_config(config_file(CONFIG['cityscapes']))
    set_data_root(config, root)
    with pytest.raises(UserError, match='csCreateTrainIdLabelImgs'):
        check_data(config, ['train'])


def test_labels_that_are_to_be_converted(roots, tmp_path):
    stuff = Path(shutil.copytree(roots['coco-stuff'], tmp_path / 'stuff'))
    for file in stuff.rglob('*_labelTrainIds.png'):
        file.unlink()
    (problem, _) = found(check('coco-stuff', stuff))['not-converted']
    assert 'coco_stuff164k.py' in problem.message
    voc = Path(shutil.copytree(roots['voc'], tmp_path / 'voc'))
    shutil.rmtree(voc / 'SegmentationClassAug')
    kinds = found(check('voc', voc))
    assert 'voc_aug.py' in kinds['not-converted'][0].message
    assert check('voc', voc, splits=['train', 'val']).ok


def test_images_of_another_size_are_a_note(roots):
    kinds = found(check('cityscapes', roots['cityscapes']))
    assert kinds['resized'][0].message == 'is 64x32; the release has 2048x1024'


def test_the_wrong_folder_is_recognised(roots):
    city, stuff = roots['cityscapes'], roots['coco-stuff']
    assert 'wrong-folder' in found(check('cityscapes', city / 'leftImg8bit'))
    assert 'wrong-folder' in found(check('cityscapes', city.parent))
    assert 'other-data-set' in found(check('voc', city))
    assert 'other-data-set' in found(check('cityscapes', stuff))


@pytest.mark.parametrize('name', CONFIG)
def test_the_config_reads_what_the_check_looks_at(roots, name):
    """Real mmseg data sets on real files: every split, all labels in range."""
    config = load_config(config_file(CONFIG[name]))
    set_data_root(config, roots[name])
    init_default_scope('mmseg')
    classes = config.model.decode_head.num_classes
    parts = [PAIR_SETS[name].part_of(one) for one in dataset_configs(config, ['train', 'val'])]
    assert sorted(parts) == sorted(PAIR_SETS[name].layouts)
    check_data(config, ['train', 'val', 'test'])
    for split in ('train', 'val'):
        dataset = DATASETS.build(config[f'{split}_dataloader'].dataset)
        assert len(dataset) == (4 if name != 'coco-stuff' and split == 'train' else
                                4 if name == 'cityscapes' else 2)  # fmt: skip
        assert len(dataset.metainfo['classes']) == classes
        labels = np.unique(dataset[0]['data_samples'].gt_sem_seg.data)
        assert set(labels) <= {*range(classes), 255}
        assert len(labels) > 1


SMALL = """
_base_ = ['{configs}/cityscapes/cityscapes_upernet_vit_s_cb.py']
model = dict(
    data_preprocessor=dict(size=(32, 64)),
    backbone=dict(
        arch=dict(_delete_=True, embed_dim=48, depth=4, num_heads=3), out_indices=(0, 1, 2, 3)
    ),
    decode_head=dict(in_channels=[48, 48, 48, 48], channels=16),
    auxiliary_head=dict(in_channels=48, channels=8),
    test_cfg=dict(mode='slide', crop_size=(32, 32), stride=(32, 16)),
)
train_dataloader = dict(num_workers=0, persistent_workers=False)
val_dataloader = dict(num_workers=0, persistent_workers=False)
test_dataloader = val_dataloader
"""


@pytest.fixture(scope='module')
def trained(roots, tmp_path_factory):
    """One iteration of the recipe, small."""
    folder = tmp_path_factory.mktemp('city')
    config = write_config(folder, SMALL)
    options = [
        'train_dataloader.dataset.pipeline.2.scale=(64,32)',
        'train_dataloader.dataset.pipeline.3.crop_size=(32,64)',
        'val_dataloader.dataset.pipeline.1.scale=(64,32)',
    ]
    run = train(config, data_root=roots['cityscapes'], iters=1, work_dir=folder / 'work',
                cfg_options=options)  # fmt: skip
    return config, run.checkpoint


@pytest.mark.slow
def test_a_model_of_cityscapes_is_tested_on_all_its_sets(roots, trained):
    config, checkpoint = trained
    images = {'cityscapes': 4, 'acdc': 5, 'acdc-night': 2, 'dark-zurich': 2}
    scores = {}
    for name, count in images.items():
        root = roots['acdc' if name.startswith('acdc') else name]
        inside = [f'.datasets.{k}' for k in range(4)] if name == 'acdc' else ['']
        small = [f'test_dataloader.dataset{one}.pipeline.1.scale=(64,32)' for one in inside]
        report = evaluate_robustness(config, checkpoint, test_set=name, data_root=root,
                                     cfg_options=small)  # fmt: skip
        assert report.results['identity']['images'] == count
        scores[name] = report.cells[0].metrics['mIoU']['mean']
        assert len(report.results['about']['classes']) == 19
    with pytest.raises(UserError, match='Did you mean "acdc-rain"'):
        evaluate_robustness(config, checkpoint, test_set='acdc-rainy')
    assert len(set(scores.values())) == len(scores)


def test_windows_differ_from_whole_images(trained):
    """The config slides over the image; with mode=whole it does not."""
    init_default_scope('mmseg')
    seen: dict[str, list] = {}
    for mode in ('slide', 'whole'):
        config = load_config(trained[0], [f'model.test_cfg.mode={mode}'])
        config.model.decode_head.norm_cfg = config.model.auxiliary_head.norm_cfg = dict(type='BN')
        config.model.backbone.pyramid_norm_cfg = dict(type='BN')
        model = MODELS.build(config.model).eval()
        shapes = seen.setdefault(mode, [])
        model.backbone.register_forward_pre_hook(
            lambda _, given, shapes=shapes: shapes.append(tuple(given[0].shape[2:]))
        )
        meta = [dict(ori_shape=(32, 64), img_shape=(32, 64), pad_shape=(32, 64))]
        with torch.no_grad():
            model.inference(torch.zeros(1, 3, 32, 64), meta)
    assert seen == {'slide': [(32, 32)] * 3, 'whole': [(32, 64)]}


def test_a_corrupted_copy_of_cityscapes_has_its_layout(roots, tmp_path):
    config = config_file(CONFIG['cityscapes'])
    copy = corrupt_dataset(
        config, tmp_path / 'c', suite='cityscapes-c', limit=1, data_root=roots['cityscapes']
    )
    assert (len(copy.folders), copy.written) == (4 * 3 + 12 * 5, 72)
    folder = tmp_path / 'c' / 'fog' / '5'
    file = 'leftImg8bit/val/frankfurt/frankfurt_000000_000019_leftImg8bit.png'
    assert cv2.imread(str(folder / file)).shape == (32, 64, 3)
    assert not (tmp_path / 'c' / 'gaussian_noise' / '4').exists()
    report = check('cityscapes', folder, splits=['val'])
    assert set(found(report)) == {'label-alone', 'count', 'resized'}
    # A copy of ACDC, whose images are of four data sets.
    copy = corrupt_dataset(
        config, tmp_path / 'a', corruptions=['fog=2'], test_set='acdc', data_root=roots['acdc']
    )
    assert check('acdc', next(iter(copy.folders.values()))).ok
