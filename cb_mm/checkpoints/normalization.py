"""Mean and std of the images, which must match those of the weights."""

from __future__ import annotations

from typing import Any

import timm
from mmengine.config import Config
from timm.models import load_model_config_from_hf
from torch import nn

from ..errors import UserError, did_you_mean
from .cautions import caution
from .provenance import Provenance, differs, normalization_text
from .published import (
    is_of_mmpretrain,
    is_published,
    published_normalization,
    recorded_normalization,
)
from .sources import cache_alone_without_network, is_hub_name, read_weights, timm_name

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
        name: One of `NORMALIZATIONS`; 'weights' for what the weights must say; None for what they
            say, if they do.
        weights: The file or timm name that the model starts from.
        trust: As in `read_weights`.
    """
    if name is None:
        if weights is not None:
            _follow(config, weights, trust)
        return
    mean, std = named_normalization(name, weights, trust)
    preprocessor = _preprocessor(config)
    if not preprocessor or 'mean' not in preprocessor:
        raise UserError('`normalization`: the data preprocessor of the config has no mean and std.')
    preprocessor.mean, preprocessor.std = list(mean), list(std)


def _preprocessor(config: Config) -> Any:
    """Return the settings of the preprocessor: the model's, or those beside it."""
    return config.model.get('data_preprocessor') or config.get('data_preprocessor')


def _follow(config: Config, weights: str, trust: bool) -> None:
    """Take mean and std from the weights, and say so where the config has others."""
    preprocessor = _preprocessor(config)
    if not preprocessor or 'mean' not in preprocessor:
        return
    if is_hub_name(weights):
        found, published = normalization_of(weights), True
    else:
        content = read_weights(weights, trust)[0]
        found, published = normalization_in(content, weights), is_published(content, config.model)
    if found is None:
        if published and 'head' in config.model:
            raise UserError(
                f'checkpoint {weights} does not say how its images were normalised, and a wrong '
                'mean and std cost many points. Pass `normalization` imagenet (DeiT, DINO, MAE), '
                "half (AugReg and Google's) or clip."
            )
        return
    own = Provenance(mean=tuple(preprocessor.mean), std=tuple(preprocessor.std))
    made = Provenance(mean=found[0], std=found[1])
    if differs(made, own):
        preprocessor.mean, preprocessor.std = list(found[0]), list(found[1])
        caution(
            f'images: {normalization_text(made)}, as {weights} was trained; the config has '
            f'{normalization_text(own)}'
        )


def named_normalization(
    name: str, weights: str | None = None, trust: bool = False
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and std of that name; the arguments are those of `set_normalization`.

    Published weights that are known for others are a caution: the name may be an experiment. What a
    checkpoint of ours records is compared when it is loaded.
    """
    if name in NORMALIZATIONS:
        if weights is not None:
            _caution_of_others(name, weights, trust)
        return NORMALIZATIONS[name]
    if name != WEIGHTS:
        known = [*NORMALIZATIONS, WEIGHTS]
        raise UserError(
            f'`normalization` {name} is not one of {", ".join(known)}.{did_you_mean(name, known)}'
        )
    found = normalization_of(weights, trust) if weights else None
    if found is None:
        why = (
            f'{weights} does not say how its images were normalised'
            if weights
            else 'there are no weights to follow'
        )
        raise UserError(
            f'`normalization` weights: {why}. Name it: {", ".join(NORMALIZATIONS)} (see '
            'docs/pretraining.md).'
        )
    return found


def _caution_of_others(name: str, weights: str, trust: bool) -> None:
    if is_hub_name(weights):
        found = normalization_of(weights)
    else:
        content = read_weights(weights, trust)[0]
        recorded = Provenance.of_checkpoint(content) is not None
        found = None if recorded else normalization_in(content, weights)
    if found is None:
        return
    made, named = (Provenance(mean=mean, std=std) for mean, std in (found, NORMALIZATIONS[name]))
    if differs(made, named):
        caution(
            f'images: {normalization_text(named)}, as asked for, but {weights} was trained with '
            f'{normalization_text(made)}; `normalization` weights follows it'
        )


def normalization_of(
    weights: str, trust: bool = False
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return the mean and std of weights, if known: from our records, timm names, timm's files."""
    if not is_hub_name(weights):
        return normalization_in(read_weights(weights, trust, keep=True)[0], weights)
    name = timm_name(weights)
    cfg = _notes_in_timm(name) if name else _notes_on_the_hub(weights)
    if cfg.get('mean') and cfg.get('std'):
        return tuple(255 * v for v in cfg['mean']), tuple(255 * v for v in cfg['std'])
    return None


def _notes_in_timm(name: str) -> dict[str, Any]:
    """Return what timm says of one of its models; nothing where it has no weights for it."""
    try:
        cfg = timm.get_pretrained_cfg(name)
    except RuntimeError as error:  # no such tag
        known = timm.list_pretrained(f'{name.partition(".")[0]}.*')
        raise UserError(
            f'timm has no weights {name!r}.{did_you_mean(name, known)} It has: {", ".join(known)}.'
        ) from error
    return cfg.to_dict() if cfg is not None else {}


def _notes_on_the_hub(weights: str) -> dict[str, Any]:
    """Return what a model of anyone's on the hub says of its images."""
    try:
        with cache_alone_without_network():
            return load_model_config_from_hf(weights.partition(':')[2])[0] or {}
    except Exception:  # each of the hub's clients has its own errors; reading the weights says it
        return {}


def normalization_in(content: Any, file: str) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return the mean and std that a checkpoint records, or that a published one is known for."""
    record = Provenance.of_checkpoint(content)
    if record is not None:
        return (record.mean, record.std) if record.mean else None
    if is_of_mmpretrain(content):
        return recorded_normalization(content)
    return published_normalization(file) if is_published(content) else None


def normalization_caution(model: nn.Module, weights: str | None) -> str:
    """Return a warning if a model and its initial weights are known to differ in it."""
    own = Provenance.of_model(model)
    report = getattr(getattr(model, 'backbone', None), 'weights_report', None)
    if weights and report is not None and not is_hub_name(weights):
        found = report.normalization  # the file was read when the model took it
    else:
        found = normalization_of(weights) if weights else None
    if found is None:
        return ''
    made = Provenance(mean=found[0], std=found[1])
    if not differs(made, own):
        return ''
    return (
        f'{weights} was trained with images of {normalization_text(made)}, the config has '
        f'{normalization_text(own)}; `normalization` weights follows the weights'
    )
