"""Intervals over images: against a loop in numpy, and where they do not exist."""

from __future__ import annotations

import gzip
import io

import numpy as np
import pytest

from cb_mm.robustness.comparison import compare
from cb_mm.robustness.image_intervals import (
    PassScores,
    add_image_intervals,
    bootstrap_images,
    statistic_of,
)
from cb_mm.robustness.image_scores import ImageScores, read_image_scores, write_image_scores
from cb_mm.robustness.metrics import Scores
from cb_mm.robustness.page import _cell
from cb_mm.robustness.paired_images import add_paired_intervals
from cb_mm.robustness.report import summarize_records
from cb_mm.robustness.results_file import read_compared

RNG = np.random.default_rng(0)
UNION = RNG.integers(0, 50, (40, 6)) * RNG.integers(0, 2, (40, 6))
INTERSECT = (UNION * RNG.random((40, 6))).astype(np.int64)


def mean_iou(intersect, union) -> float:
    with np.errstate(invalid='ignore'):
        return float(100 * np.nanmean(intersect.sum(0) / union.sum(0)))


def numpy_loop(score, images: int, resamples: int, seed: int) -> tuple[float, float]:
    draws = np.random.default_rng(seed).integers(0, images, (resamples, images))
    values = [score(draw) for draw in draws]
    return tuple(np.percentile(values, [2.5, 97.5]))


def test_mean_iou_as_a_loop_computes_it():
    scores = ImageScores(['x'] * 40, {}, {'intersect': INTERSECT, 'union': UNION})
    found = bootstrap_images(statistic_of(scores, 'mIoU'), 40, seed=3, resamples=300)
    expected = numpy_loop(lambda draw: mean_iou(INTERSECT[draw], UNION[draw]), 40, 300, 3)
    np.testing.assert_allclose(found, expected)
    assert found == bootstrap_images(statistic_of(scores, 'mIoU'), 40, seed=3, resamples=300)
    assert found != bootstrap_images(statistic_of(scores, 'mIoU'), 40, seed=4, resamples=300)


def test_batches_do_not_matter(monkeypatch):
    values = np.where(RNG.random(50) < 0.1, np.nan, 100.0 * (RNG.random(50) < 0.7))
    statistic = statistic_of(ImageScores(['x'] * 50, {'top1': values}), 'top1')
    whole = bootstrap_images(statistic, 50, resamples=200)
    np.testing.assert_allclose(whole, numpy_loop(lambda draw: np.nanmean(values[draw]), 50, 200, 0))
    monkeypatch.setattr('cb_mm.robustness.image_intervals._AT_ONCE', 150)  # three draws at once
    assert bootstrap_images(statistic, 50, resamples=200) == whole


def test_it_covers_the_truth_about_as_often_as_it_says():
    inside = 0
    for seed in range(200):
        values = 100.0 * (np.random.default_rng(seed).random(80) < 0.6)
        statistic = statistic_of(ImageScores(['x'] * 80, {'top1': values}), 'top1')
        low, high = bootstrap_images(statistic, 80, seed, 200)
        inside += low <= 60 <= high
    assert 0.89 <= inside / 200 <= 0.99


def test_where_there_is_none():
    one = ImageScores(['x'], {'top1': np.array([100.0]), 'bbox_AP': np.array([1.0])})
    assert bootstrap_images(statistic_of(one, 'top1'), 1) is None
    assert statistic_of(one, 'bbox_mAP') is None
    assert statistic_of(one, 'mIoU') is None


def sweep(folder, intersect, repeats=(0.0, 1.0)):
    """Results of clean images and of noise in two repeats, with the files of their images."""
    names = [f'{k}.jpg' for k in range(40)]
    rows = []
    for key, name, level, repeat in (
        ('clean', 'clean', None, 0),
        ('gaussian_noise=5_0', 'gaussian_noise', 5.0, 0),
        ('gaussian_noise=5_1', 'gaussian_noise', 5.0, 1),
    ):
        kept = (intersect * (1 - 0.1 * repeat * repeats[1])).astype(np.int64)
        kept = kept if level is None else kept // 2
        scores = Scores(per_image={'mIoU': [1.0] * 40}, areas={'intersect': kept, 'union': UNION})
        write_image_scores(folder, key, names, scores)
        rows.append(
            {
                'key': key, 'corruption': name, 'level': level, 'severity': None,
                'random': level is not None, 'repeat': repeat, 'seed': 0, 'images': 40,
                'seconds': 1.0, 'metrics': {'mIoU': mean_iou(kept, UNION)}, 'units': {'mIoU': '%'},
                'upstream': {}, 'per_class': {'IoU': {'a': 1.0}}, 'per_image': f'scores/{key}.csv',
            }
        )  # fmt: skip
    identity = {'data': 'd', 'annotations': 'a', 'images': 40, 'seed': 0, 'repeats': 2,
                'cells': ['clean', 'gaussian_noise=5']}  # fmt: skip
    return {'identity': identity, 'about': {'config': 'x.py', 'checkpoint': str(folder)}}, rows


def test_even_the_clean_row_of_a_comparison_has_one(tmp_path):
    from cb_mm.robustness import write_report

    worse = (INTERSECT * 0.9).astype(np.int64)
    write_report(tmp_path / 'other', *sweep(tmp_path / 'other', worse))
    other = read_compared(tmp_path / 'other')
    text = write_report(tmp_path / 'this', *sweep(tmp_path / 'this', INTERSECT), other)
    results = summarize_records(*sweep(tmp_path / 'this', INTERSECT))
    add_image_intervals(results, tmp_path / 'this')
    comparison = compare(results, other)
    add_paired_intervals(comparison, results, other, tmp_path / 'this')
    clean, noisy = comparison['rows']
    assert clean['difference']['low'] is None
    expected = numpy_loop(
        lambda d: mean_iou(INTERSECT[d], UNION[d]) - mean_iou(worse[d], UNION[d]), 40, 1000, 0
    )
    found = clean['over_images']
    np.testing.assert_allclose((found['low'], found['high']), expected)
    assert found['clear']
    theirs = numpy_loop(lambda d: mean_iou(worse[d], UNION[d]), 40, 1000, 0)
    kept = other['cells'][0]['metrics']['mIoU']['over_images']
    np.testing.assert_allclose((kept['low'], kept['high']), theirs)
    assert (
        _cell(results['cells'][0], results, other, [])['figures']['mIoU']['other']['imagesLow']
        == kept['low']
    ), 'the page of two models draws both'
    single = results['cells'][0]['metrics']['mIoU']['over_images']
    assert found['high'] - found['low'] < (single['high'] - single['low']) / 2, 'pairs help'
    assert noisy['over_images']['low'] < noisy['difference']['mean'] < noisy['over_images']['high']
    assert '95 % over images' in text
    assert 'percentile bootstrap' in text


@pytest.mark.parametrize(
    'damage', ['missing', 'cut', 'shape', 'metric', 'names', 'field', 'size', 'header', 'archive']
)
def test_files_that_do_not_fit_give_no_interval(damage, tmp_path):
    header, rows = sweep(tmp_path, INTERSECT)
    file = tmp_path / 'scores' / 'clean.npy.gz'
    if damage == 'missing':
        file.unlink()
    elif damage == 'cut':
        file.write_bytes(file.read_bytes()[:100])
    elif damage == 'shape':
        with gzip.open(file, 'wb') as stream:
            np.save(stream, np.stack([INTERSECT[:3], UNION[:3]]))
    elif damage == 'metric':  # one with settings of its own
        rows[0]['metrics']['mIoU'] += 1
    elif damage == 'names':
        (tmp_path / 'scores' / 'clean.csv').write_bytes(b'\xff\xfe')
    elif damage == 'field':
        (tmp_path / 'scores' / 'clean.csv').write_text(f'image,mIoU\n{"a" * 200_000},1\n')
    elif damage in ('size', 'header'):
        claim = {
            'size': f"{{'descr': '<i8', 'fortran_order': False, 'shape': (2, 40, {10**30})}}\n",
            'header': "{'descr': ((\n",
        }[damage].encode()
        file.write_bytes(
            gzip.compress(b'\x93NUMPY\x01\x00' + len(claim).to_bytes(2, 'little') + claim)
        )
    elif damage == 'archive':
        stream = io.BytesIO()
        np.savez(stream, INTERSECT, UNION)
        file.write_bytes(gzip.compress(stream.getvalue()))
    results = summarize_records(header, rows)
    add_image_intervals(results, tmp_path)
    assert results['cells'][0]['metrics']['mIoU']['over_images'] is None
    assert results['cells'][1]['metrics']['mIoU']['over_images'] is not None


def test_areas_are_read_as_they_were_written(tmp_path):
    sweep(tmp_path, INTERSECT)
    found = read_image_scores(tmp_path, 'clean')
    assert np.array_equal(found.areas['intersect'], INTERSECT)
    assert found.names[:2] == ['0.jpg', '1.jpg']
    assert PassScores(None).of('clean') is None
    assert read_image_scores(tmp_path, 'nowhere') is None
