"""A backbone's linear layers and attention by the library that is fast on this processor."""

from __future__ import annotations

from typing import Any

from timm.layers import Attention
from torch import Tensor, nn

from ..ops.attention import attend, attention_pays
from ..ops.products import mkl_is_slow, product
from .vit import ViTCB


class FastLinear(nn.Linear):
    """torch's linear layer by `product`: the same parameters, keys and results, up to rounding."""

    #: For the record of a checkpoint: the class whose results these are.
    equivalent_to = 'Linear'

    def forward(self, x: Tensor) -> Tensor:
        """Compute (…, out_features) from (…, in_features)."""
        return product(x, self.weight, self.bias)


class FastAttention(Attention):
    """timm's attention by `attend`: the same parameters, keys and results, up to rounding."""

    equivalent_to = 'Attention'

    def forward(self, x: Tensor, *masks: Any, **named_masks: Any) -> Tensor:
        """Let tokens (B, N, C) attend to each other."""
        masked = any(
            each is not None and each is not False for each in (*masks, *named_masks.values())
        )
        plain = self.fused_attn and getattr(self, 'gate', None) is None and not self.training
        if masked or not plain or not attention_pays(x):
            return super().forward(x, *masks, **named_masks)
        qkv = self.qkv(x).unflatten(2, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        mixed = attend(self.q_norm(q), self.k_norm(k), v, self.scale).flatten(2)
        return self.proj_drop(self.proj(self.norm(mixed)))


#: torch's or timm's class -> the one with its parameters.
_FAST: dict[type[nn.Module], type[nn.Module]] = {nn.Linear: FastLinear, Attention: FastAttention}


def use_fast_products(model: nn.Module) -> None:
    """Let linear layers and attention of every `ViTCB` in a model be fast, where torch's are not.

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
            if type(module) in _FAST:
                module.__class__ = _FAST[type(module)]  # itself it stays, for whoever holds it
