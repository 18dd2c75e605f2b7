"""Corruption as a step of a data pipeline, with noise that belongs to the image."""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np
from mmcv.transforms import BaseTransform
from mmengine.registry import TRANSFORMS
from torch.utils.data import get_worker_info

from ..errors import UserError
from ..fileio.safe_text import readable
from .frost_pictures import FrostPictures
from .registry import corrupt, find_corruption

_CHANNEL_ORDERS = ('auto', 'bgr', 'rgb')


@TRANSFORMS.register_module()
class ImageCorruption(BaseTransform):
    """Corrupt the image, right after it is loaded.

    In testing, the noise depends on the seed, the repeat, the image, the corruption and its level
    alone: not on the number of workers or processes, the batch size, the order of the images or the
    folder of the data set.

    For training, ``seed=None`` draws fresh noise every time, from numpy's global generator, which
    mmengine seeds in every worker; ``prob`` leaves some images as they are, and mmcv's
    ``RandomChoice`` picks among several corruptions:

        dict(type='ImageCorruption', name='gaussian_noise', level=10, seed=None, prob=0.5)

    Required Keys:

    - img: uint8, or float32 as a loader with ``to_float32=True`` gives it; colour or grey-scale
    - img_path or img_id (optional): what tells images apart; without them, the content of img does

    Modified Keys:

    - img: same shape and type

    Args:
        name: a corruption of ``cb_mm.corruption.CORRUPTIONS``.
        severity: 1 to 5, as in ImageNet-C; or give ``level``.
        level: strength in the unit of the corruption (grey levels, pixels, ...).
        seed: seed of the noise; None for new noise at every call.
        repeat: number of the repeated measurement; each has different noise.
        prob: chance that an image is corrupted at all.
        channel_order: 'bgr' or 'rgb', the colour order of ``img``. 'auto' asks the results (key
            ``channel_order``) and else takes BGR, which the loaders of mmcv give.
        root: folder or folders of the images. An image is known by its path below the root, or by
            its file name when it is elsewhere; ``corrupt_dataset_cfg`` fills this in.
        frost_pictures: folder with photographs of frost, such as those of ImageNet-C, which are not
            in this package. Without it, the ice of frost is drawn. Other corruptions ignore it.
    """

    def __init__(
        self,
        name: str,
        severity: int | None = None,
        level: float | None = None,
        seed: int | None = 0,
        repeat: int = 0,
        prob: float = 1.0,
        channel_order: str = 'auto',
        root: str | Sequence[str] | None = None,
        frost_pictures: str | None = None,
    ) -> None:
        self.name = name
        self.level = find_corruption(name).resolve(severity, level)
        if not 0 <= prob <= 1:
            raise UserError(f'prob={prob!r} of ImageCorruption must be between 0 and 1')
        check_channel_order(channel_order, 'ImageCorruption')
        for option, number in (('seed', seed), ('repeat', repeat)):
            if not isinstance(number, (int, np.integer)) and (option, number) != ('seed', None):
                raise UserError(f'{option}={number!r} of ImageCorruption must be a whole number')
        self.seed = seed
        self.repeat = repeat
        self.prob = prob
        self.channel_order = channel_order
        self.frost_pictures = frost_pictures
        self._options: dict[str, Any] = {}
        if frost_pictures is not None and name == 'frost':
            self._options['pictures'] = FrostPictures(frost_pictures)
        self.root = (root,) if isinstance(root, (str, os.PathLike)) else tuple(root or ())

    def transform(self, results: dict) -> dict:
        """Replace ``results['img']``; the old array is left as it was."""
        image: Any = results.get('img')
        where = f'ImageCorruption({self.name}), image {results.get("img_path") or "without path"}'
        check_image(image, where)
        _leave_threads_of_parent()
        if self.seed is None:
            rng = fresh_generator()
        else:
            identity = image_identity(results, self.root)
            rng = noise_generator(self.seed, self.repeat, identity, self.name, self.level)
        if self.prob < 1 and rng.random() >= self.prob:
            return results
        change_rgb(
            results,
            self.channel_order,
            lambda rgb: corrupt(rgb, self.name, rng, level=self.level, **self._options),
        )
        return results

    def __repr__(self) -> str:
        return (
            f'{type(self).__name__}(name={self.name!r}, level={self.level:g}, seed={self.seed}, '
            f'repeat={self.repeat}, prob={self.prob:g}, channel_order={self.channel_order!r}, '
            f'root={self.root})'
        )


@TRANSFORMS.register_module()
class CorruptionPoint(BaseTransform):
    """Mark where corruption belongs in a test pipeline; does nothing by itself.

    Without it, corruption comes right after the image is loaded. Classification corrupts the crop
    that the model sees, as ImageNet-C does.

    Args:
        channel_order: colour order of the image at this place.
    """

    def __init__(self, channel_order: str = 'bgr') -> None:
        self.channel_order = channel_order

    def transform(self, results: dict) -> dict:
        """Return the results unchanged."""
        return results


def noise_generator(
    seed: int, repeat: int, identity: str, name: str, level: float
) -> np.random.Generator:
    """Return the generator of one image's noise: same arguments, same noise everywhere."""
    # repr of a float is exact, and makes 5 and 5.0 the same level.
    key = '\n'.join((str(int(seed)), str(int(repeat)), name, repr(float(level)), identity))
    digest = hashlib.blake2b(readable(key).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.SFC64(int.from_bytes(digest, 'little')))


def image_identity(results: dict, root: Sequence[str] = ()) -> str:
    """Identify an image wherever its data set is stored: path below root, name, id, content.

    Args:
        results: the dict of a data pipeline (img_path, img_id, img are looked at, in this order).
        root: folders that the path may be below.
    """
    path = results.get('img_path')
    if path:
        parts = [path] if isinstance(path, (str, os.PathLike)) else path
        return '|'.join(_path_below(part, root) for part in parts)
    if results.get('img_id') is not None:
        return f'id {results["img_id"]}'
    image = np.ascontiguousarray(results['img'])
    return f'content {image.shape} {hashlib.blake2b(image.tobytes(), digest_size=16).hexdigest()}'


def _path_below(path: str | os.PathLike, root: Sequence[str]) -> str:
    path = _plain(path)
    for folder in sorted((_plain(folder) for folder in root), key=len, reverse=True):
        if path.startswith(f'{folder}/'):
            return path[len(folder) + 1 :]
    return posixpath.basename(path)


def _plain(path: str | os.PathLike) -> str:
    return posixpath.normpath(os.fspath(path).replace('\\', '/'))


def _leave_threads_of_parent() -> None:
    """Let OpenCV work without threads in a worker of a data loader.

    The threads of the parent do not survive the fork; if their number was changed before it, OpenCV
    waits for them forever. mmengine's Runner switches them off before it forks; a plain DataLoader
    does not.
    """
    if get_worker_info() is not None and cv2.getNumThreads() > 1:
        cv2.setNumThreads(0)


def fresh_generator() -> np.random.Generator:
    """Return a generator whose seed is drawn from numpy's global one.

    mmengine seeds that one in every worker, and cb_mm's samplers for every sample.
    """
    entropy = np.random.randint(0, 2**31 - 1, size=4).tolist()  # noqa: NPY002
    return np.random.Generator(np.random.SFC64(entropy))


def change_rgb(
    results: dict, channel_order: str, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Replace ``results['img']`` by what ``change`` makes of it as uint8 RGB, or grey-scale."""
    image: np.ndarray = results['img']
    values = image.astype(np.uint8, copy=False)
    order = results.get('channel_order', 'bgr') if channel_order == 'auto' else channel_order
    swap = values.ndim == 3 and values.shape[2] == 3 and str(order).lower() == 'bgr'
    if swap:
        values = cv2.cvtColor(values, cv2.COLOR_BGR2RGB)
    values = change(values)
    if swap:
        values = cv2.cvtColor(values, cv2.COLOR_RGB2BGR)
    results['img'] = values.astype(image.dtype, copy=False)


def check_channel_order(channel_order: str, where: str) -> None:
    """Raise a UserError for a colour order that there is not."""
    if channel_order not in _CHANNEL_ORDERS:
        raise UserError(
            f'channel_order={channel_order!r} of {where} must be one of '
            f'{", ".join(_CHANNEL_ORDERS)}'
        )


def check_image(image: object, where: str) -> None:
    """Raise a UserError for what cannot be corrupted."""
    if not isinstance(image, np.ndarray):
        raise UserError(f'{where}: needs an array in "img"; put it right after the image loader')
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in (1, 3)):
        raise UserError(
            f'{where}: its shape is {image.shape}; colour images (3 channels) and grey-scale ones '
            'can be corrupted, so load with color_type="color" (which drops an alpha channel)'
        )
    if image.dtype == np.uint8:
        return
    in_range = image.dtype.kind == 'f' and bool(np.all((image >= 0) & (image <= 255)))
    if not in_range or not np.array_equal(image, np.floor(image)):
        raise UserError(
            f'{where}: its values ({image.dtype}) are not whole numbers from 0 to 255; put it '
            'before anything that scales values, and load 8-bit images'
        )
