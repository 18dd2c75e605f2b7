"""What to predict on: image files, folders, patterns, video files, a camera."""

from __future__ import annotations

import glob
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from ..errors import MissingFile, UserError
from ..fileio.digests import content_digest
from ..fileio.folders import list_files
from ..fileio.images import SUFFIXES

VIDEOS = ('.mp4', '.avi', '.mov', '.mkv', '.webm', '.m4v', '.mpg', '.mpeg')
#: Beyond this size, a file is known by its size alone: reading all of it takes too long.
_LARGE = 1 << 28


@dataclass(frozen=True)
class Input:
    """One image file, video file or camera.

    Attributes:
        kind: 'image', 'video' or 'camera'.
        source: The path, or the number of the camera.
        folder: The folder that was asked for, if it was found in one.
    """

    kind: str
    source: str
    folder: str | None = None

    @property
    def key(self) -> str:
        """What tells it apart from all others."""
        return (
            f'camera {self.source}' if self.kind == 'camera' else str(Path(self.source).resolve())
        )

    @property
    def content(self) -> str:
        """What the file holds, in a few digits; a camera holds nothing."""
        if self.kind == 'camera':
            return ''
        size = Path(self.source).stat().st_size
        return content_digest(self.source) if size <= _LARGE else f'{size} bytes'

    def names(self) -> Iterator[str]:
        """Yield names for its results, the plainest first."""
        if self.kind == 'camera':
            plain = f'camera{self.source}'
        else:
            path = Path(self.source)
            below = path.relative_to(self.folder) if self.folder else Path(path.name)
            plain = below.with_suffix('').as_posix()
            yield plain
            yield f'{path.parent.resolve().name}_{plain}'
            yield f'{plain}_{path.suffix[1:].lower()}'
        yield plain
        number = 2
        while True:
            yield f'{plain}_{number}'
            number += 1


def find_inputs(places: Sequence[str | Path | int]) -> list[Input]:
    """Return what the places name, each once: sorted within a folder, otherwise as given.

    Raises:
        UserError: A file or camera number that is not one, or a folder or pattern without images.
    """
    found: dict[str, Input] = {}
    for place in places:
        for one in _inputs_at(str(place)):
            found.setdefault(one.key, one)
    if not found:
        raise UserError('`inputs` is missing: give images, folders, videos or a camera number.')
    return list(found.values())


def _inputs_at(place: str) -> Iterable[Input]:
    path = Path(place).expanduser()
    if path.is_dir():
        return _of_folder(path)
    if path.is_file():
        return [_of_file(path)]
    if re.fullmatch(r'\d{1,3}', place):
        return [Input('camera', str(int(place)))]
    if re.search(r'[*?[]', place):
        files = sorted(Path(file) for file in glob.glob(str(path), recursive=True))
        matches = [_of_file(file) for file in files if file.is_file() and _readable(file)]
        if not matches:
            raise MissingFile(f'{place} matches no image or video.')
        return matches
    raise MissingFile(f'input {place} does not exist.')


def _of_folder(folder: Path) -> list[Input]:
    below = (folder / name for name in list_files(folder))
    files = sorted(file for file in below if _readable(file))
    if not files:
        raise UserError(f'{folder} holds no images ({", ".join(SUFFIXES)}) and no videos.')
    return [_of_file(file, str(folder)) for file in files]


def _of_file(path: Path, folder: str | None = None) -> Input:
    kind = 'video' if path.suffix.lower() in VIDEOS else 'image'
    return Input(kind, str(path), folder)


def _readable(path: Path) -> bool:
    return path.suffix.lower() in (*SUFFIXES, *VIDEOS) and not path.name.startswith('.')


def name_for(one: Input, taken: Collection[str]) -> str:
    """Return a name that no other input has: files of one name in two folders are two results."""
    return next(name for name in one.names() if name.casefold() not in taken)


class Video:
    """The frames of a video file or camera, one after another; BGR, uint8.

    Raises:
        UserError: It cannot be opened.
    """

    def __init__(self, one: Input) -> None:
        self.input = one
        number = int(one.source) if one.kind == 'camera' else one.source
        # Otherwise OpenCV prints its own complaints before ours.
        before = cv2.getLogLevel()
        cv2.setLogLevel(0)
        try:
            self._capture = cv2.VideoCapture(number)
        finally:
            cv2.setLogLevel(before)
        if not self._capture.isOpened():
            if one.kind == 'camera':
                raise UserError(
                    f'camera {one.source} cannot be opened: there is no such camera, or another '
                    'program uses it. Try another number, or give a file.'
                )
            raise UserError(f'video {one.source} cannot be opened: it is damaged, or not a video.')
        rate = float(self._capture.get(cv2.CAP_PROP_FPS))
        #: Frames per second; cameras do not always know.
        self.rate = rate if 1 <= rate <= 1000 else 25.0
        count = int(self._capture.get(cv2.CAP_PROP_FRAME_COUNT))
        #: Number of frames, as the file says; None when it does not.
        self.count = count if count > 0 and one.kind == 'video' else None

    def __iter__(self) -> Iterator[np.ndarray]:
        while True:
            there, frame = self._capture.read()
            if not there:
                return
            yield frame

    def close(self) -> None:
        """Free the file or camera."""
        self._capture.release()

    def __enter__(self) -> Video:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
