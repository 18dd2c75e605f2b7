"""Which parameters of a model its feature maps depend on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


def used_parameters(backbone: nn.Module, model: nn.Module) -> set[str]:
    """Return the names of the timm model's parameters that the maps depend on.

    They are those in the graph of a forward pass without numbers (on torch's meta device). timm's
    own pruning leaves some that no map needs, such as CaiT's class token.

    Args:
        backbone: A ``TimmCB``; its child ``model`` is the timm model.
        model: That child.
    """
    settings: Any = getattr(model, 'default_cfg', None) or {}
    size = getattr(backbone, 'fixed_size', None) or settings.get('input_size', (3, 224, 224))[-2:]
    names = {name for name, _ in model.named_parameters()}
    with torch.enable_grad():
        stand_ins = {
            name: torch.empty_like(value, device='meta').requires_grad_(value.requires_grad)
            for name, value in [*backbone.named_parameters(), *backbone.named_buffers()]
        }
        images = torch.empty(2, 3, *size, device='meta')
        try:
            maps = torch.func.functional_call(backbone, stand_ins, (images,))
        except (RuntimeError, NotImplementedError):  # it looks at the numbers: none is left out
            return names
    used = leaves_of(maps)
    return {name for name in names if stand_ins[f'model.{name}'] in used}


def leaves_of(outputs: Sequence[Tensor]) -> set[Tensor]:
    """Return the parameters that these tensors were computed from."""
    found: set[Tensor] = set()
    seen: set[Any] = set()
    waiting: list[Any] = [output.grad_fn for output in outputs]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, 'variable'):
            found.add(node.variable)
        waiting.extend(following for following, _ in node.next_functions)
    return found
