"""Arrays and numbers of numpy from checkpoints: plain numbers and text of a checked size.

numpy's own functions for it take a pointer for an object and any offset for a place in memory.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import torch

from .plain_pickle import Name, Refused

#: Of a tensor or an array; numpy 1 has no more.
MOST_AXES = 32
_NUMPY_CODES = re.compile(r'b1|[iu][1248]|f[248]|c8|c16|[US][1-9]\d{0,4}')


def integers(values: Any) -> tuple[int, ...]:
    """Return sizes, strides or offsets that a machine can have."""
    if type(values) not in (tuple, list, torch.Size) or len(values) > MOST_AXES:
        raise Refused('is damaged: a tensor has an impossible size')
    if any(type(n) is not int or not 0 <= n < 1 << 48 for n in values):
        raise Refused('is damaged: a tensor has an impossible size')
    return tuple(values)


def number_type(code: Any, *_: Any) -> np.dtype:
    """Return a type of numbers or text by its code; there is none for objects and records."""
    if type(code) is not str or not _NUMPY_CODES.fullmatch(code):
        raise Refused('holds a numpy array of something other than numbers or text')
    return np.dtype(f'<{code}')


def require_native(state: Any) -> None:
    """Refuse the state of a numpy dtype with a foreign byte order or with fields."""
    order = state[1] if type(state) is tuple and len(state) >= 5 else None
    if type(order) is not str or order not in ('<', '|', '='):
        raise Refused('holds a numpy array with another byte order. Save it on this machine')
    if any(part is not None for part in state[2:5]):
        raise Refused('holds a numpy array of records. Save plain arrays instead')


def empty_array(kind: Any, *_: Any) -> np.ndarray:
    """Return an array that gets its numbers later."""
    if kind != Name('numpy.ndarray'):
        raise Refused('is damaged: an array is not one')
    return np.empty(0, np.int8)


def array_of_bytes(data: Any, dtype: Any, shape: Any, order: Any, *_: Any) -> np.ndarray:
    """Return how protocol 5 writes an array."""
    array = np.empty(0, np.int8)
    data = bytes(data) if type(data) is bytearray else data
    fortran = type(order) is str and order == 'F'
    fill_array(array, (1, shape, dtype, fortran, data))
    return array


def fill_array(array: np.ndarray, state: Any) -> None:
    """Give an array its numbers: as many bytes as its size needs."""
    if type(state) is not tuple or len(state) != 5 or array.shape != (0,):
        raise Refused('is damaged: an array has no state')
    _, shape, dtype, fortran, data = state
    shape = integers(shape)
    if (
        not isinstance(dtype, np.dtype)
        or type(data) is not bytes
        or math.prod(shape) * dtype.itemsize != len(data)
        or math.prod(max(n, 1) for n in shape) > 1 << 48
    ):
        raise Refused('is damaged: an array does not have the bytes that its size needs')
    _require_text(dtype, data)
    own_state: Any = (1, shape, dtype, fortran is True, data)
    array.__setstate__(own_state)


def scalar(dtype: Any, data: Any = None) -> np.generic:
    """Return one number or text."""
    if not isinstance(dtype, np.dtype) or type(data) is not bytes or len(data) != dtype.itemsize:
        raise Refused('is damaged: a number of numpy does not have its bytes')
    _require_text(dtype, data)
    return np.frombuffer(data, dtype)[0]


def _require_text(dtype: np.dtype, data: bytes) -> None:
    if dtype.kind == 'U' and data and np.frombuffer(data, '<u4').max() > 0x10FFFF:
        raise Refused('is damaged: a text of numpy has characters that do not exist')
