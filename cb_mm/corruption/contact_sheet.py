"""A picture of many corruptions of one image: one row per corruption, one column per level."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from ..fileio.atomic import write_atomically
from ..fileio.figures import blank_figure, figure_bytes
from ..fileio.images import read_image
from .frost_pictures import FrostPictures
from .registry import CORRUPTIONS, corrupt, words
from .suites import CLEAN, Cell
from .transform import image_identity, noise_generator

_GAP = 4
_TEXT = 18  # height of a line of text in pixels
_SMALL = 13  # of a line of small text
_LABELS = 170  # width of the column of names

#: A picture is at most this many times as high as it is wide.
_TALLEST = 4


@dataclass
class ContactSheet:
    """Pictures and words in their places, before they are drawn.

    Attributes:
        height: In pixels.
        width: In pixels.
        pictures: (top, left, uint8 RGB).
        words: (x, y of the baseline, text, whether it is small).
    """

    height: int
    width: int
    pictures: list[tuple[int, int, np.ndarray]] = field(default_factory=list)
    words: list[tuple[int, int, str, bool]] = field(default_factory=list)

    def pixels(self) -> np.ndarray:
        """Draw it, uint8 RGB; every picture pixel by pixel."""
        sheet = np.full((self.height, self.width, 3), 255, np.uint8)
        for top, left, picture in self.pictures:
            sheet[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
        for x, y, text, small in self.words:
            size, grey = (0.33, 90) if small else (0.42, 0)
            cv2.putText(
                sheet, text, (x, y), cv2.FONT_HERSHEY_SIMPLEX, size, (grey,) * 3, 1, cv2.LINE_AA
            )
        return sheet

    def vectors(self, kind: str) -> bytes:
        """Return the content of an SVG or PDF file: words stay words."""
        figure = blank_figure(self.width / 100, self.height / 100)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        for top, left, picture in self.pictures:
            extent = (left, left + picture.shape[1], top + picture.shape[0], top)
            axes.imshow(picture, extent=extent, interpolation='none')
        for x, y, text, small in self.words:
            axes.text(x, y, text, size=6.5 if small else 8, color='#5a5a5a' if small else 'black')
        axes.set(xlim=(0, self.width), ylim=(self.height, 0))
        return figure_bytes(figure, kind, dpi=100)


def lay_out(
    image: np.ndarray,
    cells: Sequence[Cell],
    identity: str,
    *,
    seed: int = 0,
    width: int = 240,
    detail: bool = False,
    frost_pictures: str | None = None,
) -> ContactSheet:
    """Place the image under every cell.

    Args:
        image: uint8 RGB, H x W x 3.
        cells: what to draw; a clean cell is the image itself, which starts every row anyway.
        identity: identity of the image (see ``image_identity``): with the same seed the sheet shows
            exactly the noise that testing uses.
        seed: seed of the noise.
        width: width of one picture in pixels.
        detail: show the middle of the image pixel by pixel instead of the whole image made
            smaller, in which noise and fine blur are hardly seen.
        frost_pictures: folder with photographs of frost; without it the ice is drawn.
    """
    ice: dict[str, Any] = (
        {} if frost_pictures is None else {'pictures': FrostPictures(frost_pictures)}
    )
    rows: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.name != CLEAN:
            rows.setdefault(cell.name, []).append(cell)
    columns = max((len(row) for row in rows.values()), default=0) + 1
    clean = _picture(image, width, detail)
    tile = clean.shape[0] + _TEXT + _GAP, clean.shape[1] + _GAP
    sheet = ContactSheet(tile[0] * max(len(rows), 1), _LABELS + tile[1] * columns)
    for line, (name, row) in enumerate((rows or {CLEAN: []}).items()):
        top = line * tile[0]
        sheet.words += _row_label(name, top, tile[0])
        for column, cell in enumerate([Cell(CLEAN), *row]):
            picture, text = clean, CLEAN
            if cell.level is not None:
                rng = noise_generator(seed, 0, identity, cell.name, cell.level)
                options = ice if cell.name == 'frost' else {}
                changed = corrupt(image, cell.name, rng, level=cell.level, **options)
                picture = _picture(changed, width, detail)
                text = _cell_label(cell)
            left = _LABELS + column * tile[1]
            sheet.words.append((left + 2, top + _TEXT - 5, text, False))
            sheet.pictures.append((top + _TEXT, left, picture))
    return sheet


def draw_contact_sheet(
    image: np.ndarray, cells: Sequence[Cell], identity: str, **options: Any
) -> np.ndarray:
    """Draw the image under every cell, uint8 RGB; options as for `lay_out`."""
    return lay_out(image, cells, identity, **options).pixels()


def write_contact_sheet(
    file: str | Path, image_file: str | Path, cells: Sequence[Cell], **options: Any
) -> None:
    """Read an image and write its sheet as PNG, SVG or PDF, as the name of the file ends."""
    image = read_image(image_file)  # raises if the name is not usable
    sheet = lay_out(image, cells, image_identity({'img_path': image_file}), **options)
    kind = Path(file).suffix.lower().lstrip('.')
    if kind in ('svg', 'pdf'):
        write_atomically(file, sheet.vectors(kind))
        return
    _, code = cv2.imencode('.png', cv2.cvtColor(sheet.pixels(), cv2.COLOR_RGB2BGR))
    write_atomically(file, code.tobytes())


def _row_label(name: str, top: int, height: int) -> Iterator[tuple[int, int, str, bool]]:
    """Yield the name of a corruption as people write it, and below it what its level means."""
    unit = textwrap.wrap(CORRUPTIONS[name].unit, 25) if name in CORRUPTIONS else []
    room = max((height - _TEXT) // _SMALL - 1, 0)  # a low picture has room for the name alone
    unit = unit if len(unit) <= room else []
    y = top + (height - _SMALL * len(unit)) // 2
    yield 4, y, words(name), False
    for number, line in enumerate(unit, start=1):
        yield 4, y + 3 + number * _SMALL, line, True


def _cell_label(cell: Cell) -> str:
    """Return the level in the unit of the row, after the severity where there is one."""
    if cell.severity is None:
        return f'{cell.level:g}'
    unit = CORRUPTIONS[cell.name].unit if cell.name in CORRUPTIONS else ''
    same = unit.startswith('severity')  # the level of fog, say, is its severity
    return f'severity {cell.severity}' + ('' if same else f': {cell.level:g}')


def _picture(image: np.ndarray, width: int, detail: bool) -> np.ndarray:
    """Return the image in ``width`` pixels: all of it, or the middle (always for a tall strip)."""
    height = max(round(image.shape[0] * width / image.shape[1]), 1)
    if height > _TALLEST * width:  # a sheet of whole strips would not fit into memory
        height = _TALLEST * width
        rows = max(round(height * image.shape[1] / width), 1)
        top = (image.shape[0] - rows) // 2
        image = image[top : top + rows]
    if detail:
        rows, columns = min(height, image.shape[0]), min(width, image.shape[1])
        top, left = (image.shape[0] - rows) // 2, (image.shape[1] - columns) // 2
        image = image[top : top + rows, left : left + columns]
    # A small image is shown pixel by pixel.
    smaller = image.shape[1] > width
    method = cv2.INTER_AREA if smaller else cv2.INTER_NEAREST
    return cv2.resize(image, (width, height), interpolation=method)
