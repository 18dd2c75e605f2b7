"""Figures of maps: one layer's heads for several models (Figure 10), all layers and heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure

from ..fileio.safe_text import figure_text
from .maps import LayerMaps, Query, normalise
from .overlay import COLOURS, overlay

_STYLE: dict[Any, Any] = {
    'font.size': 7.5,
    'axes.titlesize': 7.5,
    'svg.fonttype': 'none',
    'svg.hashsalt': 'cb_mm',
}


def heads_figure(
    image: np.ndarray,
    layers: Sequence[tuple[str, LayerMaps]],
    query: Query,
    threshold: float = 0.0,
    opacity: float = 0.7,
) -> Figure:
    """Draw one layer's maps over the image: one row per model, one column per head (Figure 10).

    All maps have the same threshold; each is min–max normalised separately.

    Args:
        image: RGB (H, W, 3), as in the file.
        layers: Name of each model, and its maps of the layer.
        query: Whose attention is shown; its patch is marked.
        threshold: Values below it, from 0 to 1 after normalisation, are not drawn.
        opacity: Of the colours.
    """
    columns = max(len(maps.heads) for _, maps in layers) + 1
    with matplotlib.rc_context(_STYLE):
        width = min(1.7, 14 / columns)
        height = _panel_height(width, *image.shape[:2])
        sheet = _Sheet(len(layers), columns, width, height, 0.2)
        for row, (name, maps) in enumerate(layers):
            first = sheet.panel(row, 0)
            _picture(first, image)
            first.set_ylabel(f'{figure_text(name)}\nlayer {maps.index}')
            mark_query(first, query, maps, image.shape[:2])
            shown = zip(maps.heads, maps.maps, maps.entropy, strict=True)
            for column, (head, values, entropy) in enumerate(shown, start=1):
                axes = sheet.panel(row, column)
                _picture(axes, overlay(image, values, maps.tokens, threshold, opacity))
                axes.set_title(f'head {head}, H = {entropy:.2f}', pad=2.5)
                mark_query(axes, query, maps, image.shape[:2])
        sheet.caption(f'Attention of the {query.words}', threshold)
    return sheet.figure


def grid_figure(
    name: str, layers: Sequence[LayerMaps], query: Query, threshold: float = 0.0
) -> Figure:
    """Return the maps of many layers (columns) and heads (rows) of one model, cell by cell."""
    rows, columns = layers[0].tokens.grid
    with matplotlib.rc_context(_STYLE):
        width = max(min(1.3, 14 / len(layers)), 0.5)
        heads = max(len(maps.heads) for maps in layers)
        height = _panel_height(width, rows, columns)
        sheet = _Sheet(heads, len(layers), width, height, 0.0, top=0.2)
        for column, maps in enumerate(layers):
            for row, (head, values) in enumerate(zip(maps.heads, maps.maps, strict=True)):
                axes = sheet.panel(row, column)
                shown = np.nan_to_num(normalise(values, threshold))
                axes.imshow(
                    shown, cmap=COLOURS, vmin=0, vmax=1, interpolation='nearest', aspect='auto'
                )
                axes.set(xticks=[], yticks=[])
                if row == 0:
                    axes.set_title(f'layer {maps.index}', pad=2.5)
                if column == 0:
                    axes.set_ylabel(f'head {head}')
        sheet.caption(f'{figure_text(name)}: attention of the {query.words}', threshold)
    return sheet.figure


def _panel_height(width: float, rows: int, columns: int) -> float:
    """Return the height of a panel: in proportion, as long as it fits on a page."""
    return min(max(width * rows / columns, 0.12), 6.0)


class _Sheet:
    """Panels of one size in rows and columns, with a caption above and a colour bar at the right.

    All lengths are in inches: panels of a known shape need no solver to be laid out.

    Args:
        rows: Number of rows.
        columns: Number of columns.
        width: Of a panel.
        height: Of a panel.
        head: Room for a title above each row.
        top: Room for titles above the first row only.
    """

    gap = 0.06
    left = 0.42
    right = 0.75
    above = 0.28

    def __init__(
        self, rows: int, columns: int, width: float, height: float, head: float, top: float = 0.0
    ) -> None:
        self.width, self.height, self.head = width, height, head
        self.block = rows * (height + head) + (rows - 1) * self.gap
        self.across = columns * width + (columns - 1) * self.gap
        size = (
            max(self.left + self.across + self.right, 3.2),
            self.above + top + self.block + self.gap,
        )
        self.figure = Figure(figsize=size)
        FigureCanvasAgg(self.figure)
        self.size = size

    def _axes(self, x: float, y: float, width: float, height: float) -> Axes:
        across, up = self.size
        return self.figure.add_axes((x / across, y / up, width / across, height / up))

    def panel(self, row: int, column: int) -> Axes:
        """Return the axes of one panel, the first at the top left."""
        x = self.left + column * (self.width + self.gap)
        y = self.gap + self.block - (row + 1) * (self.height + self.head) - row * self.gap
        axes = self._axes(x, y, self.width, self.height)
        for spine in axes.spines.values():
            spine.set_linewidth(0.5)
        return axes

    def caption(self, text: str, threshold: float) -> None:
        """Add a line above, and the colour scale."""
        across, up = self.size
        self.figure.text(
            self.left / across, 1 - 0.06 / up, text, va='top', ha='left', fontsize=9, weight='bold'
        )
        height = min(self.block - self.head, 2.6)
        y = self.gap + (self.block - self.head - height) / 2
        mappable = ScalarMappable(matplotlib.colors.Normalize(0, 1), COLOURS)
        bar = self.figure.colorbar(
            mappable, cax=self._axes(self.left + self.across + 0.1, y, 0.1, height)
        )
        bar.set_label('attention, min–max', fontsize=7, labelpad=2)
        bar.set_ticks([0, 0.5, 1])
        bar.outline.set_linewidth(0.5)
        if threshold > 0:
            for colour, line in (('white', 2.2), ('black', 0.9)):
                bar.ax.axhline(threshold, color=colour, linewidth=line)


def mark_query(axes: Axes, query: Query, maps: LayerMaps, size: tuple[int, int]) -> None:
    """Draw a frame around the query patch, if the query is a patch."""
    if query.kind != 'pixel':
        return
    tokens = maps.tokens
    token = query.token(tokens, size)
    assert token is not None  # a pixel lies in a patch
    row, column = tokens.cell(token)
    height, width = (
        patch * whole / seen
        for patch, whole, seen in zip(tokens.patch, size, tokens.image, strict=True)
    )
    for colour, line in (('black', 2.4), ('white', 1.2)):
        axes.add_patch(
            matplotlib.patches.Rectangle(
                (column * width - 0.5, row * height - 0.5),
                width,
                height,
                fill=False,
                edgecolor=colour,
                linewidth=line,
            )
        )


def _picture(axes: Axes, image: np.ndarray) -> None:
    # Panels are small: more pixels than they can show would only make the file large.
    step = max(max(image.shape[:2]) // 400, 1)
    height, width = image.shape[:2]
    axes.imshow(
        image[::step, ::step],
        extent=(-0.5, width - 0.5, height - 0.5, -0.5),
        aspect='auto',
        interpolation='antialiased',
    )
    axes.set(xticks=[], yticks=[])
