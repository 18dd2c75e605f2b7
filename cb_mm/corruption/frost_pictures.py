"""Photographs of frost that a user has, for `functional.frost` in place of drawn ice."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from ..errors import UserError
from ..fileio.digests import content_digest, value_digest
from ..fileio.images import find_images, read_image


class FrostPictures:
    """The images of a folder, in the order of their names.

    ImageNet-C comes with six photographs of frost. They are not part of this package.

    Args:
        folder: Where they are.
    """

    def __init__(self, folder: str | Path) -> None:
        if not Path(folder).is_dir():
            raise UserError(f'`frost_pictures` {folder} is not a folder of photographs of frost.')
        self.folder = str(folder)
        self.files = find_images([folder])

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> np.ndarray:
        """Return a picture, uint8 RGB; each is decoded once per process."""
        return _picture(self.files[number])

    @property
    def digest(self) -> str:
        """What tells one set of pictures from another: their content, in their order."""
        return value_digest([content_digest(file) for file in self.files])


@functools.lru_cache(maxsize=16)
def _picture(file: Path) -> np.ndarray:
    return read_image(file)
