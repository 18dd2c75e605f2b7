"""Reliability: how often a model is right, by how sure it is; as data and as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..corruption.registry import words
from ..fileio.figures import new_figure
from ..fileio.safe_text import figure_text
from .attacks.catalogue import ATTACKS
from .jobs import CLEAN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Figures of calibration, and their columns in tables.
CALIBRATION = {
    'ECE': 'ECE', 'classwise_ECE': 'class-wise ECE', 'Brier': 'Brier', 'confidence': 'confidence',
}  # fmt: skip
#: To be printed wherever they are.
WHAT_CALIBRATION_MEASURES = (
    'Calibration: ECE is the mean distance between confidence and accuracy over bins of confidence '
    '(0 is best); class-wise ECE the same for the probability of every class; Brier the squared '
    'distance between probabilities and truth (0 to 200, 0 is best). A mean confidence above the '
    'accuracy means overconfident.'
)
_COLUMNS = 3
_CURVE = 'reliability'


def has_calibration(results: Mapping[str, Any]) -> bool:
    """Return whether a test measured calibration."""
    return any('ECE' in cell['metrics'] for cell in results['cells'])


def sum_curves(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list]]:
    """Return the curves of a cell: all repeats together."""
    first = records[0].get('curves') or {}
    return {
        name: {
            column: [sum(values) for values in zip(*(r['curves'][name][column] for r in records),
                                                   strict=True)]
            for column in columns
        }
        for name, columns in first.items()
    }  # fmt: skip


def reliability_of(cell: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the bins of a cell: their ends, share of predictions, confidence and accuracy."""
    curve = (cell.get('curves') or {}).get(_CURVE)
    if not curve:
        return []
    total, bins = sum(curve['count']) or 1, len(curve['count'])
    columns = zip(curve['count'], curve['correct'], curve['confidence'], strict=True)
    return [
        {
            'low': place / bins,
            'high': (place + 1) / bins,
            'share': count / total,
            'confidence': confidence / count if count else None,
            'accuracy': correct / count if count else None,
        }
        for place, (count, correct, confidence) in enumerate(columns)
    ]


def accuracy_of(cell: Mapping[str, Any]) -> float | None:
    """Return the accuracy of the predictions whose confidence was measured, in per cent."""
    curve = (cell.get('curves') or {}).get(_CURVE)
    return 100 * sum(curve['correct']) / sum(curve['count']) if curve else None


def reliability_table(results: Mapping[str, Any]) -> tuple[list[str], list[list]]:
    """Return the header and the rows of ``reliability.csv``."""
    columns = ('low', 'high', 'share', 'confidence', 'accuracy')
    rows = [
        [cell['key'], *(one[column] for column in columns)]
        for cell in results['cells']
        for one in reliability_of(cell)
    ]
    return ['cell', *columns], rows


def reliability_figure(results: Mapping[str, Any]) -> Figure:
    """Draw one panel per corruption, with clean images in grey in each."""
    cells = [cell for cell in results['cells'] if reliability_of(cell)]
    clean = next((cell for cell in cells if cell['key'] == CLEAN), None)
    names = list(dict.fromkeys(cell['corruption'] for cell in cells if cell is not clean))
    names = names or [CLEAN]
    columns = min(len(names), _COLUMNS)
    rows = math.ceil(len(names) / columns)
    figure = new_figure(2.5 * columns + 0.5, 2.6 * rows + 0.75)
    figure.suptitle(
        figure_text(f'{results["model"]}, {results["identity"]["images"]} images'), fontsize=9
    )
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for place, axis in enumerate(axes.flat):
        if place >= len(names):
            axis.set_axis_off()
            continue
        own = [cell for cell in cells if cell['corruption'] == names[place] and cell is not clean]
        attack = ATTACKS.get(names[place])
        _draw(axis, attack.title if attack else words(names[place]), clean, own)
    figure.supxlabel('confidence', fontsize=8)
    figure.supylabel('accuracy', fontsize=8)
    return figure


def _draw(axis: Axes, title: str, clean: Mapping | None, cells: Sequence[Mapping]) -> None:
    from matplotlib import colormaps

    axis.plot([0, 1], [0, 1], color='black', lw=0.8, ls=':', zorder=1)
    shown: list[tuple[Mapping, str, Any]] = []
    if clean is not None:
        shown.append((clean, 'clean', '#777777'))
    shades = colormaps['viridis']
    for place, cell in enumerate(cells):
        label = f'level {cell["level"]:g}'
        if cell['severity'] is not None:
            label = f'severity {cell["severity"]}'
        elif cell['corruption'] in ATTACKS:
            label = f'ε={cell["level"]:g}'
        shown.append((cell, label, shades(0.85 - 0.75 * place / max(len(cells) - 1, 1))))
    for cell, label, colour in shown:
        bins = [one for one in reliability_of(cell) if one['confidence'] is not None]
        x, y = ([one[name] for one in bins] for name in ('confidence', 'accuracy'))
        label = f'{label}: ECE {cell["metrics"]["ECE"]["mean"]:.1f}'
        axis.plot(x, y, color=colour, lw=1.3, label=label, zorder=2)
        # The area of a dot is the share of the predictions that it stands for.
        area = [220 * one['share'] for one in bins]
        axis.scatter(x, y, s=area, color=colour, lw=0, zorder=3, clip_on=False)
    axis.set(xlim=(0, 1), ylim=(0, 1), aspect='equal')
    axis.set_title(title, fontsize=8)
    axis.tick_params(labelsize=7)
    axis.grid(alpha=0.25, lw=0.6)
    axis.spines[['top', 'right']].set_visible(False)
    axis.legend(fontsize=6.5, frameon=False, loc='best', handlelength=1.2)
