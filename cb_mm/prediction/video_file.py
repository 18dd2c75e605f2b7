"""A video of predictions, written frame by frame; it appears under its name when it is whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from ..errors import UserError
from ..fileio.atomic import draft_of


class VideoFile:
    """An mp4 file in the making; its size is that of the first frame.

    Args:
        path: Of the file; it appears when `close` is called, and not before.
        rate: Frames per second.
    """

    def __init__(self, path: Path, rate: float) -> None:
        self.path, self.rate = path, rate
        self._writer: Any = None
        # OpenCV chooses the container by the end of the name, which a draft's is not.
        self._file = path.with_name(f'.{path.stem}.{os.getpid()}.part.mp4')
        self._size: tuple[int, int] = 0, 0

    def write(self, frame: np.ndarray) -> None:
        """Append an RGB frame; a later one of another size is cut or filled with white."""
        if self._writer is None:
            self._open(frame)
        width, height = self._size
        fitted = np.full((height, width, 3), 255, np.uint8)
        part = frame[:height, :width]
        fitted[: part.shape[0], : part.shape[1]] = part
        self._writer.write(np.ascontiguousarray(fitted[..., ::-1]))

    def _open(self, frame: np.ndarray) -> None:
        height, width = (side + side % 2 for side in frame.shape[:2])  # codecs want even sides
        self._size = width, height
        self.path.parent.mkdir(parents=True, exist_ok=True)
        code = cv2.VideoWriter_fourcc(*'mp4v')
        self._writer = cv2.VideoWriter(str(self._file), code, self.rate, self._size)
        if not self._writer.isOpened():
            raise UserError(
                f'cannot write {self.path}: this OpenCV cannot write mp4 files, or the folder '
                'cannot be written.'
            )

    def close(self, keep: bool) -> None:
        """Finish the file, or discard it."""
        if self._writer is None:
            return
        self._writer.release()
        if keep:
            with draft_of(self.path) as draft:
                self._file.replace(draft)
        else:
            self._file.unlink(missing_ok=True)
