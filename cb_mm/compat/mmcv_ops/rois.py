"""Pooling of regions: average RoIAlign and RoIPool, on torchvision's kernels."""

from __future__ import annotations

import torch
from torch import Tensor
from torchvision.ops import roi_align as torchvision_roi_align

from .missing import raise_missing
from .tensors import wide


def _require_average(pool_mode: int) -> None:
    if pool_mode != 1:
        raise_missing('roi_align(pool_mode="max")')


def roi_align_forward(
    features: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Fill ``output`` (R, C, aligned_height, aligned_width) from ``features`` (B, C, H, W).

    ``rois`` (R, 5) are batch index, x1, y1, x2, y2. A sampling ratio of 0 means as many samples per
    bin as it has cells. The argmax tensors belong to maximum pooling and are not changed.
    """
    _require_average(pool_mode)
    features, rois = wide(features, rois)
    size = (aligned_height, aligned_width)
    pooled = torchvision_roi_align(features, rois, size, spatial_scale, sampling_ratio, aligned)
    output.copy_(pooled)


def roi_align_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    grad_input: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Fill ``grad_input`` (B, C, H, W) from ``grad_output`` (R, C, aligned_height, aligned_width).

    The kernel behind torchvision's own autograd formula is called by name: going through
    autograd would run the forward pass a second time.
    """
    _require_average(pool_mode)
    grad_output, rois = wide(grad_output, rois)
    grad_input.copy_(
        torch.ops.torchvision._roi_align_backward(
            grad_output.contiguous(),
            rois,
            spatial_scale,
            aligned_height,
            aligned_width,
            *grad_input.shape,
            sampling_ratio,
            aligned,
        )
    )


def roi_pool_forward(
    features: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
) -> None:
    """Fill ``output`` (R, C, pooled_height, pooled_width) with the maximum of each bin.

    ``argmax`` gets the pixel (row × width + column) that it comes from, -1 for an empty bin.
    """
    features, rois = wide(features, rois)
    pooled, places = torch.ops.torchvision.roi_pool(
        features, rois, spatial_scale, pooled_height, pooled_width
    )
    output.copy_(pooled)
    argmax.copy_(places)


def roi_pool_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax: Tensor,
    grad_input: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
) -> None:
    """Fill ``grad_input`` (B, C, H, W)."""
    grad_output, rois = wide(grad_output, rois)
    grad_input.copy_(
        torch.ops.torchvision._roi_pool_backward(
            grad_output.contiguous(),
            rois,
            argmax,
            spatial_scale,
            pooled_height,
            pooled_width,
            *grad_input.shape,
        )
    )


OPS = (roi_align_forward, roi_align_backward, roi_pool_forward, roi_pool_backward)
