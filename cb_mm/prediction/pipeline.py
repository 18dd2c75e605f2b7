"""From an image to what the model takes: the test pipeline of the config, as in the inferencers.

Annotations are not loaded. A corruption comes where the sweep of a test inserts it, with the same
noise.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.registry import TRANSFORMS

from ..corruption import Cell, corrupt_dataset_cfg
from ..corruption.pipeline import IMAGE_LOADER, loaded_order, type_name
from ..datasets.checks.samples import SampleRules
from ..engine.hooks.sample_guard import GuardedLoader
from ..errors import UserError
from .drawing import seen_image

#: Steps that load what only a test set has.
_ANNOTATIONS = re.compile(r'Load(?!\w*Image)\w+')
_CORRUPTED = ('ImageCorruption', 'CorruptionPoint')


@dataclass
class Loaded:
    """An image, ready for the model.

    Attributes:
        sample: ``inputs`` and ``data_samples``.
        image: What is drawn on: the (corrupted) image at its own size, uint8 RGB.
    """

    sample: dict[str, Any]
    image: np.ndarray


class PredictionPipeline:
    """Loads images for one model under one corruption.

    Args:
        config: A whole config with a test data set.
        cell: The corruption, or clean.
        seed: Of its noise.
    """

    def __init__(self, config: Config, cell: Cell, seed: int = 0) -> None:
        dataset = _dataset_with_pipeline(config)
        wanted = cell.transform_cfg(seed)
        if wanted is not None:
            dataset = dict(corrupt_dataset_cfg(dataset, wanted))
        steps = _without_annotations(dataset['pipeline'])
        places = [k for k, step in enumerate(steps) if IMAGE_LOADER.fullmatch(type_name(step))]
        if not places:
            raise UserError(
                f'config {config.filename}: the first level of its test pipeline has no step that '
                f'loads an image; it has {", ".join(map(type_name, steps)) or "none"}.'
            )
        self.order = loaded_order(steps[places[0]])
        self._drawn = _Keep()
        at = max(k for k, step in enumerate(steps) if k in places or type_name(step) in _CORRUPTED)
        built = [TRANSFORMS.build(step) for step in steps]
        loader, self._taker = built[places[0]], _Take(built[places[0]], self.order)
        built[places[0]] = self._load
        self._loader = GuardedLoader(loader, SampleRules())
        self._compose = Compose([*built[: at + 1], self._drawn, *built[at + 1 :]])

    def load(self, source: str | np.ndarray, name: str, number: int = 0) -> Loaded:
        """Load a file, or take a frame (uint8 BGR).

        Args:
            source: Path of an image file, or a frame.
            name: Identity of a frame's noise; a file has its own.
            number: Becomes ``img_id``.

        Raises:
            UserError: The file cannot be read, or a step fails on it.
        """
        results: dict[str, Any] = {'img_id': number, 'sample_idx': number}
        if isinstance(source, str):
            results['img_path'] = source
        else:
            results |= {'img': source, 'img_path': name}
        try:
            sample = self._compose(results)
        except UserError:
            raise
        except Exception as error:  # a step that does not fit the image, such as a crop
            reason = f'{type(error).__name__}: {error}'.splitlines()[0]
            raise UserError(f'image {name}: the test pipeline fails on it ({reason}).') from error
        image = self._drawn.image
        if image is None:
            image = seen_image(sample['inputs'], self.order)
        else:
            image = _rgb(image, self.order)
        return Loaded(sample, image)

    def _load(self, results: dict) -> dict | None:
        return (self._taker if 'img' in results else self._loader)(results)


class _Take:
    """Stands for the loader where the image is there already: same keys, types and channels."""

    def __init__(self, loader: Any, order: str) -> None:
        self.order, self.to_float32 = order, bool(getattr(loader, 'to_float32', False))

    def __call__(self, results: dict) -> dict:
        image = results['img'] if self.order == 'bgr' else results['img'][..., ::-1]
        results['img'] = np.ascontiguousarray(image, np.float32 if self.to_float32 else np.uint8)
        results['img_shape'] = results['ori_shape'] = image.shape[:2]
        return results


class _Keep:
    """Keeps the image of the moment, to draw on."""

    image: np.ndarray | None = None

    def __call__(self, results: dict) -> dict:
        self.image = results['img']
        return results


def _rgb(image: np.ndarray, order: str) -> np.ndarray:
    image = np.rint(image).astype(np.uint8)
    if image.ndim == 2 or image.shape[2] == 1:
        return np.repeat(image.reshape(*image.shape[:2], 1), 3, axis=2)
    return np.ascontiguousarray(image[..., ::-1] if order == 'bgr' else image)


def _dataset_with_pipeline(config: Config) -> dict[str, Any]:
    """Return the config of the test data set; of a wrapped or joined one, the first inside."""
    node: Any = (config.get('test_dataloader') or {}).get('dataset')
    while isinstance(node, Mapping) and not node.get('pipeline'):
        inner = node.get('dataset') or node.get('datasets')
        node = inner[0] if isinstance(inner, (list, tuple)) and inner else inner
    if not isinstance(node, Mapping):
        raise UserError(
            f'config {config.filename}: its test_dataloader has no data set with a pipeline, so '
            'it does not say how images are prepared.'
        )
    return copy.deepcopy(dict(node))


def _without_annotations(steps: Any) -> list:
    kept = []
    for step in steps:
        if _ANNOTATIONS.fullmatch(type_name(step)):
            continue
        if isinstance(step, Mapping) and isinstance(step.get('transforms'), (list, tuple)):
            inner = step['transforms']
            several = bool(inner) and isinstance(inner[0], (list, tuple))
            parts = [_without_annotations(one) for one in inner] if several else None
            step = {**step, 'transforms': parts or _without_annotations(inner)}
        kept.append(step)
    return kept
