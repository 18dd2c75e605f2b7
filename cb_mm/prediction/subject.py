"""The model that predicts: from a config and a checkpoint, or built already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import init_default_scope
from timm.data import ImageNetInfo
from torch import nn

from ..checkpoints.label_set import LabelSet
from ..checkpoints.load_model import load_model
from ..checkpoints.match import weights_digest
from ..checkpoints.normalization import set_normalization
from ..checkpoints.sources import source_digest
from ..config.explain import explaining_build_errors
from ..config.loading import dataset_configs, load_config
from ..errors import UserError, require_name
from ..fileio.digests import value_digest
from ..models.backbones.fast_products import use_fast_products
from .colours import ClassStyle
from .results import Result, result_of


@dataclass
class Predictor:
    """A model in evaluation mode, its config, and what its classes look like.

    Attributes:
        model: Takes what the test pipeline gives.
        config: Says how images are prepared.
        style: Names and colours of the classes.
        identity: Of its weights and settings.
    """

    model: nn.Module
    config: Config
    style: ClassStyle
    identity: dict[str, Any]

    @torch.no_grad()
    def run(self, samples: Sequence[dict[str, Any]]) -> list[Result]:
        """Predict on images whose inputs have the same size."""
        outputs = self.model.test_step(pseudo_collate(list(samples)))
        try:
            return [result_of(output) for output in outputs]
        except TypeError as error:
            raise UserError(
                f'{type(self.model).__name__} returns {error}; segmentation, detection and '
                'classification can be drawn.'
            ) from error


def load_predictor(
    source: str | Path | Config | nn.Module,
    checkpoint: str | Path | None = None,
    *,
    config: str | Path | Config | None = None,
    cfg_options: Sequence[str] = (),
    device: str | None = None,
    normalization: str | None = None,
    trust: bool = False,
    allow_mismatch: bool = False,
) -> Predictor:
    """Build a model and load its weights, or take a built one.

    Args:
        source: A config, its file, or a built model of mmseg, mmdet or mmpretrain.
        checkpoint: Weights of exactly this model; none for a built one.
        config: Of a built model; by default what it carries in ``model.cfg``.
        cfg_options: Changes to the config.
        device: Where to run; by default a GPU if there is one, or where a built model is.
        normalization: Name of a mean and std, see `set_normalization`.
        trust: Let the checkpoint be unpickled without limits.
        allow_mismatch: Take weights that say that they were trained with something else.
    """
    if isinstance(source, nn.Module):
        for name, value in (('checkpoint', checkpoint), ('normalization', normalization)):
            if value is not None:
                raise UserError(f'`{name}`: the model is built, and keeps what it has.')
        model, given = source.eval(), config or getattr(source, 'cfg', None)
        if given is None:
            raise UserError(
                '`config` is missing: the built model does not carry its config in model.cfg, so '
                'it is not known how images are prepared.'
            )
        settings = load_config(given, cfg_options)
        init_default_scope(settings.get('default_scope', 'mmengine'))
        weights = weights_digest(model)
    else:
        if checkpoint is None:
            raise UserError('`checkpoint` is missing: a config has no weights.')
        settings = load_config(source, cfg_options)
        require_name(checkpoint, 'checkpoint')
        with explaining_build_errors(settings):
            set_normalization(settings, normalization, str(checkpoint), trust)
        model = load_model(settings, checkpoint, trust=trust, allow_mismatch=allow_mismatch)
        use_fast_products(model)
        weights = source_digest(checkpoint)
        device = device or ('cuda' if torch.cuda.is_available() else 'cpu')
    if device is not None:
        try:
            model.to(device)
        except (RuntimeError, AssertionError) as error:
            raise UserError(f'`device` {device} cannot be used: {error}') from error
    meta: Any = getattr(model, 'dataset_meta', None) or {}
    names = meta.get('classes') or LabelSet.of_config(settings).classes
    classes = [str(name) for name in names] or _imagenet_classes(settings)
    style = ClassStyle.of_config(settings, classes)
    identity = {
        'weights': weights,
        'config': value_digest(settings.get('model', {})),
        'data': value_digest(settings.get('test_dataloader', {})),
    }
    return Predictor(model, settings, style, identity)


def _imagenet_classes(config: Config) -> list[str]:
    """Return ImageNet's names for a config of ImageNet's folders, which are numbers; else none."""
    roots = [str(one.get('data_root') or '') for one in dataset_configs(config, ('test',))]
    count = ((config.get('model') or {}).get('head') or {}).get('num_classes')
    if count != 1000 or not any('imagenet' in root.lower() for root in roots):
        return []
    names = ImageNetInfo()
    return [names.index_to_description(number) for number in range(count)]
