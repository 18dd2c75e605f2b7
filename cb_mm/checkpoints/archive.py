"""The two containers that torch.save writes: zip archives, and the format from before torch 1.6.

The first bytes of a file say which of them it is, as for torch. A zip archive must be as torch
writes it: uncompressed parts, one after the other, and one directory at the very end. Every reader
of such a file, from the front or from the back, sees the same.
"""

from __future__ import annotations

import io
import mmap
import struct
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from .parts import CheckpointParts, Storage
from .plain_pickle import Refused, unpickle

_LOCAL, _DIRECTORY_END = b'PK\x03\x04', b'PK\x05\x06'
_DIRECTORY_END64, _LOCATOR64 = b'PK\x06\x06', b'PK\x06\x07'
_OLD_MAGIC, _OLD_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_CHUNK = 1 << 20
#: Parts of an archive, each a tensor; Python keeps some hundred bytes about a part.
_MOST_PARTS = 200_000


def read_archive(file: Path | BinaryIO) -> Any:
    """Return what a file of torch.save holds; its tensors are on the CPU.

    Raises:
        Foreign, Refused: See `plain_pickle.unpickle`.
        Exception: It is damaged; of any kind.
    """
    if isinstance(file, Path):
        with file.open('rb') as stream:
            return read_archive(stream)
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    start = file.read(4)
    file.seek(0)
    return _read_zip(file, size) if start == _LOCAL else _read_old(file, size)


def _read_zip(stream: BinaryIO, size: int) -> Any:
    require_one_directory(stream, size)
    with zipfile.ZipFile(stream) as archive:
        parts = {part.filename: part for part in archive.infolist()}
        _require_stored(archive, stream, size)
        program = [name for name in parts if name.count('/') == 1 and name.endswith('/data.pkl')]
        if len(program) != 1:
            raise Refused('is a zip archive, but not one of torch.save')
        root = program[0].removesuffix('data.pkl')
        if f'{root}constants.pkl' in parts:
            raise Refused('is a TorchScript program, not weights. Save its state_dict() instead')
        order = f'{root}byteorder'
        if order in parts and archive.read(order) != b'little':
            raise Refused('was written on a machine with another byte order')
        buffers: dict[str, torch.Tensor] = {}

        def storage(dtype: torch.dtype, identity: tuple) -> Storage:
            key, _, count = identity
            part = parts.get(f'{root}data/{key}') if type(key) is str else None
            if part is None or type(count) is not int or count * dtype.itemsize != part.file_size:
                raise Refused('is damaged: the numbers of a tensor are missing')
            if key not in buffers:
                buffers[key] = _read_part(archive, part)
            return Storage(buffers[key], dtype)

        content = unpickle(io.BytesIO(archive.read(program[0])), CheckpointParts(storage, size))
        for name in parts:  # those that nothing refers to
            if name != program[0] and name.removeprefix(f'{root}data/') not in buffers:
                _require_checksum(archive, name)
    return content


def require_one_directory(stream: BinaryIO, size: int) -> None:
    """Refuse a zip archive whose directory is not where, and as long as, its very last bytes say.

    Python looks for the directory from the end, other programs by other rules: with bytes behind
    it, or with two of them, they would read different things out of one file.
    """
    stream.seek(max(size - 98, 0))
    tail = stream.read()
    stream.seek(0)
    end = tail[-22:]
    if len(end) < 22 or end[:4] != _DIRECTORY_END:
        if _DIRECTORY_END in tail:
            raise Refused('has bytes behind its end')
        raise EOFError
    disk, of_directory, here, entries, length, start, comment = struct.unpack('<4H2LH', end[4:])
    directory_end = size - 22
    if tail[-42:-38] == _LOCATOR64:
        record = tail[-98:-42]
        if len(record) < 56 or record[:4] != _DIRECTORY_END64:
            raise Refused('has a directory that is not where its end says')
        at = struct.unpack('<LQL', tail[-38:-22])[1]
        record_size, _, _, _, _, here64, entries64, length64, start64 = struct.unpack(
            '<Q2H2L4Q', record[4:]
        )
        for short, long, most in (
            (here, here64, 0xFFFF), (entries, entries64, 0xFFFF),
            (length, length64, 0xFFFFFFFF), (start, start64, 0xFFFFFFFF),
        ):  # fmt: skip
            if short not in (long, most):
                raise Refused('has two directories')
        here, entries, length, start = here64, entries64, length64, start64
        directory_end = size - 98
        if at != directory_end or record_size != 44:
            raise Refused('has a directory that is not where its end says')
    if entries > _MOST_PARTS:
        raise Refused(f'has {entries:,} parts, more than any weights')
    if disk or of_directory or comment or here != entries or start + length != directory_end:
        raise Refused('has a directory that is not where its end says')
    stream.seek(start)
    directory = stream.read(length)
    stream.seek(0)
    found, position = 0, 0
    while position < length:
        if directory[position : position + 4] != b'PK\x01\x02':
            raise Refused('has a damaged directory')
        position += 46 + sum(struct.unpack_from('<3H', directory, position + 28))
        found += 1
    if found != entries or position != length:
        raise Refused('has a directory of another length than its end says')


def _require_stored(archive: zipfile.ZipFile, stream: BinaryIO, size: int) -> None:
    """Refuse parts that are packed (and could unpack to any size), double, or share bytes."""
    parts = sorted(archive.infolist(), key=lambda part: part.header_offset)
    if len({part.filename for part in parts}) != len(parts):
        raise Refused('has two parts of one name')
    free = 0
    for part in parts:
        # torch does not read a part that is marked as a folder: its numbers would be arbitrary.
        folder = part.external_attr & 0x10 or part.is_dir()
        packed = part.compress_type != zipfile.ZIP_STORED or part.compress_size != part.file_size
        if folder or packed or part.flag_bits & 0x1:
            raise Refused('is packed, encrypted or damaged')
        if part.header_offset < free:
            raise Refused('has parts that share bytes')
        stream.seek(part.header_offset)
        header = stream.read(30)
        if header[:4] != _LOCAL:
            raise Refused('is damaged: a part is not where the directory says')
        free = part.header_offset + 30 + sum(struct.unpack_from('<2H', header, 26)) + part.file_size
    if free > min(size, archive.start_dir):
        raise Refused('claims more than it holds')


def _read_part(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> torch.Tensor:
    """Return the bytes of a part whose checksum is right: Python compares it at the end."""
    buffer = torch.empty(part.file_size, dtype=torch.uint8)
    view, position = memoryview(buffer.numpy().data), 0
    with archive.open(part) as stream:
        while chunk := stream.read(_CHUNK):
            view[position : position + len(chunk)] = chunk
            position += len(chunk)
    if position != part.file_size:
        raise EOFError
    return buffer


def _require_checksum(archive: zipfile.ZipFile, name: str) -> None:
    with archive.open(name) as stream:
        while stream.read(_CHUNK):
            pass


def _read_old(file: BinaryIO, size: int) -> Any:
    """Read four pickles, then the numbers of all tensors; there are no checksums."""
    try:
        stream: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, io.UnsupportedOperation):
        stream = io.BytesIO(file.read())  # it is in memory already
    with stream:
        return _OldFile(stream, size).read()


class _OldFile:
    def __init__(self, stream: Any, size: int) -> None:
        self.stream, self.size, self.claimed = stream, size, 0
        self.storages: dict[Any, Storage] = {}

    def read(self) -> Any:
        parts = CheckpointParts(self.storage, self.size)
        if unpickle(self.stream, parts) != _OLD_MAGIC:
            raise ValueError('another magic number')
        if unpickle(self.stream, parts) != _OLD_PROTOCOL:
            raise ValueError('another protocol')
        system = unpickle(self.stream, parts)
        if not isinstance(system, dict) or system.get('little_endian') is not True:
            raise Refused('was written on a machine with another byte order')
        content = unpickle(self.stream, parts)
        keys = unpickle(self.stream, parts)
        if type(keys) is not list or any(type(key) is not str for key in keys):
            raise ValueError('no list of storages')
        if len({*keys}) != len(keys) or {*keys} != {*self.storages}:
            raise Refused('is damaged: the numbers of some tensors are missing')
        for key in keys:
            self.fill(self.storages[key])
        return content

    def storage(self, dtype: torch.dtype, identity: tuple) -> Storage:
        """Reserve space for numbers at the end of the file, but no more than the file has."""
        key, _, count, view = identity
        if type(key) is not str or type(count) is not int or count < 0:
            raise Refused('is damaged: a tensor does not say where its numbers are')
        if key not in self.storages:
            self.claimed += count * dtype.itemsize
            if self.claimed > self.size:
                raise Refused('claims more than it holds')
            room = torch.zeros(count * dtype.itemsize, dtype=torch.uint8)
            self.storages[key] = Storage(room, dtype)
        storage = self.storages[key]
        if storage.dtype != dtype or storage.buffer.numel() != count * dtype.itemsize:
            raise Refused('is damaged: two tensors do not agree about their numbers')
        if view is None:
            return storage
        if type(view) is not tuple or len(view) != 3 or any(type(n) is not int for n in view[1:]):
            raise Refused('is damaged: a part of the numbers is invalid')
        start, length = view[1:]
        if start < 0 or length < 0 or start + length > count:
            raise Refused('is damaged: a part of the numbers is out of range')
        return Storage(storage.buffer[start * dtype.itemsize :][: length * dtype.itemsize], dtype)

    def fill(self, storage: Storage) -> None:
        (count,) = struct.unpack('<q', self.stream.read(8))
        length = storage.buffer.numel()
        data = self.stream.read(length) if length else b''
        if count * storage.dtype.itemsize != length or len(data) != length:
            raise EOFError
        if length:
            storage.buffer.numpy()[:] = np.frombuffer(data, np.uint8)
