"""Predictions drawn over images: pixels, names and sizes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData, PixelData
from mmseg.structures import SegDataSample

from cb_mm.prediction.colours import ClassStyle
from cb_mm.prediction.drawing import draw_prediction, legend_for, overlay, seen_image
from cb_mm.prediction.results import Detections, Ranking, Segmentation
from cb_mm.prediction.sheets import Look, Panel, draw_one, draw_side_by_side

GREY = np.full((40, 60, 3), 100, np.uint8)
META = {'classes': ('road', 'a very long name'), 'palette': [[200, 0, 0], [0, 0, 200]]}


def segmented(labels: np.ndarray) -> SegDataSample:
    sample = SegDataSample(metainfo={'ori_shape': labels.shape})
    sample.pred_sem_seg = PixelData(data=torch.from_numpy(labels)[None])
    return sample


def detected(scores=(0.9, 0.29), size=(200, 300)) -> DetDataSample:
    sample = DetDataSample(metainfo={'ori_shape': size})
    masks = torch.zeros(2, *size, dtype=torch.bool)
    masks[0, 60:120, 40:100] = masks[1, 60:120, 200:260] = True
    sample.pred_instances = InstanceData(
        bboxes=torch.tensor([[40.0, 60, 100, 120], [200, 60, 260, 120]]),
        labels=torch.tensor([1, 0]),
        scores=torch.tensor(scores),
        masks=masks,
    )
    return sample


@pytest.mark.parametrize('order', ['rgb', 'bgr'])
def test_what_the_model_saw_is_rgb(order):
    inputs = torch.arange(24.0).reshape(3, 2, 4) + 0.4
    seen = seen_image(inputs, order)
    expected = inputs.numpy().round().transpose(1, 2, 0)
    assert np.array_equal(seen, expected if order == 'rgb' else expected[..., ::-1])
    assert seen_image(inputs[:1], order).shape == (2, 4, 3)


def swatches(drawn: np.ndarray, left: int) -> list[list[int]]:
    """The colours down the middle of the legend's squares, from the top."""
    column = drawn[:, left + 11 + 5]
    kept = [c.tolist() for k, c in enumerate(column) if k and (c != column[k - 1]).any()]
    return [colour for colour in kept if colour != [255, 255, 255]]


def test_segments_are_half_their_colour_and_listed_by_number():
    labels = np.ones((40, 60), int)
    labels[:, :20] = 0
    drawn = draw_prediction(GREY, segmented(labels), META)
    assert drawn[5, 5].tolist() == [150, 50, 50]
    assert drawn[5, 50].tolist() == [50, 50, 150]
    assert swatches(drawn, 60)[:2] == [[200, 0, 0], [0, 0, 200]]


def test_the_legend_is_the_same_from_image_to_image():
    few, other = (draw_prediction(GREY, segmented(np.full((40, 60), k)), META) for k in (0, 1))
    both = draw_prediction(GREY, segmented(np.arange(60)[None].repeat(40, 0) // 30), META)
    assert few.shape == other.shape == both.shape
    black = [(picture[:, 60:].max(axis=2) < 60).sum() for picture in (few, other, both)]
    assert black[2] > max(black[:2])  # classes that do not occur are grey, in their places
    many = ClassStyle([f'class number {k}' for k in range(90)])
    legends = [legend_for([Segmentation(np.full((2, 2), k))], many, 300, 12).shape for k in (3, 89)]
    assert legends[0] == legends[1]
    crowded = Segmentation(np.arange(90).reshape(9, 10))
    assert legend_for([crowded], many, 120, 12).shape[0] == 120  # the rest is counted


def test_an_image_is_brought_to_the_size_of_its_prediction():
    drawn = draw_prediction(GREY, segmented(np.zeros((80, 120), int)), META)
    assert drawn.shape[0] == 80
    assert drawn.shape[1] > 120


def test_classes_without_names_or_colours():
    labels = np.zeros((40, 60), int)
    labels[:, 30:] = 1
    drawn = draw_prediction(GREY, segmented(labels), {'classes': None})
    assert drawn[5, 5].tolist() != drawn[5, 50].tolist()
    few = draw_prediction(GREY, segmented(labels), {'classes': ('a', 'b'), 'palette': [[1, 2, 3]]})
    assert np.array_equal(few[:, :60], drawn[:, :60])  # too few colours are as good as none


def test_pixels_of_no_class_keep_the_image():
    labels = np.full((40, 60), 255)
    labels[:10] = 1
    truth, style = Segmentation(labels), ClassStyle.of_meta(META)
    drawn = overlay(GREY, truth, style, opacity=1.0)
    assert (drawn[10:] == 100).all()
    assert (drawn[:10] == [0, 0, 200]).all()
    assert [0, 0, 200] in swatches(draw_one(Panel('', GREY, truth), Look(style)), 60)


def test_detections_above_the_least_score_are_drawn():
    grey = np.full((200, 300, 3), 100, np.uint8)
    drawn = draw_prediction(grey, detected(), META)
    assert drawn[90, 70].tolist() == [50, 50, 150]  # in the mask
    assert drawn[120, 70].tolist() == [0, 0, 200]  # on the edge of the box
    assert (drawn[:, 190:270] == 100).all()  # not sure enough
    both = draw_prediction(grey, detected((0.9, 0.3)), META)
    assert both[90, 230].tolist() == [150, 50, 50]
    none = draw_prediction(grey, detected((0.1, 0.1)), META)
    assert (none[:, :300] == 100).all()


def test_labels_of_objects_never_cover_each_other():
    boxes = np.array([[20.0, 20, 80, 80]] * 12)
    crowd = Detections(boxes, np.linspace(0.9, 0.5, 12), np.zeros(12, int))
    style = ClassStyle(['person'], [[0, 90, 0]])
    grey = np.full((200, 300, 3), 100, np.uint8)
    one = overlay(grey, Detections(boxes[:1], crowd.scores[:1], crowd.labels[:1]), style)
    all_of_them = overlay(grey, crowd, style)
    painted = [(picture == [0, 90, 0]).all(axis=2).sum() for picture in (one, all_of_them)]
    assert painted[0] < painted[1] < 6 * painted[0]  # the four corners, not twelve labels


def test_names_of_any_script_are_drawn():
    style = ClassStyle(['Straße', 'дорога', 'a\nb' + 'x' * 99])
    legend = legend_for([Segmentation(np.arange(3)[None])], style, 60, 12)
    rows = [(legend[k * 19 + 6 : k * 19 + 25, 30:].max(axis=2) < 128).sum() for k in range(3)]
    assert min(rows) > 20


def test_image_and_prediction_side_by_side():
    style = ClassStyle.of_meta(META)
    labels = Segmentation(np.ones((40, 60), int))
    panels = [Panel('clean', GREY, labels), Panel('fog=3', GREY + 50, labels)]
    drawn = draw_side_by_side(panels, Look(style, opacity=1.0))
    strip = (drawn.shape[0] - 80) // 2
    assert (drawn[strip : strip + 40, :60] == 100).all()
    assert (drawn[strip : strip + 40, 64:124] == [0, 0, 200]).all()
    below = 2 * strip + 40
    assert (drawn[below : below + 40, :60] == 150).all()


def test_a_ranking_has_bars():
    style = ClassStyle(['cat', 'dog'])
    ranking = Ranking(np.array([1, 0]), np.array([0.75, 0.25]))
    panel = draw_one(Panel('', GREY, ranking), Look(style))[:, 60:]
    blue = (panel == [0, 114, 178]).all(axis=2).sum(axis=1)
    first, second = (int(value) for value in np.unique(blue[blue > 0])[::-1])
    assert first / second == pytest.approx(3, rel=0.05)
    assert draw_side_by_side([Panel('clean', GREY, ranking)], Look(style)).shape[1] > 60


def test_bars_of_all_images_have_one_length():
    """Otherwise they cannot be compared, and a video cuts the wider ones."""
    style = ClassStyle(['cat', 'dog', 'black-footed ferret, ferret'])
    found = [Ranking(np.array(labels), np.array([0.5, 0.5])) for labels in ([0, 1], [2, 1])]
    panels = [draw_one(Panel('', GREY, ranking), Look(style))[:, 60:] for ranking in found]
    lengths = {int((panel == [0, 114, 178]).all(axis=2).sum(axis=1).max()) for panel in panels}
    assert len(lengths) == 1
    assert len({panel.shape for panel in panels}) == 1
