r"""Names from files and configs, made safe for the place where they are written.

A model may be called ``a|b``, ``$x$`` or ``=HYPERLINK(...)``: in a table, a figure or a spreadsheet
it must appear as it is, and have no effect.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

#: A spreadsheet takes a cell that starts with one of these as a formula (the last four are their
#: full-width variants, which some treat alike).
_FORMULA = '=+-@\t\r\n＝＋－＠'
_NUMBER = re.compile(r'[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?')
_CONTROL = re.compile(r'[\x00-\x1f\x7f-\x9f\u2028\u2029]+')
_LONGEST_LABEL = 80


def readable(text: str) -> str:
    r"""Return text that every file can hold: invalid UTF-8 in a name appears as ``\udcXX``."""
    return text.encode('utf-8', 'backslashreplace').decode()


def one_line(text: object) -> str:
    """Return readable text without line breaks and other control characters."""
    return _CONTROL.sub(' ', readable(str(text))).strip()


def figure_text(text: object) -> str:
    """Escape for matplotlib: no math between dollars, no label hidden by an underscore."""
    line = one_line(text)
    if len(line) > _LONGEST_LABEL:  # the layout would give all room to the name
        line = f'{line[: _LONGEST_LABEL - 1]}…'
    line = line.replace('$', r'\$')
    return f' {line}' if line.startswith('_') else line


def markdown_text(text: object) -> str:
    """Escape for a paragraph or a table cell in Markdown."""
    line = re.sub(r'([\\`|*\[\]$~])', r'\\\1', one_line(text))
    # An underscore within a word has no effect.
    line = re.sub(r'(?<!\w)_+|_+(?!\w)', lambda found: r'\_' * len(found[0]), line)
    return line.replace('&', '&amp;').replace('<', '&lt;')


def markdown_code(text: object) -> str:
    """Format as Markdown code, with as many backticks around it as needed."""
    line = one_line(text)
    fence = '`' * (1 + max((len(run) for run in re.findall('`+', line)), default=0))
    space = ' ' if line.startswith('`') or line.endswith('`') else ''
    return f'{fence}{space}{line}{space}{fence}'


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Return a CSV file; text that a spreadsheet would run as a formula gets an apostrophe."""
    text = io.StringIO(newline='')
    writer = csv.writer(text, lineterminator='\n')
    writer.writerows([_csv_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _csv_cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    value = readable(value)
    if value.lstrip(' ').startswith(tuple(_FORMULA)) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value
