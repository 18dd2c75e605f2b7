"""What pre-training has beside mmpretrain: class folders, accuracy, repeated augmentation."""

from __future__ import annotations

import hashlib
import json
import pickle
import subprocess
import sys

import cv2
import numpy as np
import pytest
import torch
from tiny_imagenet import SYNSETS, write_imagenet, write_pictures
from tool import REPO, environment

pytest.importorskip('mmpretrain', reason='classification needs mmpretrain')

from timm.data.real_labels import RealLabelsImagenet

from cb_mm.datasets import check
from cb_mm.datasets.class_labels import imagenet_synsets, labels_of
from cb_mm.errors import UserError
from cb_mm.evaluation.classification import (
    CIFAR10Images,
    CIFAR100Images,
    ClassFolders,
    LabelSetAccuracy,
    ReplayRepeatSampler,
)
from cb_mm.evaluation.label_set_accuracy import read_real_labels
from cb_mm.models import ViTCB

# --- labels and folders ---------------------------------------------------------------------------


def test_imagenet_labels_are_the_sorted_names():
    known = imagenet_synsets()
    assert list(known) == sorted(known)
    assert len(known) == 1000
    # The subset of ImageNet-A, as timm publishes it, from the names alone.
    import pkgutil

    names = pkgutil.get_data('timm.data', '_info/imagenet_a_synsets.txt').decode().split()
    indices = pkgutil.get_data('timm.data', '_info/imagenet_a_indices.txt').decode().split()
    assert len(names) == 200
    assert list(labels_of(sorted(names)).values()) == sorted(map(int, indices))


@pytest.mark.parametrize(
    ('names', 'order', 'labels'),
    [
        (SYNSETS, 'auto', [0, 1, 207]),
        (SYNSETS, 'sorted', [0, 1, 2]),
        (['0', '1', '10', '2'], 'auto', [0, 1, 10, 2]),
        (['0', '1', '10', '2'], 'sorted', [0, 1, 2, 3]),
        (['cat', 'dog'], 'auto', [0, 1]),
    ],
)
def test_labels(names, order, labels):
    assert list(labels_of(names, order).values()) == labels


@pytest.mark.parametrize(
    ('names', 'order', 'message'),
    [
        (['n01440764', 'mine'], 'imagenet', "'mine' is not one of ImageNet-1K"),
        (['1', 'x'], 'numbers', "'x' is not a number"),
        (['a'], 'sort', 'auto, imagenet, numbers, sorted'),
    ],
)
def test_labels_that_cannot_be(names, order, message):
    with pytest.raises(UserError, match=message):
        labels_of(names, order)


def test_folders(tmp_path):
    root = write_imagenet(tmp_path / 'a')
    dataset = ClassFolders(str(root), 'val')
    assert [dataset[i]['gt_label'] for i in range(len(dataset))] == [0, 0, 1, 1, 207, 207]
    assert dataset.metainfo['classes'][207] == 'golden retriever'
    assert dataset.metainfo['present_labels'] == (0, 1, 207)


def test_a_part_that_lacks_a_class_has_the_labels_of_training(tmp_path):
    write_pictures(tmp_path / 'train', ('ant', 'bee', 'cat'), 1)
    write_pictures(tmp_path / 'val', ('bee', 'cat'), 1)
    dataset = ClassFolders(str(tmp_path), 'val')
    assert [dataset[i]['gt_label'] for i in range(2)] == [1, 2]
    write_pictures(tmp_path / 'other', ('dog',), 1)
    with pytest.raises(UserError, match='no counterpart'):
        ClassFolders(str(tmp_path), 'other')


def test_v2_and_a_layouts(tmp_path):
    v2 = write_pictures(tmp_path / 'v2', ('0', '1', '10', '2'), 1)
    dataset = ClassFolders(str(v2), '', labels='numbers')
    assert sorted(dataset[i]['gt_label'] for i in range(4)) == [0, 1, 2, 10]
    a = write_pictures(tmp_path / 'a', SYNSETS[1:], 1)
    (a / 'README.txt').write_text('as in the archive')
    assert ClassFolders(str(a), '', labels='imagenet').metainfo['present_labels'] == (1, 207)


@pytest.mark.parametrize(('dataset_type', 'archive'), [
    (CIFAR10Images, 'cifar-10-batches-py'), (CIFAR100Images, 'cifar-100-python')
])  # fmt: skip
def test_cifar_from_folders(dataset_type, archive, tmp_path):
    write_pictures(tmp_path / 'train', ('apple', 'bear'), 1, size=(32, 32))
    write_pictures(tmp_path / 'test', ('bear',), 1, size=(32, 32))
    dataset = dataset_type(str(tmp_path), split='test')
    file = next(tmp_path.glob('test/bear/*'))
    assert dataset[0]['gt_label'] == 1
    assert np.array_equal(dataset[0]['img'], cv2.imread(str(file)))  # BGR
    with pytest.raises(UserError, match=f'neither {archive}'):
        dataset_type(str(tmp_path / 'train'), split='train')
    (tmp_path / 'b' / archive).mkdir(parents=True)
    with pytest.raises(UserError, match='not the complete'):
        dataset_type(str(tmp_path / 'b'), split='train')


def test_check_of_folders(tmp_path):
    root = write_imagenet(tmp_path / 'a')
    report = check('imagenet', root)
    assert report.ok, report.text()
    assert report.counts == {
        'train classes': 3, 'train images': 12, 'train images read': 12,
        'val classes': 3, 'val images': 6, 'val images read': 6,
    }  # fmt: skip
    assert check('imagenet', root, quick=True, num_classes=1000).ok
    found = check('imagenet', root, quick=True, num_classes=3).errors
    assert {problem.kind for problem in found} == {'class-count'}
    assert check('imagenet', root, quick=True, num_classes=3, labels='sorted').ok
    (root / 'val' / 'n99999999').mkdir()
    found = check('imagenet', root, splits=['val']).errors
    assert [p.kind for p in found] == ['class-unknown', 'class-empty']
    (root / 'val' / 'n99999999').rmdir()
    for file in (root / 'val' / SYNSETS[0]).iterdir():
        file.rename(root / 'val' / file.name)
    assert [p.kind for p in check('imagenet', root).errors] == ['class-empty']
    for folder in list((root / 'val').iterdir()):
        if folder.is_dir():
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
    (problem,) = check('imagenet', root).errors
    assert problem.kind == 'no-class-folders'
    assert '2 images are directly in it' in problem.message
    next((root / 'train' / SYNSETS[1]).iterdir()).write_bytes(b'no image')
    assert 'unreadable' in {p.kind for p in check('imagenet', root, splits=['train']).errors}


# --- accuracy -------------------------------------------------------------------------------------


def samples(count: int, classes: int) -> list[dict]:
    generator = torch.Generator().manual_seed(0)
    return [
        {
            'pred_score': torch.randn(classes, generator=generator).softmax(0),
            'gt_label': torch.randint(classes, (1,), generator=generator),
            'img_path': f'val/x/ILSVRC2012_val_{k + 1:08d}.JPEG',
        }
        for k in range(count)
    ]


def evaluate(metric, outputs: list[dict], **meta) -> dict[str, float]:
    metric.dataset_meta = meta
    metric.process(None, outputs)
    return metric.compute_metrics(metric.results)


def test_without_options_it_is_mmpretrains_accuracy():
    from mmpretrain.evaluation import Accuracy

    outputs = samples(200, 20)
    ours = evaluate(LabelSetAccuracy(topk=(1, 5)), outputs)
    theirs = evaluate(Accuracy(topk=(1, 5)), outputs)
    assert ours == pytest.approx(theirs, abs=1e-4)
    assert 0 < ours['top1'] < ours['top5'] < 100


def test_real_labels_as_timm_evaluates_them():
    outputs = samples(300, 1000)
    labels = read_real_labels('timm')
    assert len(labels) == 50_000
    assert sum(not row for row in labels) == 3_163
    # Half of the images get a label of theirs on top, so that there is something to count.
    for k, output in enumerate(outputs[::2]):
        if labels[2 * k]:
            output['pred_score'][labels[2 * k][-1]] = 1
    names = [f'ILSVRC2012_val_{k + 1:08d}.JPEG' for k in range(50_000)]
    theirs = RealLabelsImagenet(names)
    theirs.add_result(torch.stack([output['pred_score'] for output in outputs]))
    ours = evaluate(LabelSetAccuracy(topk=(1, 5), real_labels='timm'), outputs)
    assert ours == pytest.approx({f'top{k}': theirs.get_accuracy(k) for k in (1, 5)}, abs=1e-3)
    assert 40 < ours['top1'] < 60


def test_real_labels_from_a_file(tmp_path):
    file = tmp_path / 'real.json'
    file.write_text(json.dumps([[3, 1], [], [2]]))
    outputs = samples(3, 5)
    for output, winner in zip(outputs, (1, 0, 0), strict=True):
        output['pred_score'][winner] = 2
    metric = LabelSetAccuracy(topk=(1,), real_labels=str(file))
    assert evaluate(metric, outputs) == {'top1': 50.0}  # the second image has no label
    outputs[0]['img_path'] = 'val/x/picture.JPEG'
    with pytest.raises(UserError, match=r'picture\.JPEG is none of them'):
        metric.process(None, outputs)
    with pytest.raises(UserError, match='does not exist'):
        LabelSetAccuracy(real_labels=str(tmp_path / 'none.json'))
    for damaged in (b'{"a": 1', b'\xff\xfe\x00', b'[' * 9999, b'[1]'):
        file.write_bytes(damaged)
        with pytest.raises(UserError, match='not the label file'):
            LabelSetAccuracy(real_labels=str(file))


def test_only_present_classes_compete():
    scores = torch.tensor([0.6, 0.3, 0.1])
    output = {'pred_score': scores, 'gt_label': torch.tensor([1]), 'img_path': 'x'}
    assert evaluate(LabelSetAccuracy(), [output], present_labels=(0, 1, 2)) == {'top1': 0.0}
    restricted = LabelSetAccuracy(present_only=True)
    assert evaluate(restricted, [output], present_labels=(1, 2)) == {'top1': 100.0}


# --- repeated augmentation ------------------------------------------------------------------------


class Noise:
    """A data set whose samples are random, as augmentation is."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[int, float]:
        return int(index), float(torch.rand(()))


def epoch(number: int) -> list[tuple[int, float]]:
    dataset = Noise()
    sampler = ReplayRepeatSampler(dataset, seed=3)
    sampler.set_epoch(number)
    return dataset.__getitems__(list(sampler))


def test_repeated_augmentation():
    first = epoch(0)
    indices = [index for index, _ in first]
    assert len(indices) == 10
    assert indices[0] == indices[1] == indices[2] != indices[3]
    assert len({value for _, value in first}) == 10  # every copy is augmented differently
    state = torch.get_rng_state()
    torch.manual_seed(99)
    assert epoch(0) == first  # whatever happened before
    assert epoch(1) != first
    torch.set_rng_state(state)


# --- the backbone and the door --------------------------------------------------------------------


def test_class_token_is_timms():
    import timm

    torch.manual_seed(0)
    arch = dict(embed_dim=24, depth=3, num_heads=2, img_size=32)
    ours = ViTCB(arch, out_type='cls').eval()
    theirs = timm.models.VisionTransformer(num_classes=0, **arch).eval()
    theirs.load_state_dict(ours.state_dict())
    images = torch.randn(2, 3, 32, 32)
    (token,) = ours(images)
    torch.testing.assert_close(token, theirs(images))
    assert all(p.requires_grad for p in ours.parameters())
    assert ours.unused_parts == tuple(n for n in ours.unused_parts if n not in ('norm', 'blocks'))
    with pytest.raises(UserError, match='needs a class token'):
        ViTCB({**arch, 'class_token': False, 'global_pool': 'avg'}, out_type='cls')
    with pytest.raises(UserError, match='Did you mean "cls"'):
        ViTCB(arch, out_type='cl')


def test_distilled_model_gives_both_tokens():
    model = ViTCB('deit_tiny_distilled_patch16_224', img_size=32, broadcast='cb', out_type='cls')
    ((cls, dist),) = model(torch.randn(2, 3, 32, 32))
    assert cls.shape == dist.shape == (2, 192)
    # mmpretrain's head for it tests such a model, as docs/pretraining.md says.
    from mmpretrain.models import DeiTClsHead

    (result, _) = DeiTClsHead(num_classes=5, in_channels=192).eval().predict([(cls, dist)])
    assert result.pred_score.shape == (5,)


WITHOUT = """
import importlib.abc, sys
class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] == 'mmpretrain':
            raise ModuleNotFoundError(name)
find_spec = __import__('importlib.util').util.find_spec
import importlib.util
importlib.util.find_spec = lambda name, *a: None if name == 'mmpretrain' else find_spec(name, *a)
sys.meta_path.insert(0, Hidden())
import runpy
sys.path.insert(0, 'tools')
main = runpy.run_path('tools/train.py')['main']
sys.exit(main(sys.argv[1:]))
"""


def test_without_mmpretrain_there_is_one_message():
    done = subprocess.run(
        [sys.executable, '-c', WITHOUT, 'configs/imagenet/imagenet_vit_ti_cb.py'],
        cwd=REPO, env=environment(), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert 'classification needs mmpretrain. Run: pip install "cb_mm[pretrain' in done.stderr
    assert 'Traceback' not in done.stderr


def test_cifar_from_its_archive_is_bgr(tmp_path, monkeypatch):
    """An archive as CIFAR-10's, with its own checksums: a red image stays red."""
    folder = tmp_path / CIFAR10Images.base_folder
    folder.mkdir()
    red = np.zeros((1, 3, 32, 32), np.uint8)
    red[:, 0] = 200  # stored as planes: red, green, blue
    content = {
        'test_batch': {'data': red.reshape(1, -1), 'labels': [6]},
        'batches.meta': {'label_names': [str(i) for i in range(10)]},
    }
    for name, each in content.items():
        (folder / name).write_bytes(pickle.dumps(each))
    sums = {name: hashlib.md5((folder / name).read_bytes()).hexdigest() for name in content}
    monkeypatch.setattr(CIFAR10Images, 'train_list', [])
    monkeypatch.setattr(CIFAR10Images, 'test_list', [['test_batch', sums['test_batch']]])
    meta = {**CIFAR10Images.meta, 'md5': sums['batches.meta']}
    monkeypatch.setattr(CIFAR10Images, 'meta', meta)
    (found,) = CIFAR10Images(str(tmp_path), split='test')
    assert found['img'][0, 0].tolist() == [0, 0, 200]
    assert found['gt_label'] == 6
