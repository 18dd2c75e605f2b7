"""Result files: JSON and CSV, read strictly and written atomically.

Every report (of a sweep, of attention, of a benchmark, of a check of data) is written here, so that
numbers that are not finite, numpy's types and odd names look the same in all of them.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .atomic import write_atomically
from .safe_text import csv_text, readable


def write_json(path: str | os.PathLike, content: Any, digits: int | None = None) -> Path:
    """Write JSON; see `plain` for what becomes of numbers and names."""
    text = json.dumps(plain(content, digits), indent=1, ensure_ascii=False, allow_nan=False)
    return write_atomically(path, text + '\n')


def write_csv(
    path: str | os.PathLike,
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    digits: int | None = None,
) -> Path:
    """Write a table; cells of numbers that are not finite are left empty."""
    cells = ([plain(cell, digits) for cell in row] for row in rows)
    return write_atomically(path, csv_text([header, *cells]))


def read_json(path: str | os.PathLike) -> Any:
    """Read a JSON file.

    Raises:
        ValueError: It is not standard JSON.
        OSError: It cannot be read.
    """
    return parse_json(Path(path).read_bytes())


def parse_json(text: str | bytes) -> Any:
    """Parse standard JSON; raise a ValueError for anything else, however deeply nested."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError('nested too deeply') from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f'{name} is not a number of JSON')


def plain(value: Any, digits: int | None = None) -> Any:
    """Return the value in JSON's own types: numpy becomes Python, NaN and infinity become null.

    Args:
        value: Numbers, texts, arrays, and lists and mappings of them; anything else as its text.
        digits: Round numbers to so many significant digits; None keeps all of them.
    """
    if isinstance(value, Mapping):
        return {readable(str(key)): plain(item, digits) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, digits) for item in value]
    if hasattr(value, 'tolist'):  # numpy arrays and scalars, torch tensors
        return plain(value.tolist(), digits)
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return value if digits is None else float(f'{value:.{digits}g}')
    if value is None or isinstance(value, (bool, int)):
        return value
    return readable(str(value))
