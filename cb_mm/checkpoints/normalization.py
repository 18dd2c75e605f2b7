"""Mean and std of the images, which must match those of the weights."""

from __future__ import annotations

import timm
from mmengine.config import Config
from torch import nn

from ..errors import UserError, did_you_mean
from .provenance import Provenance, differs, normalization_text
from .sources import read_weights

#: name -> mean and std of red, green and blue, in grey levels
NORMALIZATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    # DeiT, DINO, DINOv2, MAE, torchvision
    'imagenet': ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
    # the original ViTs of Google and AugReg
    'half': ((127.5, 127.5, 127.5), (127.5, 127.5, 127.5)),
    # CLIP's image encoders
    'clip': ((122.7709, 116.7460, 104.0937), (68.5005, 66.6322, 70.3232)),
}
WEIGHTS = 'weights'


def set_normalization(
    config: Config, name: str | None, weights: str | None = None, trust: bool = False
) -> None:
    """Let the model normalise its images as named.

    Args:
        config: A whole config; its data preprocessor is changed.
        name: One of `NORMALIZATIONS`; 'weights' for what the weights record; None for no change.
        weights: The file or timm name that the model starts from.
        trust: As in `read_weights`.
    """
    if name is None:
        return
    mean, std = named_normalization(name, weights, trust)
    preprocessor = config.model.get('data_preprocessor')
    if not preprocessor or 'mean' not in preprocessor:
        raise UserError('--normalization: the data preprocessor of the config has no mean and std.')
    preprocessor.mean, preprocessor.std = list(mean), list(std)


def named_normalization(
    name: str, weights: str | None = None, trust: bool = False
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and std of that name; the arguments are those of `set_normalization`."""
    if name in NORMALIZATIONS:
        return NORMALIZATIONS[name]
    if name != WEIGHTS:
        known = [*NORMALIZATIONS, WEIGHTS]
        raise UserError(
            f'--normalization {name} is not one of {", ".join(known)}.{did_you_mean(name, known)}'
        )
    found = normalization_of(weights, trust) if weights else None
    if found is None:
        why = (
            f'{weights} does not say how its images were normalised'
            if weights
            else 'there are no weights to follow'
        )
        raise UserError(
            f'--normalization weights: {why}. Name it: {", ".join(NORMALIZATIONS)} (see '
            'docs/pretraining.md).'
        )
    return found


def normalization_of(
    weights: str, trust: bool = False
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return the mean and std of weights, if known: from our checkpoints and timm names."""
    name = str(weights).removeprefix('hf-hub:').removeprefix('timm/')
    if '/' not in name and timm.is_model(name):
        cfg = timm.get_pretrained_cfg(name)
        if cfg is not None and cfg.mean:
            return tuple(255 * v for v in cfg.mean), tuple(255 * v for v in cfg.std)
        return None
    record = Provenance.of_checkpoint(read_weights(weights, trust)[0])
    return (record.mean, record.std) if record and record.mean else None


def normalization_caution(model: nn.Module, weights: str | None, trust: bool = False) -> str:
    """Return a warning if a model and its initial weights are known to differ in it."""
    own = Provenance.of_model(model)
    found = normalization_of(weights, trust) if weights else None
    if found is None:
        return ''
    made = Provenance(mean=found[0], std=found[1])
    if not differs(made, own):
        return ''
    return (
        f'{weights} was trained with images of {normalization_text(made)}, the config has '
        f'{normalization_text(own)}; --normalization weights follows the weights'
    )
