"""What was computed from a weight, kept for the next pass of an evaluation.

Nothing is stored in a module, so that state dicts, copies and pickles do not know of it, and it
goes with its weight. It is never stale: every use compares the weight with the values that it was
computed from. A counter of changes would be cheaper, but ``weight.data.copy_()`` does not count,
which is how averaged weights are swapped in.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary


class Prepared:
    """Tensors computed from one weight, by what they are."""

    def __init__(self, weight: Tensor) -> None:
        self._seen = weight.detach().clone(memory_format=torch.preserve_format)
        self._made: dict[tuple[Callable[[Tensor], Tensor], int, int], Tensor] = {}

    def holds_for(self, weight: Tensor) -> bool:
        """Return whether the weight has the values that these were computed from."""
        return self._seen.shape == weight.shape and torch.equal(self._seen, weight)

    def get(self, make: Callable[[Tensor], Tensor], start: int, stop: int) -> Tensor:
        """Return what ``make`` computes from the weight of these input channels, once."""
        key = (make, start, stop)
        if key not in self._made:
            # An inference tensor, once kept here, could not take part in anything else.
            with torch.inference_mode(False), torch.no_grad():
                self._made[key] = make(self._seen[:, start:stop])
        return self._made[key]


_kept: MutableMapping[Tensor, Prepared] = WeakIdKeyDictionary()


def prepared(weight: Tensor) -> Prepared:
    """Return what was computed from this weight with its present values."""
    found = _kept.get(weight)
    if found is None or not found.holds_for(weight):
        with torch.inference_mode(False), torch.no_grad():
            found = _kept[weight] = Prepared(weight)
    return found


def forget(weight: Tensor) -> None:
    """Drop what was computed from a weight that is about to change, as in training."""
    _kept.pop(weight, None)


def forget_all() -> None:
    """Drop everything, to have the memory, or to measure it."""
    _kept.clear()


def can_prepare(weight: Tensor, inputs: tuple[Tensor, ...]) -> bool:
    """Return whether this is an evaluation on the CPU, in float32, that nothing records.

    Not while a graph is captured: it holds its own constants. Weights that are computed (by a
    parametrization, say) and subclasses of tensors, as fake ones, are not kept.

    Args:
        weight: What would be kept.
        inputs: All other tensors that the result depends on.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    tensors = (weight, *inputs)
    return (
        type(weight) is nn.Parameter
        and all(type(x) in (Tensor, nn.Parameter) for x in inputs)
        and all(x.device.type == 'cpu' and x.dtype == torch.float32 for x in tensors)
        and not (torch.is_grad_enabled() and any(x.requires_grad for x in tensors))
        and not torch.is_autocast_enabled('cpu')
    )
