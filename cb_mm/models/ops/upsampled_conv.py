"""Convolution over maps of several sizes that are upsampled and stacked, without the stack.

Bilinear upsampling mixes places and a tap of a convolution mixes channels, so the two commute.
For a small map the taps can therefore be applied before it is upsampled, to few places instead of
many; what is left is to upsample the results of the taps, each shifted by its place in the kernel,
and to add them. Rows and columns are upsampled one after the other, each by one product with a
matrix that holds the interpolation weights of all taps.

On a GPU this takes some twenty kernels more, of 5 µs each, and pays for large maps only.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .products import mkl_is_slow, product
from .winograd import conv2d

# Multiplications that an A100 does, forward and backward and in half precision, in the time that
# twenty kernels take to start. Of UperNet's maps at 512 × 512 pixels, those of stride 8 to 32 are
# far above it, and those that were pooled below.
_WORTH_KERNELS = 4e9
# Up to here, as in the maps of a pooling pyramid, a copy of the weights costs more than it saves.
_FEW_PLACES = 72


def conv_upsampled(
    maps: Sequence[Tensor],
    weight: Tensor,
    bias: Tensor | None = None,
    align_corners: bool = False,
) -> Tensor:
    """Resize maps to the size of the first, stack their channels and convolve with zero padding.

    The result is that of ``conv2d(cat([resize(m) for m in maps]), weight, bias, padding=k // 2)``.

    Args:
        maps: (B, C_i, h_i, w_i), of any sizes.
        weight: (K, sum of C_i, k, k) with k odd.
        bias: (K,) or None.
        align_corners: As in `torch.nn.functional.interpolate`.

    Returns:
        (B, K, h_0, w_0), in the channels-last memory format where a map was upsampled late.
    """
    size = maps[0].shape[2:]
    parts = weight.split([m.shape[1] for m in maps], dim=1)
    early, late = [(maps[0], parts[0])], []
    for x, part in zip(maps[1:], parts[1:], strict=True):
        if _late_pays(x, part, size):
            late.append((x, part))
        else:
            early.append((resize(x, size, align_corners), part))

    stack = early[0][0] if len(early) == 1 else torch.cat([x for x, _ in early], dim=1)
    kernel = early[0][1] if len(early) == 1 else torch.cat([part for _, part in early], dim=1)
    out = conv2d(stack, kernel, bias)
    if not late:
        return out
    # Channels last is the order in which every product below reads and writes whole rows.
    out = out.permute(0, 2, 3, 1).contiguous()
    for x, part in late:
        out = _add_late(out, x, part, align_corners)
    return out.permute(0, 3, 1, 2)


def resize(x: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """Upsample x (B, C, h, w) to a size, if it has another."""
    if x.shape[2:] == size:
        return x
    return F.interpolate(x, size=size, mode='bilinear', align_corners=align_corners)


def _late_pays(x: Tensor, weight: Tensor, size: Sequence[int]) -> bool:
    """Return whether applying the taps before upsampling takes less time."""
    saved = saved_work(x.shape, weight.shape[-1], size)
    if x.device.type == 'cpu':
        return saved > 0
    return saved * len(x) * len(weight) >= _WORTH_KERNELS and _products_are_fast(x)


def saved_work(
    shape: Sequence[int], k: int, size: Sequence[int], direct: float | None = None
) -> float:
    """Return how many multiplications fewer, for one image and one output channel.

    Args:
        shape: Of the map, (B, C, h, w).
        k: Side of the kernel.
        size: Of the upsampled map.
        direct: Multiplications per channel and place of the convolution saved; k · k by default.
    """
    (_, channels, h, w), (height, width) = shape, size
    taps, rows, columns = k * k * channels * h * w, k * k * height * h * w, k * height * w * width
    direct = k * k if direct is None else direct
    return direct * channels * height * width - (taps + rows + columns)


def _products_are_fast(x: Tensor) -> bool:
    """Return whether products run at the rate of convolutions.

    By torch's default the convolutions of an NVIDIA GPU run in TF32, and products in float32 at an
    eighth of that rate: the convolution of the upsampled maps is then the faster one.
    """
    if torch.compiler.is_compiling() or x.dtype != torch.float32:
        return True
    kind = x.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return True
    cudnn = torch.backends.cudnn
    return _in_tf32(torch.backends.cuda.matmul) or not _in_tf32(getattr(cudnn, 'conv', cudnn))


def _in_tf32(backend: Any) -> bool:
    """Read the newer name of the setting where torch has it: then it may refuse the older one."""
    newer = getattr(backend, 'fp32_precision', None)
    return backend.allow_tf32 if newer is None else newer == 'tf32'


def _add_late(out: Tensor, x: Tensor, weight: Tensor, align_corners: bool) -> Tensor:
    """Add the convolution of upsampled x (B, C, h, w) to out (B, H, W, K)."""
    few = len(x) * x.shape[2] * x.shape[3] <= _FEW_PLACES and x.device.type == 'cpu'
    few = few and not torch.is_grad_enabled()  # the gradient would need more memory than a copy
    tapped = _tap_few(x, weight) if few else apply_taps(x, taps_of(weight))
    k = weight.shape[-1]
    return upsample_taps(tapped, x.shape[2:], k, out.shape[1:3], align_corners, out)


def taps_of(weight: Tensor) -> Tensor:
    """Order weights (K, C, k, k) as the product with the places needs them, (k, C, k · K)."""
    outputs, channels, k, _ = weight.shape
    return weight.permute(2, 3, 0, 1).reshape(k, k * outputs, channels).transpose(1, 2)


def apply_taps(x: Tensor, taps: Tensor) -> Tensor:
    """Return (B, tap row, h · w, tap column · K) of x (B, C, h, w) and taps (k, C, k · K)."""
    batch, channels, h, w = x.shape
    places = x.permute(0, 2, 3, 1).reshape(batch, h * w, channels)
    if torch.compiler.is_compiling() or x.device.type != 'cpu' or not mkl_is_slow():
        return torch.matmul(places[:, None], taps)
    return torch.stack([product(places, row.T) for row in taps], dim=1)


def _tap_few(x: Tensor, weight: Tensor) -> Tensor:
    """Do the same with weights in their own order: a copy of them would take most of the time."""
    (batch, channels, h, w), (outputs, _, k, _) = x.shape, weight.shape
    places = x.permute(0, 2, 3, 1).reshape(-1, channels).expand(outputs, -1, -1)
    tapped = torch.bmm(places, weight.flatten(2))  # (K, B · h · w, k · k)
    tapped = tapped.view(outputs, batch, h * w, k, k).permute(1, 3, 2, 4, 0)
    return tapped.reshape(batch, k, h * w, k * outputs)


def upsample_taps(
    tapped: Tensor,
    small: Sequence[int],
    k: int,
    size: Sequence[int],
    align_corners: bool,
    onto: Tensor | None = None,
) -> Tensor:
    """Upsample the results of taps from h × w to H × W, and add them: (B, H, W, K).

    Args:
        tapped: (B, k, h · w, k · K).
        small: (h, w).
        k: Side of the kernel.
        size: (H, W).
        align_corners: As in `torch.nn.functional.interpolate`.
        onto: (B, H, W, K), added; without gradients in place.
    """
    (h, w), (height, width) = small, size
    batch, outputs = len(tapped), tapped.shape[-1] // k
    rows = shifted_upsampling(h, height, k, align_corners, tapped)
    columns = shifted_upsampling(w, width, k, align_corners, tapped)
    rows = rows.permute(0, 2, 1).reshape(height, k * h)
    columns = columns.reshape(width, w * k).expand(batch * height, -1, -1)
    tall = torch.matmul(rows, tapped.reshape(batch, k * h, w * k * outputs))
    tall = tall.reshape(batch * height, w * k, outputs)
    if onto is None:
        out = torch.bmm(columns, tall)
    elif torch.is_grad_enabled():
        out = torch.baddbmm(onto.reshape(batch * height, width, outputs), columns, tall)
    else:
        out = onto.view(batch * height, width, outputs).baddbmm_(columns, tall)
    return out.reshape(batch, height, width, outputs)


def shifted_upsampling(
    length: int, new_length: int, taps: int, align_corners: bool, like: Tensor
) -> Tensor:
    """Return the interpolation weights (new_length, length, taps) in one dimension.

    Entry (i, j, t) is the share of place j in the upsampled place i + t - taps // 2; zero where
    that place is outside, as a convolution pads.
    """
    if torch.compiler.is_compiling():  # a compiled graph holds its own constants
        return _shifted_upsampling(length, new_length, taps, align_corners, like.dtype, like.device)
    return _cached_upsampling(length, new_length, taps, align_corners, like.dtype, like.device)


def _shifted_upsampling(
    length: int,
    new_length: int,
    taps: int,
    align_corners: bool,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    wide = torch.promote_types(dtype, torch.float32)
    unit = torch.eye(length, dtype=wide, device=device)
    # torch's own interpolation of unit vectors: the weights are exactly torch's.
    shares = F.interpolate(unit[None], new_length, mode='linear', align_corners=align_corners)[0]
    padded = F.pad(shares, (taps // 2, taps // 2))
    shifts = [padded[:, t : t + new_length] for t in range(taps)]
    return torch.stack(shifts, dim=-1).transpose(0, 1).to(dtype)


@lru_cache(maxsize=64)
def _cached_upsampling(*key: Any) -> Tensor:
    # An inference tensor, once in the cache, could not take part in training later.
    with torch.inference_mode(False), torch.no_grad():
        return _shifted_upsampling(*key)
