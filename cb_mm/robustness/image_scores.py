"""Scores image by image, in files of their own: ``scores/PASS.csv``, and ``PASS.npy.gz``.

mIoU is not a mean over images: it is made of areas that are summed over all of them. The second
file holds the areas of each image, so that the score of any selection of images can be computed.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from ..fileio.atomic import write_atomically
from ..fileio.result_files import write_csv
from .metrics import Scores

FOLDER = 'scores'
_AREAS = ('intersect', 'union')
#: Bytes; a larger file is not ours.
_LARGEST = 1 << 30


@dataclass(frozen=True)
class ImageScores:
    """The scores of one pass, image by image.

    Attributes:
        names: Of the images.
        metrics: Name -> one value per image in per cent, NaN where there is none.
        areas: Name -> pixels by image and class (N, C): the intersection and the union of truth
            and prediction; empty for other tasks.
    """

    names: list[str]
    metrics: dict[str, np.ndarray]
    areas: dict[str, np.ndarray] = field(default_factory=dict)


def write_image_scores(folder: Path, key: str, names: Sequence[str], scores: Scores) -> Path:
    """Write the files of one pass; return the path of the table below the folder."""
    path = Path(FOLDER) / f'{key}.csv'
    rows = zip(names, *scores.per_image.values(), strict=True)
    if scores.areas:
        stream = io.BytesIO()
        np.save(stream, np.stack([scores.areas[name] for name in _AREAS]))
        # Without a date, so that two equal tests give equal files.
        code = gzip.compress(stream.getvalue(), compresslevel=6, mtime=0)
        write_atomically(_areas_file(folder / path), code)
    write_csv(folder / path, ['image', *scores.per_image], rows)
    return path


def read_image_scores(folder: str | Path, key: str) -> ImageScores | None:
    """Read the files of one pass; None where they are missing or damaged."""
    path = Path(folder) / FOLDER / f'{key}.csv'
    try:
        with path.open(encoding='utf-8', newline='') as stream:
            rows = list(csv.reader(stream))
        head, body = rows[0], rows[1:]
        names = [row[0] for row in body]
        values = {
            name: np.array([float(row[place]) if row[place] else np.nan for row in body])
            for place, name in enumerate(head)
            if place
        }
        return ImageScores(names, values, _read_areas(_areas_file(path), len(names)))
    except (OSError, ValueError, IndexError, csv.Error):
        return None


def _areas_file(table: Path) -> Path:
    return table.with_name(f'{table.name.removesuffix(".csv")}.npy.gz')


def _read_areas(path: Path, images: int) -> dict[str, np.ndarray]:
    """Return the areas; nothing where they are missing or do not fit the table."""
    try:
        with gzip.open(path) as stream:
            content = stream.read(_LARGEST + 1)
        areas = npy.read_array(io.BytesIO(content), allow_pickle=False)
    except Exception:  # gzip and numpy report a broken file in a dozen types
        return {}
    whole = np.issubdtype(areas.dtype, np.integer)
    if not whole or areas.ndim != 3 or areas.shape[:2] != (len(_AREAS), images):
        return {}
    return dict(zip(_AREAS, areas, strict=True))
