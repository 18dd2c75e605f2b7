"""The content of an .npz archive, from its headers alone: no arrays are allocated."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO

from numpy.lib import format as npy

from ..errors import MissingFile, UserError
from .archive import require_one_directory
from .plain_pickle import Refused

#: Weights hardly shrink when compressed. What unpacks to more than this is a zip bomb.
_MOST_TIMES = 20
_SPARE = 64 << 20


def npz_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of every array.

    Raises:
        UserError: The file is missing, cut off, damaged or encrypted, has arrays of objects, or
            unpacks to many times its size.
    """
    try:
        if not path.is_file():
            raise MissingFile(f'checkpoint {path} does not exist.')
        size = path.stat().st_size
        with path.open('rb') as stream:
            require_one_directory(stream, size)
            with zipfile.ZipFile(stream) as archive:
                return _shapes(archive, size)
    except UserError:
        raise
    except Refused as error:
        raise UserError(f'checkpoint {path} {error}.') from error
    # zipfile and numpy report a broken file in a dozen types.
    except Exception as error:
        raise UserError(
            f'checkpoint {path} is cut off or is not an .npz archive ({_reason(error)}). Download '
            'it again.'
        ) from error


def _reason(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__


def _shapes(archive: zipfile.ZipFile, size: int) -> dict[str, tuple[int, ...]]:
    parts = archive.infolist()
    if any(part.flag_bits & 0x1 for part in parts):
        raise Refused('is encrypted. Unpack it and save it without a password')
    unpacked = sum(part.file_size for part in parts)
    if unpacked > _MOST_TIMES * size + _SPARE:
        raise Refused(
            f'unpacks to {unpacked >> 20:,} MiB, {unpacked // size:,} times its size: refused'
        )
    shapes = {}
    for part in parts:
        if not part.filename.endswith('.npy'):
            raise Refused(f'holds {part.filename[:50]!r}, which is not an array')
        with archive.open(part) as stream:
            shape, length = _header(stream)
            if stream.tell() + length != part.file_size:
                raise Refused(f'is damaged: {part.filename} does not have its stated size')
            while stream.read(1 << 20):  # to the end, where the checksum is compared
                pass
        shapes[part.filename.removesuffix('.npy')] = shape
    if len(shapes) != len(parts):
        raise Refused('has two arrays of one name')
    return shapes


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], int]:
    """Return the shape of an array, and how many bytes follow."""
    version = npy.read_magic(stream)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if read is None:
        raise Refused(f'has arrays of the .npy version {version}')
    shape, _, dtype = read(stream)
    if any(n < 0 for n in shape):
        raise Refused('is damaged: an array has a negative size')
    if dtype.kind not in 'biufcV' or dtype.hasobject:
        raise Refused(f'holds an array of {dtype}, which is not of numbers')
    return shape, math.prod(shape) * dtype.itemsize
