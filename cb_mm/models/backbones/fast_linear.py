"""A backbone's linear layers by the library that is fast on this processor."""

from __future__ import annotations

from torch import Tensor, nn

from ..ops.products import mkl_is_slow, product
from .vit import ViTCB


class FastLinear(nn.Linear):
    """torch's linear layer by `product`: the same parameters, keys and results, up to rounding."""

    #: For the record of a checkpoint: the class whose results these are.
    equivalent_to = 'Linear'

    def forward(self, x: Tensor) -> Tensor:
        """Compute (…, out_features) from (…, in_features)."""
        return product(x, self.weight, self.bias)


def use_fast_products(model: nn.Module) -> None:
    """Let the linear layers of every `ViTCB` in a model use `product`, where it is not torch's own.

    Our own runs do this to their models. A `ViTCB` in another's hands keeps torch's layers: its
    features are then timm's to the last bit, and tools that look for ``nn.Linear`` find it. Other
    backbones are never changed.
    """
    if not mkl_is_slow():
        return
    for backbone in model.modules():
        if not isinstance(backbone, ViTCB):
            continue
        for module in backbone.modules():
            if type(module) is nn.Linear:
                module.__class__ = FastLinear  # the layer itself stays, and whoever holds it
