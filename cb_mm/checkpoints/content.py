"""Check that the content of a checkpoint is plain: valid tensors in containers of sane depth."""

from __future__ import annotations

from argparse import Namespace
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from mmengine.logging import HistoryBuffer

from .arrays import MOST_AXES
from .parts import DTYPES
from .plain_pickle import Foreign, Name, Refused

_DEEPEST = 100
#: Containers can hold one another many times over: so many items, written out, and no more.
_MOST_ITEMS = 20_000_000
_KINDS = {str(dtype) for dtype in DTYPES.values()}


def require_plain(content: Any) -> None:
    """Refuse containers that hold themselves, are too deep or too many, and unusable tensors."""
    sizes: dict[int, tuple[int, int]] = {}  # of a container: items below it, and depth
    open_containers: dict[int, None] = {}
    path: list[tuple[Any, Iterator[Any], list[int]]] = []

    def enter(item: Any) -> tuple[int, int] | None:
        children = _children(item)
        if children is None:
            _require_sound(item)
            return 1, 0
        if id(item) in sizes:
            return sizes[id(item)]
        if id(item) in open_containers:
            raise Refused('has a container that holds itself')
        if len(path) > _DEEPEST:
            raise Refused(f'has containers more than {_DEEPEST} deep')
        open_containers[id(item)] = None
        path.append((item, iter(children), [1, 0]))
        return None

    enter(content)
    while path:
        item, children, total = path[-1]
        for child in children:
            size = enter(child)
            if size is None:
                break
            _add(total, size)
        else:
            path.pop()
            del open_containers[id(item)]
            sizes[id(item)] = (total[0], total[1] + 1)
            if path:
                _add(path[-1][2], sizes[id(item)])


def _add(total: list[int], child: tuple[int, int]) -> None:
    total[0] += child[0]
    total[1] = max(total[1], child[1])
    if total[0] > _MOST_ITEMS:
        raise Refused('has containers that hold one another too many times')
    if total[1] > _DEEPEST:
        raise Refused(f'has containers more than {_DEEPEST} deep')


def _children(item: Any) -> list[Any] | None:
    if isinstance(item, OrderedDict) and not _is_metadata(getattr(item, '_metadata', {})):
        del vars(item)['_metadata']
    if isinstance(item, dict):
        return [*item.values()]
    if isinstance(item, (list, tuple)):
        return list(item)
    if type(item) is Namespace:
        return [*vars(item).values()]
    return None


def _is_metadata(value: Any) -> bool:
    """Return whether it is what Module.state_dict adds: the versions of the modules."""
    return isinstance(value, dict) and all(
        type(part) is dict and all(type(version) is int for version in part.values())
        for part in value.values()
    )


def _require_sound(item: Any) -> None:
    if isinstance(item, Name):
        raise Foreign(item.text)
    if isinstance(item, torch.Tensor):
        _require_usable(item)
    elif isinstance(item, HistoryBuffer):
        _require_history(item)


def _require_usable(tensor: torch.Tensor) -> None:
    """Refuse tensors that make most of torch's functions raise a RuntimeError, or worse."""
    if tensor.is_meta:
        raise Refused('holds a meta tensor, which has a size but no numbers')
    if tensor.layout != torch.strided or tensor.is_nested:
        raise Refused('holds a sparse tensor. Save its to_dense() instead')
    if tensor.dim() > MOST_AXES:  # torch's functions take up to 64
        raise Refused(f'holds a tensor of {tensor.dim()} axes')
    if tensor.is_quantized:
        raise Refused('holds a quantized tensor. Save its dequantize() instead')
    if str(tensor.dtype) not in _KINDS:
        raise Refused(f'holds numbers of the kind {tensor.dtype}. Save the float() of them instead')
    if tensor.dtype == torch.bool and tensor.numel() and int(tensor.view(torch.uint8).max()) > 1:
        raise Refused('is damaged: a tensor of true and false has other values')


def _require_history(history: HistoryBuffer) -> None:
    """Refuse a history of anything but numbers: mmengine computes with it when a run resumes."""
    log, count, length = (
        vars(history).get(key) for key in ('_log_history', '_count_history', 'max_length')
    )
    sound = all(
        type(x) is np.ndarray and x.ndim == 1 and x.dtype.kind in 'biuf' for x in (log, count)
    )
    if not sound or len(log) != len(count) or type(length) is not int or length < 1:
        raise Refused('has a history (mmengine.logging.HistoryBuffer) that is not one of numbers')
