"""The figure of a test: curves over severity, bars with intervals for everything else."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..corruption.registry import words
from ..fileio.figures import new_figure
from ..fileio.safe_text import figure_text
from .metrics import HEADLINES
from .units import PERCENT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours stay apart for colour-blind readers; styles tell metrics apart.
_COLOURS = ('#0072B2', '#E69F00')
_STYLES = ('-', '--', ':')
_MARKERS = ('o', 's', '^')
_COLUMNS = 5


def robustness_figure(results: Mapping[str, Any], other: Mapping[str, Any] | None = None) -> Figure:
    """Draw one or two models.

    Args:
        results: content of a ``results.json``.
        other: that of another model, drawn beside it.
    """
    labels = results.get('comparison') or {'this': results['model']}
    models = [(figure_text(labels['this']), results)]
    if other is not None:
        models.append((figure_text(labels.get('other') or other['model']), other))
    names = [
        name
        for name in results['headline']
        if all(model['units'].get(name, '') == results['units'][name] for _, model in models)
    ]
    bars = [c for c in results['cells'] if c['severity'] is None]
    curves = list(dict.fromkeys(c['corruption'] for c in results['cells'] if c['severity']))
    bars = bars if len(bars) > 1 or not curves else []
    rows = math.ceil(len(curves) / _COLUMNS)
    heights = ([1.1 + 0.26 * len(bars) * len(models)] if bars else []) + (
        [2.1 * rows] if rows else []
    )
    columns = min(len(curves), _COLUMNS)
    width = max(7.5 if bars else 0, 2.1 * columns + 0.8, 5)
    headline = textwrap.wrap(_headline(models, results), int(13 * width))
    figure = new_figure(width, sum(heights) + 0.55 + 0.15 * len(headline))
    figure.suptitle('\n'.join(headline), fontsize=9)
    parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    if bars:
        axes = parts[0].subplots(1, max(len(names), 1), squeeze=False, sharey=True)[0]
        for axis, name in zip(axes, names, strict=False):
            _draw_bars(axis, bars, models, name, _axis_title([name], results))
        if len(models) > 1:
            handles, labels = axes[0].get_legend_handles_labels()
            _legend(parts[0], handles, labels, width)
    if curves:
        _draw_curves(parts[-1], curves, models, names, columns, rows, width)
    return figure


def _legend(part: Any, handles: Iterable, labels: Iterable[str], width: float) -> None:
    """Put the legend above a part of the figure, within its width in inches."""
    lines = [textwrap.fill(label, int(15 * (width - 0.8))) for label in labels]
    longest = max((len(line) for text in lines for line in text.split('\n')), default=0)
    ncols = 2 if longest < 15 * (width / 2 - 0.8) else 1
    part.legend(handles, lines, loc='outside upper center', ncols=ncols, frameon=False, fontsize=8)


def _headline(models: Sequence, results: Mapping[str, Any]) -> str:
    text = f'{" and ".join(label for label, _ in models)}, {results["identity"]["images"]} images'
    repeats = max(cell['n'] for cell in results['cells'])
    return f'{text}; whiskers: 95 % interval of the mean, n = {repeats}' if repeats > 1 else text


def _value(model: Mapping[str, Any], key: str, name: str) -> tuple[float, float] | None:
    """Return the mean and half of the interval (0 where there is none)."""
    for cell in model['cells']:
        if cell['key'] == key:
            values = cell['metrics'].get(name) or {}
            if values.get('mean') is None:
                return None
            high = values.get('high')
            return values['mean'], 0.0 if high is None else high - values['mean']
    return None


def _axis_title(names: Sequence[str], results: Mapping[str, Any]) -> str:
    """Return what an axis shows, with the unit where it is known."""
    text = ', '.join(HEADLINES.get(name, name) for name in names)
    known = names and all(results['units'][name] == PERCENT for name in names)
    return figure_text(f'{text} (%)' if known else text)


def _draw_bars(
    axis: Axes, cells: Sequence[Mapping], models: Sequence, name: str, title: str
) -> None:
    thickness = 0.8 / len(models)
    longest = lowest = 0.0
    for number, (label, model) in enumerate(models):
        colour = _COLOURS[number]
        for row, cell in enumerate(cells):
            value = _value(model, cell['key'], name)
            if value is None:
                continue
            mean, half = value
            place = row + (number - (len(models) - 1) / 2) * thickness
            axis.barh(
                place, mean, thickness * 0.92, color=colour, label=label if row == 0 else None
            )
            if half:
                axis.errorbar(mean, place, xerr=half, color='black', capsize=2.5, lw=1, zorder=5)
            text = f'{mean:.2f} ± {half:.2f}' if half else f'{mean:.2f}'
            ground = dict(facecolor='white', edgecolor='none', pad=0.4)  # over the clean line
            axis.annotate(
                text,
                xy=(mean + half, place),
                xytext=(5, 0),
                textcoords='offset points',
                va='center',
                fontsize=7.5,
                bbox=ground,
            )
            longest, lowest = max(longest, mean + half), min(lowest, mean - half)
        clean = _value(model, 'clean', name)
        if clean:
            axis.axvline(clean[0], color=colour, lw=1, ls=':', zorder=0)
    titles = [textwrap.fill(figure_text(cell['title']), 36) for cell in cells]
    axis.set_yticks(range(len(cells)), titles, fontsize=8)
    axis.set_ylim(len(cells) - 0.4, -0.6)
    axis.set_xlim(min(lowest * 1.28, 0), (longest or 1) * 1.28)  # room for the figures
    axis.set_xlabel(title, fontsize=8)
    axis.tick_params(axis='x', labelsize=8)
    axis.spines[['top', 'right']].set_visible(False)


def _draw_curves(
    part: Any, corruptions: Sequence[str], models: Sequence, names: Sequence[str], columns: int,
    rows: int, width: float,
) -> None:  # fmt: skip
    axes = part.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    lines = {}
    for place, axis in enumerate(axes.flat):
        if place >= len(corruptions):
            axis.set_axis_off()
            continue
        axis.set_title(words(corruptions[place]), fontsize=8)
        for number, (label, model) in enumerate(models):
            for style, name in enumerate(names):
                points = _curve(model, corruptions[place], name)
                if not points:
                    continue
                x, mean, half = zip(*points, strict=True)
                shown = figure_text(HEADLINES.get(name, name))
                text = ', '.join(([label] if len(models) > 1 else []) + [shown])
                lines[text] = axis.errorbar(
                    x, mean, yerr=half, color=_COLOURS[number], ls=_STYLES[style % 3],
                    marker=_MARKERS[number], ms=3.5, lw=1.3, capsize=2,
                )  # fmt: skip
        axis.set_xticks(range(6), ['clean', *'12345'], fontsize=7)
        axis.tick_params(axis='y', labelsize=7)
        axis.grid(alpha=0.25, lw=0.6)
        axis.spines[['top', 'right']].set_visible(False)
    axes.flat[0].set_ylim(bottom=0)
    part.supylabel(_axis_title(names, models[0][1]), fontsize=8)
    part.supxlabel('severity', fontsize=8)
    if len(lines) > 1:
        _legend(part, lines.values(), lines.keys(), width)


def _curve(model: Mapping[str, Any], corruption: str, name: str) -> list[tuple[int, float, float]]:
    """Return (severity, mean, half of the interval); clean images are at severity 0."""
    keys = {0: 'clean'}
    for cell in model['cells']:
        if cell['corruption'] == corruption and cell['severity'] is not None:
            keys[cell['severity']] = cell['key']
    found = [(severity, _value(model, key, name)) for severity, key in sorted(keys.items())]
    return [(severity, *value) for severity, value in found if value] if len(keys) > 1 else []
