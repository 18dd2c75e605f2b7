"""Results of runs in one JSON file, with their settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cb_mm.errors import UserError
from cb_mm.fileio.atomic import write_atomically


class Records:
    """A file of finished runs; written atomically, and read again first: others may add to it."""

    def __init__(self, file: Path, settings: Mapping[str, Any]) -> None:
        self.file, self.settings = file, dict(settings)
        self.runs: dict[str, dict[str, Any]] = {}
        self._read()

    def add(self, key: str, record: Mapping[str, Any]) -> None:
        """Store a finished run."""
        self._read()
        self.runs[key] = dict(record)
        content = {'settings': self.settings, 'runs': dict(sorted(self.runs.items()))}
        write_atomically(self.file, json.dumps(content, indent=1) + '\n')

    def _read(self) -> None:
        if not self.file.is_file():
            return
        content = json.loads(self.file.read_text())
        if content['settings'] != self.settings:
            raise UserError(
                f'{self.file} holds runs with other settings: {content["settings"]}. Pass the same '
                'settings, or another --out and --work.'
            )
        self.runs.update(content['runs'])
