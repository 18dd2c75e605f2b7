"""What an attack climbs: the model's own training loss, or a weighted loss of the pixels.

The weighted ones are for segmentation. A mean over pixels lets an attack spend its strength on
pixels that are wrong already; SegPGD and CosPGD give those less weight.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...evaluation.calibration import SCORES, outputs_of, probabilities
from .truth import pad_truth

#: Backbones of mmseg with more outputs in training mode.
_TWO_OUTPUTS = {'DDRNet', 'PIDNet'}
#: Of the objective that is the model's training loss.
TRAINING_LOSS = 'loss'


class Objective(NamedTuple):
    """What is known of one image at one step.

    Attributes:
        climbed: The attack follows its gradient; its weights may change from step to step.
        loss: The same without weights, detached: by this, steps are compared.
    """

    climbed: Tensor
    loss: Tensor


def objective(
    kind: str, model: nn.Module, image: Tensor, truth: Any, seed: int = 0, done: float = 0.0
) -> Objective:
    """Return what an attack climbs.

    Args:
        kind: 'loss', 'segpgd' or 'cospgd'.
        model: In evaluation mode.
        image: 3 x H x W in grey levels.
        truth: Data sample with the labels on the pixels of ``image``.
        seed: Of random draws in the training loss.
        done: Share of the steps that are done, from 0 to 1; SegPGD's weights follow it.
    """
    if kind == TRAINING_LOSS:
        loss = attack_loss(model, image, truth, seed)
        return Objective(loss, loss.detach())
    logits, labels, counted = pixel_logits(model, image, truth)
    losses = functional.cross_entropy(logits[None], labels[None], reduction='none')[0] * counted
    with torch.no_grad():
        weights = PIXEL_WEIGHTS[kind](logits, labels, done)
    pixels = counted.sum().clamp(min=1)
    return Objective((weights * losses).sum() / pixels, (losses.sum() / pixels).detach())


def attack_loss(model: nn.Module, image: Tensor, truth: Any, seed: int = 0) -> Tensor:
    """Return the model's training loss on one image, in evaluation mode and differentiable."""
    inputs, sample = _model_input(model, image, truth)
    devices = [inputs.device] if inputs.is_cuda else []
    with torch.random.fork_rng(devices), _outputs_of_training(model):
        torch.manual_seed(seed)
        losses = model(inputs, [sample], mode='loss')
    return model.parse_losses(losses)[0]


@contextmanager
def _outputs_of_training(model: nn.Module) -> Iterator[None]:
    """Let models give what their losses take.

    Some give it in training mode alone: DINO its denoising queries, FCOS its distances in strides.
    Only what decides on outputs is switched; normalisation, dropout and whatever else computes
    stays in evaluation mode.
    """
    parts = [part for part in model.modules() if type(part).__name__ in _TWO_OUTPUTS]
    if not hasattr(model, 'head'):  # mmpretrain's heads take the outputs of evaluation
        parts += [part for part in model.modules() if callable(getattr(part, 'loss', None))]
    try:
        for part in parts:
            part.training = True
        yield
    finally:
        for part in parts:
            part.training = False


def pixel_logits(model: Any, image: Tensor, truth: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return what a segmentor says of every pixel of its input.

    Returns:
        Logits of the decode head at the size of the labels (classes x H x W), labels (H x W, 0
        where there is none), and which pixels have a label (H x W).
    """
    inputs, sample = _model_input(model, image, truth)
    size = tuple(inputs.shape[-2:])
    # Heads upsample to the size that is named here; which of the two they read differs.
    meta = {**sample.metainfo, 'img_shape': size, 'pad_shape': size}
    logits = model.encode_decode(inputs, [meta])[0].float()
    if logits.shape[0] == 1:  # two classes, one logit: the sigmoid is a softmax against 0
        logits = torch.cat([torch.zeros_like(logits), logits])
    elif outputs_of(model) == SCORES:  # a softmax gives back the probability of each class
        tiny = torch.finfo(logits.dtype).tiny
        logits = probabilities(logits, SCORES).clamp_min(tiny).log()
    head = model.decode_head
    head = head[-1] if isinstance(head, nn.ModuleList) else head  # a cascade: the last one decides
    labels = sample.gt_sem_seg.data[0].to(logits.device).long()
    counted = (labels != head.ignore_index) & (labels >= 0) & (labels < logits.shape[0])
    return logits, labels.where(counted, 0), counted


def segpgd_weights(logits: Tensor, labels: Tensor, done: float) -> Tensor:
    """Return SegPGD's weights (Gu et al., ECCV 2022), pixel by pixel.

    λ = done / 2 for pixels that are wrong, 1 − λ for those that are right: at first only the latter
    count, in the end nearly all alike.
    """
    share = done / 2
    right = logits.argmax(0) == labels
    return torch.where(right, 1 - share, share)


def cospgd_weights(logits: Tensor, labels: Tensor, done: float = 0.0) -> Tensor:
    """Return CosPGD's weights (Agnihotri et al., ICML 2024), pixel by pixel.

    The cosine between the softmax and the one-hot label. That label has length 1, so it is the
    probability of the true class divided by the length of the softmax.
    """
    softmax = logits.softmax(0)
    return softmax.gather(0, labels[None])[0] / softmax.norm(dim=0)


#: Objective -> weights of the pixels' cross-entropy, from logits, labels and the share of steps.
PIXEL_WEIGHTS: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    'segpgd': segpgd_weights,
    'cospgd': cospgd_weights,
}


def _model_input(model: Any, image: Tensor, truth: Any) -> tuple[Tensor, Any]:
    """Return the image as the model takes it, and its labels with the same padding."""
    if model.training:
        raise ValueError('the model must be in evaluation mode: call model.eval() first')
    sample = copy.deepcopy(truth)
    # Not as in training: the size and the padding must be those of testing.
    data = model.data_preprocessor({'inputs': [image], 'data_samples': [sample]}, False)
    inputs, samples = data['inputs'], data['data_samples']
    pad_truth(model.data_preprocessor, samples[0], tuple(inputs.shape[-2:]))
    return inputs, samples[0]
