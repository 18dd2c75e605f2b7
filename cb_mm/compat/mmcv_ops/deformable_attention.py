"""Multi-scale deformable attention: Deformable DETR, DINO, Mask2Former.

mmcv has a PyTorch version that it takes on CPU. It reads the sizes of the levels back from the
device, twice per level: on CUDA each layer would wait for the GPU. Here the sizes stay tensors.
"""

from __future__ import annotations

from functools import partial
from itertools import product

import torch
from torch import Tensor

from .tensors import add_gradients, wide

#: The four pixels around a sampling point, as (right of it, below it).
CORNERS = tuple(product((0, 1), (0, 1)))


def _from_corner(
    value: Tensor,
    locations: Tensor,
    weights: Tensor,
    *,
    corner: tuple[int, int],
    shapes: Tensor,
    starts: Tensor,
) -> Tensor:
    """Return what one of the four pixels around each sampling point adds to the output.

    Working corner by corner keeps one sampled tensor (B, heads, queries × points, channels) in
    memory, not four.
    """
    batch, _, heads, channels = value.shape
    value, locations, weights = wide(value, locations, weights)
    sizes = shapes.flip(-1)[:, None].to(locations.dtype)  # (levels, 1, width and height)
    points = locations * sizes - 0.5
    pixel = points.detach().floor()
    share = torch.ones_like(weights)
    for axis, far in enumerate(corner):
        fraction = points[..., axis] - pixel[..., axis]
        share = share * (fraction if far else 1 - fraction)
    pixel = pixel + pixel.new_tensor(corner)
    inside = ((pixel >= 0) & (pixel < sizes)).all(-1)
    column, row = pixel.where(inside[..., None], 0.0).long().unbind(-1)
    index = starts[:, None] + row * shapes[:, 1:] + column  # (B, queries, heads, levels, points)

    def by_head(tensor: Tensor) -> Tensor:
        return tensor.flatten(3).transpose(1, 2)  # (B, heads, queries, levels × points)

    where = by_head(index).flatten(2)[..., None].expand(-1, -1, -1, channels)
    sampled = value.transpose(1, 2).gather(2, where)
    factors = by_head(weights * share * inside)
    sampled = sampled.view(*factors.shape, channels)
    return torch.einsum('bhqpc,bhqp->bqhc', sampled, factors).reshape(batch, -1, heads * channels)


def ms_deform_attn_forward(
    value: Tensor,
    shapes: Tensor,
    starts: Tensor,
    locations: Tensor,
    weights: Tensor,
    im2col_step: int,
) -> Tensor:
    """Return the weighted sum of sampled values, (B, queries, heads × channels).

    ``value`` is (B, pixels of all levels, heads, channels); ``shapes`` (levels, 2) are heights and
    widths and ``starts`` (levels,) the first pixel of each level; ``locations`` (B, queries,
    heads, levels, points, 2) are x and y in 0 … 1; ``weights`` (B, queries, heads, levels, points).
    """
    parts = (
        _from_corner(value, locations, weights, corner=corner, shapes=shapes, starts=starts)
        for corner in CORNERS
    )
    return sum(parts, start=value.new_zeros(())).to(value.dtype)


def ms_deform_attn_backward(
    value: Tensor,
    shapes: Tensor,
    starts: Tensor,
    locations: Tensor,
    weights: Tensor,
    grad_output: Tensor,
    grad_value: Tensor,
    grad_locations: Tensor,
    grad_weights: Tensor,
    im2col_step: int,
) -> None:
    """Add the gradients to the three tensors given for them."""
    for corner in CORNERS:
        add_gradients(
            partial(_from_corner, corner=corner, shapes=shapes, starts=starts),
            (value, locations, weights),
            grad_output,
            (grad_value, grad_locations, grad_weights),
        )


OPS = (ms_deform_attn_forward, ms_deform_attn_backward)
