"""FGSM: one step of ε grey levels in the direction that increases the model's loss.

The attack is untargeted and white-box: it takes the gradient of the model's own training
loss (all heads, against the true labels) with respect to the image in grey levels, through the
model's own data preprocessor. The model is in evaluation mode, as it is when it is tested.

Where it acts: on the image as the model gets it, after resizing and before normalisation, since
OpenCV's resizing has no gradient. The labels must match the same pixels; `truth_dataset_cfg` makes
the pipeline that does this.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .losses import attack_loss
from .truth import truth_dataset_cfg

__all__ = ['attack_loss', 'fgsm', 'truth_dataset_cfg']


def fgsm(model: nn.Module, image: Tensor, truth: Any, epsilon: float, seed: int = 0) -> Tensor:
    """Attack one image.

    Args:
        model: a segmentor, detector or classifier, in evaluation mode.
        image: 3 x H x W in grey levels, in the channel order of the pipeline, not normalised.
        truth: data sample with the labels on the pixels of ``image``.
        epsilon: largest change of a value, in grey levels.
        seed: of random draws in the loss (detectors sample boxes).

    Returns:
        The attacked image: float32, 3 x H x W, within [0, 255] and ``epsilon`` of the image.
    """
    clean = image.detach().float()
    variable = clean.clone().requires_grad_()
    with torch.enable_grad():
        loss = attack_loss(model, variable, truth, seed)
        (gradient,) = torch.autograd.grad(loss, variable)
    return (clean + epsilon * gradient.sign()).clamp_(0, 255)
