"""Attention sinks and broadcasting: where attention goes whatever the query, and what it brings."""

from __future__ import annotations

import torch
from torch import Tensor

from .capture import LayerAttention
from .measures import broadcast_share, strongest, value_at_sink


class Sinks:
    """Sums over the rows of one layer, added in chunks.

    Attributes:
        received: What each key receives, summed over the queries so far: (batch, heads, tokens).
    """

    def __init__(self, layer: LayerAttention) -> None:
        self._layer = layer
        values = layer.values
        self._norms = values.norm(dim=-1)
        self.received = torch.zeros_like(self._norms)
        self._output = torch.zeros_like(values[..., 0, :])
        self._energy = torch.zeros_like(self._output[..., 0])

    def add(self, rows: Tensor) -> None:
        """Add some rows of the map, (batch, heads, queries, tokens)."""
        self.received += rows.sum(-2)
        mixed = self._layer.mix(rows)
        self._output += mixed.sum(-2)
        self._energy += mixed.square().sum((-2, -1))

    def measures(self) -> dict[str, Tensor]:
        """Return each measure by head, (batch, heads), once all rows are there."""
        count = self.received.shape[-1]
        received = self.received / count
        return {
            'sink_mass': received.amax(-1),
            'top_keys_mass': strongest(received),
            'sink_value': value_at_sink(received, self._norms),
            'broadcast': broadcast_share(self._output, self._energy, count),
        }

    @property
    def places(self) -> Tensor:
        """The strongest key of each head, (batch, heads)."""
        return self.received.argmax(-1)


def sinks_of(layer: LayerAttention) -> Sinks:
    """Return the sums over all rows of a layer."""
    sinks = Sinks(layer)
    for _, rows in layer.chunks():
        sinks.add(rows)
    return sinks
