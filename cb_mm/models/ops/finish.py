"""What follows a convolution in evaluation, applied while its result is still in the cache."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Finish(NamedTuple):
    """A factor and a term per channel, and a ReLU.

    Attributes:
        scale: (K,) or None.
        shift: (K,) or None.
        relu: Whether negative values become zero.
    """

    scale: Tensor | None = None
    shift: Tensor | None = None
    relu: bool = False

    def apply_(self, x: Tensor) -> None:
        """Change x (..., K) in place."""
        if self.scale is not None and self.shift is not None:
            torch.addcmul(self.shift, x, self.scale, out=x)
        elif self.scale is not None:
            x.mul_(self.scale)
        elif self.shift is not None:
            x.add_(self.shift)
        if self.relu:
            x.relu_()
