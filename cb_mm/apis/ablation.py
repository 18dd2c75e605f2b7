"""Run an ablation of the paper, row by row, and put the paper's figures beside ours."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mmengine.config import Config

from ..compat import families as family
from ..config import restricted
from ..config.loading import load_config
from ..config.recipes import recipe_file
from ..engine.hooks.checkpoint import checkpoints_in
from ..errors import UserError
from ..fileio.digests import value_digest
from ..fileio.json_shape import ListOf, MapOf, mismatch
from ..fileio.result_files import plain, read_json, write_json
from ..fileio.safe_text import csv_text, markdown_text
from .ablations import ABLATIONS, Row, chosen_rows, row_changes
from .calls import save_files
from .training import train

#: In the folder of a finished row.
RESULT = 'ablation_row.json'
#: Of `train`: what no figure depends on, and what the config has already.
_NEUTRAL = {
    'iters', 'epochs', 'verbose', 'launcher', 'logger', 'save_every', 'safe_config',
    'trust_checkpoint',
}  # fmt: skip
_SHAPE = {
    'label': str, 'options': ListOf(str), 'length': str, 'paper': MapOf(float),
    'ours': MapOf((float, None)), 'identity': {},
}  # fmt: skip
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
        identity: What else the figures depend on.
    """

    label: str
    options: list[str]
    length: str
    paper: dict[str, float]
    ours: dict[str, float]
    identity: dict[str, Any] = field(default_factory=dict)


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
            # With the digits that the paper prints: 82.0, and 22 for millions of parameters.
            paper = [str(row.paper[name]) if name in row.paper else '–' for name in found]
            measured = [row.ours.get(name) for name in metrics]
            ours = ['–' if value is None else f'{value:.4g}' for value in measured]
            lines.append([row.label, *paper, f'{row.ours["parameters"]:.2f}', *ours, row.length])
        return lines

    def markdown(self) -> str:
        """Return the table in Markdown, with its title and the reading."""
        head, *rows = ([markdown_text(cell) for cell in line] for line in self.cells())
        lines = [head, ['---'] * len(head), *rows]
        table = '\n'.join(f'| {" | ".join(line)} |' for line in lines)
        note = f'\nOur reading: {self.reading}\n' if self.reading else ''
        return f'# {self.title}\n\n{table}\n{note}'

    def csv(self) -> str:
        """Return the table as CSV."""
        return csv_text(self.cells())

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
                name,
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
    name: str,
    row: Row,
    folder: Path,
    config: str | Path | Config | None,
    cfg_options: list[str],
    options: dict[str, Any],
) -> RowResult:
    """Return the result of a row: read, or trained and written."""
    changes = [*row_changes(name, row, config is not None), *cfg_options]
    source = config if config is not None else recipe_file(row.recipe)
    settings = load_config(source, changes, length=(options['iters'], options['epochs']))
    loop = settings.train_cfg
    unit = 'max_epochs' if loop.get('max_epochs') else 'max_iters'
    length = f'{loop[unit]} {"epochs" if unit == "max_epochs" else "iterations"}'
    identity = plain(
        {
            'length': length,
            'options': ' '.join(changes),
            'config': value_digest(settings.to_dict()),
            **{
                name: str(value)
                for name, value in options.items()
                if name not in _NEUTRAL and value is not None and value is not False
            },
            **family.software_versions(),
        }
    )
    file = folder / RESULT
    if file.is_file():
        return _finished(file, identity)
    resume = 'auto' if checkpoints_in(folder) else None
    run = train(source, work_dir=folder, cfg_options=changes, resume=resume, **options)
    count = sum(parameter.numel() for parameter in run.model.parameters()) / 1e6
    result = RowResult(
        row.label, changes, length, dict(row.paper), {'parameters': count, **run.metrics}, identity
    )
    if run.runner.rank == 0:
        write_json(file, asdict(result))
    return result


def _finished(file: Path, identity: Mapping[str, Any]) -> RowResult:
    """Return a row that was trained before, if it is the one that would be trained now."""
    try:
        content = read_json(file)
        wrong = mismatch(content, _SHAPE)
    except (OSError, ValueError) as error:
        wrong = str(error)
    if wrong:
        raise UserError(
            f'{file} is damaged, or of an earlier version ({wrong}). Remove it: the row is then '
            'measured again, from its last checkpoint.'
        )
    found = RowResult(**{name: content[name] for name in _SHAPE})
    there = found.identity
    names = [name for name in {**there, **identity} if there.get(name) != identity.get(name)]
    if names:
        changes = ', '.join(f'{n} was {str(there.get(n))[:60]}' for n in names)
        raise UserError(
            f'{file} is of another run ({changes}). Choose another `work_dir`, or remove that '
            'folder.'
        )
    return found
