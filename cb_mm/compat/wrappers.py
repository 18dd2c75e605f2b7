"""Models inside the wrappers that training puts around them."""

from __future__ import annotations

from mmengine.model import is_model_wrapper
from torch import nn


def unwrap(model: nn.Module) -> nn.Module:
    """Return the model itself, without what spreads it over processes."""
    return model.module if is_model_wrapper(model) else model
