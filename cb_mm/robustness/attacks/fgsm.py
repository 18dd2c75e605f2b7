"""FGSM: one step of ε grey levels in the direction that increases the model's loss.

The attack is untargeted and white-box: it takes the gradient of the model's own training
loss (all heads, against the true labels) with respect to the image in grey levels, through the
model's own data preprocessor. The model is in evaluation mode, as it is when it is tested.

Where it acts: on the image as the model gets it, after resizing and before normalisation, since
OpenCV's resizing has no gradient. The labels must match the same pixels; `truth_dataset_cfg` makes
the pipeline that does this. Testing pipelines load labels after the resizing, at the size of the
file, which is right for the metric and wrong for the loss.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...errors import UserError


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


def attack_loss(model: nn.Module, image: Tensor, truth: Any, seed: int = 0) -> Tensor:
    """Return the model's training loss on one image, in evaluation mode and differentiable."""
    if model.training:
        raise ValueError('the model must be in evaluation mode: call model.eval() first')
    sample = copy.deepcopy(truth)
    # Not as in training: the size and the padding must be those of testing.
    data = model.data_preprocessor({'inputs': [image], 'data_samples': [sample]}, False)
    inputs, samples = data['inputs'], data['data_samples']
    _pad_truth(model.data_preprocessor, samples[0], tuple(inputs.shape[-2:]))
    devices = [inputs.device] if inputs.is_cuda else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        losses = model(inputs, samples, mode='loss')
    return model.parse_losses(losses)[0]


def _pad_truth(preprocessor: Any, sample: Any, size: tuple[int, int]) -> None:
    """Give the labels the padding that the image got; preprocessors do so only in training."""
    if 'gt_sem_seg' in sample and 'data' in sample.gt_sem_seg:  # mmseg
        labels = sample.gt_sem_seg.data
        missing = size[0] - labels.shape[-2], size[1] - labels.shape[-1]
        if min(missing) < 0:
            raise UserError(
                f'FGSM: the labels ({labels.shape[-2]} x {labels.shape[-1]}) are larger than the '
                f'image ({size[0]} x {size[1]}); they must be resized with it.'
            )
        fill = getattr(preprocessor, 'seg_pad_val', 255)
        padded = functional.pad(labels, (0, missing[1], 0, missing[0]), value=fill)
        sample.gt_sem_seg = type(sample.gt_sem_seg)(data=padded)
    if 'gt_instances' in sample and getattr(preprocessor, 'pad_mask', False):  # mmdet
        preprocessor.pad_gt_masks([sample])
        if getattr(preprocessor, 'pad_seg', False):
            preprocessor.pad_gt_sem_seg([sample])


def truth_dataset_cfg(test: Mapping[str, Any], train: Mapping[str, Any] | None) -> Any:
    """Return the config of the test data set with labels loaded right after the image.

    Args:
        test: config of the test data set.
        train: config of the training data set; its pipeline loads the labels that the loss needs,
            while the test pipeline may load fewer.
    """
    labels = _label_loader(train) or _label_loader(test)
    if labels is None and _packs_labels(test):
        return copy.deepcopy(test)
    if labels is None:
        raise UserError(
            'FGSM needs the true labels, but no pipeline of the config has a LoadAnnotations.'
        )
    result = copy.deepcopy(test)
    if not _move_labels(result, labels):
        raise UserError('FGSM: the pipeline of the test data set loads no image.')
    return result


def _kind(step: Any) -> str:
    kind = step.get('type', '') if isinstance(step, Mapping) else ''
    return str(getattr(kind, '__name__', kind)).rpartition('.')[2]


def _datasets(config: Any) -> list:
    """Return the data set itself, or those inside a wrapper."""
    inner = config.get('datasets') or ([config['dataset']] if config.get('dataset') else [])
    return [leaf for one in inner for leaf in _datasets(one)] or [config]


def _label_loader(config: Mapping[str, Any] | None) -> Any:
    for dataset in _datasets(config) if config else ():
        for step in dataset.get('pipeline') or ():
            if _kind(step) == 'LoadAnnotations':
                return copy.deepcopy(step)
    return None


def _packs_labels(config: Mapping[str, Any]) -> bool:
    """Return whether mmpretrain packs the label: it belongs to the image, not to its pixels."""
    return any(
        _kind(step) == 'PackInputs'
        for dataset in _datasets(config)
        for step in dataset.get('pipeline') or ()
    )


def _move_labels(config: Any, labels: Any) -> bool:
    moved = False
    for dataset in _datasets(config):
        steps = [step for step in dataset.get('pipeline') or () if _kind(step) != 'LoadAnnotations']
        places = [i for i, step in enumerate(steps) if _kind(step).startswith('LoadImage')]
        if places:
            dataset['pipeline'] = [*steps[: places[0] + 1], labels, *steps[places[0] + 1 :]]
            moved = True
    return moved
