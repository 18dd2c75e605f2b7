"""One training step of a classification config, without a Runner: model, optimizer and loss."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from torch import nn

from cb_mm.engine.training import TrainOptions, prepare_config


def one_step(
    config: str | Path, options: Sequence[str], size: int = 32, classes: int = 3
) -> tuple[nn.Module, float]:
    """Return the model after a step on random images, and its loss."""
    from mmpretrain.structures import DataSample

    prepared = prepare_config(TrainOptions(config=str(config), cfg_options=list(options)))
    init_default_scope(prepared.default_scope)
    torch.manual_seed(0)
    model = MODELS.build(prepared.model)
    before = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
    wrapper = build_optim_wrapper(model, prepared.optim_wrapper)
    images = [torch.randint(256, (3, size, size), dtype=torch.uint8) for _ in range(4)]
    samples = [DataSample().set_gt_label(i % classes) for i in range(4)]
    losses = model.train().train_step(dict(inputs=images, data_samples=samples), wrapper)
    moved = [n for n, p in model.named_parameters() if n in before and not p.equal(before[n])]
    assert moved, 'the step changed nothing'
    return model, losses['loss'].item()
