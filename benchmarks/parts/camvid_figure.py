"""The CamVid study in one figure: one row per start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from cb_mm.fileio.figures import figure_bytes, new_figure

from .camvid_models import MODELS, STARTS
from .seed_by_seed import Models, gap, score

#: Okabe and Ito's palette, safe for colour-blind readers
COLOURS = {'none': '#000000', 'cb': '#0072B2', 'cb_all': '#E69F00', 'cb_s': '#009E73'}


def draw(starts: Mapping[str, Models]) -> bytes:
    """Draw a PNG: training curves, differences under corruption, entropy and reach by depth."""
    figure = new_figure(15, 4.1 * len(starts))
    rows = figure.subplots(len(starts), 4, squeeze=False, width_ratios=(1, 1.25, 1, 1))
    for (start, models), axes in zip(starts.items(), rows, strict=True):
        _curves(axes[0], models)
        _gaps(axes[1], models)
        _depth(axes[2], models, 'entropy', 'entropy of the attention (nats)')
        _depth(axes[3], models, 'reach', 'reach of the attention (image sides)')
        axes[0].set_title(STARTS[start].title, fontsize=10, loc='left')
        for axis in axes:
            axis.tick_params(labelsize=8)
            axis.grid(alpha=0.25, lw=0.6)
            axis.spines[['top', 'right']].set_visible(False)
    rows[0][0].legend(fontsize=8, frameon=False, loc='lower right')
    return figure_bytes(figure, dpi=100)


def _curves(axis: Axes, models: Models) -> None:
    """Draw the mIoU by iteration: seeds thin, their mean thick."""
    for model, seeds in models.items():
        curves = [list(record['curve'].values()) for record in seeds.values()]
        steps = [int(step) for step in next(iter(seeds.values()))['curve']]
        for curve in curves:
            axis.plot(steps, curve, color=COLOURS[model], lw=0.6, alpha=0.4)
        axis.plot(
            steps, np.mean(curves, axis=0), 'o-', ms=3.5, color=COLOURS[model], lw=1.6,
            label=MODELS[model].title,
        )  # fmt: skip
    axis.set_xlabel('iteration', fontsize=8.5)
    axis.set_ylabel('mIoU, every third image', fontsize=8.5)


def _gaps(axis: Axes, models: Models) -> None:
    """Draw model minus none for each corruption, with the interval over seeds."""
    cells = next(iter(next(iter(models.values())).values()))['cells']
    others = [model for model in models if model != 'none']
    for number, model in enumerate(others):
        shift = (number - (len(others) - 1) / 2) * 0.24
        for place, key in enumerate(cells):
            value = gap(models, model, score(key))
            if value is None:
                continue
            if value.low is not None:
                ends = [value.low, value.high]
                axis.plot(ends, [place + shift] * 2, color=COLOURS[model], lw=1.6)
            axis.plot(value.mean, place + shift, 'o', ms=4.5, color=COLOURS[model])
    axis.axvline(0, color='black', lw=0.8)
    names = [_short(cell['title']) for cell in cells.values()]
    axis.set_yticks(range(len(cells)), names)
    axis.invert_yaxis()
    axis.set_xlabel('minus none, mIoU in points; bars: 95 % over seeds', fontsize=8.5)


def _short(title: str) -> str:
    return title.split(',')[0].replace('Gaussian ', 'Gaussian\n')


def _depth(axis: Axes, models: Models, name: str, label: str) -> None:
    for model, seeds in models.items():
        values: Sequence[Sequence[float]] = [record[name] for record in seeds.values()]
        for line in values:
            axis.plot(line, color=COLOURS[model], lw=0.6, alpha=0.4)
        axis.plot(np.mean(values, axis=0), 'o-', ms=3.5, color=COLOURS[model], lw=1.6)
    axis.set_xlabel('layer', fontsize=8.5)
    axis.set_ylabel(label, fontsize=8.5)
