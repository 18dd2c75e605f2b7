"""Curves of training runs, from the logs that mmengine writes: loss, evaluation loss, accuracy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..fileio.figures import FORMATS, USUAL_FORMATS, check_formats, figure_bytes, new_figure
from ..fileio.safe_text import figure_text
from .calls import api, save_files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Okabe and Ito's colours, which colour-blind readers can tell apart.
_COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9')
_STYLE: dict[Any, Any] = {
    'font.size': 9, 'axes.spines.top': False, 'axes.spines.right': False, 'axes.grid': True,
    'grid.color': '#dddddd', 'axes.axisbelow': True, 'legend.frameon': False,
}  # fmt: skip
_OF_THE_CLOCK = {'time', 'data_time', 'memory', 'step', 'iter', 'epoch', 'lr', 'base_lr'}
_TITLES = {
    'loss': 'training loss',
    'validation/cross_entropy': 'evaluation loss',
    'accuracy/top1': 'top-1 accuracy, %',
    'accuracy/top5': 'top-5 accuracy, %',
}


@dataclass(frozen=True)
class Curves:
    """The curves of one run.

    Attributes:
        name: Of the run.
        unit: What the steps count: 'epoch' or 'iteration'.
        values: For each quantity, its value at every step. 'loss' is the training loss, in epochs
            its mean over the logged iterations; all others are of validations.
    """

    name: str
    unit: str
    values: dict[str, dict[int, float]]


def read_curves(run: str | Path, name: str | None = None) -> Curves:
    """Read the logs of a run: of its work directory, or one ``scalars.json``.

    A run that was resumed has several logs; each takes the place of what the earlier ones have from
    its first step on.
    """
    path = Path(run)
    files = [path] if path.is_file() else sorted(path.glob('*/vis_data/scalars.json'))
    if not files:
        raise UserError(
            f'`runs` {run}: there is no log (*/vis_data/scalars.json). Give the work directory of '
            'a training run.'
        )
    train: dict[int, dict] = {}
    val: dict[int, dict] = {}
    for file in files:
        records = _records(file)
        steps = [entry for entry in records if entry.keys() >= {'lr', 'iter'}]
        if steps:
            first, start = steps[0]['iter'], steps[0].get('epoch', steps[0]['iter'])
            train = {step: entry for step, entry in train.items() if step < first}
            val = {step: entry for step, entry in val.items() if step < start}
        train |= {entry['iter']: entry for entry in steps}
        for entry in records:
            if 'step' in entry and not entry.keys() >= {'lr', 'iter'}:
                val[entry['step']] = entry
    if not train and not val:
        raise UserError(f'`runs` {run}: its log has no losses and no scores.')
    by_epoch = any('epoch' in entry for entry in train.values())
    sums: dict[int, list[float]] = {}
    for step, entry in train.items():
        if 'loss' in entry:
            sums.setdefault(entry.get('epoch', step), []).append(entry['loss'])
    values = {'loss': {step: sum(all_) / len(all_) for step, all_ in sorted(sums.items())}}
    for step, entry in sorted(val.items()):
        for key, value in entry.items():
            if key not in _OF_THE_CLOCK and isinstance(value, (int, float)):
                values.setdefault(key, {})[step] = value
    return Curves(name or path.resolve().name, 'epoch' if by_epoch else 'iteration', values)


def _records(file: Path) -> list[dict]:
    """Return the lines of a log; the last one may be cut off, where the run was killed."""
    lines = file.read_bytes().splitlines()
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            counts = [entry[key] for key in ('iter', 'step', 'epoch') if key in entry]
            if not all(isinstance(one, int) for one in counts):
                raise TypeError('its steps are not whole numbers')
            if not isinstance(entry.get('loss', 0), (int, float)):
                raise TypeError('its loss is not a number')
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            if number == len(lines) and number > 1:
                continue
            raise UserError(
                f'`runs` {file}, line {number}: this is not a line of a log of mmengine ({error}).'
            ) from error
        found.append(entry)
    return found


def draw_curves(runs: Sequence[Curves], metrics: Sequence[str] | None = None) -> Figure:
    """Draw one panel per quantity, with a curve per run (the paper's Figures 3 and S11)."""
    import matplotlib
    from matplotlib.ticker import MaxNLocator

    found = dict.fromkeys(key for run in runs for key, points in run.values.items() if points)
    order = [key for key in _TITLES if key in found] + [key for key in found if key not in _TITLES]
    for key in metrics or ():
        if key not in found:
            raise UserError(
                f'`metrics` {key} is in none of the logs; they have {", ".join(order)}.'
            )
    chosen = list(metrics or order)
    if len({run.unit for run in runs}) > 1:
        raise UserError('`runs`: some count epochs and some iterations; draw them separately.')
    with matplotlib.rc_context(_STYLE):
        figure = new_figure(3.4 * len(chosen), 3.0)
        panels = figure.subplots(1, len(chosen), squeeze=False, sharex=True)[0]
        panels[0].xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        for axes, key in zip(panels, chosen, strict=True):
            for i, run in enumerate(runs):
                points = run.values.get(key) or {}
                axes.plot(
                    list(points), list(points.values()), color=_COLOURS[i % len(_COLOURS)],
                    label=figure_text(run.name), markersize=3,
                    marker='o' if len(points) < 20 else None,
                )  # fmt: skip
            axes.set_title(figure_text(_TITLES.get(key, key)))
            axes.set_xlabel(runs[0].unit)
        panels[0].legend()
    return figure


@dataclass(frozen=True)
class CurvePlot:
    """The curves of training runs, drawn.

    Attributes:
        curves: Of each run.
        files: The figure in each format, by name.
    """

    curves: list[Curves]
    files: dict[str, bytes] = field(repr=False)

    def save(self, folder: str | Path) -> list[Path]:
        """Write the figure."""
        return save_files(self.files, folder)


@api
def plot_curves(
    runs: Sequence[str | Path],
    out: str | Path | None = None,
    *,
    names: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    formats: Sequence[str] | None = None,
) -> CurvePlot:
    """Draw the curves of training runs.

    Args:
        runs: Work directories, or files ``scalars.json``.
        out: The files to write; an ending says the format. By default nothing is written.
        names: Of the runs in the legend; by default those of their folders.
        metrics: Quantities to draw, such as 'loss' or 'accuracy/top1'; by default all.
        formats: 'png', 'svg' or 'pdf'; by default what ``out`` ends with, or PNG and SVG.

    Raises:
        UserError: A run has no log, or a quantity is in none of them.
    """
    stem, ending = Path('curves' if out is None else out), ''
    if stem.suffix[1:] in FORMATS:
        stem, ending = stem.with_suffix(''), stem.suffix[1:]
    formats = check_formats(formats or ([ending] if ending else USUAL_FORMATS))
    if names is not None and len(names) != len(runs):
        raise UserError(f'`names`: there are {len(runs)} runs and {len(names)} names.')
    curves = [
        read_curves(run, names[i] if names is not None else None) for i, run in enumerate(runs)
    ]
    figure = draw_curves(curves, metrics)
    files = {f'{stem.name}.{kind}': figure_bytes(figure, kind, style=_STYLE) for kind in formats}
    plot = CurvePlot(curves, files)
    if out is not None:
        plot.save(stem.parent)
    return plot
