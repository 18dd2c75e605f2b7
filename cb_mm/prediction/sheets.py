"""Pictures of predictions: one overlay, or the image and all its overlays side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from .colours import ClassStyle
from .drawing import OPACITY, SCORE, beside, legend_for, overlay
from .lettering import font_size, short, width_of, write
from .results import Ranking, Result


@dataclass(frozen=True)
class Panel:
    """An image and what was found in it.

    Attributes:
        caption: What was done to the image: 'clean', 'fog=3'.
        image: uint8 RGB.
        result: The prediction.
    """

    caption: str
    image: np.ndarray
    result: Result


@dataclass(frozen=True)
class Look:
    """How predictions are drawn.

    Attributes:
        style: Names and colours of the classes.
        opacity: Of the colours over the image.
        score: Minimum score of a detection.
        side_by_side: Show the image too, and every corruption in one picture.
    """

    style: ClassStyle
    opacity: float = OPACITY
    score: float = SCORE
    side_by_side: bool = False


def draw_one(panel: Panel, look: Look) -> np.ndarray:
    """Draw one overlay with its legend."""
    drawn = overlay(panel.image, panel.result, look.style, look.opacity, look.score)
    return beside(drawn, _legend([panel], look, drawn.shape[0]))


def draw_side_by_side(panels: Sequence[Panel], look: Look) -> np.ndarray:
    """Draw one row per panel, the image and its prediction, and one legend for all."""
    rows = []
    for panel in panels:
        drawn = overlay(panel.image, panel.result, look.style, look.opacity, look.score)
        name = 'image' if len(panels) == 1 else panel.caption
        if isinstance(panel.result, Ranking):  # it has bars of its own, and nothing to paint
            left = captioned(panel.image, name)
            rows.append(beside(left, _legend([panel], look, left.shape[0])))
        else:
            left, right = captioned(panel.image, name), captioned(drawn, 'prediction')
            rows.append(np.concatenate([left, _gap(left), right], axis=1))
    width = max(row.shape[1] for row in rows)
    whole = np.concatenate([_widened(row, width) for row in rows])
    if isinstance(panels[0].result, Ranking):
        return whole
    return beside(whole, _legend(panels, look, whole.shape[0]))


def captioned(image: np.ndarray, text: str) -> np.ndarray:
    """Return the image with a line of text above it."""
    size = font_size(image.shape)
    height = round(size * 1.9)
    while size > 8 and width_of(text, size, bold=True) > image.shape[1]:
        size -= 1
    strip = Image.new('RGB', (image.shape[1], height), 'white')
    longest = max(image.shape[1] * 10 // (6 * size), 4)
    write(ImageDraw.Draw(strip), (1, strip.height / 2), short(text, longest), size, bold=True)
    return np.concatenate([np.asarray(strip), image])


def _legend(panels: Sequence[Panel], look: Look, height: int) -> np.ndarray:
    size = font_size(panels[0].image.shape)
    return legend_for([panel.result for panel in panels], look.style, height, size, look.score)


def _gap(image: np.ndarray) -> np.ndarray:
    return np.full((image.shape[0], max(image.shape[1] // 80, 4), 3), 255, np.uint8)


def _widened(row: np.ndarray, width: int) -> np.ndarray:
    sheet = np.full((row.shape[0], width, 3), 255, np.uint8)
    sheet[:, : row.shape[1]] = row
    return sheet
