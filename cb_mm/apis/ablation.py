"""Run an ablation of the paper, row by row, and put the paper's figures beside ours."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mmengine.config import Config

from ..config import restricted
from ..config.loading import load_config
from ..config.recipes import recipe_file
from ..engine.hooks.checkpoint import checkpoints_in
from ..errors import UserError
from ..fileio.atomic import write_atomically
from .ablations import ABLATIONS, Row, chosen_rows
from .calls import save_files
from .training import train

_NUMBERS = itertools.count()
#: In the folder of a finished row.
RESULT = 'ablation_row.json'
_FIGURES = {'parameters': 'parameters, M', 'top1': 'top-1', 'top5': 'top-5'}


@dataclass(frozen=True)
class RowResult:
    """A trained row.

    Attributes:
        label: Its name in the table.
        options: What it changed in the config.
        length: How long it was trained, such as '300 epochs'.
        paper: The paper's figures.
        ours: Measured: 'parameters' in millions, and all metrics of the last validation.
    """

    label: str
    options: list[str]
    length: str
    paper: dict[str, float]
    ours: dict[str, float]


@dataclass(frozen=True)
class AblationReport:
    """A table: the paper's figures and ours.

    Attributes:
        name: Of the ablation, such as 'table4'.
        title: What it is.
        reading: What is our reading of the paper.
        rows: In the paper's order.
    """

    name: str
    title: str
    reading: str
    rows: list[RowResult]

    def cells(self) -> list[list[str]]:
        """Return the table as text, its head first."""
        found = [name for name in _FIGURES if any(name in row.paper for row in self.rows)]
        metrics = dict.fromkeys(k for row in self.rows for k in row.ours if k != 'parameters')
        head = ['model', *(f"{_FIGURES[name]}, the paper's" for name in found)]
        head += ['parameters, M', *metrics, 'trained for']
        lines = [head]
        for row in self.rows:
            paper = [f'{row.paper[name]:g}' if name in row.paper else '–' for name in found]
            ours = [f'{row.ours[name]:.4g}' if name in row.ours else '–' for name in metrics]
            lines.append([row.label, *paper, f'{row.ours["parameters"]:.2f}', *ours, row.length])
        return lines

    def markdown(self) -> str:
        """Return the table in Markdown, with its title and the reading."""
        head, *rows = self.cells()
        lines = [head, ['---'] * len(head), *rows]
        table = '\n'.join(f'| {" | ".join(line)} |' for line in lines)
        note = f'\nOur reading: {self.reading}\n' if self.reading else ''
        return f'# {self.title}\n\n{table}\n{note}'

    def csv(self) -> str:
        """Return the table as CSV."""
        out = io.StringIO()
        csv.writer(out, lineterminator='\n').writerows(self.cells())
        return out.getvalue()

    def json(self) -> str:
        """Return everything as JSON."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + '\n'

    def save(self, folder: str | Path) -> list[Path]:
        """Write ``NAME.md``, ``NAME.csv`` and ``NAME.json``."""
        parts = {'md': self.markdown(), 'csv': self.csv(), 'json': self.json()}
        return save_files({f'{self.name}.{end}': t.encode() for end, t in parts.items()}, folder)


def run_ablation(
    name: str,
    *,
    config: str | Path | Config | None = None,
    data_root: str | Path | None = None,
    work_dir: str | Path | None = None,
    rows: Sequence[str] | None = None,
    iters: int | None = None,
    epochs: int | None = None,
    cfg_options: Sequence[str] = (),
    verbose: bool = False,
    **options: Any,
) -> AblationReport:
    """Train every row of an ablation, and return the table.

    A finished row is not trained again, and a row that was stopped resumes from its last
    checkpoint: call it again after a stop. The table is saved in ``work_dir`` after every row.

    Args:
        name: One of `ABLATIONS`.
        config: Path of a classification config with a ViTCB, or a ``Config``, that all rows are
            changes of; by default each row's own ImageNet recipe.
        data_root: Folder of the data set, in place of the config's.
        work_dir: Where results go, a folder per row; by default ``work_dirs/ablation_NAME``.
        rows: Labels of the rows to run; by default all.
        iters: As in `train`.
        epochs: As in `train`.
        cfg_options: Changes to the config of every row; they come last.
        verbose: Print what `train` prints, and the table after every row.
        options: Others of `train`: ``seed``, ``precision``, ``launcher`` and so on.

    Returns:
        The table.

    Raises:
        UserError: Something that the caller can fix; it names the parameter or the file.
    """
    wanted = chosen_rows(name, rows)
    ablation = ABLATIONS[name]
    folder = Path(work_dir or Path('work_dirs') / f'ablation_{name}')
    done: list[RowResult] = []
    for row in wanted:
        with restricted.only_data(bool(options.get('safe_config'))):
            result = _run_row(
                row,
                folder / row.folder,
                config,
                list(cfg_options),
                dict(options, data_root=data_root, iters=iters, epochs=epochs, verbose=verbose),
            )
        done.append(result)
        report = AblationReport(name, ablation.title, ablation.reading, done)
        report.save(folder)
        if verbose:
            print(report.markdown())
    return report


def _run_row(
    row: Row,
    folder: Path,
    config: str | Path | Config | None,
    cfg_options: list[str],
    options: dict[str, Any],
) -> RowResult:
    """Return the result of a row: read, or trained and written."""
    changes = [*row.changes(config is not None), *cfg_options]
    source = config if config is not None else recipe_file(row.recipe)
    settings = load_config(source, changes, length=(options['iters'], options['epochs']))
    loop = settings.train_cfg
    unit = 'max_epochs' if loop.get('max_epochs') else 'max_iters'
    length = f'{loop[unit]} {"epochs" if unit == "max_epochs" else "iterations"}'
    file = folder / RESULT
    if file.is_file():
        found = _read_result(file)
        if (found.options, found.length) != (changes, length):
            raise UserError(
                f'{file} is of another run ({found.length}, {" ".join(found.options)}). Choose '
                'another `work_dir`, or remove that folder.'
            )
        return found
    resume = 'auto' if checkpoints_in(folder) else None
    # mmengine keeps visualizers by name: a second one of that name would log into the first's file.
    own = [f'visualizer.name=row_{next(_NUMBERS)}'] if settings.get('visualizer') else []
    run = train(source, work_dir=folder, cfg_options=changes + own, resume=resume, **options)
    count = sum(parameter.numel() for parameter in run.model.parameters()) / 1e6
    result = RowResult(
        row.label, changes, length, dict(row.paper), {'parameters': count, **run.metrics}
    )
    if run.runner.rank == 0:
        write_atomically(file, json.dumps(asdict(result), indent=2).encode())
    return result


def _read_result(file: Path) -> RowResult:
    """Return the result of a row that was trained before."""
    try:
        found = RowResult(**json.loads(file.read_bytes()))
        texts = [found.label, found.length, *found.options]
        numbers = [found.ours['parameters'], *found.ours.values(), *found.paper.values()]
        sound = all(isinstance(one, str) for one in texts) and all(
            isinstance(one, (int, float)) for one in numbers
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise UserError(f'{file} is damaged. Remove its folder, and the row is trained again.')
    return found
