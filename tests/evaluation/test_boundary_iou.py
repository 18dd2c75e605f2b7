"""Boundary IoU against masks that are eroded one by one, as the paper describes it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mmengine.registry import METRICS
from scipy import ndimage

from cb_mm.errors import UserError
from cb_mm.evaluation.boundary_iou import BoundaryIoUMetric, band_width

CLASSES = ('a', 'b', 'c', 'd')


def band(mask, width):
    """The pixels of a mask that repeated erosion by 3 x 3 removes."""
    inside = ndimage.binary_erosion(mask, np.ones((3, 3)), iterations=width, border_value=0)
    return mask & ~inside


def blobs(rng, size=(60, 80)):
    """A label map with smooth regions."""
    fields = [ndimage.gaussian_filter(rng.normal(size=size), 6) for _ in CLASSES]
    return np.stack(fields).argmax(axis=0)


def sample(predicted, truth):
    return {
        'pred_sem_seg': {'data': torch.as_tensor(predicted)[None]},
        'gt_sem_seg': {'data': torch.as_tensor(truth)[None]},
    }


def run(samples, **options):
    metric = METRICS.build(dict(type='BoundaryIoUMetric', **options))
    metric.dataset_meta = {'classes': CLASSES}
    metric.process({}, samples)
    return metric.figures(metric.state())


@pytest.mark.parametrize('dilation', [0.02, 0.05])
def test_masks_eroded_by_hand(dilation):
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(3):
        truth = blobs(rng)
        pairs.append((np.where(rng.random(truth.shape) < 0.01, 0, np.roll(truth, 2, 1)), truth))
    width = round(dilation * 100)  # the diagonal of 60 x 80 is 100
    assert band_width((60, 80), dilation) == width
    intersect, union = np.zeros(4), np.zeros(4)
    for predicted, truth in pairs:
        for label in range(4):
            one, two = band(predicted == label, width), band(truth == label, width)
            intersect[label] += (one & two).sum()
            union[label] += (one | two).sum()
    figures = run([sample(*pair) for pair in pairs], dilation=dilation)
    assert figures.per_class['boundary_IoU'] == pytest.approx(100 * intersect / union, abs=1e-9)
    by_hand = 100 * np.mean(intersect / union)
    assert figures.metrics['boundary_mIoU'] == pytest.approx(by_hand, abs=1e-9)
    assert 20 < by_hand < 90  # neither trivial nor perfect


def test_ignored_pixels_make_no_outline():
    """Between two halves of one class, only the edge of the image is an outline."""
    truth = np.zeros((40, 40), int)
    truth[:, 15:25] = 255
    predicted = np.zeros((40, 40), int)
    predicted[:, 15:25] = 1  # where nobody looks
    figures = run([sample(predicted, truth)])
    assert figures.metrics['boundary_mIoU'] == 100
    assert np.isnan(figures.per_class['boundary_IoU'][1:]).all()
    state = BoundaryIoUMetric()
    state.dataset_meta = {'classes': CLASSES}
    edge = 40 * 40 - 38 * 38 - 2 * 10  # one pixel wide, without the ignored columns
    assert state.measure(sample(predicted, truth))['union'].tolist() == [edge, 0, 0, 0]


def test_a_hidden_outline_still_counts():
    """Two classes on both sides of an ignored strip that is thinner than the band."""
    truth = np.zeros((100, 100), int)
    truth[:, 50:] = 1
    truth[:, 49:51] = 255
    metric = BoundaryIoUMetric(dilation=0.04)
    metric.dataset_meta = {'classes': CLASSES}
    width = band_width(truth.shape, 0.04)
    union = metric.measure(sample(truth, truth))['union']
    inner = (100 - 2 * width) * (51 - 2 * width)  # neither at the edge nor at column 51
    assert union[0] == 100 * 49 - inner


def test_a_perfect_prediction_and_an_ignored_class():
    truth = blobs(np.random.default_rng(1))
    assert run([sample(truth, truth)]).metrics['boundary_mIoU'] == 100
    figures = run([sample(truth, truth)], ignore_index=2)
    assert np.isnan(figures.per_class['boundary_IoU'][2])


def test_memory_does_not_grow_with_the_images():
    truth = blobs(np.random.default_rng(2))
    sizes = set()
    for images in (2, 20):
        metric = BoundaryIoUMetric()
        metric.dataset_meta = {'classes': CLASSES}
        metric.process({}, [sample(truth, truth)] * images)
        sizes.add(sum(array.nbytes for array in [*metric._state.values(), *metric._last.values()]))
        assert not metric.results
    assert len(sizes) == 1


def test_instances_are_refused():
    with pytest.raises(UserError, match='boundary AP'):
        run([{'pred_instances': {}}])
