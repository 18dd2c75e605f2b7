"""A picture of many corruptions of one image: one row per corruption, one column per level."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from ..errors import MissingFile, UserError
from ..fileio.atomic import write_atomically
from .registry import corrupt
from .suites import CLEAN, Cell
from .transform import image_identity, noise_generator

_GAP = 4
_TEXT = 18  # height of a line of text in pixels
_LABELS = 150  # width of the column of names

#: A picture is at most this many times as high as it is wide.
_TALLEST = 4


def read_rgb(file: str | Path) -> np.ndarray:
    """Read an image file as uint8 RGB (grey is repeated, an alpha channel is dropped)."""
    path = Path(file)
    if not path.is_file():
        raise MissingFile(f'image {path} does not exist')
    image = (
        cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_COLOR) if path.stat().st_size else None
    )
    if image is None:
        raise UserError(f'image {path} cannot be read: it is not an image, or it is damaged')
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)


def draw_contact_sheet(
    image: np.ndarray,
    cells: Sequence[Cell],
    identity: str,
    *,
    seed: int = 0,
    width: int = 240,
    detail: bool = False,
) -> np.ndarray:
    """Draw the image under every cell, uint8 RGB.

    Args:
        image: uint8 RGB, H x W x 3.
        cells: what to draw; a clean cell is the image itself, which starts every row anyway.
        identity: identity of the image (see ``image_identity``): with the same seed the sheet shows
            exactly the noise that testing uses.
        seed: seed of the noise.
        width: width of one picture in pixels.
        detail: show the middle of the image pixel by pixel instead of the whole image made
            smaller, in which noise and fine blur are hardly seen.
    """
    rows: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.name != CLEAN:
            rows.setdefault(cell.name, []).append(cell)
    columns = max((len(row) for row in rows.values()), default=0) + 1
    clean = _picture(image, width, detail)
    tile = clean.shape[0] + _TEXT + _GAP, clean.shape[1] + _GAP
    sheet = np.full((tile[0] * max(len(rows), 1), _LABELS + tile[1] * columns, 3), 255, np.uint8)
    for line, (name, row) in enumerate((rows or {CLEAN: []}).items()):
        _write(sheet, name, 4, line * tile[0] + tile[0] // 2)
        for column, cell in enumerate([Cell(CLEAN), *row]):
            picture, text = clean, CLEAN
            if cell.level is not None:
                rng = noise_generator(seed, 0, identity, cell.name, cell.level)
                changed = corrupt(image, cell.name, rng, level=cell.level)
                picture = _picture(changed, width, detail)
                text = f'level {cell.level:g}'
                if cell.severity is not None:
                    same = cell.level == cell.severity
                    text = f'severity {cell.severity}' + ('' if same else f' ({text})')
            top, left = line * tile[0], _LABELS + column * tile[1]
            _write(sheet, text, left + 2, top + _TEXT - 5)
            place = slice(top + _TEXT, top + _TEXT + len(picture)), slice(left, left + width)
            sheet[place] = picture
    return sheet


def write_contact_sheet(
    file: str | Path, image_file: str | Path, cells: Sequence[Cell], **options
) -> None:
    """Read an image, draw its sheet (options as for ``draw_contact_sheet``), write it as PNG."""
    image = read_rgb(image_file)  # raises if the name is not usable
    sheet = draw_contact_sheet(image, cells, image_identity({'img_path': image_file}), **options)
    _, code = cv2.imencode('.png', cv2.cvtColor(sheet, cv2.COLOR_RGB2BGR))
    write_atomically(file, code.tobytes())


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


def _write(sheet: np.ndarray, text: str, x: int, y: int) -> None:
    cv2.putText(sheet, text, (x, y), cv2.FONT_HERSHEY_SIMPLEX, 0.42, (0, 0, 0), 1, cv2.LINE_AA)
