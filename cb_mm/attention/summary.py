"""Summary of a model's attention over many images: means with intervals, by layer and head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from .layer_statistics import LayerMeasure, Running, ScaleStatistics

#: Significant digits of the numbers in result files: more than the attention is computed with.
DIGITS = 7


def record_of(measures: Sequence[LayerMeasure]) -> dict[str, Any]:
    """Return what was measured on one image, for a file of records."""
    tokens = measures[0].tokens
    return {
        'grid': tokens.grid,
        'prefix': tokens.prefix,
        'bound': measures[0].bound,
        'layers': [
            {
                'index': layer.index,
                'name': layer.name,
                'whole': {name: values[0] for name, values in layer.whole.items()},
                'heads': {name: values[0] for name, values in layer.heads.items()},
            }
            for layer in measures
        ],
    }


class ModelSummary:
    """Running means over images of one model.

    Args:
        name: Of the model.
        scales: Of its CB_S, which do not depend on images.
    """

    def __init__(self, name: str, scales: Sequence[ScaleStatistics] = ()) -> None:
        self.name = name
        self.scales = list(scales)
        self.bound = Running()
        self.grids: set[tuple[int, int]] = set()
        self.prefix: tuple[str, ...] = ()
        self.layers: dict[int, str] = {}
        self._whole: dict[tuple[int, str], Running] = {}
        self._heads: dict[tuple[int, str], Running] = {}

    @property
    def images(self) -> int:
        """Number of images so far."""
        return self.bound.count

    @property
    def measures(self) -> list[str]:
        """Names of what was measured."""
        return list(dict.fromkeys(name for _, name in self._whole))

    def add(self, record: dict[str, Any]) -> None:
        """Add one image's record."""
        self.bound.add(record['bound'])
        self.grids.add(tuple(record['grid']))
        self.prefix = tuple(record['prefix'])
        for layer in record['layers']:
            index = layer['index']
            self.layers[index] = layer['name']
            for sums, part in ((self._whole, 'whole'), (self._heads, 'heads')):
                for name, values in layer[part].items():
                    # A file has null for what does not exist, such as a class token's entropy.
                    values = np.asarray(values, dtype=np.float64)
                    sums.setdefault((index, name), Running()).add(values)

    def by_depth(self, measure: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean over images, and half its 95 % interval, of each layer."""
        runs = [self._whole[index, measure] for index in sorted(self.layers)]
        return (
            np.array([run.mean for run in runs], dtype=np.float64),
            np.array([run.half_width() for run in runs], dtype=np.float64),
        )

    def heads_by_depth(self, measure: str) -> list[np.ndarray]:
        """Return the mean over images of each head of each layer."""
        return [np.asarray(self._heads[index, measure].mean) for index in sorted(self.layers)]

    def as_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        return {
            'name': self.name,
            'images': self.images,
            'grids': sorted(self.grids)[:20],
            'prefix_tokens': self.prefix,
            'bound': self.bound.mean,
            'layers': [
                {
                    'index': index,
                    'name': name,
                    'all_heads': self._entries(self._whole, index),
                    'heads': self._entries(self._heads, index),
                }
                for index, name in sorted(self.layers.items())
            ],
            'scales': [asdict(scale) for scale in self.scales],
        }

    def _entries(self, sums: dict, index: int) -> dict[str, Any]:
        return {
            measure: {'mean': run.mean, 'half_width': run.half_width()}
            for (layer, measure), run in sums.items()
            if layer == index
        }

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Return everything for a table: model, layer, head, measure, mean, low, high, images."""
        for sums in (self._whole, self._heads):
            for (layer, measure), run in sorted(sums.items()):
                means, halves = np.atleast_1d(run.mean), np.atleast_1d(run.half_width())
                for head, (mean, half) in enumerate(zip(means, halves, strict=True)):
                    place = 'all' if sums is self._whole else head
                    yield (
                        self.name,
                        layer,
                        place,
                        measure,
                        mean,
                        mean - half,
                        mean + half,
                        run.count,
                    )


COLUMNS = ('model', 'layer', 'head', 'measure', 'mean', 'low', 'high', 'images')
