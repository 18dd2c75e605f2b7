"""CARAFE (content-aware upsampling), the mask of PSANet, and convolution at masked pixels.

No library has these in PyTorch; each is one short formula.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .tensors import add_gradients, wide


def _carafe(features: Tensor, masks: Tensor, options: dict[str, int]) -> Tensor:
    """Weigh the neighbours of each source pixel, with weights of its own for each target pixel.

    Tap by tap: unfolding all of them at once would take kernel² times the memory of the features.
    """
    features, masks = wide(features, masks)
    batch, channels, height, width = features.shape
    kernel, groups, scale = (
        options[name] for name in ('kernel_size', 'group_size', 'scale_factor')
    )
    reach = kernel // 2
    padded = functional.pad(features, (reach, reach, reach, reach))
    # (B, groups, channels per group, H, scale, W, scale): a target pixel is a source pixel's part.
    split = (batch, groups, channels // groups, height, 1, width, 1)
    taps = masks.reshape(batch, groups, kernel**2, 1, height, scale, width, scale)
    output = features.new_zeros(*split[:4], scale, width, scale)
    for tap in range(kernel**2):
        y, x = divmod(tap, kernel)
        neighbours = padded[:, :, y : y + height, x : x + width].reshape(split)
        output = torch.addcmul(output, neighbours, taps[:, :, tap])
    return output.reshape(batch, channels, height * scale, width * scale)


def carafe_naive_forward(features: Tensor, masks: Tensor, output: Tensor, **options: int) -> None:
    """Fill ``output`` (B, C, H × scale, W × scale) from ``features`` (B, C, H, W).

    ``masks`` is (B, groups × kernel², H × scale, W × scale).
    """
    output.copy_(_carafe(features, masks, options))


def carafe_naive_backward(
    grad_output: Tensor,
    features: Tensor,
    masks: Tensor,
    grad_features: Tensor,
    grad_masks: Tensor,
    **options: int,
) -> None:
    """Add the gradients to the two tensors given for them."""
    inputs, totals = (features, masks), (grad_features, grad_masks)
    add_gradients(lambda x, y: _carafe(x, y, options), inputs, grad_output, totals)


def carafe_forward(
    features: Tensor,
    masks: Tensor,
    rfeatures: Tensor,
    routput: Tensor,
    rmasks: Tensor,
    output: Tensor,
    **options: int,
) -> None:
    """Fill ``output`` as the naive op does; ``rfeatures`` carries the features to the backward op.

    The compiled op stores them there with the channels last, whatever the tensor's shape says.
    """
    rfeatures.copy_(features)
    carafe_naive_forward(features, masks, output, **options)


def carafe_backward(
    grad_output: Tensor,
    rfeatures: Tensor,
    masks: Tensor,
    rgrad_output: Tensor,
    rgrad_input_hs: Tensor,
    rgrad_input: Tensor,
    rgrad_masks: Tensor,
    grad_input: Tensor,
    grad_masks: Tensor,
    **options: int,
) -> None:
    """Add the gradients to ``grad_input`` and ``grad_masks``."""
    carafe_naive_backward(grad_output, rfeatures, masks, grad_input, grad_masks, **options)


def _offsets(size: int, mask_size: int, half: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return (size, size) places in a mask around pixel j for pixel i, and which are inside it."""
    pixel = torch.arange(size, device=device)
    place = pixel[:, None] - pixel + half
    return place.clamp(0, mask_size - 1), (place >= 0) & (place < mask_size)


def _psa_mask(masks: Tensor, options: dict[str, int]) -> Tensor:
    """Spread a mask around each pixel over the whole image: (B, H × W, H, W)."""
    batch, _, height, width = masks.shape
    y, y_inside = _offsets(height, options['h_mask'], options['half_h_mask'], masks.device)
    x, x_inside = _offsets(width, options['w_mask'], options['half_w_mask'], masks.device)
    # (H, W, H, W): the pixel, then the centre of the mask.
    place = y[:, None, :, None] * options['w_mask'] + x[:, None, :]
    inside = y_inside[:, None, :, None] & x_inside[:, None, :]
    index = place.view(1, -1, height, width).expand(batch, -1, -1, -1)
    spread = masks.gather(1, index) * inside.view(-1, height, width)
    if options['psa_type'] == 1:  # 'distribute': the centre of the mask comes first
        spread = spread.flatten(2).transpose(1, 2).reshape(spread.shape)
    return spread


def psamask_forward(masks: Tensor, output: Tensor, **options: int) -> None:
    """Fill ``output`` (B, H × W, H, W) from ``masks`` (B, mask height × mask width, H, W)."""
    output.copy_(_psa_mask(masks, options))


def psamask_backward(grad_output: Tensor, grad_input: Tensor, **options: int) -> None:
    """Add the gradient by the masks. It does not depend on their values."""
    add_gradients(
        lambda masks: _psa_mask(masks, options), (grad_input,), grad_output, (grad_input,)
    )


def masked_im2col_forward(
    features: Tensor,
    rows: Tensor,
    columns: Tensor,
    output: Tensor,
    kernel_h: int,
    kernel_w: int,
    pad_h: int,
    pad_w: int,
) -> None:
    """Fill ``output`` (C × kernel, N) with the neighbours of N pixels of (1, C, H, W)."""
    padded = functional.pad(features[0], (pad_w, pad_w, pad_h, pad_h))
    y = rows + torch.arange(kernel_h, device=rows.device)[:, None, None]
    x = columns + torch.arange(kernel_w, device=rows.device)[:, None]
    output.copy_(padded[:, y, x].flatten(0, 2))


def masked_col2im_forward(
    pixels: Tensor,
    rows: Tensor,
    columns: Tensor,
    output: Tensor,
    height: int,
    width: int,
    channels: int,
) -> None:
    """Write ``pixels`` (C, N) to their places in ``output`` (1, C, height, width)."""
    output[0, :, rows, columns] = pixels


OPS = (
    carafe_naive_forward,
    carafe_naive_backward,
    carafe_forward,
    carafe_backward,
    psamask_forward,
    psamask_backward,
    masked_im2col_forward,
    masked_col2im_forward,
)
