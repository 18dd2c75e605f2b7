"""Pickles put together by hand: each function gives the bytes that push one value."""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
import zipfile
from collections.abc import Mapping

import torch


def name(full: str) -> bytes:
    module, _, last = full.rpartition('.')
    return f'c{module}\n{last}\n'.encode()


def plain(value: object) -> bytes:
    """Any plain data, by Python's own pickler, without its first and last step."""
    data = pickle.dumps(value, protocol=2)[2:-1]
    # Numbers in memory would collide with those of other parts.
    out, used = bytearray(), io.BytesIO(data + b'.')
    steps = [*pickletools.genops(used)]
    if any('GET' in step[0].name for step in steps):
        raise ValueError('it refers to itself')
    ends = [position for _, _, position in steps[1:]]
    for (opcode, _, start), end in zip(steps, ends, strict=False):
        if 'PUT' not in opcode.name:
            out += data[start:end]
    return bytes(out)


def many(*values: bytes) -> bytes:
    """A tuple."""
    return b'(' + b''.join(values) + b't'


def call(function: str, *arguments: bytes) -> bytes:
    return name(function) + many(*arguments) + b'R'


def new(kind: str, *arguments: bytes) -> bytes:
    return name(kind) + many(*arguments) + b'\x81'


def build(item: bytes, state: bytes) -> bytes:
    return item + state + b'b'


def table(items: Mapping[str, bytes]) -> bytes:
    """A dictionary."""
    return b'}(' + b''.join(plain(key) + value for key, value in items.items()) + b'u'


def raw(data: bytes) -> bytes:
    """Bytes as protocol 2 writes them."""
    return call('_codecs.encode', plain(data.decode('latin-1')), plain('latin1'))


def storage(count: int, key: str = '0', kind: str = 'torch.FloatStorage', *more: bytes) -> bytes:
    return many(plain('storage'), name(kind), plain(key), plain('cpu'), plain(count), *more) + b'Q'


def tensor(
    count: int = 4,
    size: tuple = (4,),
    stride: tuple = (1,),
    offset: int = 0,
    key: str = '0',
    kind: str = 'torch.FloatStorage',
    more: tuple = (),
) -> bytes:
    return call(
        'torch._utils._rebuild_tensor_v2', storage(count, key, kind, *more), plain(offset),
        plain(size), plain(stride), plain(False), call('collections.OrderedDict'),
    )  # fmt: skip


def number_type(code: str, order: str = '<') -> bytes:
    state = many(*map(plain, (3, order, None, None, None, -1, -1, 0)))
    return build(call('numpy.dtype', *map(plain, (code, False, True))), state)


def array(shape: tuple, dtype: bytes, data: bytes, core: str = '_core') -> bytes:
    empty = call(
        f'numpy.{core}.multiarray._reconstruct', name('numpy.ndarray'), plain((0,)), raw(b'b')
    )
    return build(empty, many(plain(1), plain(shape), dtype, plain(False), raw(data)))


def program(value: bytes) -> bytes:
    return b'\x80\x02' + value + b'.'


def archive(value: bytes, data: Mapping[str, bytes] | None = None, **more: bytes) -> bytes:
    """A file of torch.save's newer kind around one value."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, 'w') as out:
        out.writestr('archive/data.pkl', program(value))
        out.writestr('archive/version', b'3\n')
        for key, numbers in (data if data is not None else {'0': bytes(16)}).items():
            out.writestr(f'archive/data/{key}', numbers)
        for key, content in more.items():
            out.writestr(f'archive/{key}', content)
    return stream.getvalue()


def old(value: bytes, keys: object = ('0',), data: bytes | None = None) -> bytes:
    """A file of the kind from before torch 1.6."""
    head = [
        pickle.dumps(0x1950A86A20F9469CFC6C, 2),
        pickle.dumps(1001, 2),
        pickle.dumps({'protocol_version': 1001, 'little_endian': True, 'type_sizes': {}}, 2),
    ]
    tail = struct.pack('<q', 4) + bytes(16) if data is None else data
    return b''.join(head) + program(value) + pickle.dumps([*keys], 2) + tail


def saved(content: object, **options: object) -> bytes:
    """What torch.save writes."""
    stream = io.BytesIO()
    torch.save(content, stream, **options)
    return stream.getvalue()
