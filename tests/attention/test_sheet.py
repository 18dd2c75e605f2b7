"""Where panels, curves and outlines lie in the figures."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from cb_mm.attention import ScaleStatistics
from cb_mm.attention.figures import _from_zero, scales_figure
from cb_mm.attention.sheet import Sheet, outline
from cb_mm.attention.summary import ModelSummary


@pytest.mark.parametrize('first', [0, 1])
def test_panels_lie_in_rows_and_columns_and_do_not_overlap(first):
    sheet = Sheet(3, 4, width=1.5, height=1.0, head=0.2, note='a note', first=first)
    boxes = {
        (row, column): sheet.panel(row, column).get_position()
        for row in range(3)
        for column in range(4)
    }
    across, up = sheet.figure.get_size_inches()
    for box in boxes.values():
        assert (box.width * across, box.height * up) == pytest.approx((1.5, 1.0))
        assert 0 <= box.x0 < box.x1 <= 1
        assert 0 <= box.y0 < box.y1 <= 1
    # A title and a gap lie between one row and the next.
    for row in range(2):
        space = boxes[row, 0].y0 - boxes[row + 1, 0].y1
        assert space * up == pytest.approx(sheet.head + sheet.gap)
    for column in range(3):
        space = (boxes[0, column + 1].x0 - boxes[0, column].x1) * across
        assert space > (0.2 if column < first else 0)


def test_an_outline_follows_the_region_to_the_edge_of_the_image():
    axes = Figure().subplots()
    region = np.zeros((4, 6), dtype=bool)
    region[:2, 1:3] = True
    outline(axes, region, (40, 60))
    black, white = axes.collections
    assert black.get_linewidth()[0] > white.get_linewidth()[0]
    for line in (black, white):
        corners = np.concatenate([path.vertices for path in line.get_paths() if len(path.vertices)])
        # The region is the columns 10 to 30 and the rows 0 to 20 of the image; at the edge the
        # line stays within it, a quarter of a patch from the border.
        np.testing.assert_allclose(corners.min(0), (9.5, 2.25))
        np.testing.assert_allclose(corners.max(0), (29.5, 19.5))


def test_scales_are_drawn_side_by_side():
    model = ModelSummary('x')
    model.scales = [ScaleStatistics(n, f'blocks.{n}', 0.1 * n, 0.3, 0.4) for n in (1, 2)]
    left, right = scales_figure([model]).axes
    assert left.get_position().x1 <= right.get_position().x0
    assert left.get_position().y0 == pytest.approx(right.get_position().y0)
    np.testing.assert_allclose(left.get_lines()[0].get_ydata(), [0.1, 0.2])
    np.testing.assert_allclose(right.get_lines()[0].get_ydata(), [0.3, 0.3])
    model.scales = [ScaleStatistics(n, 'x', 0.0, ratio, 0.4) for n, ratio in enumerate((1, 0.99))]
    assert scales_figure([model]).axes[1].get_ylim() == pytest.approx((0, 1.06))  # whole markers


@pytest.mark.parametrize(
    ('values', 'top'), [([0.2, 0.5], 0.53), ([0.0, 0.0], 1), ([], 1), ([0.01], 0.0106)]
)
def test_an_axis_begins_at_zero_and_ends_above_its_curve(values, top):
    axes = Figure().subplots()
    if values:
        axes.plot(values)
    _from_zero(axes)
    assert axes.get_ylim() == pytest.approx((0, top))
