"""What one training step of a segmentor asks of a GPU, counted on fake tensors."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import dataclass

import torch
from mmengine.config import Config, ConfigDict
from mmengine.registry import init_default_scope
from mmengine.structures import PixelData
from torch import nn

from ...config.loading import replace_sync_bn
from ...engine.optim.precision import Precision
from ..benchmark_models import without_weights
from .cost import Cost, CostCounter, counting
from .fake_device import SECOND_DEVICE, SecondDeviceAutocast, fake_tensors, move_to_fake

#: Our heads, and those of mmseg with the same parameters and results.
MMSEG_HEADS = {'FastUPerHead': 'UPerHead', 'FastFCNHead': 'FCNHead'}


@dataclass(frozen=True)
class StepCost:
    """The operations of one training step, in its three parts."""

    forward: list[Cost]
    backward: list[Cost]
    update: list[Cost]

    @property
    def costs(self) -> list[Cost]:
        """All operations."""
        return [*self.forward, *self.backward, *self.update]

    @property
    def kernels(self) -> int:
        """Number of kernels started."""
        return sum(cost.kernels for cost in self.costs)


def with_mmseg_heads(config: Config) -> Config:
    """Return a copy of a config whose heads are mmseg's own."""
    config = copy.deepcopy(config)
    for head in ('decode_head', 'auxiliary_head'):
        if head in config.model:
            kind = config.model[head].type
            config.model[head].type = MMSEG_HEADS.get(kind, kind)
    return config


def fake_model(config: Config, scope: str = 'mmseg') -> nn.Module:
    """Build the model of a config on a device that need not be there."""
    from mmengine.registry import MODELS

    config = copy.deepcopy(config)
    replace_sync_bn(config)
    init_default_scope(scope)
    with torch.device('meta'):
        model = MODELS.build(ConfigDict(without_weights(config.model.to_dict())))
    return move_to_fake(model, SECOND_DEVICE)


def count_training_step(
    config: Config, precision: str, size: tuple[int, int] = (512, 512), batch: int = 2
) -> StepCost:
    """Count forward, losses, backward and a step of AdamW.

    Args:
        config: Of a segmentor.
        precision: One of `roofline.TF32`: 'fp32', 'torch', 'tf32', 'bf16' or 'fp16'.
        size: Height and width of the images.
        batch: Images at once.
    """
    model = fake_model(config).train()
    trained = [p for p in model.parameters() if p.requires_grad]
    with fake_tensors(), products(precision):
        optimizer = torch.optim.AdamW(trained, lr=1e-4, foreach=True)
        _step(model, optimizer, precision, size, batch)  # fills caches, and the optimizer's state
        return _step(model, optimizer, precision, size, batch)


def _step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    precision: str,
    size: tuple[int, int],
    batch: int,
) -> StepCost:
    from mmseg.structures import SegDataSample

    images = torch.empty(batch, 3, *size, device=SECOND_DEVICE)
    labels = torch.empty(batch, 1, *size, dtype=torch.long, device=SECOND_DEVICE)
    facts = dict(img_shape=size, ori_shape=size, pad_shape=size)
    samples = [SegDataSample(gt_sem_seg=PixelData(data=one), metainfo=facts) for one in labels]
    with counting() as forward, autocast(precision):
        losses = model(images, samples, mode='loss')
        # Not parse_losses, which also reads every number for the log.
        loss = sum(value.sum() for name, value in losses.items() if 'loss' in name)
    with CostCounter() as backward:
        loss.backward()
    with CostCounter() as update:
        optimizer.step()
    optimizer.zero_grad()
    return StepCost(forward.costs, backward.costs, update.costs)


def products(precision: str) -> contextlib.AbstractContextManager:
    """Multiply in this precision within the block; 'torch' stands for torch's own settings."""
    if precision == 'torch':
        return contextlib.nullcontext()
    return Precision(precision, 'cuda').products()


def autocast(precision: str) -> contextlib.AbstractContextManager:
    """Cast to half precision within the block, if that is what this is."""
    half = {'bf16': torch.bfloat16, 'fp16': torch.float16}.get(precision)
    return SecondDeviceAutocast(half) if half else contextlib.nullcontext()
