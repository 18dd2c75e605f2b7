"""Files of records: one JSON object per line, on disk before the next measurement starts.

The first line says what was measured; only the same measurement is resumed. A line that is damaged,
foreign, too long or duplicated is refused by its number: a table that counted it would be wrong.
Only a last line that was cut off by a kill or a power cut is dropped. Nothing is ever rewritten.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..errors import UserError
from .atomic import remove_drafts, sync_folder
from .folder_lock import FolderLock
from .result_files import parse_json, plain

if TYPE_CHECKING:
    from typing_extensions import Self

VERSION = 1
#: No record is nearly as long; a file without line breaks must not fill the memory.
LONGEST_LINE = 1 << 26
_START = b'{"kind": "header"'


class RecordFile:
    """A file of records, open for appending; the folder is locked until `close`.

    Args:
        path: the file; its folder is created.
        identity: what is measured, in plain values. A file with records of another one is refused.
        about: more for the first line, which may differ from run to run.
        key: the fields that tell records apart; no two records may agree in all of them.
        take: called with each existing record. Returns what is wrong with it, if
            anything: then the file is refused.
        overwrite: start from scratch, whatever the file holds.
        advice: what else the user can do about a file that is refused.

    Attributes:
        header: identity and about.
        dropped: what was dropped when the file was opened, as a sentence; empty if nothing.
    """

    def __init__(
        self,
        path: str | Path,
        identity: Mapping[str, Any],
        about: Mapping[str, Any] | None = None,
        *,
        key: Sequence[str] = ('key',),
        take: Callable[[dict], str | None] = lambda record: None,
        overwrite: bool = False,
        advice: str = 'Pass another `out`',
    ) -> None:
        self.path, self.advice, self.dropped = Path(path), advice, ''
        self.header = {'identity': plain(identity), 'about': plain(about or {})}
        self._key, self._take = tuple(key), take
        self._lines: dict[tuple, int] = {}
        self._stream: IO[bytes] | None = None
        self._lock = FolderLock(self.path.parent, 'out')
        try:
            self._open(overwrite)
        except BaseException:
            self.close()
            raise

    def _open(self, overwrite: bool) -> None:
        remove_drafts(self.path.parent)
        try:
            self._stream = self.path.open('a+b')
        except OSError as error:
            raise UserError(f'cannot write {self.path}: {error.strerror}.') from error
        end = 0 if overwrite else self._resume()
        size = self.path.stat().st_size
        if end and end < size:
            self.dropped = (
                f'the last line of {self.path.name} was cut off in the middle; it is dropped, and '
                'what it held is measured again'
            )
        self._stream.truncate(end)
        if not end:
            self._write({'kind': 'header', 'version': VERSION, **self.header})
            sync_folder(self.path.parent)

    def _resume(self) -> int:
        """Take in the existing records; return how many bytes of them to keep."""
        lines = self._read()
        header = next(lines, None)
        if header is None:
            start = self.path.read_bytes()[: len(_START)]
            if not _START.startswith(start):
                raise UserError(self._foreign())
            return 0
        _, end, record = header
        if record.get('kind') != 'header' or record.get('version') != VERSION:
            raise UserError(
                f'{self.path} was not written by this version: its first line is not a header of '
                f'version {VERSION}. {self.advice}.'
            )
        identity = record.get('identity')
        first = next(lines, None)
        if identity != self.header['identity']:
            if first is None:
                return 0  # another measurement, without records: nothing is lost
            raise UserError(self._refusal(identity if isinstance(identity, dict) else {}))
        while first is not None:
            number, end, record = first
            self._add(number, record)
            first = next(lines, None)
        return end

    def _add(self, number: int, record: dict) -> None:
        key = tuple(record.get(name) for name in self._key)
        wrong = None
        if record.get('kind') != 'record' or not all(isinstance(part, str) for part in key):
            wrong = 'it is not a record of this kind'
        elif key in self._lines:
            wrong = f'it repeats line {self._lines[key]} ({", ".join(key)})'
        wrong = wrong or self._take(record)
        if wrong:
            raise UserError(
                f'{self.path}, line {number}: {wrong}. Remove that line if it does not belong '
                f'there, or {self._advice()}.'
            )
        self._lines[key] = number

    def _read(self) -> Iterator[tuple[int, int, dict]]:
        """Yield the number of each line, where it ends in the file, and its content."""
        end = number = 0
        with self.path.open('rb') as stream:
            while line := stream.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise UserError(
                        f'{self.path} is damaged: line {number} is longer than '
                        f'{LONGEST_LINE >> 20} MiB. {self.advice}.'
                    )
                # A power cut may leave zeros where the content was to be.
                if not line.endswith(b'\n') or (b'\0' in line and not stream.peek(1)):
                    return
                try:
                    record = parse_json(line)
                    if not isinstance(record, dict):
                        raise ValueError('not an object')
                except ValueError as error:
                    if number == 1:
                        raise UserError(self._foreign()) from error
                    raise UserError(
                        f'{self.path} is damaged in line {number} ({error}). Remove that line, or '
                        f'{self._advice()}.'
                    ) from error
                end += len(line)
                yield number, end, record

    def __contains__(self, key: object) -> bool:
        """Return whether a record exists, by a single field or a tuple of them."""
        return (key if isinstance(key, tuple) else (key,)) in self._lines

    def __len__(self) -> int:
        return len(self._lines)

    def append(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Add one finished measurement; when this returns, it is on disk."""
        line = {'kind': 'record', **plain(record)}
        key = tuple(line[name] for name in self._key)
        if key in self._lines:
            raise ValueError(f'{key} was recorded before')
        self._write(line)
        self._lines[key] = len(self._lines) + 2
        return line

    def close(self) -> None:
        """Close the file and release the folder."""
        if self._stream is not None:
            self._stream.close()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, record: Mapping[str, Any]) -> None:
        line = json.dumps(record, allow_nan=False, ensure_ascii=False) + '\n'
        assert self._stream is not None  # opened by the constructor
        try:
            self._stream.write(line.encode())
            self._stream.flush()
            os.fsync(self._stream.fileno())
        except OSError as error:
            raise UserError(
                f'cannot write {self.path}: {error.strerror}. What was finished before is kept; '
                'the same command resumes it.'
            ) from error

    def _advice(self) -> str:
        return self.advice[0].lower() + self.advice[1:]

    def _foreign(self) -> str:
        return f'{self.path} is not a file of results. {self.advice}.'

    def _refusal(self, there: Mapping[str, Any]) -> str:
        there, here = _flat(there), _flat(self.header['identity'])
        changes = []
        for name in dict.fromkeys((*there, *here)):
            old, new = (one.get(name, 'not recorded') for one in (there, here))
            if old != new:
                short = all(len(str(item)) <= 24 for item in (old, new))
                changes.append(f'{name} ({old} there, {new} here)' if short else name)
        return (
            f'{self.path.parent} holds the results of another run; different: '
            f'{", ".join(changes)}. {self.advice}, or repeat the command that made them.'
        )


def _flat(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten objects in the identity, so that they are compared entry by entry."""
    flat: dict[str, Any] = {}
    for name, value in identity.items():
        flat.update(value if isinstance(value, dict) else {name: value})
    return flat
