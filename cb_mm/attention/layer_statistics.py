"""Statistics of attention, streaming: by layer and head for an image, then over many images.

One image is measured in chunks of rows, so that memory grows with the number of tokens, not its
square. Many images are combined in running means, so that memory does not grow with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from ..evaluation.interval import standard_errors
from .capture import LayerAttention
from .measures import bound, bridged_distance, entropy, keys_for_mass, prefix_mass
from .sinks import Sinks
from .tokens import Tokens

#: What every measure means, for tables and help.
MEANINGS = {
    'entropy': 'entropy of a row in nats, mean over all rows',
    'class_entropy': "entropy of the class token's row in nats",
    'distance': 'mean of a_ij |p_i - p_j|_1 over all pairs of different spatial tokens',
    'reach': 'distance that the attention of a spatial token bridges, in image sides',
    'prefix_mass': 'share of a row on class, distillation and register tokens, mean over all rows',
    'sparsity': 'share of the keys that hold 90 % of a row, mean over rows',
    'sink_mass': 'share of all attention on the strongest key',
    'top_keys_mass': 'share of all attention on the strongest 1 % of the keys, at least one',
    'sink_value': 'norm of the value at the strongest key over the mean norm of all values',
    'broadcast': 'share of the output that is the same for all queries, |mean o_i|² / mean |o_i|²',
}

#: Sorting is the most expensive measure. Beyond this many rows, 'sparsity' is the mean over about
#: this many, evenly spaced; at 224² and 512² every row counts.
SPARSITY_ROWS = 1024


@dataclass(frozen=True)
class LayerMeasure:
    """What was measured of one layer for a batch of images.

    Attributes:
        index: Number of the layer.
        name: Its name in the model.
        tokens: Meaning of its tokens.
        heads: Measure -> (batch, heads).
        whole: Measure -> (batch,), over all heads together: the mean of the heads, and for
            percentiles those of all heads' rows.
    """

    index: int
    name: str
    tokens: Tokens
    heads: dict[str, np.ndarray]
    whole: dict[str, np.ndarray]

    @property
    def bound(self) -> float:
        """The largest entropy that a row can have, log N."""
        return bound(self.tokens.count)


def percentile_name(percent: float) -> str:
    """Return 'entropy_p15' for 15."""
    return f'entropy_p{percent:g}'


def measure(
    layer: LayerAttention, percentiles: Sequence[float] = (15, 85), mass: float = 0.9
) -> LayerMeasure:
    """Measure one layer, in chunks of rows.

    Args:
        layer: As `capture` hands it over.
        percentiles: Of the rows' entropies; exact, for each image separately.
        mass: How much of a row the keys counted as 'sparsity' hold.
    """
    tokens, batch, heads = layer.tokens, layer.batch, layer.heads
    entropies = torch.empty(batch, heads, tokens.count)
    sums = {name: torch.zeros(batch, heads, dtype=torch.float64) for name in MEANINGS}

    def add(name: str, values: torch.Tensor) -> None:
        sums[name] += values.sum(-1, dtype=torch.float64).cpu()

    sinks = Sinks(layer)
    step = max(tokens.count // SPARSITY_ROWS, 1)
    sampled = len(range(0, tokens.count, step))
    for which, rows in layer.chunks():
        nats = entropy(rows)
        entropies[..., which] = nats.cpu()
        add('entropy', nats)
        add('prefix_mass', prefix_mass(rows, tokens))
        add('reach', bridged_distance(rows, which, tokens))
        sinks.add(rows)
        some = rows[..., -which.start % step :: step, :]
        add('sparsity', keys_for_mass(some, mass))  # the last one: it may sort in place
    cells = tokens.grid[0] * tokens.grid[1]
    sums['entropy'] /= tokens.count
    sums['prefix_mass'] /= tokens.count
    sums['sparsity'] /= sampled
    sums['reach'] /= cells
    # A mean over the cells * (cells - 1) ordered pairs; a single cell has none.
    sums['distance'] = sums['reach'] / max(cells - 1, 1)
    sums.update({name: found.double().cpu() for name, found in sinks.measures().items()})
    place = tokens.class_token
    sums['class_entropy'] = (
        torch.full((batch, heads), torch.nan) if place is None else entropies[..., place].double()
    )
    by_head = {name: values.numpy() for name, values in sums.items()}
    whole = {name: values.mean(-1) for name, values in by_head.items()}
    for percent in percentiles:
        name = percentile_name(percent)
        by_head[name] = np.percentile(entropies.numpy(), percent, axis=-1)
        whole[name] = np.percentile(entropies.flatten(1).numpy(), percent, axis=-1)
    return LayerMeasure(layer.index, layer.name, tokens, by_head, whole)


class Running:
    """Mean and spread of arrays that come one at a time (Welford algorithm). Only sums are kept."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: np.ndarray | float = 0.0
        self._squares: np.ndarray | float = 0.0

    def add(self, values: np.ndarray | Sequence | float) -> None:
        """Add one more array; all must have the same shape."""
        values = np.asarray(values, dtype=np.float64)
        self.count += 1
        step = values - self.mean
        self.mean = self.mean + step / self.count
        self._squares = self._squares + step * (values - self.mean)

    def half_width(self, confidence: float = 0.95) -> np.ndarray:
        """Return half the width of the t-interval of the mean; NaN for a single array."""
        if self.count < 2:
            return np.full(np.shape(self.mean), np.nan)
        deviation = np.sqrt(self._squares / (self.count - 1))
        return standard_errors(confidence, self.count - 1) * deviation / np.sqrt(self.count)


@dataclass(frozen=True)
class ScaleStatistics:
    """Scales of CB_S in one place of a model, as in the paper's Figure 8.

    Attributes:
        layer: Number of the block.
        name: Name of the module.
        mean: Mean of the scales λ.
        ratio: |λ_0.1| / |λ_0.9|, of the quantiles of λ.
        ratio_of_sizes: The same ratio of the quantiles of |λ|: for scales of both signs.
    """

    layer: int
    name: str
    mean: float
    ratio: float
    ratio_of_sizes: float


def scale_statistics(model: nn.Module) -> list[ScaleStatistics]:
    """Return statistics of every CB_S of a model, in order; empty where there is none."""
    from ..models.broadcast.context_broadcast import ScaledContextBroadcast

    found: list[ScaleStatistics] = []
    for name, module in model.named_modules():
        if isinstance(module, ScaledContextBroadcast):
            scale = module.scale.detach().double().cpu()
            numbers = [int(part) for part in name.split('.') if part.isdigit()]
            layer = numbers[0] if numbers else len(found)
            found.append(
                ScaleStatistics(
                    layer, name, scale.mean().item(), _ratio(scale), _ratio(scale.abs())
                )
            )
    return found


def _ratio(scale: torch.Tensor) -> float:
    low, high = torch.quantile(scale, torch.tensor([0.1, 0.9], dtype=scale.dtype)).abs().tolist()
    return low / high if high else float('nan')
