"""Plots by depth: entropy (the paper's Figures 4 and 7a), distance (7b), CB_S's scales (8)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..fileio.figures import USUAL_FORMATS, new_figure, save_figure
from ..fileio.safe_text import figure_text
from .layer_statistics import percentile_name
from .overlay import ordinal
from .summary import ModelSummary

#: Okabe and Ito's colours, which colour-blind readers can tell apart; the markers differ too.
_COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7')
_MARKERS = ('o', 's', '^', 'D')
_STYLE: dict[Any, Any] = {
    'font.size': 9,
    'axes.titlesize': 10,
    'axes.spines.top': False,
    'axes.spines.right': False,
    'axes.grid': True,
    'grid.color': '#dddddd',
    'grid.linewidth': 0.6,
    'axes.axisbelow': True,
    'legend.frameon': False,
    'legend.fontsize': 8,
    'lines.linewidth': 1.6,
    'lines.markersize': 4.5,
}


def save(figure: Figure, stem: Path, formats: Sequence[str] = USUAL_FORMATS) -> list[Path]:
    """Write a figure in each format, as ``stem`` and the format's ending."""
    return save_figure(figure, stem, formats, style=_STYLE)


def entropy_figure(
    models: Sequence[ModelSummary],
    percent: float = 15,
    references: Sequence[tuple[float, str]] = (),
) -> Figure:
    """Plot the entropy of all rows by depth, mean and a percentile, with its bound (Figure 4)."""
    with matplotlib.rc_context(_STYLE):
        figure = new_figure(5.6, 3.6)
        axes = figure.subplots()
        name = percentile_name(percent)
        for i, model in enumerate(models):
            label = figure_text(model.name)
            _curve(axes, model, 'entropy', i, f'{label}, mean')
            if name in model.measures:
                label = f'{label}, {ordinal(percent)} percentile'
                _curve(axes, model, name, i, label, dashed=True)
        _bounds(axes, models)
        for value, label in references:
            axes.axhline(value, color='#555555', linewidth=1.1, linestyle=(0, (1, 1.5)))
            axes.annotate(
                figure_text(label), (0, value), (2, 3), xycoords=('axes fraction', 'data'),
                textcoords='offset points', fontsize=8, color='#333333', va='bottom',
            )  # fmt: skip
        axes.set_ylabel('Entropy of attention (nats)')
        _finish(axes, f'Entropy over heads and tokens ({_count(models)})')
        axes.set_ylim(bottom=0)
        figure.legend(*axes.get_legend_handles_labels(), loc='outside lower center', ncols=2)
    return figure


def class_and_distance_figure(models: Sequence[ModelSummary]) -> Figure:
    """Plot the class token's entropy and the distance of interactions (Figure 7)."""
    with matplotlib.rc_context(_STYLE):
        figure = new_figure(7.2, 3.3)
        left, right = figure.subplots(1, 2)
        for i, model in enumerate(models):
            if np.isfinite(model.by_depth('class_entropy')[0]).all():
                _curve(left, model, 'class_entropy', i, figure_text(model.name))
            _curve(right, model, 'distance', i, figure_text(model.name), factor=1e3)
        _from_zero(left)
        _bounds(left, models)
        left.set_ylabel('Entropy of attention (nats)')
        _finish(left, '(a) Entropy of the class token')
        right.set_ylabel('Distance (10⁻³ image sides)')
        _from_zero(right)
        _finish(right, '(b) Relative distance')
        _legend(figure, right, models)
    return figure


def sparsity_figure(models: Sequence[ModelSummary]) -> Figure:
    """Plot the share of keys that hold 90 % of a row, and the mass on prefix tokens."""
    with matplotlib.rc_context(_STYLE):
        figure = new_figure(7.2, 3.3)
        panels = figure.subplots(1, 2)
        titles = ('(a) Keys that hold 90 % of a row', '(b) Mass on prefix tokens')
        for axes, measure, title in zip(panels, ('sparsity', 'prefix_mass'), titles, strict=True):
            for i, model in enumerate(models):
                _curve(axes, model, measure, i, figure_text(model.name), factor=100)
                heads = model.heads_by_depth(measure)
                for layer, values in zip(sorted(model.layers), heads, strict=True):
                    axes.plot(
                        [layer] * len(values), 100 * values, linestyle='', marker='.',
                        markersize=3, color=_COLOURS[i % 4], alpha=0.45, zorder=1,
                    )  # fmt: skip
            _from_zero(axes)
            _finish(axes, title)
        panels[0].set_ylabel('Share of keys (%)')
        panels[1].set_ylabel('Share of mass (%)')
        panels[0].plot([], [], linestyle='', marker='.', color='#777777', label='single heads')
        _legend(figure, panels[0], models)
    return figure


def sink_figure(models: Sequence[ModelSummary]) -> Figure:
    """Plot the mass on the strongest key, the size of its value, and what all tokens share."""
    panels = {
        'sink_mass': ('(a) Mass on the strongest key', 'Share of mass (%)', 100),
        'sink_value': ('(b) Value at that key', 'Norm over the mean norm', 1),
        'broadcast': ('(c) Broadcast share of the output', 'Share of the energy (%)', 100),
    }
    with matplotlib.rc_context(_STYLE):
        figure = new_figure(9.6, 3.3)
        found = figure.subplots(1, len(panels))
        for axes, (name, (title, label, factor)) in zip(found, panels.items(), strict=True):
            for i, model in enumerate(models):
                _curve(axes, model, name, i, figure_text(model.name), factor=factor)
            _from_zero(axes)
            axes.set_ylabel(label)
            _finish(axes, title)
        found[1].axhline(1, color='#888888', linewidth=0.8, linestyle=':')
        _legend(figure, found[0], models)
    return figure


def scales_figure(models: Sequence[ModelSummary]) -> Figure | None:
    """Plot mean and quantile ratio of CB_S's scales by depth (Figure 8); None without CB_S."""
    scaled = [(i, model) for i, model in enumerate(models) if model.scales]
    if not scaled:
        return None
    with matplotlib.rc_context(_STYLE):
        figure = new_figure(7.2, 3.3)
        left, right = figure.subplots(1, 2)
        for i, model in scaled:
            layers = [scale.layer for scale in model.scales]
            look = dict(color=_COLOURS[i % 4], marker=_MARKERS[i % 4])
            look['label'] = figure_text(model.name)
            left.plot(layers, [scale.mean for scale in model.scales], **look)
            right.plot(layers, [scale.ratio for scale in model.scales], **look)
        left.axhline(0, color='#888888', linewidth=0.8)
        left.set_ylabel('Mean of λ')
        left.ticklabel_format(axis='y', style='sci', scilimits=(-3, 3))
        right.set_ylabel('|λ$_{0.1}$| / |λ$_{0.9}$|')
        for axes, title in ((left, '(a) Average of the scales'), (right, '(b) Ratio of quantiles')):
            axes.set_xlabel('Layer')
            axes.set_title(title)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _from_zero(right)
        _legend(figure, left)
    return figure


def _curve(
    axes: Axes,
    model: ModelSummary,
    measure: str,
    number: int,
    label: str,
    dashed: bool = False,
    factor: float = 1.0,
) -> None:
    """Plot the mean by depth with a band for its 95 % interval."""
    layers = sorted(model.layers)
    mean, half = (factor * values for values in model.by_depth(measure))
    colour = _COLOURS[number % len(_COLOURS)]
    axes.plot(
        layers,
        mean,
        color=colour,
        marker=_MARKERS[number % len(_MARKERS)],
        markerfacecolor='white' if dashed else colour,
        linestyle='--' if dashed else '-',
        label=label,
    )
    if np.isfinite(half).all():
        axes.fill_between(layers, mean - half, mean + half, color=colour, alpha=0.2, linewidth=0)


def _bounds(axes: Axes, models: Sequence[ModelSummary]) -> None:
    """Draw the largest possible entropy; one line if the models agree."""
    bounds = {round(float(model.bound.mean), 3): model for model in models if model.images}
    for value, model in bounds.items():
        same = len(model.grids) == 1
        (rows, columns) = next(iter(model.grids))
        tokens = len(model.prefix) + rows * columns
        text = f'log {tokens} = {value:.2f}' if same else f'log N = {value:.2f} on average'
        axes.axhline(value, color='#B00020', linewidth=1.2, linestyle=':')
        axes.annotate(
            f'bound, {text}', (1, value), (-2, 3), xycoords=('axes fraction', 'data'),
            textcoords='offset points', ha='right', va='bottom', fontsize=8, color='#B00020',
        )  # fmt: skip
    if bounds:
        axes.set_ylim(top=1.1 * max(bounds))  # room for the words above the line


def _from_zero(axes: Axes) -> None:
    """Let the axis begin at zero, with room above a curve that is flat."""
    top = axes.dataLim.y1  # infinite without a curve
    axes.set_ylim(0, 1.06 * top if 0 < top < np.inf else 1)


def _finish(axes: Axes, title: str) -> None:
    axes.set_xlabel('Layer')
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(x=0.03)
    axes.set_title(title)


def _count(models: Sequence[ModelSummary]) -> str:
    count = max((model.images for model in models), default=0)
    return f'{count} image{"" if count == 1 else "s"}'


def _legend(figure: Figure, axes: Axes, models: Sequence[ModelSummary] = ()) -> None:
    """Put the models below all panels, and how many images were measured above them."""
    if models:
        figure.suptitle(
            f'mean over {_count(models)}', fontsize=8, color='#555555', x=0.99, ha='right'
        )
    figure.legend(*axes.get_legend_handles_labels(), loc='outside lower center', ncols=4)
