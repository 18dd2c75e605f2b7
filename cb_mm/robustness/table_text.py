"""Tables in Markdown, and what stands in their cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..fileio.safe_text import markdown_text
from .metrics import HEADLINES
from .reliability import CALIBRATION


def title_of(name: str) -> str:
    """Return the common name of a metric."""
    return HEADLINES.get(name) or CALIBRATION.get(name) or name


def figure_of(values: Mapping[str, Any] | None) -> str:
    """Format the mean, with half of the interval if there is one."""
    if not values or values.get('mean') is None:
        return '–'
    if values.get('high') is None:
        return f'{values["mean"]:.2f}'
    return f'{values["mean"]:.2f} ± {(values["high"] - values["low"]) / 2:.2f}'


def table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    """Return a table whose columns are aligned in plain text, too."""
    cells = [[markdown_text(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        '| ' + ' | '.join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + ' |'
        for row in cells
    ]
    return '\n'.join([lines[0], '|' + '|'.join('-' * (w + 2) for w in widths) + '|', *lines[1:]])
