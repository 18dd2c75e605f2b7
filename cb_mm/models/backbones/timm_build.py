"""timm models for images of any size, where possible; their strides; their fixed sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import timm
from timm.models.eva import Eva
from timm.models.pit import PoolingVisionTransformer
from timm.models.vision_transformer import VisionTransformer
from timm.models.volo import VOLO
from torch import nn

from ...errors import UserError, did_you_mean

#: Options that make timm's models take images of any size; each model has one of them.
_ANY_SIZE: tuple[dict[str, Any], ...] = (
    {'strict_img_size': False},  # Swin; first, since it takes and ignores the others
    {'dynamic_img_size': True, 'dynamic_img_pad': True},  # ViT
    {'dynamic_img_size': True},
    {},
)


def build_timm_model(
    name: str,
    img_size: int | Sequence[int] | None,
    drop_path_rate: float,
    model_kwargs: Mapping[str, Any] | None,
) -> nn.Module:
    """Build a timm model without classifier and without pretrained weights.

    Raises:
        UserError: Unknown model, options that it does not have, or a model without feature maps.
    """
    if not isinstance(name, str) or not timm.is_model(name):
        hint = did_you_mean(str(name).split('.')[0], timm.list_models(), most=3)
        raise UserError(f'model_name={name!r} is not a timm model.{hint}')
    options: dict[str, Any] = {'num_classes': 0, **(model_kwargs or {})}
    if img_size is not None:
        options['img_size'] = img_size if isinstance(img_size, int) else tuple(img_size)
    rates: list[dict[str, Any]] = [
        {'drop_path_rate': drop_path_rate},
        *([{}] if drop_path_rate == 0 else []),
    ]
    refusal: TypeError | None = None
    for rate in rates:
        for any_size in _ANY_SIZE:
            try:
                model = timm.create_model(name, pretrained=False, **options, **rate, **any_size)
            except TypeError as error:
                refusal = error
            else:
                return _checked(model, name)
    hint = ' It takes images of any size: leave img_size out.' if 'img_size' in str(refusal) else ''
    raise UserError(f'{name} cannot be built with these options: {refusal}.{hint}') from refusal


def _checked(model: nn.Module, name: str) -> nn.Module:
    if not hasattr(model, 'forward_intermediates') or not getattr(model, 'feature_info', None):
        raise UserError(f"{name}: timm's {type(model).__name__} returns no intermediate maps.")
    patches: Any = getattr(model, 'patch_embed', None)
    if getattr(patches, 'strict_img_size', None) is False:
        patches.dynamic_img_pad = True  # images that are not whole patches: zeros at the end
    if isinstance(model, PoolingVisionTransformer):
        model.group_matcher = group_pit
    if isinstance(model, (VisionTransformer, Eva)):
        model.group_matcher = group_vit
    return model


def group_vit(coarse: bool = False) -> dict[str, Any]:
    """Return which layer a parameter of a plain transformer belongs to.

    timm places the norm before the blocks (CLIP, Perception Encoder) and learned rotary
    frequencies behind the last block, though the first block is the first to use them.
    """
    return {
        'stem': r'^(?:\w+_token|pos_embed|patch_embed|norm_pre|rope)',
        'blocks': [(r'^blocks\.(\d+)', None), (r'^norm\.', (99999,))],
    }


def group_pit(coarse: bool = False) -> dict[str, Any]:
    """Return which layer a PiT parameter belongs to; timm has this for nearly all other models."""
    fine = [
        (r'^transformers\.(\d+)\.pool', (0,)),
        (r'^transformers\.(\d+)\.blocks\.(\d+)', None),
        (r'^norm', (99999,)),
    ]
    return {
        'stem': r'^(?:patch_embed|pos_embed|cls_token)',
        'blocks': [(r'^transformers\.(\d+)', None), (r'^norm', (99999,))] if coarse else fine,
    }


def strides_of(model: nn.Module) -> tuple[int, ...]:
    """Return the pixels per cell of each of the model's feature maps."""
    if isinstance(model, PoolingVisionTransformer):
        # timm reports one less than the stride of the patches, doubled by each stage.
        first = model.patch_embed.conv.stride[0]
        return tuple(first * 2**i for i in range(len(model.feature_info)))
    return tuple(info['reduction'] for info in model.feature_info)


def fixed_size(model: nn.Module) -> tuple[int, int] | None:
    """Return the only image size that the model takes; None when it takes any."""
    if isinstance(model, PoolingVisionTransformer):  # its position embedding is added as it is
        return tuple(model.patch_embed.img_size)
    if isinstance(model, VOLO) and model.pos_embed is not None:
        reduction: Any = model.feature_info[-1]['reduction']
        height, width = model.pos_embed.shape[1:3]
        return height * reduction, width * reduction
    patches: Any = getattr(model, 'patch_embed', None) or getattr(model, 'stem', None)
    if getattr(patches, 'strict_img_size', False):
        return tuple(patches.img_size)
    return None
