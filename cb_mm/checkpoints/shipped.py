"""Small weights that come with the package, by name: ``cb_mm/NAME``. Nothing is downloaded."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ..errors import UserError, did_you_mean

SCOPE = 'cb_mm/'
#: NAME/model.safetensors, README.md (the card) and results.json; and `INDEX`.
FOLDER = Path(__file__).with_name('weights')
#: name -> ``recipe``, ``sha256`` of the weights, and what a test of them gives (see
#: `benchmarks/publish.py`).
INDEX = 'index.json'
WEIGHTS = 'model.safetensors'


def shipped_models() -> dict[str, dict[str, Any]]:
    """Return what the index says of every model, by name."""
    file = FOLDER / INDEX
    return json.loads(file.read_text(encoding='utf-8')) if file.is_file() else {}


def is_shipped_name(source: str | Path) -> bool:
    """Return whether weights are named ``cb_mm/NAME``, and no file of the user's is."""
    text = str(source)
    name = text.removeprefix(SCOPE)
    plain = name != text and '/' not in name and not Path(name).suffix
    return plain and not Path(text).exists()


def shipped_folder(source: str | Path) -> Path:
    """Return the folder of ``cb_mm/NAME``: weights, config and card.

    Raises:
        UserError: There is no such model, or its weights are not those that were published.
    """
    name, models = str(source).removeprefix(SCOPE), shipped_models()
    if name not in models:
        known = ', '.join(SCOPE + each for each in models) or 'none in this version'
        hint = did_you_mean(name, models)
        raise UserError(f'{source}: no such weights come with cb_mm.{hint} There are: {known}.')
    file = FOLDER / name / WEIGHTS
    found = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None
    if found != models[name]['sha256']:
        state = 'is damaged: its checksum differs' if found else 'is missing'
        raise UserError(f'{source}: {file} {state}. Install cb_mm again.')
    return file.parent
