"""Ways to run a model faster with the same or nearly the same result, one per tool option."""

from __future__ import annotations

import subprocess

import torch
from torch import Tensor, nn

from ..compat.wrappers import unwrap
from ..errors import UserError

#: Parts of a dense predictor: these are compiled one by one, because losses, matching of boxes and
#: non-maximum suppression around them change shape with every image.
_PARTS = ('backbone', 'neck', 'decode_head', 'auxiliary_head')


def use_channels_last(model: nn.Module) -> None:
    """Keep weights and maps in the memory format that most convolutions prefer.

    Before the model is wrapped for several processes: DDP lays its gradients out as it finds the
    weights, and would otherwise copy each of them in every step.
    """
    model.to(memory_format=torch.channels_last)
    model.backbone.register_forward_pre_hook(_to_channels_last)


def _to_channels_last(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x.contiguous(memory_format=torch.channels_last) for x in inputs)


def compile_parts(model: nn.Module) -> None:
    """Compile backbone, neck and heads with torch.compile; the state-dict keys do not change."""
    model = unwrap(model)
    if next(model.parameters()).device.type == 'cpu':
        require_compiler()
    for name in _PARTS:
        part = getattr(model, name, None)
        if isinstance(part, nn.Module):  # mmseg calls the heads' forward by its name
            part.forward = torch.compile(part.forward)


def require_compiler() -> None:
    """Refuse ``compile`` on the CPU without a C++ compiler, which torch.compile needs."""
    try:
        from torch._inductor.cpp_builder import get_cpp_compiler

        subprocess.run([get_cpp_compiler(), '--version'], capture_output=True, check=True)
    except Exception as error:  # torch raises several types
        raise UserError(
            '`compile` needs a working C++ compiler on the CPU, such as g++; none was found. '
            'Install one, name it in the variable CXX, or leave `compile` out.'
        ) from error
