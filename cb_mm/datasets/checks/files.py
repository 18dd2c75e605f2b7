"""Reading folders and image files as training does, and reporting what is wrong."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import cv2
import numpy as np
from PIL import Image

from ...errors import MissingFile, UserError, did_you_mean
from ...fileio.images import decode, jpeg_is_cut

Job = TypeVar('Job')
Result = TypeVar('Result')

#: takes (items to do, how many) and shows progress while they are consumed
Progress = Callable[[Iterable, int], Iterable]


@dataclass(frozen=True)
class ReadResult:
    """What reading a file showed: ``size`` (width, height) unless it is broken, and findings.

    ``findings`` are (kind, message) pairs. ``orientation`` is the EXIF tag by which an image was
    rotated when it was read, 1 for none; ``size`` is that of the rotated image.
    """

    size: tuple[int, int] | None
    findings: tuple[tuple[str, str], ...] = ()
    orientation: int = 1


def data_root(root: str | os.PathLike) -> Path:
    """Return ``root`` as a folder that exists.

    Raises:
        UserError: If it does not, with the nearest name there is.
    """
    root = Path(root)
    if root.is_dir():
        if not os.access(root, os.R_OK | os.X_OK):
            raise UserError(f'no permission to read data set folder {root}: change its permissions')
        return root
    if root.exists():
        raise UserError(f'{root} is a file: give the root folder of the data set (unpack archives)')
    try:
        near = [path.name for path in root.parent.iterdir() if path.is_dir()]
    except OSError:
        near = []
    raise MissingFile(f'data set folder {root} does not exist.{did_you_mean(root.name, near)}')


def sample(names: Sequence[Job], count: int = 3) -> list[Job]:
    """Return the first, the last and evenly spaced items between, for a quick check."""
    if len(names) <= count:
        return list(names)
    return [names[round(i * (len(names) - 1) / (count - 1))] for i in range(count)]


def run_all(
    work: Callable[[Job], Result],
    jobs: Sequence[Job],
    progress: Progress | None,
    workers: int | None,
) -> list[Result]:
    """Run ``work`` on every job, in order; decoding releases the interpreter lock."""
    if len(jobs) < 16:
        return [work(job) for job in jobs]
    with ThreadPoolExecutor(workers or min(32, os.cpu_count() or 1)) as pool:
        results = pool.map(work, jobs)
        return list(progress(results, len(jobs)) if progress else results)


def inspect_image(path: Path) -> ReadResult:
    """Decode an image as the loaders do (OpenCV, three channels, rotated by its EXIF tag)."""
    try:
        data = path.read_bytes()
    except OSError as error:
        return ReadResult(None, (('unreadable', f'cannot be read: {error.strerror}'),))
    if not data:
        return ReadResult(None, (('unreadable', 'the file is empty'),))
    if jpeg_is_cut(data):
        return ReadResult(None, (('truncated', f'ends too early, after {len(data):,} bytes'),))
    image = decode(data)
    if image is None:
        return ReadResult(None, (('unreadable', 'not an image that OpenCV can decode'),))
    height, width = image.shape[:2]
    channels = len(_header(data).getbands())
    found = {1: (('grey-scale', 'one channel'),), 4: (('four-channel', 'four channels'),)}
    return ReadResult((width, height), found.get(channels, ()), _turned_by(data, image))


def exif_orientation(path: str | os.PathLike) -> int:
    """Return the EXIF orientation (2 to 8) by which OpenCV rotates a local image; 1 for none."""
    try:
        with open(path, 'rb') as stream, warnings.catch_warnings():
            warnings.simplefilter('ignore')
            if _orientation_tag(Image.open(stream)) == 1:  # only the header has been read
                return 1
            stream.seek(0)
            return _turned_by(stream.read())
    except Exception:  # not local, or not an image: reading it raises the error
        return 1


def turned_apart(image: ReadResult, stated: tuple[int, int] | None) -> bool:
    """Return whether an image was rotated but its annotation, of the ``stated`` size, was not.

    The sizes show whether the annotation fits only if the rotation swaps width and height.
    """
    if image.orientation == 1 or image.size is None:
        return False
    width, height = image.size
    return not (image.orientation >= 5 and width != height and stated == image.size)


def _orientation_tag(picture: Image.Image) -> int:
    if picture.format == 'PNG' and 'exif' not in picture.info:  # Pillow would decode all of it
        return 1
    try:
        tag = picture.getexif().get(0x0112, 1)
    except Exception:  # a damaged tag; OpenCV does not follow it
        return 1
    return tag if tag in range(2, 9) else 1


def _turned_by(data: bytes, image: np.ndarray | None = None) -> int:
    """Return the tag of an image if OpenCV follows it: in some formats (WebP) it does not."""
    header = _header(data)
    tag = _orientation_tag(header)
    if tag == 1 or header.format == 'TIFF':  # a TIFF is always rotated, whatever the flag
        return tag
    raw = np.frombuffer(data, np.uint8)
    image = cv2.imdecode(raw, cv2.IMREAD_COLOR) if image is None else image
    stored = cv2.imdecode(raw, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    return 1 if np.array_equal(image, stored) else tag


def _header(data: bytes) -> Image.Image:
    """Return the image without its pixels, or an RGB stand-in for what Pillow cannot read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            return Image.open(io.BytesIO(data))
    except Exception:  # Pillow's decoders raise almost anything; OpenCV has already read the file
        return Image.new('RGB', (1, 1))


def inspect_labels(path: Path, num_classes: int, ignored: int = 0) -> ReadResult:
    """Decode a label map as mmseg does (Pillow, palette numbers kept) and look at its values.

    Classes are 1 to ``num_classes`` where ``ignored`` is 0, and else count from 0.
    """
    try:
        with Image.open(path) as picture:
            mode, size = picture.mode, picture.size
            picture.load()
            values = np.asarray(picture)
    except Exception as error:  # Pillow's decoders raise almost anything on broken files
        return ReadResult(None, (('label-unreadable', f'cannot be decoded: {error}'),))
    if mode not in ('L', 'P'):
        return ReadResult(
            size, (('label-colour', f'is stored as {mode}, not as one 8-bit channel'),)
        )
    present = np.flatnonzero(np.bincount(values.ravel(), minlength=256))
    found = []
    last = num_classes if ignored == 0 else num_classes - 1
    wrong = [int(v) for v in present if last < v < 255]
    if wrong:
        shown = ', '.join(map(str, wrong[:6])) + (', ...' if len(wrong) > 6 else '')
        also = '' if ignored == 0 else f' and {ignored}'
        found.append(('label-range', f'has labels {shown}; 0 to {last}{also} are allowed'))
    if 255 in present and num_classes < 255 and ignored != 255:
        found.append(('label-255', f'has {int((values == 255).sum()):,} pixels of label 255'))
    if not any(v not in (ignored, 255) for v in present):
        found.append(('label-empty', 'every pixel is "other"'))
    return ReadResult(size, tuple(found))
