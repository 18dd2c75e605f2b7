"""``results.jsonl``: the finished passes of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..fileio.atomic import remove_drafts
from ..fileio.json_lines import RecordFile
from ..fileio.json_shape import ListOf, MapOf, mismatch
from .attacks.traces import FOLDER, SUMMARY
from .jobs import Job

_NUMBERS = MapOf((float, None))
_RECORD = {
    'key': str, 'corruption': str, 'level': (float, None), 'severity': (int, None), 'random': bool,
    'repeat': int, 'seed': int, 'images': int, 'seconds': float, 'metrics': _NUMBERS,
    'units': MapOf((str, None)), 'upstream': _NUMBERS, 'per_class': MapOf(_NUMBERS),
    'per_image': str, 'curves': MapOf(MapOf(ListOf(float))),
}  # fmt: skip


class SweepRecords(RecordFile):
    """The finished passes of a sweep, one per job.

    Args:
        path: the file.
        identity: what is tested.
        about: more for the first line.
        jobs: the passes of the sweep.
    """

    def __init__(
        self,
        path: str | Path,
        identity: Mapping[str, Any],
        about: Mapping[str, Any],
        jobs: Sequence[Job],
    ) -> None:
        self.cells: list[dict[str, Any]] = []
        self._jobs = {job.key: job for job in jobs}
        self._same = {name: identity[name] for name in ('seed', 'images')}
        super().__init__(path, identity, about, take=self._check)
        for folder in ('scores', FOLDER):
            remove_drafts(self.path.parent / folder)

    def _check(self, record: dict[str, Any]) -> str | None:
        record.setdefault('curves', {})  # older files have none
        wrong = mismatch(record, _RECORD)
        wrong = wrong or mismatch(record.get('attack'), (SUMMARY, None), 'attack')
        if wrong is None and record['key'] not in self._jobs:
            wrong = f'{record["key"]} is not a pass of this test'
        if wrong is None:
            job = self._jobs[record['key']]
            expected = {**job_facts(job), **self._same}
            other = [name for name in expected if record[name] != expected[name]]
            if other:
                wrong = f'{other[0]} is not that of {job.key}'
        if wrong is None and self.cells and not _alike(self.cells[0], record):
            wrong = 'it has different metrics or classes than the lines before it'
        self.cells += [] if wrong else [record]
        return wrong

    def append(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Add one finished pass; when this returns, it is on disk."""
        self.cells.append(super().append(record))
        return self.cells[-1]


def job_facts(job: Job) -> dict[str, Any]:
    """Return what a record says about its job."""
    return {
        'key': job.key,
        'corruption': job.cell.name,
        'level': job.cell.level,
        'severity': job.cell.severity,
        'random': job.cell.random,
        'repeat': job.repeat,
    }


def _alike(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether two passes hold figures of the same things."""
    return (
        first['metrics'].keys() == second['metrics'].keys()
        and first['units'] == second['units']
        and first['per_class'].keys() == second['per_class'].keys()
        and first['curves'].keys() == second['curves'].keys()
        and all(
            first['per_class'][name].keys() == second['per_class'][name].keys()
            for name in first['per_class']
        )
    )
