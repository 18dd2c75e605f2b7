"""Tables of the study, from the finished runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cb_mm.fileio.atomic import write_atomically

from .markdown import table
from .study_plan import Run

Runs = Mapping[str, Mapping[str, Any]]


def list_runs(runs: Sequence[Run], done: Runs) -> str:
    """Return one line per run."""
    lines = [
        f'{run.key:32} ' + (f'done, {done[run.key]["minutes"]} min' if run.key in done else '-')
        for run in runs
    ]
    return '\n'.join([*lines, f'{sum(run.key in done for run in runs)} of {len(runs)} done'])


def write_report(runs: Runs, out: Path) -> str:
    """Write study.md; return its text."""
    rows = [[key, f'{record["minutes"]}'] for key, record in runs.items()]
    text = table(['run', 'minutes'], rows) + '\n'
    write_atomically(out / 'study.md', text)
    return text
