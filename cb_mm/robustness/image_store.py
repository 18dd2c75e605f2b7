"""Decoded images and label maps, kept in memory for the next pass over the same data.

A sweep reads every file many times; decoding costs far more than copying. What is kept is bounded.
Nothing is evicted when the bound is reached: all passes go through the data in the same order, and
a store that drops the oldest entry would always drop the one needed next.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np

from ..datasets.checks.samples import SampleRules, step_lists
from ..errors import MissingFile, UserError

#: Loaders whose result depends only on the file and their settings.
_IMAGE_LOADER = 'mmcv.transforms.loading.LoadImageFromFile'
_LABEL_LOADER = 'mmseg.datasets.transforms.loading.LoadAnnotations'


class ImageStore:
    """Arrays by key, up to a number of bytes.

    Args:
        limit: maximum number of bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._arrays: dict[Hashable, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self._arrays)

    def get(self, key: Hashable) -> np.ndarray | None:
        """Return a copy of the array, which the caller may change; None when it is not kept."""
        array = self._arrays.get(key)
        return None if array is None else array.copy()

    def keep(self, key: Hashable, array: np.ndarray) -> None:
        """Keep a copy, if there is room."""
        if key not in self._arrays and self.used + array.nbytes <= self.limit:
            self._arrays[key] = array.copy()
            self.used += array.nbytes


class StoredLoader:
    """A pipeline's loader that looks in the store first, with user-facing errors."""

    def __init__(
        self,
        loader: Callable[[dict], dict | None],
        store: ImageStore,
        rules: SampleRules | None = None,
    ) -> None:
        self.loader = loader
        self.rules = rules or SampleRules()
        self.store = store
        kind = f'{type(loader).__module__}.{type(loader).__qualname__}'
        self.loads_image = kind == _IMAGE_LOADER
        self.loads_labels = kind == _LABEL_LOADER

    def __call__(self, results: dict) -> dict | None:
        """Load as the loader itself does."""
        key = self._key(results)
        array = self.store.get(key) if key else None
        if array is None:
            loaded = self._load(results)
            if key and loaded is not None:
                self.store.keep(key, loaded['img' if self.loads_image else 'gt_seg_map'])
            return loaded
        if self.loads_image:
            results['img'] = array
            results['img_shape'] = results['ori_shape'] = array.shape[:2]
        else:
            results['gt_seg_map'] = array
            results['seg_fields'].append('gt_seg_map')
        return results

    def _key(self, results: dict) -> Hashable | None:
        if self.loads_image:
            return repr(self.loader), results.get('img_path')
        if self.loads_labels:
            changed = tuple((results.get('label_map') or {}).items())
            return repr(self.loader), results.get('seg_map_path'), changed
        return None

    def _load(self, results: dict) -> dict | None:
        what, file = 'image', results.get('img_path')
        if self.loads_labels:
            what, file = 'label map', results.get('seg_map_path')
        before = set(results)
        try:
            loaded = self.loader(results)
        except FileNotFoundError as error:
            missing = error.filename or file
            raise MissingFile(f'{what} {missing} of the test data does not exist.') from error
        except Exception as error:  # decoders fail on a damaged file in a dozen ways
            if not (self.loads_image or self.loads_labels):
                raise
            raise UserError(
                f'{what} {file} of the test data cannot be read: it is not an image, or it is '
                f'damaged ({type(error).__name__}).'
            ) from error
        if loaded is not None:
            self.rules.check(loaded, set(loaded) - before)
        return loaded

    def __repr__(self) -> str:
        return f'{type(self).__name__}({self.loader!r})'


def store_loaders(dataset: Any, store: ImageStore, ignored: Iterable[int] = ()) -> None:
    """Let every loader in the pipelines of a built data set use the store."""
    rules = SampleRules.of(dataset, ignored)
    for steps in step_lists(dataset):
        for place, step in enumerate(steps):
            if type(step).__name__.startswith('Load'):
                steps[place] = StoredLoader(step, store, rules)
