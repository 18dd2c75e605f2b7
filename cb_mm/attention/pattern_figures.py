"""Pictures of sparse attention patterns: the matrix of all pairs, and what single patches see."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from ..fileio.figures import new_figure
from ..fileio.safe_text import figure_text
from ..models.attention.sparse_pattern import SparsePattern, make_plan

#: Not attended, attended, the query itself.
_COLOURS = ListedColormap(['#f2f2f2', '#0072B2', '#D55E00'])


def draw_patterns(
    patterns: Mapping[str, SparsePattern],
    grid: tuple[int, int] = (14, 14),
    prefix: int = 1,
    query: tuple[int, int] | None = None,
) -> Figure:
    """Draw one column per pattern: above who attends to whom, below what one patch attends to.

    Args:
        patterns: By their titles.
        grid: Rows and columns of patches.
        prefix: Tokens before the patches.
        query: Row and column of the patch below; None is one above the middle, to the left.
    """
    row, column = query or (grid[0] // 3, grid[1] // 3)
    figure = new_figure(1.55 * len(patterns) + 0.4, 3.6)
    axes = figure.subplots(2, len(patterns), squeeze=False)
    for (title, pattern), (above, below) in zip(patterns.items(), axes.T, strict=True):
        plan = make_plan(pattern, grid, prefix)
        mask = plan.mask().numpy()
        # More pairs than pixels: their colours are averaged, so that none is lost.
        above.imshow(
            mask,
            cmap=_COLOURS,
            vmin=0,
            vmax=2,
            interpolation='antialiased',
            interpolation_stage='rgba',
        )
        above.set_title(
            f'{figure_text(title)}\n{100 * plan.pairs / plan.tokens**2:.0f} % of all pairs', size=8
        )
        seen = mask[prefix + row * grid[1] + column, prefix:].reshape(grid).astype(np.int64)
        seen[row, column] = 2
        below.imshow(seen, cmap=_COLOURS, vmin=0, vmax=2, interpolation='nearest')
        for axis in (above, below):
            axis.set_xticks([])
            axis.set_yticks([])
    axes[0, 0].set_ylabel('queries × keys', size=8)
    axes[1, 0].set_ylabel('keys of one patch', size=8)
    return figure
