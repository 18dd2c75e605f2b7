"""Text in pictures: DejaVu Sans, which matplotlib brings, so that names in most scripts are drawn.

OpenCV has ASCII only, in strokes that are hard to read.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from PIL import ImageDraw, ImageFont

from ..fileio.safe_text import one_line

_LONGEST = 28


@lru_cache(maxsize=32)
def font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """Return the font at a size in pixels."""
    import matplotlib  # here: importing cb_mm need not wait for it

    name = 'DejaVuSans-Bold.ttf' if bold else 'DejaVuSans.ttf'
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / 'fonts/ttf' / name), size)


def font_size(shape: tuple[int, ...]) -> int:
    """Return a size that is readable in an image of this shape, beside what it shows."""
    return int(min(max(round(min(shape[:2]) / 26), 11), 30))


def width_of(text: str, size: int, bold: bool = False) -> int:
    """Return the width of a text in pixels."""
    return round(font(size, bold).getlength(text))


def write(
    draw: ImageDraw.ImageDraw,
    place: tuple[float, float],
    text: str,
    size: int,
    colour: tuple[int, ...] | str = 'black',
    bold: bool = False,
) -> None:
    """Write a text whose letters are around the height ``place[1]``, from ``place[0]``."""
    draw.text(place, text, fill=colour, font=font(size, bold), anchor='lm')


def short(text: object, longest: int = _LONGEST) -> str:
    """Return a name in one line, cut to fit beside an image."""
    line = one_line(text)
    return line if len(line) <= longest else f'{line[: longest - 1]}…'


def ink_on(colour: tuple[int, ...]) -> str:
    """Return black or white, whichever is readable on a colour."""
    red, green, blue = (value / 255 for value in colour[:3])
    return 'black' if 0.299 * red + 0.587 * green + 0.114 * blue > 0.55 else 'white'
