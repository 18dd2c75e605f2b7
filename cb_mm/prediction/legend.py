"""The panel beside a prediction: classes in the order of their numbers, in constant places.

A legend sorted by area, as many tools draw it, changes from image to image and jumps in a video.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw

from .colours import ClassStyle
from .lettering import short, width_of, write
from .results import Ranking

#: Up to this many classes, all of them are listed, whether they occur or not.
ALL_LISTED = 24
_GREY = (150, 150, 150)


def class_legend(present: Collection[int], style: ClassStyle, height: int, size: int) -> np.ndarray:
    """Draw colours and names; the width depends on the classes alone; uint8 RGB.

    Args:
        present: Classes that occur; the others are grey, or left out where there are many.
        style: Names and colours.
        height: Of the image beside it; the legend is as high, or higher if it must be.
        size: Of the letters.
    """
    known = max(len(style.names), max(present, default=-1) + 1)
    full = known <= ALL_LISTED
    numbers = list(range(known)) if full else sorted(present)
    row = round(size * 1.6)
    colours = style.colours(known)
    names = [short(style.name(number)) for number in range(known)]
    width = max((width_of(name, size) for name in names), default=0) + 2 * row + size
    room = max((height - size) // row, 1)
    left_out = 0
    if full:
        height = max(height, row * len(numbers) + size)
    elif len(numbers) > room:
        left_out = len(numbers) - room + 1
        numbers = numbers[: room - 1]
    panel = Image.new('RGB', (width, height), 'white')
    draw = ImageDraw.Draw(panel)
    side = round(size * 1.05)
    for place, number in enumerate(numbers):
        middle = size // 2 + place * row + row / 2
        there = number in present
        box = [size, round(middle - side / 2), size + side, round(middle + side / 2)]
        colour = tuple(colours[number].tolist())
        draw.rectangle(box, fill=colour if there else None, outline=colour if there else _GREY)
        write(draw, (size + 1.6 * side, middle), names[number], size, 'black' if there else _GREY)
    if left_out:
        middle = size // 2 + len(numbers) * row + row / 2
        write(draw, (size, middle), f'and {left_out} more', size, _GREY)
    return np.asarray(panel)


@lru_cache(maxsize=8)
def _widest(names: tuple[str, ...], size: int) -> int:
    """Return the width of the widest name; the most likely class is written in bold."""
    return max((width_of(short(name), size, bold=True) for name in names), default=0)


def ranking_panel(ranking: Ranking, style: ClassStyle, height: int, size: int) -> np.ndarray:
    """Draw the most likely classes with their probabilities as bars; uint8 RGB.

    The width depends on the classes alone, so that bars of two images or frames can be compared.
    """
    row = round(size * 2.6)
    names = [short(style.name(int(number))) for number in ranking.labels]
    number_width = width_of('100.0 %', size)
    widest = max(12 * size, _widest(tuple(style.names), size), *(width_of(n, size) for n in names))
    width = widest + number_width + 4 * size
    height = max(height, row * len(names) + size)
    panel = Image.new('RGB', (width, height), 'white')
    draw = ImageDraw.Draw(panel)
    for place, (name, score) in enumerate(zip(names, ranking.scores, strict=True)):
        top = size // 2 + place * row
        write(draw, (size, top + size * 0.8), name, size, bold=place == 0)
        percent = f'{100 * float(score):.1f} %'
        right = width - size - width_of(percent, size)
        write(draw, (right, top + size * 0.8), percent, size)
        bar, end = round(top + size * 1.55), width - size
        draw.rectangle([size, bar, end, bar + size // 3], fill=(230, 230, 230))
        filled = size + round((end - size) * min(max(float(score), 0.0), 1.0))
        draw.rectangle([size, bar, filled, bar + size // 3], fill=(0, 114, 178))
    return np.asarray(panel)
