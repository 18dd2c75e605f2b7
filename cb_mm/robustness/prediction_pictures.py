"""Predictions drawn over the image that the model saw.

Drawn with OpenCV: the visualizers of mmseg and mmdet draw only on the first process, so that a
distributed test would show only part of the images, and use matplotlib, which takes longer than the
model.
"""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import torch

_OPACITY = 0.5
_SCORE = 0.3  # minimum score of a detection that is drawn
_ROW = 18  # height of a line of text


def seen_image(inputs: torch.Tensor, channel_order: str) -> np.ndarray:
    """Return the model's input (3 x H x W, grey levels) as uint8 RGB, H x W x 3."""
    image = np.rint(inputs.detach().cpu().float().numpy()).astype(np.uint8).transpose(1, 2, 0)
    if image.shape[2] == 1:
        image = np.repeat(image, 3, axis=2)
    return np.ascontiguousarray(image if channel_order == 'rgb' else image[:, :, ::-1])


def draw_prediction(image: np.ndarray, sample: Any, meta: dict) -> np.ndarray:
    """Draw what the model predicted over the image, uint8 RGB.

    Args:
        image: what the model saw, uint8 RGB; it is resized to the prediction.
        sample: the model's output for it, of mmseg, mmdet or mmpretrain.
        meta: of the data set: classes, and a palette if there is one.
    """
    classes = meta.get('classes') or ()
    if 'pred_label' in sample:
        return _draw_class(image, sample, classes)
    height, width = sample.ori_shape[:2]
    image = cv2.resize(image, (int(width), int(height)), interpolation=cv2.INTER_LINEAR)
    if 'pred_sem_seg' in sample:
        labels = sample.pred_sem_seg.data.squeeze().cpu().numpy()
        return _draw_segments(image, labels, classes, _palette(meta, labels.max() + 1))
    if 'pred_instances' in sample:
        return _draw_instances(image, sample.pred_instances, classes, meta)
    return image


def _draw_class(image: np.ndarray, sample: Any, classes: Sequence[str]) -> np.ndarray:
    """Draw the image as the model saw it, with prediction and (green or red) truth below."""
    label = int(sample.pred_label.flatten()[0])
    lines = [(f'{_name(classes, label)} {float(sample.pred_score.max()):.2f}', (0, 0, 0))]
    if 'gt_label' in sample:
        truth = [int(value) for value in sample.gt_label.flatten()]
        colour = (0, 110, 0) if label in truth else (180, 0, 0)
        lines.append((', '.join(_name(classes, value) for value in truth), colour))
    sheet = np.full((image.shape[0] + _ROW * len(lines) + 4, image.shape[1], 3), 255, np.uint8)
    sheet[: image.shape[0]] = image
    for row, (text, colour) in enumerate(lines):
        text = text.encode('ascii', 'replace').decode()
        place = (3, image.shape[0] + _ROW * (row + 1) - 4)
        cv2.putText(sheet, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.4, colour, 1, cv2.LINE_AA)
    return sheet


def _draw_segments(
    image: np.ndarray, labels: np.ndarray, classes: Sequence[str], palette: np.ndarray
) -> np.ndarray:
    drawn = cv2.addWeighted(image, 1 - _OPACITY, palette[labels], _OPACITY, 0)
    numbers, counts = np.unique(labels, return_counts=True)
    shown = [int(n) for n in numbers[np.argsort(-counts)]]
    return _with_legend(drawn, [(_name(classes, n), palette[n]) for n in shown])


def _draw_instances(
    image: np.ndarray, instances: Any, classes: Sequence[str], meta: dict
) -> np.ndarray:
    instances = instances[instances.scores >= _SCORE]
    instances = instances[instances.scores.argsort()]  # the surest on top
    labels = instances.labels.cpu().numpy()
    palette = _palette(meta, int(labels.max(initial=0)) + 1)
    drawn = image.copy()
    masks = instances.masks.cpu().numpy().astype(bool) if 'masks' in instances else None
    boxes = instances.bboxes.cpu().numpy().round().astype(int)
    scores = instances.scores.cpu().numpy()
    size = min(max(image.shape[1] / 1400, 0.28), 0.6)  # of the text: small in small images
    for i, label in enumerate(labels):
        colour = palette[label]
        if masks is not None and masks[i].shape == drawn.shape[:2]:
            drawn[masks[i]] = (drawn[masks[i]] * (1 - _OPACITY) + colour * _OPACITY).astype(
                np.uint8
            )
        x1, y1, x2, y2 = boxes[i].tolist()
        cv2.rectangle(drawn, (x1, y1), (x2, y2), colour.tolist(), 1)
        text = f'{_name(classes, label)} {scores[i]:.2f}'
        _write(drawn, text, x1 + 1, max(y1 - 3, 10), (255, 255, 255), size)
    present = sorted(set(labels.tolist()))
    return _with_legend(drawn, [(_name(classes, n), palette[n]) for n in present])


def _with_legend(image: np.ndarray, entries: Sequence[tuple[str, np.ndarray]]) -> np.ndarray:
    """Return the image with a white column of colours and names on its right."""
    if not entries:
        return image
    names = [name for name, _ in entries]
    width = max(cv2.getTextSize(name, cv2.FONT_HERSHEY_SIMPLEX, 0.4, 1)[0][0] for name in names)
    height = max(image.shape[0], _ROW * len(entries) + 4)
    sheet = np.full((height, image.shape[1] + width + 30, 3), 255, np.uint8)
    sheet[: image.shape[0], : image.shape[1]] = image
    left = image.shape[1] + 6
    for row, (name, colour) in enumerate(entries):
        top = row * _ROW + 4
        sheet[top : top + 12, left : left + 12] = colour
        _write(sheet, name, left + 18, top + 10, (0, 0, 0))
    return sheet


def _write(
    image: np.ndarray, text: str, x: int, y: int, colour: tuple[int, int, int], size: float = 0.4
) -> None:
    if sum(colour) > 0:  # light text gets a dark outline, to be readable on any background
        cv2.putText(image, text, (x, y), cv2.FONT_HERSHEY_SIMPLEX, size, (0, 0, 0), 3, cv2.LINE_AA)
    cv2.putText(image, text, (x, y), cv2.FONT_HERSHEY_SIMPLEX, size, colour, 1, cv2.LINE_AA)


def _name(classes: Sequence[str], number: int) -> str:
    return str(classes[number]) if number < len(classes) else f'class {number}'


def _palette(meta: dict, least: int) -> np.ndarray:
    """Return the data set's colours (N x 3, uint8), or well separated hues where it has none."""
    given = meta.get('palette')
    if isinstance(given, (list, tuple)) and len(given) >= least:
        return np.asarray(given, np.uint8)
    count = max(least, len(meta.get('classes') or ()))
    # Steps of the golden ratio keep neighbouring classes apart.
    hues = [
        colorsys.hsv_to_rgb((k * 0.618034) % 1, 0.65 + 0.35 * (k % 2), 0.95) for k in range(count)
    ]
    return np.asarray([[round(255 * part) for part in hue] for hue in hues], np.uint8)
