"""Attention as two products, for evaluation where torch's fused kernel is the slower way.

torch's kernel on the CPU has the products of MKL in it. Where MKL is slow (`mkl_is_slow`), on one
thread, two products by oneDNN with a softmax between them took 0.72 of its time at 1,025 tokens and
0.60 at 4,201 (6 heads of 64 channels); at 197 tokens there was nothing to gain.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .products import is_watched, mkl_is_slow, product

_TOKENS = 400
_ROWS = 128  # queries at a time: their weights stay in the cache, and are never all in memory


def attention_pays(x: Tensor) -> bool:
    """Return whether `attend` is the faster way for tokens x (B, N, C), and gives what is asked."""
    plain = x.device.type == 'cpu' and x.dtype == torch.float32 and not torch.is_grad_enabled()
    if not plain or is_watched(x) or not mkl_is_slow():
        return False
    return torch.get_num_threads() == 1 and x.shape[1] >= _TOKENS


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Return the attention's mix of values, (B, N, H, D), from q, k and v (B, H, N, D).

    Args:
        q: Queries.
        k: Keys.
        v: Values.
        scale: Factor of the products of queries and keys.
    """
    out = q.new_empty(q.transpose(1, 2).shape)
    for image in range(len(q)):
        for head in range(q.shape[1]):
            keys, values = k[image, head] * scale, v[image, head].T.contiguous()
            rows = q[image, head].contiguous().split(_ROWS)
            for some, place in zip(rows, out[image, :, head].split(_ROWS), strict=True):
                place.copy_(product(product(some, keys).softmax(dim=-1), values))
    return out
