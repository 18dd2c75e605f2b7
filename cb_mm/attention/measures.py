"""Measures of rows of attention: pure functions of rows (..., queries, tokens) that sum to one."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from .tokens import Tokens


def entropy(rows: Tensor) -> Tensor:
    """Return the entropy of every row in nats: 0 for one key alone, log N for all keys alike."""
    # 0 log 0 is 0: the smallest normal number replaces 0 before the logarithm. torch's own entr
    # does the same several times slower on a CPU.
    tiny = torch.finfo(rows.dtype).tiny
    return rows.clamp(min=tiny).log_().mul_(rows).sum(-1).neg_()


def bound(tokens: int) -> float:
    """Return the largest entropy of a row over so many tokens."""
    return math.log(tokens)


def prefix_mass(rows: Tensor, tokens: Tokens) -> Tensor:
    """Return the share of every row on class, distillation and register tokens."""
    return rows[..., : len(tokens.prefix)].sum(-1)


def keys_for_mass(rows: Tensor, mass: float = 0.9) -> Tensor:
    """Return the share of the keys, heaviest first, that together hold this share of the row.

    ``rows`` may be sorted in place.
    """
    ordered = _sort(rows)
    count = ordered.shape[-1]
    rest = torch.cumsum(ordered, dim=-1)  # from the lightest key on
    # What may be left out. The slack is for rounding: 9 of 10 equal keys hold 0.9.
    spare = (1 - mass) * rest[..., -1:] + 4e-6
    left_out = torch.searchsorted(rest, spare, right=True).squeeze(-1).clamp(max=count - 1)
    return (count - left_out) / count


def _sort(rows: Tensor) -> Tensor:
    if rows.device.type != 'cpu':
        return rows.sort(dim=-1).values
    # numpy sorts floats with vector instructions, some twenty times faster than torch.
    flat = rows.contiguous().reshape(-1, rows.shape[-1]).numpy()
    threads = torch.get_num_threads()
    if threads == 1:
        flat.sort(axis=-1)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda part: part.sort(axis=-1), np.array_split(flat, threads)))
    return torch.from_numpy(flat).reshape(rows.shape)


def strongest(received: Tensor, share: float = 0.01) -> Tensor:
    """Return the part of all attention that the strongest ``share`` of the keys, at least one, get.

    Args:
        received: Mean of the rows, (..., tokens): what each key receives. It sums to one.
        share: Of the keys.
    """
    count = max(round(share * received.shape[-1]), 1)
    return received.topk(count, dim=-1).values.sum(-1)


def value_at_sink(received: Tensor, norms: Tensor) -> Tensor:
    """Return the norm of the value at the strongest key over the mean norm of all values.

    Small: attention there adds nothing, the key is a place to put unused attention. Large: all
    queries receive that value.

    Args:
        received: As in `strongest`.
        norms: Of the values, (..., tokens).
    """
    sink = norms.gather(-1, received.argmax(-1, keepdim=True)).squeeze(-1)
    return sink / norms.mean(-1).clamp(min=torch.finfo(norms.dtype).tiny)


def broadcast_share(total: Tensor, energy: Tensor, count: int) -> Tensor:
    """Return the share of the output that is the same for all queries: |mean o_i|² / mean |o_i|².

    1: every query receives the same vector, as from uniform attention; near 0: the outputs cancel.

    Args:
        total: Sum of the outputs o_i = Σ_j a_ij v_j over the queries, (..., d).
        energy: Sum of |o_i|² over the queries, (...).
        count: Number of queries.
    """
    return total.square().sum(-1) / (count * energy).clamp(min=torch.finfo(energy.dtype).tiny)


def coordinates(tokens: Tokens) -> tuple[Tensor, Tensor]:
    """Return the middle of each row and column of the grid, in units of the image's side."""
    rows, columns = tokens.grid
    return (torch.arange(rows) + 0.5) / rows, (torch.arange(columns) + 0.5) / columns


def bridged_distance(rows: Tensor, queries: slice, tokens: Tokens) -> Tensor:
    """Sum over the other spatial tokens j of ``a_ij |p_i - p_j|_1``, for every spatial query i.

    A token is at distance 0 from itself, so it does not count.

    Args:
        rows: (..., n, N), the rows of the tokens ``queries``.
        queries: The query tokens; prefix tokens among them are left out.
        tokens: Their meaning.

    Returns:
        (..., m), where m <= n is the number of spatial tokens among the queries.
    """
    prefix = len(tokens.prefix)
    height, width = tokens.grid
    skip = min(max(prefix - queries.start, 0), rows.shape[-2])
    spatial = rows[..., skip:, prefix:]
    cells = torch.arange(queries.start + skip, queries.stop, device=rows.device) - prefix
    maps = spatial.unflatten(-1, (height, width))
    # The 1-norm is a sum over the axes, so that the mass of each row and each column of the grid
    # is enough: no table of all distances.
    total = torch.zeros(spatial.shape[:-1], device=rows.device)
    places = (cells // width, cells % width)
    for place, centres, mass in zip(
        places, coordinates(tokens), (maps.sum(-1), maps.sum(-2)), strict=True
    ):
        centres = centres.to(rows.device)
        far = (centres[place].unsqueeze(1) - centres).abs()
        total += (mass * far).sum(-1)
    return total
