"""The file of finished measurements: one JSON line each, on disk before the next one starts.

The first line says what was tested; a line that a kill or a power cut tore off at the end is
recognised and dropped. Nothing is ever rewritten.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from ..atomic import remove_drafts, sync_folder
from ..errors import UserError
from ..lock import FolderLock

VERSION = 1


class RecordFile:
    """``results.jsonl`` of one sweep, open for appending.

    Args:
        path: the file; its folder is made.
        identity: what is tested, in plain values. A file with results of another one is refused.
        about: more for the first line, which may differ from run to run.
    """

    def __init__(
        self, path: str | Path, identity: Mapping[str, Any], about: Mapping[str, Any] | None = None
    ) -> None:
        self.path = Path(path)
        self._stream: IO[bytes] | None = None
        self._lock = FolderLock(self.path.parent, '--out')
        try:
            self._open(plain(identity), plain(about or {}))
        except BaseException:
            self.close()
            raise

    def _open(self, identity: dict[str, Any], about: dict[str, Any]) -> None:
        for folder in (self.path.parent, self.path.parent / 'scores'):
            remove_drafts(folder)
        try:
            self._stream = self.path.open('a+b')
        except OSError as error:
            raise UserError(f'cannot write {self.path}: {error.strerror}.') from error
        header, self.cells, whole = read_records(self.path)
        if not self.cells and header and header.get('identity') != identity:
            header = None  # another test that finished nothing: there is nothing to lose
        if header is None:
            self._stream.truncate(0)
            header = {
                'kind': 'header',
                'version': VERSION,
                'identity': identity,
                'about': about,
            }
            self._write(header)
            sync_folder(self.path.parent)
        else:
            if header.get('identity') != identity:
                raise UserError(_refusal(self.path, header.get('identity') or {}, identity))
            self._stream.truncate(whole)  # drops a torn last line
        self.header = header

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one finished measurement; when this returns, it is on disk."""
        line = {'kind': 'cell', **plain(record)}
        self._write(line)
        self.cells.append(line)

    def close(self) -> None:
        """Close the file and let others in."""
        if self._stream is not None:
            self._stream.close()
        self._lock.release()

    def __enter__(self) -> RecordFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, record: Mapping[str, Any]) -> None:
        line = json.dumps(record, allow_nan=False, ensure_ascii=False) + '\n'
        try:
            self._stream.write(line.encode())
            self._stream.flush()
            os.fsync(self._stream.fileno())
        except OSError as error:
            raise UserError(
                f'cannot write {self.path}: {error.strerror}. What was finished before is kept; '
                'the same command goes on.'
            ) from error


def read_records(path: str | Path) -> tuple[dict | None, list[dict], int]:
    """The header (None when there is none yet), the cells, and how many bytes of it are whole.

    Raises:
        UserError: a line before the last is broken, or the file is something else.
    """
    path = Path(path)
    content = path.read_bytes()
    records, whole = [], 0
    lines = content.split(b'\n')
    for number, line in enumerate(lines[:-1], 1):  # after the last newline: nothing, or torn
        try:
            record = json.loads(line)
            if not isinstance(record, dict):
                raise ValueError('not an object')
        except ValueError as error:
            if number == len(lines) - 1:
                break  # torn by a power cut: its space was there, its content was not
            raise UserError(
                f'{path} is damaged in line {number} ({error}). Remove that line, or pass another '
                '--out.'
            ) from error
        records.append(record)
        whole += len(line) + 1
    if not records:
        if content and not content.startswith(b'{"kind": "header"'[: len(content)]):
            raise UserError(f'{path} is not a file of results. Pass another --out.')
        return None, [], 0
    header = records[0]
    if header.get('kind') != 'header' or header.get('version') != VERSION:
        raise UserError(
            f'{path} was not written by this version: its first line is no header of version '
            f'{VERSION}. Pass another --out.'
        )
    return header, [record for record in records[1:] if record.get('kind') == 'cell'], whole


def plain(value: Any) -> Any:
    """The value in JSON's own types: numpy becomes Python, what is not a number becomes null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, 'tolist'):  # numpy arrays and scalars, torch tensors
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return str(value)


def _refusal(path: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    changes = []
    for key in dict.fromkeys((*there, *here)):
        old, new = there.get(key), here.get(key)
        if old == new:
            continue
        short = all(len(str(item)) <= 24 for item in (old, new))
        changes.append(f'{key} ({old} there, {new} here)' if short else key)
    return (
        f'{path.parent} holds the results of another test; different: {", ".join(changes)}. Pass '
        'another --out, or repeat the command that made them.'
    )
