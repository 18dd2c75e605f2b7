"""Result files, written atomically: a draft beside each is renamed to it when complete."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..fileio.atomic import write_atomically
from ..fileio.safe_text import csv_text, readable


def write_json(path: Path, content: Any) -> Path:
    """Write JSON atomically; numbers that are not finite become null."""
    text = json.dumps(plain(content), indent=2, ensure_ascii=False, allow_nan=False)
    return write_atomically(path, readable(text) + '\n')


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """Write a table atomically; numbers that are not finite are left empty."""
    return write_atomically(
        path, csv_text([header, *([plain(item) for item in row] for row in rows)])
    )


def plain(value: Any) -> Any:
    """Return arrays as lists, numbers as Python's own with 7 digits; None if not finite."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())  # a number, where the array has no axes
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (float, np.floating)):
        return float(f'{value:.7g}') if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value
