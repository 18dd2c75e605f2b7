"""How steep softmax is on the attention rows of a model (the paper's Figure 5).

For a row a = softmax(λ s) the gradient is J = λ (diag(a) - a aᵀ). It is symmetric and positive
semi-definite, so its nuclear norm is its trace, λ Σ (a - a²): 0 for a row that sees one key, and at
most λ (1 - 1/N), for the uniform row. Here λ is 1: the gradient with respect to the logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from ..errors import UserError
from ..fileio.figures import new_figure
from ..fileio.images import read_image
from ..fileio.safe_text import figure_text
from .capture import LayerAttention
from .figures import _COLOURS, _STYLE
from .options import AttentionOptions
from .subject import Subject


def nuclear_norm(rows: Tensor) -> Tensor:
    """Return the nuclear norm of softmax's gradient at attention rows (..., N): (...)."""
    return (rows - rows.square()).sum(dim=-1)


def distance_from_uniform(rows: Tensor) -> Tensor:
    """Return half the sum of |a - 1/N| of rows (..., N): 0 uniform, 1 - 1/N a single key."""
    return (rows - 1 / rows.shape[-1]).abs().sum(dim=-1) / 2


@dataclass(frozen=True)
class GradientSummary:
    """What was measured on a model, over all images.

    Attributes:
        name: Of the model.
        tokens: Number of tokens of the last image.
        norm: (layers, heads): mean nuclear norm.
        distance: (layers, heads): mean distance from uniform.
    """

    name: str
    tokens: int
    norm: np.ndarray
    distance: np.ndarray

    def record(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            'model': self.name, 'tokens': self.tokens, 'bound': 1 - 1 / self.tokens,
            'norm': self.norm.tolist(), 'distance': self.distance.tolist(),
        }  # fmt: skip


def measure_gradient(options: AttentionOptions, files: Sequence[Any]) -> list[GradientSummary]:
    """Measure every model on every image."""
    return [_measure(subject, options, files) for subject in options.load_models()]


def _measure(subject: Subject, options: AttentionOptions, files: Sequence[Any]) -> GradientSummary:
    sums: dict[int, list[np.ndarray]] = {}
    tokens = 0

    def add(layer: LayerAttention) -> None:
        nonlocal tokens
        totals = [np.zeros(layer.heads), np.zeros(layer.heads)]
        count = 0
        for _, rows in layer.chunks():
            tokens = rows.shape[-1]
            count += rows.shape[0] * rows.shape[2]
            for total, measure in zip(totals, (nuclear_norm, distance_from_uniform), strict=True):
                total += measure(rows).double().sum(dim=(0, 2)).cpu().numpy()
        sums.setdefault(layer.index, []).append(np.stack(totals) / count)

    for file in files:
        subject.run(subject.fit(read_image(file), options.size), add)
    if not sums:
        raise UserError(f'{subject.name}: no attention was measured.')
    means = [np.mean(sums[index], axis=0) for index in sorted(sums)]
    if len({mean.shape for mean in means}) > 1:
        raise UserError(f'{subject.name} has layers with different numbers of heads.')
    norm, distance = np.stack(means, axis=1)
    return GradientSummary(subject.name, tokens, norm, distance)


def gradient_figure(models: Sequence[GradientSummary]) -> Figure:
    """Draw softmax of two inputs and its gradient, and the gradients of the models' rows."""
    with matplotlib.rc_context(_STYLE):
        figure = new_figure(10.5, 3.3)
        two, points, depth = figure.subplots(1, 3)
        x = np.linspace(-6, 6, 241)
        first = 1 / (1 + np.exp(-x))
        two.plot(x, first, color='#999999', label='softmax, first output')
        two.plot(x, 2 * first * (1 - first), color='black', label='nuclear norm of its gradient')
        two.axvline(0, color='#bbbbbb', linestyle=':')
        two.set(xlabel='$x_1 - x_2$', title='two inputs: steepest where uniform', ylim=(0, 1.25))
        two.legend(loc='upper left')
        shades = matplotlib.colormaps['viridis']
        for i, model in enumerate(models):
            layers = len(model.norm)
            for layer in range(layers):
                points.plot(
                    model.distance[layer], model.norm[layer], linestyle='', marker='os^D'[i % 4],
                    color=shades(layer / max(layers - 1, 1)), markersize=4,
                )  # fmt: skip
            name = figure_text(model.name)
            depth.plot(
                model.norm.mean(axis=1), color=_COLOURS[i % 4], marker='os^D'[i % 4], label=name
            )
        bound = max(1 - 1 / model.tokens for model in models)
        for axes in (points, depth):
            axes.axhline(bound, color='#c00000', linestyle=':', linewidth=1)
        points.set(
            xlabel='distance from uniform',
            ylabel='nuclear norm',
            title='heads (dark: early layer)',
        )
        depth.xaxis.set_major_locator(MaxNLocator(integer=True))
        depth.set(xlabel='Layer', ylabel='nuclear norm', title='mean over heads and rows')
        depth.plot([], [], color='#c00000', linestyle=':', label='uniform row: 1 - 1/N')
        depth.legend()
    return figure
