"""Panoptic quality: mask by mask by hand, and of a real model in a sweep, without panopticapi."""

from __future__ import annotations

import json
from importlib.util import find_spec

import cv2
import numpy as np
import panoptic_model
import pytest
import torch
from mmengine.config import Config

from cb_mm.apis import corrupt_dataset, evaluate_robustness
from cb_mm.errors import UserError
from cb_mm.evaluation.panoptic_quality import PanopticQualityMetric
from cb_mm.robustness.console_log import quiet_console
from cb_mm.robustness.panoptic import do_without_panopticapi

CLASSES = panoptic_model.CLASSES
LESS = pytest.mark.skipif(find_spec('panopticapi') is not None, reason='panopticapi is there')


def by_hand(images):
    """PQ, SQ and RQ by class: all pairs of masks, one after another.

    Args:
        images: true map, its segments (label, crowd), predicted map, its segments (label).
    """
    sums = {label: [0.0, 0, 0, 0] for label in range(4)}  # IoU, hits, false alarms, misses
    for true, segments, guess, guesses in images:
        void = true == 0
        hit_true, hit_guess = set(), set()
        for number, (label, crowd) in segments.items():
            for other, other_label in guesses.items():
                one, two = true == number, guess == other
                if crowd or label != other_label:
                    continue
                iou = (one & two).sum() / ((one | two) & ~(void & two)).sum()
                if iou > 0.5:
                    sums[label][0] += iou
                    sums[label][1] += 1
                    hit_true.add(number)
                    hit_guess.add(other)
        for number, (label, crowd) in segments.items():
            sums[label][3] += not crowd and number not in hit_true
        for other, label in guesses.items():
            if other in hit_guess:
                continue
            mask = guess == other
            unknown = void.copy()
            for number, (true_label, crowd) in segments.items():
                if crowd and true_label == label:
                    unknown |= true == number
            sums[label][2] += (mask & unknown).sum() / mask.sum() <= 0.5
    found = {}
    for label, (iou, hits, alarms, misses) in sums.items():
        size = hits + (alarms + misses) / 2
        if size:
            found[label] = 100 * iou / size, 100 * iou / hits if hits else 0.0, 100 * hits / size
    return found


def blocks(rng, ids):
    """A map of blocks with these numbers."""
    return np.kron(rng.choice(ids, (6, 8)), np.ones((8, 8), int))


def test_masks_by_hand(tmp_path):
    rng = np.random.default_rng(0)
    images, samples, annotations = [], [], []
    for number in range(12):
        # Segments 300, 600 ... of the truth; those of the prediction mostly the same, moved.
        segments = {300 * k: (int(rng.integers(4)), rng.random() < 0.15) for k in range(1, 6)}
        true = blocks(rng, [0, *segments])
        kept = {k: v for k, v in segments.items() if (true == k).any()}
        crowds = [label for label, crowd in kept.values() if crowd]
        kept = {
            k: (label, crowd and crowds.count(label) == 1) for k, (label, crowd) in kept.items()
        }
        moved = np.roll(true, rng.integers(0, 3), axis=1)
        codes, guesses = {0: 4}, {}
        for place, k in enumerate(kept, 1):
            label = kept[k][0] if rng.random() < 0.8 else int(rng.integers(4))
            codes[k] = label + 1000 * place
        guess = np.vectorize(codes.get)(moved)
        guesses = {int(c): int(c % 1000) for c in np.unique(guess) if c != 4}
        images.append((true, kept, guess, guesses))
        picture = np.stack([true // 65536, true // 256 % 256, true % 256], -1).astype(np.uint8)
        cv2.imwrite(str(tmp_path / f'{number}.png'), picture)
        infos = [{'id': k, 'category_id': 10 + label, 'iscrowd': int(crowd)}
                 for k, (label, crowd) in kept.items()]  # fmt: skip
        annotations.append(
            {'image_id': number, 'file_name': f'{number}.png', 'segments_info': infos}
        )
        seg = {'sem_seg': torch.as_tensor(guess)[None]}
        samples.append({'img_id': number, 'pred_panoptic_seg': seg})
    categories = [{'id': 10 + k, 'name': name, 'isthing': int(k < 2)}
                  for k, name in enumerate(CLASSES)]  # fmt: skip
    file = tmp_path / 'truth.json'
    file.write_text(json.dumps({'annotations': annotations, 'categories': categories}))
    metric = PanopticQualityMetric(str(file), str(tmp_path))
    metric.dataset_meta = {'classes': CLASSES}
    metric.process({}, samples)
    found = metric.figures(metric.state())
    expected = by_hand(images)
    assert len(expected) == 4
    assert found.per_class['PQ'] == pytest.approx([expected[k][0] for k in range(4)], abs=1e-6)
    for suffix, labels in (('', range(4)), ('_th', (0, 1)), ('_st', (2, 3))):
        for place, name in enumerate(('PQ', 'SQ', 'RQ')):
            mean = np.mean([expected[k][place] for k in labels])
            assert found.metrics[name + suffix] == pytest.approx(mean, abs=1e-6)
    assert 5 < found.metrics['PQ'] < 95
    with pytest.raises(UserError, match=r'truth\.json has no annotation of image 99'):
        metric.process({}, [{**samples[0], 'img_id': 99}])
    small = {'sem_seg': torch.zeros(1, 10, 20)}
    with pytest.raises(UserError, match=r'label map 0\.png is 64x48, its image 20x10'):
        metric.process({}, [{**samples[0], 'pred_panoptic_seg': small}])
    held = sum(array.nbytes for array in [*metric._state.values(), *metric._last.values()])
    assert held == 2 * 4 * 4 * 8, 'four sums of four classes, and those of the last image'


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        ('{', 'is not JSON'),
        ('[]', 'it is not an object'),
        ('{"annotations": []}', 'categories is missing'),
        ('{"annotations": [{}], "categories": []}', r'annotations\[0\].image_id is missing'),
        ('{"annotations": [], "categories": [{"id": 1}]}', r'categories\[0\].name is missing'),
    ],
)
def test_other_annotations_are_refused(tmp_path, content, message):
    (tmp_path / 'a.json').write_text(content)
    with pytest.raises(UserError, match=rf'a\.json.*{message}'):
        PanopticQualityMetric(str(tmp_path / 'a.json'), str(tmp_path))


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    with quiet_console():
        return panoptic_model.make(tmp_path_factory.mktemp('panoptic') / 'data')


@LESS
def test_a_real_model_in_a_sweep(made):
    report = evaluate_robustness(*map(str, made), corruptions=['gaussian_blur=1'], limit=3)
    clean, blurred = report.cells
    figures = {name: value['mean'] for name, value in clean.metrics.items()}
    assert report.results['headline'] == ['PQ']
    assert report.results['units']['PQ'] == '%'
    assert 10 < figures['PQ'] < 100
    assert figures['PQ'] == pytest.approx((figures['PQ_th'] + figures['PQ_st']) / 2)
    assert blurred.metrics['PQ']['mean'] < figures['PQ']
    assert '| PQ ' in report.table()
    assert '| PQ things ' in report.table()
    assert set(report.results['cells'][0]['per_class']['PQ']) == set(CLASSES)


@LESS
def test_a_corrupted_copy_needs_no_panopticapi(made, tmp_path):
    report = evaluate_robustness(*map(str, made), corruptions=['gaussian_blur=1'], limit=2)
    copy = corrupt_dataset(made[0], tmp_path / 'copy', corruptions=['gaussian_blur=1'], limit=2)
    (folder,) = copy.folders.values()
    found = evaluate_robustness(*map(str, made), data_root=folder, limit=2)
    assert found.cells[0].metrics['PQ'] == report.cells[1].metrics['PQ']


@LESS
def test_what_needs_panopticapi_says_so(made):
    config = Config.fromfile(made[0])
    metric = dict(config.test_evaluator)
    for change in ({'format_only': True}, {'ann_file': None}):
        with pytest.raises(UserError, match='pip install git'):
            do_without_panopticapi(config, [{**metric, **change}])
    other = [dict(type='CocoMetric')]
    assert do_without_panopticapi(config, other) is other
