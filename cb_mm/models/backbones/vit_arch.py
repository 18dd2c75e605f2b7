"""Which Vision Transformer: a short name, a timm name or a dict becomes timm's own model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import timm
from timm.layers import DropPath
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from ...errors import UserError, did_you_mean

#: The sizes of the papers (DeiT's): patch 16, MLP ratio 4, 224² images.
SIZES = {
    'tiny': 'vit_tiny_patch16_224',
    'small': 'vit_small_patch16_224',
    'base': 'vit_base_patch16_224',
    'large': 'vit_large_patch16_224',
}


def build_timm_vit(
    arch: str | Mapping[str, Any],
    img_size: int | Sequence[int] | None,
    drop_path_rate: float,
    **changes: Any,
) -> VisionTransformer:
    """Build timm's own model, without classifier, for images of any size.

    Args:
        arch: Name in `SIZES`, any timm name of a Vision Transformer, or the arguments of timm's
            VisionTransformer.
        img_size: Size that the position embedding is for; None is the model's own.
        drop_path_rate: Of the last block, rising linearly from 0 in the first.
        changes: Arguments of timm's VisionTransformer that differ from those of ``arch``.
    """
    # Images that are not whole patches are padded with zeros at the right and the bottom.
    options: dict[str, Any] = {
        'num_classes': 0,
        'drop_path_rate': drop_path_rate,
        'dynamic_img_size': True,
        'dynamic_img_pad': True,
        **changes,
    }
    if img_size is not None:
        options['img_size'] = img_size if isinstance(img_size, int) else tuple(img_size)
    if isinstance(arch, Mapping):
        clash = sorted({'num_classes', 'dynamic_img_size', 'dynamic_img_pad'} & set(arch))
        if clash:
            raise UserError(f'arch={dict(arch)}: leave out {clash[0]}, ViTCB sets it.')
        try:
            return VisionTransformer(**{**options, **arch, **changes})
        except TypeError as error:
            raise UserError(
                f"arch={dict(arch)} does not fit timm's VisionTransformer: {error}. Its arguments "
                'are named as in dict(patch_size=16, embed_dim=384, depth=12, num_heads=6).'
            ) from error
    name = SIZES.get(arch, arch)
    if not isinstance(name, str) or not timm.is_model(name):
        known = [*SIZES, *timm.list_models(module=['vision_transformer', 'deit'])]
        hint = did_you_mean(str(name).split('.')[0], known, most=3)
        raise UserError(
            f'arch={arch!r} is neither one of {", ".join(SIZES)} nor a timm model.{hint}'
        )
    try:
        model = timm.create_model(name, pretrained=False, **options)
    except RuntimeError as error:  # an unknown tag
        raise UserError(f'arch={arch!r} cannot be built by timm: {error}.') from error
    except TypeError as error:  # a model that is not a ViT does not take these options
        raise UserError(_no_vit(arch, str(error))) from error
    if not isinstance(model, VisionTransformer):
        raise UserError(_no_vit(arch, f'it is a {type(model).__name__}'))
    return model


def set_constant_drop_path(vit: VisionTransformer, rate: float) -> None:
    """Give every block the same drop path, as XCiT does; timm's rises from 0 with the depth."""
    for part in list(vit.blocks.modules()):
        for name, child in list(part.named_children()):
            if name.startswith('drop_path') and isinstance(child, (DropPath, nn.Identity)):
                setattr(part, name, DropPath(rate) if rate else nn.Identity())


def _no_vit(arch: object, reason: str) -> str:
    return (
        f'arch={arch!r} is not a plain Vision Transformer ({reason}). ViTCB takes the models of '
        "timm's vision_transformer.py and deit.py; for all others there is TimmCB: "
        f"backbone=dict(type='TimmCB', model_name={arch!r}, ...)."
    )
