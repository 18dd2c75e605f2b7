"""Focal loss on sigmoids and on softmax: RetinaNet, FCOS, ATSS, DINO and many more train with it.

mmdet uses a PyTorch version of its own on CPU and the compiled op on CUDA. These are the op's
formulas, with the logarithm of the sigmoid where the op has the logarithm of a clamped sigmoid.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .tensors import wide


def _class_weights(weight: Tensor, target: Tensor) -> Tensor | float:
    """Return one weight per row. Rows without a class (background) have weight 1."""
    if not weight.numel():
        return 1.0
    has_class = (target >= 0) & (target < len(weight))
    rows = weight[target.clamp(0, len(weight) - 1)]
    return torch.where(has_class, rows, torch.ones_like(rows))


def _positives(logits: Tensor, target: Tensor) -> Tensor:
    return target[:, None] == torch.arange(logits.shape[1], device=logits.device)


def sigmoid_focal_loss_forward(
    logits: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float, alpha: float
) -> None:
    """Fill ``output`` (N, C) with the loss of ``logits`` (N, C).

    A ``target`` (N,) that is not in 0 … C - 1 is background: every class of that row is negative.
    """
    (x,) = wide(logits)
    p = x.sigmoid()
    positive = -alpha * (1 - p) ** gamma * functional.logsigmoid(x)
    negative = -(1 - alpha) * p**gamma * functional.logsigmoid(-x)
    loss = torch.where(_positives(x, target), positive, negative)
    output.copy_((loss.T * _class_weights(weight, target)).T)


def sigmoid_focal_loss_backward(
    logits: Tensor, target: Tensor, weight: Tensor, grad_input: Tensor, gamma: float, alpha: float
) -> None:
    """Fill ``grad_input`` (N, C) with the derivative of each element's loss by its logit."""
    (x,) = wide(logits)
    p, q = x.sigmoid(), (-x).sigmoid()
    positive = -alpha * q**gamma * (q - gamma * p * functional.logsigmoid(x))
    negative = -(1 - alpha) * p**gamma * (gamma * q * functional.logsigmoid(-x) - p)
    slope = torch.where(_positives(x, target), positive, negative)
    grad_input.copy_((slope.T * _class_weights(weight, target)).T)


def _probability(softmax: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the probability of each row's class, and whether the row has a class."""
    (softmax,) = wide(softmax)
    picked = softmax.gather(1, target.clamp(min=0)[:, None]).squeeze(1)
    return picked.clamp(min=torch.finfo(torch.float32).tiny), target >= 0


def softmax_focal_loss_forward(
    softmax: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float, alpha: float
) -> None:
    """Fill ``output`` (N,) with the loss of probabilities (N, C); it is 0 where target < 0."""
    p, has_class = _probability(softmax, target)
    loss = -alpha * (1 - p) ** gamma * p.log() * _class_weights(weight, target)
    output.copy_(loss * has_class)


def softmax_focal_loss_backward(
    softmax: Tensor,
    target: Tensor,
    weight: Tensor,
    buff: Tensor,
    grad_input: Tensor,
    gamma: float,
    alpha: float,
) -> None:
    """Fill ``grad_input`` (N, C) with the derivative by the logits; ``buff`` (N,) is scratch."""
    p, has_class = _probability(softmax, target)
    slope = alpha * (gamma * (1 - p) ** (gamma - 1) * p * p.log() - (1 - p) ** gamma)
    buff.copy_(slope * _class_weights(weight, target) * has_class)
    grad_input.copy_(buff[:, None] * (_positives(softmax, target).to(softmax.dtype) - softmax))


OPS = (
    sigmoid_focal_loss_forward,
    sigmoid_focal_loss_backward,
    softmax_focal_loss_forward,
    softmax_focal_loss_backward,
)
