"""Results of runs in one JSON file, with the settings they were made under."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cb_mm.atomic import write_atomically
from cb_mm.errors import UserError


class Records:
    """A file of finished runs; whole at any time."""

    def __init__(self, file: Path, settings: Mapping[str, Any]) -> None:
        self.file, self.settings = file, dict(settings)
        self.runs: dict[str, dict[str, Any]] = {}
        if file.is_file():
            content = json.loads(file.read_text())
            if content['settings'] != self.settings:
                raise UserError(
                    f'{file} holds runs of other settings: {content["settings"]}. Give the same, '
                    'or another --out and --work.'
                )
            self.runs = content['runs']

    def add(self, key: str, record: Mapping[str, Any]) -> None:
        """Keep a run that is finished."""
        self.runs[key] = dict(record)
        content = {'settings': self.settings, 'runs': dict(sorted(self.runs.items()))}
        write_atomically(self.file, json.dumps(content, indent=1) + '\n')
