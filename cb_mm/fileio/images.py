"""Image files: finding them, reading them, bringing them to the size and values of a model."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..errors import MissingFile, UserError
from .folders import list_files

SUFFIXES = ('.jpg', '.jpeg', '.png', '.bmp', '.webp', '.tif', '.tiff')
#: A folder of text files renamed to images should not fill the screen.
_NAMED = 20


def find_images(places: Sequence[str | Path], limit: int | None = None) -> list[Path]:
    """Return the image files that are named, and those in the folders that are named, sorted."""
    if limit is not None and limit < 1:
        raise UserError(f'`limit` {limit}: at least one image is needed.')
    found: list[Path] = []
    for place in map(Path, places):
        if place.is_dir():
            below = (place / name for name in list_files(place))
            inside = sorted(file for file in below if file.suffix.lower() in SUFFIXES)
            if not inside:
                raise UserError(f'{place} holds no images ({", ".join(SUFFIXES)}).')
            found += inside
        elif place.is_file():
            found.append(place)
        else:
            raise MissingFile(f'image {place} does not exist.')
    found = list(dict.fromkeys(found))
    return found if limit is None else found[:limit]


def require_all_read(unread: Sequence[str], others: str) -> None:
    """Raise a UserError that names the inputs that could not be read, at the very end of a run.

    Args:
        unread: What is wrong with each.
        others: What became of the others.
    """
    if unread:
        more = [f'... and {len(unread) - _NAMED:,} more'] if len(unread) > _NAMED else []
        lines = '\n  '.join([*unread[:_NAMED], *more])
        raise UserError(f'{lines}\n({others})' if len(unread) > 1 else f'{lines} ({others})')


def read_image(path: str | Path) -> np.ndarray:
    """Read an image file as mmseg and mmdet do, rotated by its EXIF tag: RGB, uint8 (H, W, 3).

    Raises:
        MissingFile: There is no such file.
        UserError: It is not an image, or it is damaged.
    """
    path = Path(path)
    if not path.is_file():
        raise MissingFile(f'image {path} does not exist.')
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f'image {path} cannot be read: {error.strerror}.') from error
    if jpeg_is_cut(data):
        raise UserError(f'image {path} is damaged (it is cut off). Take another copy.')
    image = decode(data)
    if image is None:
        if _has_header(data):
            raise UserError(f'image {path} is damaged (it cannot be decoded). Take another copy.')
        raise UserError(f'{path} is not a readable image.')
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)


def decode(data: bytes) -> np.ndarray | None:
    """Return the image in a file's content, BGR and rotated by its EXIF tag; None if it is none."""
    try:
        return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) if data else None
    except cv2.error:  # too large, for example
        return None


def _has_header(data: bytes) -> bool:
    """Return True if a file begins as an image does."""
    try:
        with Image.open(io.BytesIO(data)):
            return True
    except Exception:  # Pillow's formats raise many kinds; the file is reported either way
        return False


def jpeg_is_cut(data: bytes) -> bool:
    """Return True for a JPEG file without its end.

    Several versions of OpenCV decode such files silently and fill the rest with grey. An embedded
    preview has its own end marker, so only what follows the start of the scan counts.
    """
    if data[:2] != b'\xff\xd8':
        return False
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xDA:
        at += 2 + int.from_bytes(data[at + 2 : at + 4], 'big')
    return data.rfind(b'\xff\xd9', at) < 0


def resize(image: np.ndarray, size: tuple[int, int] | None) -> np.ndarray:
    """Bring an image to a height and width; None leaves it as it is."""
    if size is None or image.shape[:2] == size:
        return image
    return np.array(Image.fromarray(image).resize((size[1], size[0]), Image.Resampling.BICUBIC))


def to_tensor(
    image: np.ndarray, mean: Sequence[float], std: Sequence[float], to_rgb: bool = True
) -> Tensor:
    """Normalise an image (1, 3, H, W); mean and standard deviation are on the scale 0 to 255.

    Args:
        image: RGB, uint8 (H, W, 3).
        mean: One number per channel, in the order that the model sees.
        std: The same for the standard deviation.
        to_rgb: Whether the model sees RGB; otherwise BGR.
    """
    channels = image if to_rgb else image[..., ::-1]
    offset, scale = np.asarray(mean, np.float32), np.asarray(std, np.float32)
    values = (channels.astype(np.float32) - offset) / scale
    return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))[None]
