"""Times that published figures of a GPU give for what was counted.

A kernel takes as long as its start, its operations at the peak rate, or its bytes at the peak
bandwidth, whichever is longest. No real kernel reaches these peaks: the times are lower bounds, and
only ratios of two models on the same GPU are meant to be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .cost import Cost

LAUNCH = 5e-6  # seconds


@dataclass(frozen=True)
class Gpu:
    """Published figures: dense products in operations a second, bytes a second."""

    name: str
    float32: float
    tf32: float
    half: float
    bandwidth: float


#: From NVIDIA's data sheets: A100 SXM 80 GB, H100 SXM; without sparsity.
A100 = Gpu('A100', 19.5e12, 156e12, 312e12, 2.0e12)
H100 = Gpu('H100', 67e12, 494.5e12, 989e12, 3.35e12)
GPUS = (A100, H100)

#: Whether convolutions and other products of float32 numbers run in TF32.
TF32 = {
    'fp32': {'convolution': False, 'product': False},
    'torch': {'convolution': True, 'product': False},  # torch's own default
    'tf32': {'convolution': True, 'product': True},
    'bf16': {'convolution': True, 'product': True},
    'fp16': {'convolution': True, 'product': True},
}


def seconds(costs: Iterable[Cost], gpu: Gpu, precision: str) -> float:
    """Return the time of all operations, one after another."""
    return sum(_one(cost, gpu, TF32[precision]) for cost in costs)


def _one(cost: Cost, gpu: Gpu, tf32: dict[str, bool]) -> float:
    rate = gpu.float32
    if cost.product:
        if cost.itemsize < 4:
            rate = gpu.half
        elif tf32[cost.product]:
            rate = gpu.tf32
    return max(cost.kernels * LAUNCH, cost.operations / rate, cost.bytes / gpu.bandwidth)
