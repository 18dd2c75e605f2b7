"""What a detector takes."""

from __future__ import annotations

import numpy as np
import torch
from mmdet.structures import DetDataSample
from mmdet.structures.mask import BitmapMasks
from mmengine.structures import InstanceData


def sample(height: int = 128, width: int = 160) -> dict:
    """One image with two objects, as mmdet's pipeline would hand it over."""
    masks = np.zeros((2, height, width), np.uint8)
    masks[0, 20:90, 30:100] = 1
    masks[1, 60:120, 90:150] = 1
    truth = InstanceData(
        bboxes=torch.tensor([[30.0, 20, 100, 90], [90, 60, 150, 120]]),
        labels=torch.tensor([3, 17]),
        masks=BitmapMasks(masks, height, width),
    )
    data = DetDataSample(
        gt_instances=truth, ignored_instances=InstanceData(bboxes=torch.zeros(0, 4))
    )
    data.set_metainfo(
        dict(img_shape=(height, width), ori_shape=(height, width), scale_factor=(1.0, 1.0),
             pad_shape=(height, width), batch_input_shape=(height, width))
    )  # fmt: skip
    image = torch.randint(0, 256, (3, height, width), dtype=torch.uint8)
    return dict(inputs=[image], data_samples=[data])
