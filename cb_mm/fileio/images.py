"""Image files: finding them, reading them, bringing them to the size and values of a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from ..errors import UserError

SUFFIXES = ('.jpg', '.jpeg', '.png', '.bmp', '.webp', '.tif', '.tiff')


def find_images(places: Sequence[str | Path], limit: int | None = None) -> list[Path]:
    """Return the image files that are named, and those in the folders that are named, sorted."""
    found: list[Path] = []
    for place in map(Path, places):
        if place.is_dir():
            inside = sorted(p for p in place.rglob('*') if p.suffix.lower() in SUFFIXES)
            if not inside:
                raise UserError(f'{place} holds no images ({", ".join(SUFFIXES)}).')
            found += inside
        elif place.is_file():
            found.append(place)
        else:
            raise UserError(f'image {place} does not exist.')
    found = list(dict.fromkeys(found))
    return found if limit is None else found[:limit]


def read_image(path: str | Path) -> np.ndarray:
    """Read an image file as RGB, uint8 (H, W, 3), rotated by its EXIF tag."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f'image {path} does not exist.')
    try:
        with Image.open(path) as file:
            return np.array(ImageOps.exif_transpose(file).convert('RGB'))
    except (UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise UserError(f'{path} is not a readable image ({error}).') from error
    except (OSError, SyntaxError, ValueError, EOFError) as error:  # of a file that is cut off
        raise UserError(f'image {path} is damaged ({error}). Take another copy.') from error


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
