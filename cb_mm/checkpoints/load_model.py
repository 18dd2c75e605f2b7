"""The only way to load a trained checkpoint into its model."""

from __future__ import annotations

import copy
from pathlib import Path

from mmengine.config import Config
from mmengine.logging import print_log
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn

from ..compat.wrappers import with_weights
from ..config.explain import explaining_build_errors, require_keys
from ..config.loading import replace_sync_bn
from ..errors import UserError, require_name
from .backbone_weights import WEIGHTS_LINE, find_backbone, summary
from .cautions import caution
from .classifier import as_classifier
from .label_set import LabelSet
from .layouts import fit, is_spare
from .match import require_fit, weights_in
from .provenance import check_exact, plain_weights_caution
from .published import is_published
from .sources import read_weights


def load_model(
    config: Config,
    checkpoint: str | Path,
    part: str | None = None,
    *,
    labels: LabelSet | None = None,
    trust: bool = False,
    allow_mismatch: bool = False,
    scope: str = 'mmengine',
) -> nn.Module:
    """Build the model of a config, or a part of it, and load exactly its weights.

    Args:
        config: A whole config; it is not changed. SyncBN becomes BN, which does the same in
            evaluation. To normalise images differently, call `set_normalization` before.
        checkpoint: File with the weights of exactly this model. A model that is a backbone by
            itself also takes the file of a classifier; its head is left out, and that is logged.
            A classifier also takes a published one: timm's, DeiT's, Google's or mmpretrain's.
        part: Build and load only this part of the model, such as 'backbone'.
        labels: What the labels of the data mean; by default what the config says of its data sets.
        trust: Let the checkpoint be unpickled without limits.
        allow_mismatch: Also take a checkpoint that says that it was trained with another
            broadcast, other settings or other classes.
        scope: Where names of classes are looked up when the config has no ``default_scope``.

    Returns:
        The model in evaluation mode, on the CPU; with the classes, where they are known, in
        ``dataset_meta``, as in mmseg and mmdet.

    Raises:
        UserError: The checkpoint is not of this model, to the last name and shape; it has values
            that are not finite; or its record says that it was trained with something else.
    """
    require_name(checkpoint, 'checkpoint')
    content, layout = read_weights(checkpoint, trust=trust)
    require_keys(config, 'model')
    config = copy.deepcopy(config)
    init_default_scope(config.get('default_scope', scope))
    replace_sync_bn(config)
    if config.get('data_preprocessor') and 'backbone' in config.model:  # as mmengine's Runner does
        config.model.setdefault('data_preprocessor', config.data_preprocessor)
    with explaining_build_errors(config):
        model = MODELS.build(config.model if part is None else config.model[part])
        context = model if part is None else _Whole(config, part, model)
    published = is_published(content, config.model) and 'backbone' in config.model
    if published and part is None:
        weights = as_classifier(content, layout, model, checkpoint)
    elif published and 'head' in config.model:  # no segmentor was trained with a published ViT
        target = getattr(model, 'weights_target', model)
        weights, _ = fit(find_backbone(content, layout, target), target)
    else:
        weights = _weights_of(part, weights_in(content), checkpoint)
    target = with_weights(model)
    if part is not None or 'backbone' not in config.model:
        target = _target(target, weights)
        weights = _without_heads(weights, target, checkpoint)
    require_fit(target, weights, checkpoint)
    if part is None:
        labels = labels or LabelSet.of_config(config)
        classes = LabelSet.of_checkpoint(content).classes or labels.classes
        if classes:
            model.dataset_meta = {'classes': classes}
    check_exact(str(checkpoint), content, context, allow_mismatch, labels)
    if published and not allow_mismatch and (note := plain_weights_caution(str(checkpoint), model)):
        caution(note)
    target.load_state_dict(weights, strict=False)  # older files do not count batches
    return model.eval()


class _Whole(nn.Module):
    """A part in its place beside the data preprocessor, for comparison with a record."""

    def __init__(self, config: Config, part: str, model: nn.Module) -> None:
        super().__init__()
        self.add_module(part, model)
        preprocessor = config.model.get('data_preprocessor')
        if preprocessor:
            self.data_preprocessor = MODELS.build(preprocessor)


def _weights_of(
    part: str | None, weights: dict[str, Tensor], checkpoint: str | Path
) -> dict[str, Tensor]:
    """Return the weights of the part, under its own names."""
    if part is None:
        return weights
    start = f'{part}.'
    inside = {key[len(start) :]: weights[key] for key in weights if key.startswith(start)}
    if not inside:
        raise UserError(
            f'checkpoint {checkpoint} has no {start}* weights (it has {summary(weights, 3)}), so '
            'it was not trained with this config. For the bare weights of a ViT, give the name of '
            'its timm model in place of the config.'
        )
    return inside


def _target(model: nn.Module, weights: dict[str, Tensor]) -> nn.Module:
    """Return the model, or the timm model inside where the file has that one's names."""
    own = model.state_dict()
    return model if any(key in own for key in weights) else getattr(model, 'weights_target', model)


def _without_heads(
    weights: dict[str, Tensor], backbone: nn.Module, checkpoint: str | Path
) -> dict[str, Tensor]:
    """Leave out what a backbone has no use for, and say so in one line."""
    own = backbone.state_dict()
    spare = [key for key in weights if key not in own and is_spare(key)]
    if spare:
        print_log(
            f'{WEIGHTS_LINE}{checkpoint}: left out as expected: {summary(spare)}', logger='current'
        )
    lacking = [key for key in own if key not in weights]
    if lacking and all(key.startswith('pyramid.') for key in lacking):
        raise UserError(
            f'checkpoint {checkpoint} has no pyramid, and this model has one. For the model '
            'without it, set pyramid=False in the config.'
        )
    return {key: value for key, value in weights.items() if key not in spare}
