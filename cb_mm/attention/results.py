"""Result files, each whole or absent: a draft beside it takes its name when it is complete."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..atomic import write_atomically
from ..errors import UserError


def write_json(path: Path, content: Any) -> Path:
    """Write JSON atomically; numbers that are not finite become null."""
    text = json.dumps(plain(content), indent=2, ensure_ascii=False, allow_nan=False)
    return write_atomically(path, text + '\n')


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """Write a table atomically; numbers that are not finite are left empty."""
    text = io.StringIO(newline='')
    writer = csv.writer(text, lineterminator='\n')
    writer.writerow(header)
    writer.writerows([plain(value) for value in row] for row in rows)
    return write_atomically(path, text.getvalue())


def plain(value: Any) -> Any:
    """Arrays as lists, numbers as Python's own, at most 7 digits; None for what is not finite."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())  # a number, where the array has no axes
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (float, np.floating)):
        return float(f'{value:.7g}') if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


class Records:
    """One JSON object a line, added one at a time, so that a run that is cut short loses nothing.

    The first line says what the records are of. A file of the same content is continued, after a
    last line that was cut off is dropped. Iterating reads the records from the file.

    Args:
        path: The file.
        content: What the records are of: models, checkpoints, sizes.
        overwrite: Begin anew, whatever the file holds.
    """

    def __init__(self, path: Path, content: dict[str, Any], overwrite: bool = False) -> None:
        self.path = path
        content = plain(content)
        if overwrite or not path.exists():
            write_atomically(path, _line(content))
            return
        lines = self._lines()
        found = next(lines, (0, {}))[1]
        if found != content:
            other = [key for key in content if found.get(key) != content[key]]
            raise UserError(
                f'{path} holds records of other {" and ".join(other) or "things"}. Choose another '
                '--out, or replace them with --overwrite.'
            )
        end = max((end for end, _ in lines), default=len(_line(content).encode()))
        os.truncate(path, end)

    def _lines(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Each whole line, and where it ends in the file."""
        end = 0
        with self.path.open('rb') as stream:
            for line in stream:
                try:
                    record = json.loads(line)
                except ValueError:
                    return
                if not line.endswith(b'\n') or not isinstance(record, dict):
                    return
                end += len(line)
                yield end, record

    def __iter__(self) -> Iterator[dict[str, Any]]:
        yield from (record for _, record in islice(self._lines(), 1, None))

    def add(self, record: dict[str, Any]) -> None:
        """Append one record, safe on the disk when this returns."""
        try:
            with self.path.open('a') as stream:
                stream.write(_line(plain(record)))
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise UserError(f'cannot write {self.path}: {error.strerror}') from error


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(',', ':')) + '\n'
