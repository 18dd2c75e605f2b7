"""Names and colours of classes: always the same for the same classes."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from mmengine.config import Config

from ..config.loading import dataset_class, dataset_configs

#: Saturation and value of colours that are made up.
_SHADES = ((0.75, 0.8), (0.55, 0.95), (0.9, 0.6))


class ClassStyle:
    """What classes are called and which colour they have.

    Args:
        classes: Their names; a class without one is 'class N'.
        palette: Their colours, RGB; where there are fewer than classes, all are made up.
    """

    def __init__(self, classes: Sequence[str] = (), palette: Any = None) -> None:
        self.names = [str(name) for name in classes]
        given = palette if isinstance(palette, (list, tuple)) else ()
        self._given = np.asarray(given, np.uint8) if len(given) >= max(len(classes), 1) else None

    @classmethod
    def of_meta(cls, meta: Mapping[str, Any]) -> ClassStyle:
        """Return that of a data set's ``metainfo``."""
        classes, palette = meta.get('classes') or (), meta.get('palette')
        return cls(classes, None if _is_random(palette) else palette)

    @classmethod
    def of_config(cls, config: Config, classes: Sequence[str]) -> ClassStyle:
        """Return that of the classes of a model, with the colours that the config's data has."""
        for dataset in dataset_configs(config, ('test', 'val', 'train')):
            known = getattr(dataset_class(config, dataset), 'METAINFO', None) or {}
            for meta in (dataset.get('metainfo') or {}, known):
                names, palette = meta.get('classes') or known.get('classes'), meta.get('palette')
                if isinstance(palette, (list, tuple)) and names and len(names) == len(palette):
                    colours = dict(zip(map(str, names), palette, strict=True))
                    if all(name in colours for name in classes):
                        return cls(classes, [colours[name] for name in classes])
        return cls(classes)

    def name(self, number: int) -> str:
        """Return the name of a class."""
        return self.names[number] if number < len(self.names) else f'class {number}'

    def colours(self, least: int = 0) -> np.ndarray:
        """Return the colours of all classes (N, 3), of at least ``least``; uint8 RGB."""
        if self._given is not None and len(self._given) >= least:
            return self._given
        count = max(least, len(self.names))
        # Steps of the golden ratio keep neighbouring classes apart, and so do shades.
        hues = [
            colorsys.hsv_to_rgb((k * 0.618034 + 0.58) % 1, *_SHADES[k % len(_SHADES)])
            for k in range(count)
        ]
        parts = [[round(255 * part) for part in hue] for hue in hues]
        return np.asarray(parts, np.uint8).reshape(-1, 3)


def _is_random(palette: Any) -> bool:
    """Return whether mmseg drew it, as it does for a data set without a palette.

    Its colours can look alike, and a prediction, which has no data set, would have others.
    """
    drawn = np.random.RandomState(42).randint(0, 255, (len(palette or ()), 3))
    return bool(palette) and np.array_equal(np.asarray(palette), drawn)
