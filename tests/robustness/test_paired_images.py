"""Differences over images, by class too: against loops in numpy, and how often they are wrong."""

from __future__ import annotations

import numpy as np
import pytest

from cb_mm.robustness.comparison import compare, judge, per_class_table
from cb_mm.robustness.image_scores import write_image_scores
from cb_mm.robustness.metrics import Scores
from cb_mm.robustness.paired_images import add_paired_intervals
from cb_mm.robustness.report import summarize_records
from cb_mm.robustness.significance import holm

CLASSES = ('road', 'sky', 'tree', 'car')
IMAGES = 40


def areas(seed: int, quality: float = 0.7, rare: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    union = rng.integers(50, 200, (IMAGES, 4))
    union[:, 3] *= rng.random(IMAGES) < rare
    share = np.clip(quality + 0.15 * rng.normal(size=(IMAGES, 4)), 0, 1)
    return (union * share).astype(np.int64), union


def iou(intersect, union) -> np.ndarray:
    with np.errstate(invalid='ignore'):
        return 100 * intersect.sum(0) / union.sum(0)


def results_of(folder, passes):
    """Records of passes (key, corruption, level, repeat, areas), and the files of their images."""
    rows = []
    for key, name, level, repeat, (intersect, union) in passes:
        one = {'intersect': intersect, 'union': union}
        scores = Scores(per_image={'mIoU': [1.0] * IMAGES}, areas=one)
        write_image_scores(folder, key, [f'{k}.jpg' for k in range(IMAGES)], scores)
        by_class = dict(zip(CLASSES, iou(intersect, union).tolist(), strict=True))
        rows.append(
            {
                'key': key, 'corruption': name, 'level': level, 'severity': None,
                'random': level is not None, 'repeat': repeat, 'seed': 0, 'images': IMAGES,
                'seconds': 1.0, 'metrics': {'mIoU': float(np.nanmean(iou(intersect, union)))},
                'units': {'mIoU': '%'}, 'upstream': {}, 'per_class': {'IoU': by_class},
                'per_image': f'scores/{key}.csv', 'curves': {},
            }
        )  # fmt: skip
    cells = list(dict.fromkeys(key.rsplit('_', 1)[0] if level else key
                               for key, _, level, *_ in passes))  # fmt: skip
    identity = {'data': 'd', 'annotations': 'a', 'images': IMAGES, 'seed': 0, 'repeats': 2,
                'cells': cells}  # fmt: skip
    header = {'identity': identity, 'about': {'config': 'x.py', 'checkpoint': str(folder)}}
    return {**summarize_records(header, rows), 'folder': str(folder)}


def compared(tmp_path, first, second):
    ours, theirs = results_of(tmp_path / 'a', first), results_of(tmp_path / 'b', second)
    comparison = compare(ours, theirs)
    add_paired_intervals(comparison, ours, theirs, tmp_path / 'a')
    judge(comparison, IMAGES)
    return comparison


def test_each_class_as_a_loop_computes_it(tmp_path):
    noise = 'gaussian_noise'
    sides = [
        [('clean', 'clean', None, 0, areas(seed, quality)),
         (f'{noise}=5_0', noise, 5.0, 0, areas(seed + 10, quality)),
         (f'{noise}=5_1', noise, 5.0, 1, areas(seed + 20, quality))]
        for seed, quality in ((0, 0.75), (0, 0.6))
    ]  # fmt: skip
    comparison = compared(tmp_path, *sides)
    draws = np.random.default_rng(0).integers(0, IMAGES, (1000, IMAGES))
    for row, passes in zip(comparison['rows'], (slice(0, 1), slice(1, 3)), strict=True):
        values = np.array([
            np.nanmean([iou(i[d], u[d]) for *_, (i, u) in sides[0][passes]], axis=0)
            - np.nanmean([iou(i[d], u[d]) for *_, (i, u) in sides[1][passes]], axis=0)
            for d in draws
        ])  # fmt: skip
        for place, name in enumerate(CLASSES):
            found, own = row['per_class'][name], values[:, place]
            own = own[np.isfinite(own)]
            low, high = np.percentile(own, [2.5, 97.5])
            assert (found['low'], found['high']) == pytest.approx((low, high))
            assert found['difference'] == pytest.approx(found['this'] - found['other'])
        adjusted = holm([row['per_class'][name]['p'] for name in CLASSES])
        assert [row['per_class'][name]['p_holm'] for name in CLASSES] == adjusted
    head, rows = per_class_table(comparison)
    assert len(rows) == 2 * 4
    assert all(len(row) == len(head) for row in rows)


def test_a_class_in_too_few_images_has_no_interval(tmp_path):
    intersect, union = areas(1)
    union[:, 3] = 0
    intersect[:, 3] = 0
    union[0, 3], intersect[0, 3] = 10, 5  # in one image: a third of the draws miss it
    comparison = compared(tmp_path, *[[('clean', 'clean', None, 0, (intersect, union))]] * 2)
    rare = comparison['rows'][0]['per_class']['car']
    assert (rare['low'], rare['high'], rare['p']) == (None, None, None)
    assert rare['difference'] == 0
    assert rare['significant'] is None
    assert comparison['rows'][0]['per_class']['sky']['p'] == 1, 'a model against itself'


def test_p_over_images_is_wrong_about_as_often_as_it_says(tmp_path):
    """Two equally good models on the same images: one test in twenty says otherwise."""
    wrong, sure = 0, 0
    for seed in range(100):
        (first, union), (second, _) = (areas(seed, rare=0.9) for _ in range(2))
        rng = np.random.default_rng(1000 + seed)
        first = np.minimum(first + rng.integers(-20, 21, first.shape), union).clip(0)
        second = np.minimum(second + rng.integers(-20, 21, second.shape), union).clip(0)
        sides = [[('clean', 'clean', None, 0, (one, union))] for one in (first, second)]
        row = compared(tmp_path, *sides)['rows'][0]
        wrong += row['p'] < 0.05
        sure += row['over_images']['clear']
    assert 1 <= wrong <= 11
    assert abs(wrong - sure) <= 5, 'the interval agrees'


def test_needed_numbers_shrink_with_the_difference(tmp_path):
    sides = [[('clean', 'clean', None, 0, areas(0, quality))] for quality in (0.75, 0.6)]
    comparison = compared(tmp_path, *sides)
    judge(comparison, IMAGES, detect=0.25)
    first = comparison['rows'][0]['needed']
    assert first['repeats'] is None, 'one measurement has no deviation'
    judge(comparison, IMAGES, detect=0.5)
    second = comparison['rows'][0]['needed']
    assert 2 <= second['images'] < first['images']
    assert first['images'] / second['images'] == pytest.approx(4, rel=0.1)
