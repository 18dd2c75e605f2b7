"""What one training step of Mask R-CNN asks of a GPU, as far as it does not depend on values.

How many boxes are matched, sampled and suppressed depends on the numbers, which fake tensors do not
have. Counted are backbone, neck, RPN head, RoIAlign, box head and mask head for the numbers of
boxes that the sampler aims at, forward and backward, and AdamW; not the losses themselves.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from mmengine.config import Config
from torch import Tensor, nn

from ...models.backbones.vit_arch import set_constant_drop_path
from .cost import CostCounter, counting
from .fake_device import SECOND_DEVICE, fake_tensors
from .training_step import StepCost, autocast, fake_model, products


def with_timm_backbone(config: Config) -> Config:
    """Return a copy of a config with timm's ViT itself, by mmseg's wrapper, and mmseg's pyramid."""
    config = copy.deepcopy(config)
    model, ours = config.model, config.model.backbone
    model.backbone = dict(
        type='mmseg.TIMMBackbone', model_name=f'vit_{ours.arch}_patch16_224', features_only=True,
        pretrained=False, out_indices=ours.out_indices, dynamic_img_size=True,
        drop_path_rate=ours.get('drop_path_rate', 0.0),
    )  # fmt: skip
    pyramid = dict(
        type='mmseg.Feature2Pyramid', embed_dim=model.neck.in_channels[0],
        rescales=[4, 2, 1, 0.5], norm_cfg=dict(type='BN'),
    )  # fmt: skip
    model.neck = [pyramid, model.neck]
    return config


def count_detection_step(
    config: Config,
    precision: str,
    size: tuple[int, int] = (800, 1344),
    batch: int = 2,
    like: Config | None = None,
) -> StepCost:
    """Count forward, backward and a step of AdamW.

    Args:
        config: Of Mask R-CNN.
        precision: As for `count_training_step`.
        size: Height and width of the images.
        batch: Images at once.
        like: A config with ViTCB, whose CB and drop path timm's ViT in `config` gets.
    """
    model = fake_model(config, 'mmdet').train()
    if like is not None:
        _make_like(model.backbone, like)
    trained = [p for p in model.parameters() if p.requires_grad]
    with fake_tensors(), products(precision):
        optimizer = torch.optim.AdamW(trained, lr=1e-4, foreach=True)
        _step(model, optimizer, precision, size, batch)  # fills caches, and the optimizer's state
        return _step(model, optimizer, precision, size, batch)


def _step(
    model: Any,
    optimizer: torch.optim.Optimizer,
    precision: str,
    size: tuple[int, int],
    batch: int,
) -> StepCost:
    images = torch.empty(batch, 3, *size, device=SECOND_DEVICE)
    sampler = model.train_cfg.rcnn.sampler
    boxes = batch * sampler.num
    with counting() as forward, autocast(precision):
        maps = model.extract_feat(images)
        outputs = [*_flat(model.rpn_head(maps))]
        head = model.roi_head
        outputs += head.bbox_head(_cut_out(head.bbox_roi_extractor, maps, boxes))
        masked = int(boxes * sampler.pos_fraction)
        outputs += [head.mask_head(_cut_out(head.mask_roi_extractor, maps, masked))]
        total = sum(output.float().mean() for output in outputs)
    with CostCounter() as backward:
        total.backward()
    with CostCounter() as update:
        optimizer.step()
    optimizer.zero_grad()
    return StepCost(forward.costs, backward.costs, update.costs)


def _make_like(backbone: nn.Module, config: Config) -> None:
    """Give timm's ViT the CB of ViTCB, as the paper's one line, and its drop path."""
    ours = config.model.backbone
    vit = next(part for part in backbone.modules() if hasattr(part, 'blocks'))
    if ours.get('drop_path_mode') == 'constant':
        set_constant_drop_path(vit, ours.drop_path_rate)
    for i in fake_model(config, 'mmdet').backbone.broadcast_layers:
        vit.blocks[i].mlp.register_forward_hook(_one_line)


def _one_line(mlp: nn.Module, inputs: Any, x: Tensor) -> Tensor:
    return (x + x.mean(dim=1, keepdim=True)) / 2


def _cut_out(extractor: Any, maps: Any, boxes: int) -> Tensor:
    """Return what RoIAlign cuts out for so many boxes, an equal share from each map."""
    layers: nn.ModuleList = extractor.roi_layers
    share = boxes // len(layers)
    rois = torch.empty(share, 5, device=SECOND_DEVICE)
    return torch.cat([layer(x.float(), rois) for layer, x in zip(layers, maps, strict=False)])


def _flat(values: Any) -> Any:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        else:
            yield from _flat(value)
