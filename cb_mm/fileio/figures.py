"""Figures as files: the same look of text, and the same bytes for the same figure.

matplotlib is imported where it draws: importing cb_mm need not wait for it.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from .atomic import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ('png', 'svg', 'pdf')
#: What is written unless asked otherwise.
USUAL_FORMATS = ('png', 'svg')

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
    figure = blank_figure(width, height)
    figure.set_layout_engine('constrained')
    return figure


def blank_figure(width: float, height: float) -> Figure:
    """Return an empty figure, in inches, whose parts are placed by hand."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

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
    import matplotlib

    stream = io.BytesIO()
    with matplotlib.rc_context({**_FILES, **(style or {})}):
        figure.savefig(stream, format=kind, dpi=dpi, metadata=_DATES[kind])
    return stream.getvalue()


def save_figure(
    figure: Figure,
    stem: Path,
    formats: Sequence[str] = USUAL_FORMATS,
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
