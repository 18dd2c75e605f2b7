"""Mask R-CNN with a ViT of one size: ours, mmdet's with timm's ViT, and torchvision's."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import timm
import torch
from mmengine.structures import InstanceData
from torch import Tensor, nn
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.ops import FeaturePyramidNetwork, MultiScaleRoIAlign
from torchvision.ops.feature_pyramid_network import LastLevelMaxPool

from cb_mm.apis.benchmark_models import Subject
from cb_mm.models import FeaturePyramid

#: Objects are proposals too. With random weights there are few others that match, and how many
#: depends on the initial values. So many fill the share of positive boxes of any model.
OBJECTS = 128


def add_objects(subject: Subject) -> None:
    """Give every image `OBJECTS` rectangles of a quarter of its width and height."""
    from mmdet.structures.mask import BitmapMasks

    height, width = subject.images.shape[2:]
    for index, sample in enumerate(subject.samples):
        corner = np.random.default_rng(index).random((OBJECTS, 2)) * 0.7
        boxes = np.concatenate([corner, corner + 0.25], axis=1) * [width, height, width, height]
        masks = np.zeros((OBJECTS, height, width), np.uint8)
        for mask, (left, top, right, bottom) in zip(masks, boxes.astype(int), strict=True):
            mask[top:bottom, left:right] = 1
        sample.gt_instances = InstanceData(
            bboxes=torch.tensor(boxes, dtype=torch.float32),
            labels=torch.zeros(OBJECTS, dtype=torch.long),
            masks=BitmapMasks(masks, height, width),
        )


def expect_objects(classifier: nn.Linear, label: int) -> None:
    """Let every box be an object: 100 of them then reach the mask head, as in a crowded image."""
    with torch.no_grad():
        classifier.bias[label] = 10.0


class OfTorchvision:
    """torchvision's Mask R-CNN on timm's ViT, our pyramid's layers and torchvision's FPN.

    Its numbers of proposals, samples and RoI bins are set to those of mmdet's config.
    """

    def __init__(self, subject: Subject, arch: str) -> None:
        images, samples = subject.images, subject.samples
        self.images = list(images)
        self.targets = [
            dict(
                boxes=sample.gt_instances.bboxes,
                labels=sample.gt_instances.labels + 1,
                masks=torch.from_numpy(sample.gt_instances.masks.masks),
            )
            for sample in samples
        ]
        sides = sorted(images.shape[2:])
        self.model = MaskRCNN(
            _Pyramid(arch), num_classes=81, min_size=sides[0], max_size=sides[1],
            rpn_anchor_generator=AnchorGenerator(
                tuple((side,) for side in (32, 64, 128, 256, 512)), ((0.5, 1.0, 2.0),) * 5
            ),
            rpn_post_nms_top_n_train=1000, box_roi_pool=_align(7), mask_roi_pool=_align(14),
        )  # fmt: skip
        expect_objects(self.model.roi_heads.box_predictor.cls_score, 1)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.0)

    @torch.no_grad()
    def forward(self) -> Any:
        """Predict boxes and masks of the size of the images."""
        return self.model.eval()(self.images)

    def train_step(self) -> None:
        """Run forward, losses, backward, and a step of AdamW that does not change the weights."""
        sum(self.model.train()(self.images, self.targets).values()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def _align(size: int) -> MultiScaleRoIAlign:
    return MultiScaleRoIAlign(['0', '1', '2', '3'], size, sampling_ratio=0)


class _Pyramid(nn.Module):
    out_channels = 256

    def __init__(self, arch: str) -> None:
        super().__init__()
        self.vit = timm.create_model(
            f'vit_{arch}_patch16_224', features_only=True, out_indices=(3, 5, 7, 11),
            dynamic_img_size=True,
        )  # fmt: skip
        width = self.vit.feature_info.channels()[0]
        self.pyramid = FeaturePyramid(width)
        self.fpn = FeaturePyramidNetwork(
            [width] * 4, self.out_channels, extra_blocks=LastLevelMaxPool()
        )

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        maps = self.pyramid(self.vit(images))
        return self.fpn(OrderedDict((str(i), one) for i, one in enumerate(maps)))


def seconds_of_parts(model: Any, job: Callable[[], object]) -> dict[str, float]:
    """Return the CPU seconds that each part of mmdet's model takes in a job, forward."""
    parts = {
        'RoIAlign, boxes': model.roi_head.bbox_roi_extractor,
        'RoIAlign, masks': model.roi_head.mask_roi_extractor,
        'box head': model.roi_head.bbox_head,
        'mask head': model.roi_head.mask_head,
        'RPN convolutions': model.rpn_head.rpn_conv,
    }
    backbone: Any = model.backbone
    if hasattr(backbone, 'pyramid'):
        parts |= {'ViT': backbone, 'pyramid': backbone.pyramid, 'FPN': model.neck}
    else:
        parts |= {'ViT': backbone, 'pyramid': model.neck[0], 'FPN': model.neck[1]}
    spent: Counter[str] = Counter()
    running: list[list[Any]] = []  # [started, seconds of parts within]
    handles = []

    def before(*_: Any) -> None:
        running.append([time.process_time(), 0.0])

    def after(name: str) -> Callable[..., None]:
        def stop(*_: Any) -> None:
            started, within = running.pop()
            took = time.process_time() - started
            spent[name] += took - within
            if running:
                running[-1][1] += took

        return stop

    for name, part in parts.items():
        handles += [part.register_forward_pre_hook(before), part.register_forward_hook(after(name))]
    started = time.process_time()
    try:
        job()
    finally:
        for handle in handles:
            handle.remove()
    total = time.process_time() - started
    return {**spent, 'proposals, NMS, pasting masks': total - sum(spent.values()), 'all': total}
