"""Figures of maps: one layer's heads for several models (Figure 10), all layers and heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from ..fileio.safe_text import figure_text
from .maps import LayerMaps, Query, normalise
from .overlay import COLOURS, Look, overlay
from .sheet import Sheet, mark_query, outline, panel_height, picture
from .tokens import Tokens

_STYLE: dict[Any, Any] = {
    'font.size': 7.5,
    'axes.titlesize': 7.5,
}


def heads_figure(
    image: np.ndarray,
    layers: Sequence[tuple[str, LayerMaps]],
    query: Query,
    look: Look | None = None,
) -> Figure:
    """Draw one layer's maps over the image: one row per model, one column per head (Figure 10).

    All maps have the same threshold; each is min–max normalised separately.

    Args:
        image: RGB (H, W, 3), as in the file.
        layers: Name of each model, and its maps of the layer.
        query: Whose attention is shown; its patch is marked.
        look: How maps are drawn.
    """
    look = look or Look()
    columns = max(len(maps.heads) for _, maps in layers) + 1
    with matplotlib.rc_context(_STYLE):
        width = min(1.7, 14 / columns)
        height = panel_height(width, *image.shape[:2])
        note = f'{look.words} H: entropy, in nats.'
        longest = max(8, *(len(name) for name, _ in layers))  # 8: of 'layer 11'
        sheet = Sheet(len(layers), columns, width, height, 0.2, note=note, label=longest)
        for row, (name, maps) in enumerate(layers):
            first = sheet.panel(row, 0)
            picture(first, image)
            first.set_title('input', pad=2.5)
            sheet.label(first, name, f'layer {maps.index}')
            mark_query(first, query, maps.tokens, image.shape[:2])
            shown = zip(maps.heads, maps.maps, maps.entropy, strict=True)
            for column, (head, values, entropy) in enumerate(shown, start=1):
                axes = sheet.panel(row, column)
                picture(axes, overlay(image, values, maps.tokens, look))
                axes.set_title(f'head {head}, H = {entropy:.2f}', pad=2.5)
                mark_query(axes, query, maps.tokens, image.shape[:2])
        sheet.caption(f'Attention of the {query.words}', look)
    return sheet.figure


def grid_figure(
    name: str,
    layers: Sequence[LayerMaps],
    query: Query,
    look: Look | None = None,
    image: np.ndarray | None = None,
) -> Figure:
    """Return the maps of many layers (columns) and heads (rows) of one model, cell by cell.

    Args:
        name: Of the model.
        layers: Its maps.
        query: Whose attention is shown.
        look: How maps are drawn.
        image: RGB (H, W, 3), shown at the left, in the shape of the maps.
    """
    look = look or Look()
    rows, columns = layers[0].tokens.grid
    first = 0 if image is None else 1
    with matplotlib.rc_context(_STYLE):
        width = max(min(1.3, 14 / (len(layers) + first)), 0.5)
        heads = max(len(maps.heads) for maps in layers)
        height = panel_height(width, rows, columns)
        sheet = Sheet(
            heads, len(layers) + first, width, height, 0.0, top=0.2, note=look.words, first=first,
            label=7,
        )  # fmt: skip
        if image is not None:
            axes = sheet.panel(0, 0)
            picture(axes, _as_seen(image, layers[0].tokens))
            axes.set_title('input', pad=2.5)
            mark_query(axes, query, layers[0].tokens, image.shape[:2])
        for column, maps in enumerate(layers, start=first):
            for row, (head, values) in enumerate(zip(maps.heads, maps.maps, strict=True)):
                axes = sheet.panel(row, column)
                shown = np.nan_to_num(normalise(values, look.threshold, look.clip))
                axes.imshow(
                    shown, cmap=COLOURS, vmin=0, vmax=1, interpolation='nearest', aspect='auto'
                )
                axes.set(xticks=[], yticks=[])
                if row == 0:
                    axes.set_title(f'layer {maps.index}', pad=2.5)
                if column == first:
                    sheet.label(axes, f'head {head}')
        sheet.caption(f'{figure_text(name)}: attention of the {query.words}', look)
    return sheet.figure


@dataclass(frozen=True)
class Panel:
    """One map over the image, with a title.

    Attributes:
        title: Above it.
        values: The map, (rows, columns); None shows the image alone.
        tokens: Where its cells are.
        outline: A region to draw a line around, bool at any size, such as a prediction.
    """

    title: str
    values: np.ndarray | None
    tokens: Tokens
    outline: np.ndarray | None = None


def panels_figure(
    image: np.ndarray,
    rows: Sequence[tuple[str, Sequence[Panel]]],
    title: str,
    note: str,
    look: Look | None = None,
    query: Query | None = None,
    label: str = 'relevance',
) -> Figure:
    """Draw rows of maps over the image, each row with a name.

    Args:
        image: RGB (H, W, 3), as in the file.
        rows: Name of each row, usually a model, and its panels.
        title: Of the figure.
        note: What the maps are; how they are drawn is added.
        look: How maps are drawn.
        query: Whose attention is shown; its patch is marked.
        label: Of the colour bar.
    """
    look = look or Look()
    columns = max(len(panels) for _, panels in rows)
    with matplotlib.rc_context(_STYLE):
        width = min(2.6, 14 / columns)
        height = panel_height(width, *image.shape[:2])
        note, longest = f'{note} {look.words}', max(len(name) for name, _ in rows)
        sheet = Sheet(len(rows), columns, width, height, 0.2, note=note, label=longest)
        for row, (name, panels) in enumerate(rows):
            for column, panel in enumerate(panels):
                axes = sheet.panel(row, column)
                shown = image
                if panel.values is not None:
                    shown = overlay(image, panel.values, panel.tokens, look)
                picture(axes, shown)
                axes.set_title(figure_text(panel.title), pad=2.5)
                if column == 0:
                    sheet.label(axes, name)
                if query is not None:
                    mark_query(axes, query, panel.tokens, image.shape[:2])
                if panel.outline is not None:
                    outline(axes, panel.outline, image.shape[:2])
        sheet.caption(title, look, label)
    return sheet.figure


def _as_seen(image: np.ndarray, tokens: Tokens) -> np.ndarray:
    """Return the image with the margin that a grid of whole patches has at the end, in white."""
    reach = [
        max(round(pixels * cells * patch / seen), pixels)
        for pixels, cells, patch, seen in zip(
            image.shape[:2], tokens.grid, tokens.patch, tokens.image, strict=True
        )
    ]
    whole = np.full((*reach, 3), 255, np.uint8)
    whole[: image.shape[0], : image.shape[1]] = image
    return whole
