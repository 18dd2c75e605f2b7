"""Convolution over maps of several sizes, for evaluation on the CPU.

As `conv_upsampled`, with what a graph of gradients forbids: sums, norm and activation happen in
place, while the numbers are still in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .finish import Finish
from .products import is_watched, product
from .upsampled_conv import apply_taps, resize, saved_work, taps_of, upsample_taps
from .winograd import CHANNELS, channels_last, winograd_kernel, winograd_products

# Places from which the Winograd algorithm pays: at 512 channels it took half of the direct
# algorithm's time at 1,024 places, and as long at 256.
_PLACES = 1000
# Its multiplications per output and pair of channels, and what its transforms and the upsampling
# of a map cost in addition, counted in the same.
_WINOGRAD_WORK = 3.0


def conv_evaluated(
    maps: Sequence[Tensor],
    weight: Tensor,
    finish: Finish,
    align_corners: bool = False,
) -> Tensor | None:
    """Return what `conv_upsampled` does, finished; None where this way does not exist or pay.

    Args:
        maps: (B, C_i, h_i, w_i), of any sizes.
        weight: (K, sum of C_i, k, k) with k = 1 or 3.
        finish: What follows the convolution.
        align_corners: As in `torch.nn.functional.interpolate`.

    Returns:
        (B, K, h_0, w_0) in the channels-last memory format.
    """
    batch, channels, height, width = maps[0].shape
    others = (x for x in (finish.scale, finish.shift) if x is not None)
    if batch * height * width < _PLACES or not _is_plain_evaluation(weight, *maps, *others):
        return None
    if weight.shape[2:] == (1, 1) and len(maps) == 1:
        return _pointwise(maps[0], weight, finish).permute(0, 3, 1, 2)
    if weight.shape[2:] == (3, 3) and min(len(weight), channels) >= CHANNELS:
        return _three_by_three(maps, weight, finish, align_corners)
    return None


def _is_plain_evaluation(*tensors: Tensor) -> bool:
    """Return whether everything is on the CPU, in float32, and nothing records what happens.

    Not while a graph is captured, and not with subclasses of tensors, such as fake ones.
    """
    return (
        not is_watched(*tensors)
        and all(x.device.type == 'cpu' and x.dtype == torch.float32 for x in tensors)
        and not (torch.is_grad_enabled() and any(x.requires_grad for x in tensors))
    )


def _pointwise(x: Tensor, weight: Tensor, finish: Finish) -> Tensor:
    kernel = weight.flatten(1)
    kernel = kernel if finish.scale is None else kernel * finish.scale[:, None]
    out = product(x.permute(0, 2, 3, 1), kernel, finish.shift)
    return out.relu_() if finish.relu else out


def _three_by_three(
    maps: Sequence[Tensor], weight: Tensor, finish: Finish, align_corners: bool
) -> Tensor:
    size, early, total = maps[0].shape[2:], [], None
    for x, part in zip(maps, weight.split([m.shape[1] for m in maps], dim=1), strict=True):
        if x.shape[2:] != size and saved_work(x.shape, 3, size, _WINOGRAD_WORK) > 0:
            tapped = apply_taps(x, taps_of(part))
            total = upsample_taps(tapped, x.shape[2:], 3, size, align_corners, total)
        else:
            early.append((channels_last(resize(x, size, align_corners)), winograd_kernel(part)))
    return winograd_products(early, onto=total, finish=finish).permute(0, 3, 1, 2)
