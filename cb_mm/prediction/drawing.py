"""Predictions drawn over images.

The visualizers of mmseg and mmdet draw only on the first process, so that a distributed test would
show only part of the images, and use matplotlib, which takes longer than the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import torch
from PIL import Image, ImageDraw

from .colours import ClassStyle
from .legend import class_legend, ranking_panel
from .lettering import font_size, ink_on, short, width_of, write
from .results import Detections, Ranking, Result, Segmentation, result_of

OPACITY = 0.5
#: Minimum score of a detection that is drawn and counted.
SCORE = 0.3


def seen_image(inputs: torch.Tensor, channel_order: str) -> np.ndarray:
    """Return the model's input (3 x H x W, grey levels) as uint8 RGB, H x W x 3."""
    image = np.rint(inputs.detach().cpu().float().numpy()).astype(np.uint8).transpose(1, 2, 0)
    if image.shape[2] == 1:
        image = np.repeat(image, 3, axis=2)
    return np.ascontiguousarray(image if channel_order == 'rgb' else image[:, :, ::-1])


def draw_prediction(image: np.ndarray, sample: Any, meta: dict) -> np.ndarray:
    """Draw what the model predicted over the image, with a legend beside it; uint8 RGB.

    Args:
        image: What the model saw, uint8 RGB; it is resized to the prediction.
        sample: The model's output for it, of mmseg, mmdet or mmpretrain.
        meta: Of the data set: classes, and a palette if there is one.
    """
    try:
        result = result_of(sample)
    except TypeError:  # a panoptic model, say: there is only the image to show
        return image
    if not isinstance(result, Ranking):
        height, width = sample.ori_shape[:2]
        image = cv2.resize(image, (int(width), int(height)), interpolation=cv2.INTER_LINEAR)
    return with_legend(image, result, ClassStyle.of_meta(meta))


def with_legend(
    image: np.ndarray,
    result: Result,
    style: ClassStyle,
    opacity: float = OPACITY,
    score: float = SCORE,
) -> np.ndarray:
    """Return the overlay with the names of the classes on its right."""
    drawn = overlay(image, result, style, opacity, score)
    return beside(drawn, legend_for([result], style, drawn.shape[0], font_size(image.shape), score))


def legend_for(
    results: Sequence[Result], style: ClassStyle, height: int, size: int, score: float = SCORE
) -> np.ndarray:
    """Return the panel that explains the colours of one or several results of one model."""
    if isinstance(results[0], Ranking):
        return ranking_panel(results[0], style, height, size)
    present: set[int] = set()
    for result in results:
        if isinstance(result, Detections):
            present.update(result.above(score).labels.tolist())
        elif isinstance(result, Segmentation):
            present.update(result.pixels())
    # An annotation also has labels of no class, such as 255.
    known = len(style.names) or 255
    return class_legend({one for one in present if one < known}, style, height, size)


def overlay(
    image: np.ndarray,
    result: Result,
    style: ClassStyle,
    opacity: float = OPACITY,
    score: float = SCORE,
) -> np.ndarray:
    """Draw a result over an image of its size; uint8 RGB.

    Args:
        image: uint8 RGB (H, W, 3); it is not changed.
        result: What was found in it.
        style: Names and colours.
        opacity: Of the colours over the image, from 0 to 1.
        score: Minimum score of a detection.
    """
    if isinstance(result, Segmentation):
        return _with_segments(image, result.labels, style, opacity)
    if isinstance(result, Detections):
        return _with_objects(image, result.above(score), style, opacity)
    return image.copy()


def beside(image: np.ndarray, panel: np.ndarray) -> np.ndarray:
    """Put a panel on the right of an image, both at the top, on white."""
    height = max(image.shape[0], panel.shape[0])
    sheet = np.full((height, image.shape[1] + panel.shape[1], 3), 255, np.uint8)
    sheet[: image.shape[0], : image.shape[1]] = image
    sheet[: panel.shape[0], image.shape[1] :] = panel
    return sheet


def _with_segments(
    image: np.ndarray, labels: np.ndarray, style: ClassStyle, opacity: float
) -> np.ndarray:
    # Labels of an annotation that belong to no class (255) keep the image.
    known = labels < max(len(style.names), 1) if style.names else labels < 255
    colours = style.colours(int(labels[known].max(initial=0)) + 1)
    painted = colours[np.where(known, labels, 0)]
    drawn = cv2.addWeighted(image, 1 - opacity, painted, opacity, 0)
    drawn[~known] = image[~known]
    return drawn


def _with_objects(
    image: np.ndarray, objects: Detections, style: ClassStyle, opacity: float
) -> np.ndarray:
    colours = style.colours(int(objects.labels.max(initial=0)) + 1)
    drawn = image.copy()
    size = max(round(font_size(image.shape) * 0.75), 10)
    line = max(round(min(image.shape[:2]) / 320), 1)
    for i in reversed(range(len(objects.labels))):  # the surest on top
        colour = colours[objects.labels[i]]
        if objects.masks is not None and objects.masks[i].shape == drawn.shape[:2]:
            mask = objects.masks[i]
            drawn[mask] = (drawn[mask] * (1 - opacity) + colour * opacity).astype(np.uint8)
            edges, _ = cv2.findContours(
                mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE
            )
            cv2.drawContours(drawn, edges, -1, colour.tolist(), line)
        x1, y1, x2, y2 = (round(float(value)) for value in objects.boxes[i])
        cv2.rectangle(drawn, (x1, y1), (x2, y2), colour.tolist(), line)
    picture = Image.fromarray(drawn)
    draw = ImageDraw.Draw(picture)
    taken: list[tuple[float, float, float, float]] = []
    for i, number in enumerate(objects.labels.tolist()):
        score = f' {objects.scores[i]:.2f}' if objects.scored else ''
        text = f'{short(style.name(number))}{score}'
        _label(draw, objects.boxes[i], text, tuple(colours[number].tolist()), size, taken)
    return np.asarray(picture)


def _label(
    draw: ImageDraw.ImageDraw,
    box: np.ndarray,
    text: str,
    colour: tuple[int, ...],
    size: int,
    taken: list[tuple[float, float, float, float]],
) -> None:
    """Write on a ground of the class's colour, at a corner where no surer object is named.

    Without such a corner it is left out: the colour tells the class, and nobody can read names on
    top of each other.
    """
    width, height = width_of(text, size) + 6, round(size * 1.3)
    limits = draw.im.size
    x1, y1, x2, y2 = box.tolist()
    corners = [(x1, y1 - height), (x1, y1), (x1, y2), (x1, y2 - height), (x2 - width, y1)]
    places = []
    for x, y in corners:
        left = min(max(x, 0), max(limits[0] - width, 0))
        if 0 <= y <= limits[1] - height:
            places.append((left, y, left + width, y + height))
    if not places:
        left = min(max(x1, 0), max(limits[0] - width, 0))
        places = [(left, 0, left + width, height)]
    free = [place for place in places if not any(_meet(place, other) for other in taken)]
    if not free:
        return
    place = free[0]
    taken.append(place)
    draw.rectangle([round(value) for value in place], fill=colour)
    middle = round(place[0]) + 3, round(place[1]) + height / 2
    write(draw, middle, text, size, ink_on(colour))


def _meet(one: Sequence[float], other: Sequence[float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
