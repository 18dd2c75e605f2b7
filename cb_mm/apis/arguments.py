"""Check what a function of the Python interface is given against its type hints."""

from __future__ import annotations

import inspect
import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from mmengine.config import Config
from torch import nn

from ..errors import UserError

#: Of every other type anything is accepted: what can be done with it is found out where it is used.
_ACCEPTED: dict[Any, tuple[type, ...]] = {
    str: (str, torch.device),  # a device in place of its name
    Path: (str, os.PathLike),
    bool: (Integral, np.bool_),  # 0 and 1 too, but not 'no', which would count as true
    int: (Integral,),
    float: (Real,),
    Config: (Config,),
    nn.Module: (nn.Module,),
    types.NoneType: (types.NoneType,),
}


def check_arguments(function: Callable, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a value of a type that its parameter does not take, such as a string for a list."""
    hints = get_type_hints(function)
    signature = inspect.signature(function)
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        if _fits(value, hints[name]) or value is signature.parameters[name].default:
            continue
        expected = signature.parameters[name].annotation
        shown = repr(value) if isinstance(value, (str, int, float, tuple)) else type(value).__name__
        advice = f' Pass a list: [{value!r}].' if _fits([value], hints[name]) else ''
        raise UserError(f'`{name}` {shown}: this is not of type {expected}.{advice}')


def _fits(value: Any, hint: Any) -> bool:
    kind, inner = get_origin(hint), get_args(hint)
    if kind in (Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if kind is tuple:
        return (
            isinstance(value, Sequence)
            and len(value) == len(inner)
            and all(map(_fits, value, inner))
        )
    if kind is Sequence:
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
            return False
        elements = value if isinstance(value, (list, tuple, np.ndarray)) else ()
        return all(_fits(one, inner[0]) for one in elements)
    return hint not in _ACCEPTED or isinstance(value, _ACCEPTED[hint])
