"""Figures as files: the same look of text, and the same bytes for the same figure."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..errors import UserError
from .atomic import write_atomically

FORMATS = ('png', 'svg', 'pdf')

_FILES: dict[Any, Any] = {
    'svg.fonttype': 'none',  # text stays text
    'svg.hashsalt': 'cb_mm',  # the same figure gives the same file
    'pdf.fonttype': 42,
}
# A date in the file would make each run differ.
_DATES: dict[str, dict[str, None]] = {
    'png': {},
    'svg': {'Date': None},
    'pdf': {'CreationDate': None},
}


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, in inches, that no global state knows of."""
    figure = Figure(figsize=(width, height), layout='constrained')
    FigureCanvasAgg(figure)
    return figure


def blank_figure(width: float, height: float) -> Figure:
    """Return an empty figure, in inches, whose parts are placed by hand."""
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def check_formats(formats: Iterable[str]) -> list[str]:
    """Return the formats, if all are known."""
    formats = list(formats)
    for name in formats:
        if name not in FORMATS:
            raise UserError(f'`formats` {name} is not one of {", ".join(FORMATS)}.')
    return formats


def figure_bytes(
    figure: Figure, kind: str = 'png', dpi: float = 200, style: Mapping[Any, Any] | None = None
) -> bytes:
    """Return the content of a file of that format, drawn with matplotlib's settings ``style``."""
    stream = io.BytesIO()
    with matplotlib.rc_context({**_FILES, **(style or {})}):
        figure.savefig(stream, format=kind, dpi=dpi, metadata=_DATES[kind])
    return stream.getvalue()


def save_figure(
    figure: Figure,
    stem: Path,
    formats: Sequence[str] = ('png', 'svg'),
    dpi: float = 200,
    style: Mapping[Any, Any] | None = None,
) -> list[Path]:
    """Write a figure in each format, as ``stem`` and the format's ending."""
    return [
        write_atomically(
            stem.with_name(f'{stem.name}.{kind}'), figure_bytes(figure, kind, dpi, style)
        )
        for kind in formats
    ]
