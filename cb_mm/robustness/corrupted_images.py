"""The images of a corrupted copy: the pipeline of a config up to its corruption, then a file."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from mmengine.registry import DATASETS
from PIL import Image
from torch.utils.data import Dataset

from ..corruption import Cell, corrupt_dataset_cfg
from ..datasets.checks.samples import SampleRules, step_lists
from ..engine.hooks.sample_guard import load_failure
from ..errors import UserError
from ..fileio.atomic import write_atomically
from .data import SweepCorruption
from .identity import data_digest, image_path
from .image_store import ImageStore, store_loaders
from .jobs import Job


@dataclass(frozen=True)
class Encoding:
    """How images are written.

    Attributes:
        format: 'png' keeps every pixel; 'jpg' is smaller, and JPEG is a corruption of its own.
        quality: Of JPEG. ImageNet-C was published with 85.
    """

    format: str = 'png'
    quality: int = 85

    def __post_init__(self) -> None:
        if self.format not in ('png', 'jpg'):
            raise UserError(f'`format` {self.format!r}: a copy is written as png or jpg.')
        if not 1 <= self.quality <= 100:
            raise UserError(f'`quality` {self.quality}: it must be from 1 to 100.')

    def encode(self, image: np.ndarray, channel_order: str) -> bytes:
        """Return the content of the file of an image (H x W [x 3], values 0-255)."""
        image = np.rint(image).astype(np.uint8)
        if image.ndim == 3 and image.shape[2] == 3 and channel_order == 'rgb':
            image = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
        options = [cv2.IMWRITE_JPEG_QUALITY, self.quality] if self.format == 'jpg' else []
        return cv2.imencode(f'.{self.format}', image, options)[1].tobytes()


PNG = Encoding()


class ImageWriter(Dataset):
    """Writes one corrupted image per item, a pair of numbers: the image's and the cell's.

    Args:
        settings: The config of the data set.
        roots: Folders of the data, of which the copy keeps the inside.
        cells: What to write.
        out: The folder of the copy.
        seed: Of the noise.
        limit: Only the first images.
        encoding: How images are written.
        frost_pictures: Folder with photographs of frost.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        roots: Sequence[str],
        cells: Sequence[Cell],
        out: Path,
        seed: int = 0,
        limit: int | None = None,
        encoding: Encoding = PNG,
        frost_pictures: str | None = None,
    ) -> None:
        corruption = dict(type='SweepCorruption', seed=seed, frost_pictures=frost_pictures)
        self.cells, self.out, self.encoding = list(cells), out, encoding
        self.dataset = DATASETS.build(corrupt_dataset_cfg(settings, corruption))
        self.steps = [step for steps in step_lists(self.dataset) for step in steps]
        self.infos = [self.dataset.get_data_info(i) for i in range(len(self.dataset))][:limit]
        images = [image_path(info, i) for i, info in enumerate(self.infos)]
        self.paths = _paths_below(images, roots)
        if not self.paths:
            raise UserError('the test data set has no images.')
        for steps in step_lists(self.dataset):
            _end_after_corruption(steps)
        self.rules = SampleRules.of(self.dataset)
        store_loaders(self.dataset, ImageStore(0))  # for its messages

    def digest(self) -> str:
        """Return what tells the images and annotations apart, wherever they are stored."""
        remote = any(getattr(step, 'backend_args', None) for step in self.steps)
        return data_digest(self.paths, self.infos, self.steps, local=not remote)

    def file(self, item: tuple[int, int]) -> Path:
        """Return where an image goes."""
        return self.out / folder_of(self.cells[item[1]]) / self.paths[item[0]]

    def __len__(self) -> int:
        return len(self.paths) * len(self.cells)

    @property
    def items(self) -> list[tuple[int, int]]:
        """All of them, image by image."""
        return [(i, k) for i in range(len(self.paths)) for k in range(len(self.cells))]

    def __getitem__(self, item: tuple[int, int]) -> str:
        """Write the file; return what went wrong, or nothing."""
        number, cell = item
        corruption = None
        for step in self.steps:
            if isinstance(step, SweepCorruption):
                step.job, corruption = Job(self.cells[cell]), step
        assert corruption is not None  # it was inserted
        try:
            results = self.dataset[number]
            self._check_orientation(results)
            content = self.encoding.encode(results['img'], corruption.channel_order)
            write_atomically(self.file(item), content)
        except UserError as error:  # as a text: torch wraps what a worker raises in a traceback
            return str(error)
        except Exception as error:
            return load_failure(self.dataset, number, error).message
        return ''

    def _check_orientation(self, results: dict) -> None:
        """Refuse an image that its EXIF tag rotates: the copy is linked to labels that are not."""
        labels = results.get('seg_map_path')
        with contextlib.suppress(OSError):  # there are none, or not on this disk
            if labels:
                with Image.open(labels) as opened:
                    size = opened.size[::-1]
                self.rules.check_orientation(results, size, f'its label map {labels}')


def folder_of(cell: Cell) -> str:
    """Return the folder of a cell: 'fog/3', as in ImageNet-C; 'gaussian_noise/level_5'."""
    if cell.severity is not None:
        return f'{cell.name}/{cell.severity}'
    return f'{cell.name}/level_{cell.level:g}'


def _end_after_corruption(steps: list) -> None:
    """Remove what follows the corruption in a pipeline, in place."""
    for place, step in enumerate(steps):
        if isinstance(step, SweepCorruption):
            del steps[place + 1 :]
            return


def _paths_below(paths: Sequence[str], roots: Sequence[str]) -> list[str]:
    """Return where each image stands below the folder of the data."""
    found = []
    for path in paths:
        below = [os.path.relpath(path, root) for root in roots if root]
        inside = [one for one in below if not one.startswith('..')]
        if not inside:
            raise UserError(
                f'image {path} is not below data_root ({", ".join(roots) or "none"}): set '
                'data_root of the data set to a folder that holds its images.'
            )
        found.append(inside[0].replace(os.sep, '/'))
    if len(set(found)) < len(found):
        twice, _ = Counter(found).most_common(1)[0]
        raise UserError(f'two images would be written to {twice}: copy the data sets one by one.')
    return found
