"""Models inside the wrappers that training and testing put around them."""

from __future__ import annotations

from mmengine.model import BaseTTAModel, is_model_wrapper
from torch import nn


def unwrap(model: nn.Module) -> nn.Module:
    """Return the model itself, without what spreads it over processes."""
    return model.module if is_model_wrapper(model) else model


def with_weights(model: nn.Module) -> nn.Module:
    """Return the model whose weights a checkpoint has: without test-time augmentation, too."""
    model = unwrap(model)
    return model.module if isinstance(model, BaseTTAModel) else model
