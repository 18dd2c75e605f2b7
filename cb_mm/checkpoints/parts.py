"""What a checkpoint may hold beside plain data: tensors, arrays, histories and options.

Each is made by its own function from arguments that were checked before anything is allocated. No
function of torch or numpy is called with unchecked content of a file.
"""

from __future__ import annotations

import math
import re
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from mmengine.logging import HistoryBuffer

from . import plain_objects as plain
from .arrays import (
    array_of_bytes,
    empty_array,
    fill_array,
    integers,
    number_type,
    require_native,
    scalar,
)
from .plain_pickle import Foreign, Name, Refused

#: The kinds of numbers that a model can have.
DTYPES = {
    str(dtype): dtype
    for dtype in (
        torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
        torch.complex128, torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
        torch.int8, torch.int16, torch.int32, torch.int64,
    )
}  # fmt: skip
_STORAGES = {
    'torch.HalfStorage': torch.float16,
    'torch.BFloat16Storage': torch.bfloat16,
    'torch.FloatStorage': torch.float32,
    'torch.DoubleStorage': torch.float64,
    'torch.ComplexFloatStorage': torch.complex64,
    'torch.ComplexDoubleStorage': torch.complex128,
    'torch.BoolStorage': torch.bool,
    'torch.ByteStorage': torch.uint8,
    'torch.CharStorage': torch.int8,
    'torch.ShortStorage': torch.int16,
    'torch.IntStorage': torch.int32,
    'torch.LongStorage': torch.int64,
    'torch.storage.UntypedStorage': torch.uint8,
}
#: Unsupported kinds of tensors, and what to do with a file that has them.
_ODD_TENSORS = {
    '_rebuild_sparse_tensor': 'a sparse tensor. Save its to_dense() instead',
    '_rebuild_meta_tensor_no_storage': 'a meta tensor, which has a size but no numbers. Save the '
    'model after its weights are loaded',
    '_rebuild_qtensor': 'a quantized tensor. Save its dequantize() instead',
    '_rebuild_nested_tensor': 'a nested tensor. Save its to_padded_tensor(0) instead',
    '_rebuild_wrapper_subclass': 'a tensor of a custom class. Save plain tensors instead',
}
#: A tensor with more numbers than its storage repeats them; small ones are harmless.
_MOST_REPEATED = 1 << 20
#: Bytes that an item takes in the container that is made of it, at most.
_ITEM = 200
_HISTORY = 'mmengine.logging.history_buffer.HistoryBuffer'
_STATISTICS = ('min', 'max', 'mean', 'current')


@dataclass(frozen=True)
class Storage:
    """The numbers of one or more tensors, as bytes."""

    buffer: torch.Tensor
    dtype: torch.dtype


class CheckpointParts:
    """Factory of the parts of one checkpoint.

    Args:
        storage: Returns the `Storage` for a type of numbers and the rest of its identity in the
            file.
        size: Of the file in bytes. All tensors together may show each of its numbers some times:
            weights are shared between layers. What is made of a text, bytes or a container of the
            file is a copy of it, and a file can ask for many copies of one.
    """

    def __init__(self, storage: Callable[[torch.dtype, tuple], Storage], size: int) -> None:
        self._storage = storage
        self._budget = (64 << 20) + 16 * size
        self._copies = (256 << 20) + 2 * size
        rebuild = 'torch._utils._rebuild_'
        self._calls: dict[str, Callable[..., Any]] = {
            'collections.OrderedDict': plain.ordered_dict,
            'collections.Counter': plain.counter,
            'builtins.set': plain.set_of,
            'builtins.slice': plain.slice_of,
            'builtins.complex': plain.complex_of,
            'builtins.bytes': plain.no_bytes,
            'builtins.getattr': _history_method,
            '_codecs.encode': plain.bytes_of,
            'argparse.Namespace': Namespace,
            _HISTORY: HistoryBuffer,
            'torch.Size': _size,
            'torch.device': _device,
            f'{rebuild}tensor': self._tensor,
            f'{rebuild}tensor_v2': self._tensor_v2,
            f'{rebuild}tensor_v3': self._tensor_v3,
            f'{rebuild}parameter': _parameter,
            f'{rebuild}parameter_with_state': _parameter,
            'torch._tensor._rebuild_from_type_v2': self._tensor_with_attributes,
            'numpy.dtype': number_type,
            # numpy 1 and numpy 2 name the same functions differently.
            **dict.fromkeys(_numpy('_reconstruct'), empty_array),
            **dict.fromkeys(_numpy('scalar'), scalar),
            **dict.fromkeys(_numpy('_frombuffer', 'numeric'), array_of_bytes),
        }
        # Useful only as arguments.
        self._words = {
            *_STORAGES, 'numpy.ndarray', 'torch.Tensor', 'torch.nn.parameter.Parameter',
            *(f'{_HISTORY}.{method}' for method in _STATISTICS),
        }  # fmt: skip

    def value(self, name: str) -> Any:
        """Return the name, as a `Name`, or a type of numbers."""
        if name in DTYPES:
            return DTYPES[name]
        if name in self._calls or name in self._words:
            return Name(name)
        odd = _ODD_TENSORS.get(name.removeprefix('torch._utils.'))
        if odd:
            raise Refused(f'holds {odd}')
        if re.fullmatch(r'torch\.(float[48]\w*|complex32|q?u?int\d\w*|bits\d\w*)', name):
            raise Refused(f'holds numbers of the kind {name}. Save the float() of them instead')
        raise Foreign(name)

    def call(self, function: Any, arguments: Any) -> Any:
        """Return what a function, or the making of an empty object, gives."""
        if not isinstance(function, Name) or function.text not in self._calls:
            raise Refused(f'calls {getattr(function, "text", type(function).__name__)}')
        if type(arguments) is not tuple:
            raise Refused('is damaged: the arguments of a call are not a tuple')
        if function.text in ('argparse.Namespace', _HISTORY) and arguments:
            raise Refused(f'calls {function.text} with arguments')
        self._spend_on_copies(arguments)
        return self._calls[function.text](*arguments)

    def build(self, item: Any, state: Any) -> None:
        """Give state to an array, its type of numbers, a history, options or a state dict."""
        self._spend_on_copies(state if type(state) is tuple else (state,))
        if type(item) is np.ndarray:
            fill_array(item, state)
        elif isinstance(item, np.dtype):
            require_native(state)
        elif type(item) is HistoryBuffer:
            _fill_history(item, state)
        elif type(item) is Namespace and type(state) is dict and all(map(_is_text, state)):
            vars(item).update(state)
        elif type(item) is OrderedDict and type(state) is dict and all(map(_is_text, state)):
            if '_metadata' in state:  # of Module.state_dict
                vars(item)['_metadata'] = state['_metadata']
        else:
            raise Refused(f'gives a state to a {type(item).__name__}')

    def _spend_on_copies(self, values: tuple) -> None:
        for value in values:
            if type(value) in (str, bytes, bytearray):
                self._copies -= len(value)
            elif isinstance(value, (dict, list, tuple, set)):
                self._copies -= _ITEM * len(value)
        if self._copies < 0:
            raise Refused('copies its own content too often')

    def storage(self, identity: Any) -> Storage:
        """Return the numbers that the file has under an identity."""
        if type(identity) is not tuple or not 5 <= len(identity) <= 6:
            raise Refused('is damaged: a tensor does not say where its numbers are')
        kind = identity[1]
        if not isinstance(kind, Name) or kind.text not in _STORAGES:
            raise Refused('is damaged: a tensor does not say what numbers it has')
        return self._storage(_STORAGES[kind.text], identity[2:])

    def _tensor(
        self, storage: Any, offset: Any, size: Any, stride: Any, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        if type(storage) is not Storage:
            raise Refused('is damaged: a tensor has no numbers')
        dtype = dtype or storage.dtype
        size, stride = integers(size), integers(stride)
        (offset,) = integers((offset,))
        held = storage.buffer.numel() // dtype.itemsize
        count = math.prod(size)
        if len(size) != len(stride) or math.prod(max(n, 1) for n in size) > 1 << 48:
            raise Refused('is damaged: a tensor has an impossible size')
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        if count and last >= held:
            raise Refused('is damaged: a tensor reaches beyond its numbers')
        if count > max(held, _MOST_REPEATED):
            raise Refused(
                f'has a tensor of {count:,} numbers of which only {held:,} are in the file. Save '
                'its clone() instead'
            )
        self._budget -= count * dtype.itemsize
        if self._budget < 0:
            raise Refused('shows the same numbers too often')
        if not count:
            return torch.empty(size, dtype=dtype)
        return torch.empty(0, dtype=dtype).set_(
            storage.buffer.untyped_storage(),
            offset + storage.buffer.storage_offset() // dtype.itemsize,
            size,
            stride,
        )

    def _tensor_v2(
        self, storage: Any, offset: Any, size: Any, stride: Any, grad: Any, _: Any, bits: Any = None
    ) -> torch.Tensor:
        if bits:
            raise Refused(
                'holds a tensor that is conjugate or negative by a mark. Save its resolve_conj() '
                'or resolve_neg() instead'
            )
        tensor = self._tensor(storage, offset, size, stride)
        return tensor.requires_grad_(grad is True and _can_have_gradient(tensor))

    def _tensor_v3(
        self, storage: Any, offset: Any, size: Any, stride: Any, grad: Any, _: Any, dtype: Any,
        bits: Any = None,
    ) -> torch.Tensor:  # fmt: skip
        if dtype not in DTYPES.values() or bits:
            raise Refused('is damaged: a tensor does not say what numbers it has')
        return self._tensor(storage, offset, size, stride, dtype)

    def _tensor_with_attributes(
        self, function: Any, kind: Any, arguments: Any, _: Any
    ) -> torch.Tensor:
        """Return a tensor with custom attributes, which are dropped."""
        if not isinstance(kind, Name) or 'torch._utils.' not in getattr(function, 'text', ''):
            raise Refused('holds a tensor of a custom class. Save plain tensors instead')
        return self.call(function, arguments)


def _numpy(name: str, module: str = 'multiarray') -> list[str]:
    return [f'numpy.{core}.{module}.{name}' for core in ('core', '_core')]


def _is_text(value: Any) -> bool:
    return type(value) is str


def _can_have_gradient(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _parameter(data: Any, grad: Any, *_: Any) -> torch.nn.Parameter:
    if type(data) is not torch.Tensor:
        raise Refused('is damaged: a parameter is not a tensor')
    return torch.nn.Parameter(data.detach(), grad is True and _can_have_gradient(data))


def _history_method(owner: Any, name: Any) -> Name:
    """Replace `getattr` for the one thing that mmengine's histories use it for."""
    if owner == Name(_HISTORY) and type(name) is str and name in _STATISTICS:
        return Name(f'{_HISTORY}.{name}')
    raise Foreign(f'builtins.getattr of {getattr(owner, "text", type(owner).__name__)}')


def _fill_history(history: HistoryBuffer, state: Any) -> None:
    if type(state) is not dict:
        raise Refused('has a history (mmengine.logging.HistoryBuffer) that is not one of numbers')
    # The statistics are those of the class, not those in the file. Whether the rest are numbers is
    # checked when the whole file is read: an array gets its numbers later.
    for key in ('max_length', '_log_history', '_count_history'):
        vars(history)[key] = state.get(key)


def _size(items: Any = ()) -> torch.Size:
    return torch.Size(integers(items))


def _device(kind: Any, index: Any = None) -> torch.device:
    if type(kind) is not str or not re.fullmatch(r'[a-z]{1,20}(:\d{1,3})?', kind):
        raise Refused('is damaged: a device has no name')
    return torch.device(kind) if index is None else torch.device(kind, *integers((index,)))
