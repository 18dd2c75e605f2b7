"""Predictions drawn over images: pixels, names and sizes."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData, PixelData
from mmseg.structures import SegDataSample

from cb_mm.robustness.prediction_pictures import draw_prediction, seen_image

GREY = np.full((40, 60, 3), 100, np.uint8)
META = {'classes': ('road', 'a very long name'), 'palette': [[200, 0, 0], [0, 0, 200]]}


def segmented(labels: np.ndarray) -> SegDataSample:
    sample = SegDataSample(metainfo={'ori_shape': labels.shape})
    sample.pred_sem_seg = PixelData(data=torch.from_numpy(labels)[None])
    return sample


def detected(scores=(0.9, 0.29), size=(40, 60)) -> DetDataSample:
    sample = DetDataSample(metainfo={'ori_shape': size})
    masks = torch.zeros(2, *size, dtype=torch.bool)
    masks[0, 5:15, 5:15] = masks[1, 20:30, 40:50] = True
    sample.pred_instances = InstanceData(
        bboxes=torch.tensor([[5.0, 5, 15, 15], [40, 20, 50, 30]]),
        labels=torch.tensor([1, 0]),
        scores=torch.tensor(scores),
        masks=masks,
    )
    return sample


def width_of(name: str) -> int:
    return cv2.getTextSize(name, cv2.FONT_HERSHEY_SIMPLEX, 0.4, 1)[0][0]


@pytest.mark.parametrize('order', ['rgb', 'bgr'])
def test_what_the_model_saw_is_rgb(order):
    inputs = torch.arange(24.0).reshape(3, 2, 4) + 0.4
    seen = seen_image(inputs, order)
    expected = inputs.numpy().round().transpose(1, 2, 0)
    assert np.array_equal(seen, expected if order == 'rgb' else expected[..., ::-1])
    assert seen_image(inputs[:1], order).shape == (2, 4, 3)


def test_segments_are_half_their_colour_and_named_by_size():
    labels = np.ones((40, 60), int)
    labels[:, :20] = 0
    drawn = draw_prediction(GREY, segmented(labels), META)
    assert drawn.shape == (40, 60 + width_of('a very long name') + 30, 3)
    assert drawn[5, 5].tolist() == [150, 50, 50]
    assert drawn[5, 50].tolist() == [50, 50, 150]
    assert drawn[10, 70].tolist() == [0, 0, 200]  # the largest comes first
    assert drawn[28, 70].tolist() == [200, 0, 0]
    column = (drawn[:, 66] != 255).any(axis=1)  # squares of 12 pixels, one per row of 18
    assert np.flatnonzero(column).tolist() == [*range(4, 16), *range(22, 34)]


def test_an_image_is_brought_to_the_size_of_its_prediction():
    drawn = draw_prediction(GREY, segmented(np.zeros((80, 120), int)), META)
    assert drawn.shape == (80, 120 + width_of('road') + 30, 3)


def test_classes_without_names_or_colours():
    labels = np.zeros((40, 60), int)
    labels[:, 30:] = 1
    drawn = draw_prediction(GREY, segmented(labels), {'classes': None})
    assert drawn.shape == (40, 60 + width_of('class 0') + 30, 3)
    assert drawn[5, 5].tolist() != drawn[5, 50].tolist()
    few = draw_prediction(GREY, segmented(labels), {'classes': ('a',), 'palette': [[1, 2, 3]]})
    assert np.array_equal(few[:, :60], drawn[:, :60])  # too few colours are as good as none


def test_detections_above_the_least_score_are_drawn():
    drawn = draw_prediction(GREY, detected(), META)
    assert drawn.shape == (40, 60 + width_of('a very long name') + 30, 3)
    assert drawn[14, 13].tolist() == [50, 50, 150]  # in the mask
    assert drawn[15, 9].tolist() == [0, 0, 200]  # on the edge of the box
    assert np.array_equal(drawn[20:31, 40:51], GREY[20:31, 40:51])  # not sure enough
    both = draw_prediction(GREY, detected((0.9, 0.3)), META)
    assert both[29, 48].tolist() == [150, 50, 50]
    none = draw_prediction(GREY, detected((0.1, 0.1)), META)
    assert np.array_equal(none, GREY)
