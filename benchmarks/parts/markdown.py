"""Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence

from cb_mm.robustness.statistics import Summary


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = ['| ' + ' | '.join(row) + ' |' for row in (head, *rows)]
    return '\n'.join([lines[0], '|' + '---|' * len(head), *lines[1:]])


def interval(ends: Sequence[float | None]) -> str:
    """Format both ends with their signs; a dash if there are none."""
    return '–' if ends[0] is None else f'{ends[0]:+.2f} to {ends[1]:+.2f}'


def with_spread(value: Summary) -> str:
    """Format a mean, and the standard deviation if there is one."""
    return f'{value.mean:.2f}' + (f' (sd {value.std:.2f})' if value.std else '')
