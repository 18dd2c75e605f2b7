"""A figure of many small pictures: panels in rows and columns, a title, a note, a colour scale."""

from __future__ import annotations

import textwrap

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure

from ..fileio.safe_text import figure_text, one_line
from .maps import Query
from .overlay import COLOURS, Look
from .tokens import Tokens


def panel_height(width: float, rows: int, columns: int) -> float:
    """Return the height of a panel: in proportion, as long as it fits on a page."""
    return min(max(width * rows / columns, 0.12), 6.0)


class Sheet:
    """Panels of one size in rows and columns, with a caption above and a colour bar at the right.

    All lengths are in inches: panels of a known shape need no solver to be laid out.

    Args:
        rows: Number of rows.
        columns: Number of columns.
        width: Of a panel.
        height: Of a panel.
        head: Room for a title above each row.
        top: Room for titles above the first row only.
        note: Small text below, in as many lines as it needs.
        first: Number of columns that stand apart, before the labels of the rows.
        label: Letters of the longest label of a row, which is written upwards.
    """

    gap = 0.06
    left = 0.42
    right = 0.75
    above = 0.28
    line = 0.12
    letter = 0.066
    scale = 1.05  # the words beside the colour bar

    def __init__(
        self,
        rows: int,
        columns: int,
        width: float,
        height: float,
        head: float,
        top: float = 0.0,
        note: str = '',
        first: int = 0,
        label: int = 8,
    ) -> None:
        self.width, self.height, self.head, self.first = width, height, head, first
        # Panels of a panorama are lower than what is written beside them.
        room = max(self.letter * min(label + 1, 14), self.scale / rows)
        self.pad = max(room - height, 0.0)
        self.block = rows * (height + self.pad + head) + (rows - 1) * self.gap
        # Columns that stand apart are left of the labels of the rows.
        self.apart = 0.3 if first else 0.0
        self.across = columns * width + (columns - 1) * self.gap + self.apart / 2
        across = max(self.left + self.across + self.right, 3.2)
        self.note = textwrap.wrap(note, max(int(across * 20), 30))
        self.below = self.line * len(self.note) + (0.08 if note else 0)
        size = (across, self.above + top + self.block + self.gap + self.below)
        self.figure = Figure(figsize=size)
        FigureCanvasAgg(self.figure)
        self.size = size

    def _axes(self, x: float, y: float, width: float, height: float) -> Axes:
        across, up = self.size
        return self.figure.add_axes((x / across, y / up, width / across, height / up))

    def panel(self, row: int, column: int) -> Axes:
        """Return the axes of one panel, the first at the top left."""
        x = self.left + column * (self.width + self.gap)
        x += self.apart / 2 if column >= self.first else -self.apart
        from_top = (row + 1) * (self.height + self.pad + self.head) + row * self.gap
        y = self.below + self.gap + self.block - from_top + self.pad / 2
        axes = self._axes(x, y, self.width, self.height)
        for spine in axes.spines.values():
            spine.set_linewidth(0.5)
        return axes

    def label(self, axes: Axes, name: str, *more: str) -> None:
        """Write a name, in two lines if it is long, and more lines beside the row of a panel."""
        room = int((self.height + self.pad) / self.letter)
        name = one_line(name)
        if len(name) > 2 * room:  # names of models often differ at the end
            name = f'{name[:room]}…{name[1 - room :]}'
        lines = [name[:room], name[room:]] if len(name) > room else [name]
        axes.set_ylabel('\n'.join(figure_text(line) for line in (*lines, *more)), labelpad=2)

    def caption(self, text: str, look: Look, label: str = 'attention') -> None:
        """Add the title above, the note below and the colour scale."""
        across, up = self.size
        threshold = look.threshold
        for place, line in enumerate(reversed(self.note)):
            y = 0.05 + place * self.line
            self.figure.text(
                0.08 / across, y / up, line, va='bottom', fontsize=6.5, color='#444444'
            )
        self.figure.text(
            self.left / across, 1 - 0.06 / up, text, va='top', ha='left', weight='bold',
            fontsize=min(9, 100 * (across - self.left) / len(text)),
        )  # fmt: skip
        height = min(self.block - self.head, 2.6)
        y = self.below + self.gap + (self.block - self.head - height) / 2
        mappable = ScalarMappable(matplotlib.colors.Normalize(0, 1), COLOURS)
        bar = self.figure.colorbar(
            mappable, cax=self._axes(self.left + self.across + 0.1, y, 0.1, height)
        )
        scale = 'min–max' if look.clip == 100 else 'clipped'
        bar.set_label(f'{label}, {scale}', fontsize=7, labelpad=2)
        bar.set_ticks([0, 0.5, 1])
        bar.outline.set_linewidth(0.5)
        if threshold > 0:
            for colour, thick in (('white', 2.2), ('black', 0.9)):
                bar.ax.axhline(threshold, color=colour, linewidth=thick)


def mark_query(axes: Axes, query: Query, tokens: Tokens, size: tuple[int, int]) -> None:
    """Draw a frame around the query patch, if the query is a patch."""
    if query.kind != 'pixel':
        return
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


def picture(axes: Axes, image: np.ndarray) -> None:
    """Show an image without ticks."""
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


def outline(axes: Axes, region: np.ndarray, size: tuple[int, int]) -> None:
    """Draw a line around a region, stretched to the image."""
    rows, columns = region.shape
    # A frame of zeros, so that a region at the edge is closed.
    inside = np.pad(region.astype(float), 1)
    y = (np.arange(-1, rows + 1) + 0.5) * size[0] / rows - 0.5
    x = (np.arange(-1, columns + 1) + 0.5) * size[1] / columns - 0.5
    for colour, line in (('black', 1.8), ('white', 0.9)):
        axes.contour(
            x.clip(0, size[1] - 1), y.clip(0, size[0] - 1), inside, [0.5], colors=colour,
            linewidths=line,
        )  # fmt: skip
