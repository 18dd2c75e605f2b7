"""Published classifiers as they are: with their head, in a classifier of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..errors import UserError
from .backbone_weights import find_backbone
from .layouts import fit
from .match import weights_in
from .published import is_of_mmpretrain

#: The classifier in a file: mmpretrain's names, and timm's and DeiT's.
_HEADS = ('head.layers.head.', 'head.fc.', 'head.')


def as_classifier(
    content: Any, layout: str | None, model: nn.Module, file: str | Path
) -> dict[str, Tensor]:
    """Return the weights of a published classifier under the names of a classifier of ours.

    Args:
        content: What the file holds.
        layout: Of its names, where known.
        model: mmpretrain's ``ImageClassifier`` with a backbone of ours and one linear layer.
        file: For messages.

    Raises:
        UserError: The file has no classifier, or the model has no place for one.
    """
    backbone = getattr(model, 'backbone', None)
    target = getattr(backbone, 'weights_target', backbone)
    layers = [name for name, part in model.named_modules() if isinstance(part, nn.Linear)]
    places = [name for name in layers if name.startswith('head.')]
    if target is None or len(places) != 1 or not is_classifier(model):
        raise UserError(
            f'checkpoint {file} is a bare ViT, and the config is of another kind of model. '
            'Train with it (`init`), or give the checkpoint of that training.'
        )
    found = find_backbone(content, layout, target)
    if is_of_mmpretrain(content):
        found |= _beside_the_backbone(weights_in(content))
    head = next((one for one in _HEADS if f'{one}weight' in found), None)
    if head is None:
        raise UserError(
            f'checkpoint {file} has no classifier (head.weight): it is a backbone alone. Fine-tune '
            'it with `init`.'
        )
    inside = next(name for name, part in model.named_modules() if part is target)
    own = target.state_dict()
    fitted, _ = fit({key: value for key, value in found.items() if key in own}, target)
    weights = {f'{inside}.{key}': value for key, value in fitted.items()}
    for part in ('weight', 'bias'):
        if f'{head}{part}' in found:
            weights[f'{places[0]}.{part}'] = found[f'{head}{part}']
    unknown = [key for key in found if key not in own and not key.startswith(head)]
    return {**weights, **{key: found[key] for key in unknown}}  # refused by name


def _beside_the_backbone(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of the other parts of a whole model: its head, under its own names."""
    beside = {key: value for key, value in weights.items() if not key.startswith('backbone.')}
    return beside if len(beside) < len(weights) else {}  # no prefix: a backbone alone


def is_classifier(model: nn.Module) -> bool:
    """Return whether a model of mmpretrain's has a classifier as its only head."""
    return hasattr(model, 'head') and not hasattr(model, 'decode_head')
