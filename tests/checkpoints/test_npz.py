"""Archives of arrays that are damaged, encrypted or bombs: one line, and no memory."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from cb_mm.checkpoints.npz import npz_shapes
from cb_mm.checkpoints.sources import read_weights
from cb_mm.errors import UserError


def part(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def write(file: Path, parts: dict[str, bytes], kind: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(file, 'w', kind) as out:
        for name, data in parts.items():
            out.writestr(name, data)
    return file


def changed(file: Path, position: int, value: int) -> Path:
    data = bytearray(file.read_bytes())
    data[position] ^= value
    file.write_bytes(data)
    return file


def test_shapes(tmp_path):
    np.savez(tmp_path / 'a.npz', x=np.zeros((2, 3)), **{'a/b': np.ones((), 'f4')})
    assert npz_shapes(tmp_path / 'a.npz') == {'x': (2, 3), 'a/b': ()}
    np.savez_compressed(tmp_path / 'b.npz', x=np.zeros((1000, 3)))
    assert npz_shapes(tmp_path / 'b.npz') == {'x': (1000, 3)}


def test_refused(tmp_path):
    good = part(np.arange(100.0))
    encrypted = write(tmp_path / 'encrypted.npz', {'x.npy': good})
    start = encrypted.read_bytes().rfind(b'PK\x01\x02')
    changed(encrypted, start + 8, 1)
    damaged = changed(write(tmp_path / 'damaged.npz', {'x.npy': good}), 300, 4)
    packed = write(
        tmp_path / 'packed.npz',
        {'x.npy': part(np.random.default_rng(0).random(100))},
        zipfile.ZIP_DEFLATED,
    )
    changed(packed, 300, 4)
    cut = write(tmp_path / 'cut.npz', {'x.npy': good})
    cut.write_bytes(cut.read_bytes()[:-30])
    behind = write(tmp_path / 'behind.npz', {'x.npy': good})
    behind.write_bytes(behind.read_bytes() + b'abc')
    long = good.replace(b"'shape': (100,), }", b"'shape': (900,), }")
    negative = good.replace(b"'shape': (100,), }", b"'shape': (-10,), }")
    bomb = write(tmp_path / 'bomb.npz', {'x.npy': bytes(300 << 20)}, zipfile.ZIP_DEFLATED)
    loop = tmp_path / 'loop.npz'
    loop.symlink_to(loop)
    for file, message in (
        (encrypted, 'encrypted'),
        (damaged, 'CRC'),
        (packed, 'cut off'),
        (cut, 'cut off'),
        (behind, 'bytes behind its end'),
        (write(tmp_path / 'long.npz', {'x.npy': long}), 'does not have its stated size'),
        (write(tmp_path / 'negative.npz', {'x.npy': negative}), 'negative'),
        (write(tmp_path / 'other.npz', {'x.txt': good}), 'not an array'),
        (write(tmp_path / 'text.npz', {'x.npy': b'hello'}), 'cut off'),
        (bomb, r'300 MiB, [\d,]+ times'),
        (loop, r'does not exist|cannot be found|cut off'),
    ):
        with pytest.raises(UserError, match=message) as caught:
            read_weights(file)
        assert str(file) in str(caught.value)
        assert '\n' not in str(caught.value)


def many(file: Path, times: int, shared: bool) -> Path:
    """Write one packed array many times, under as many names; shared: each in the same place."""
    one = write(file, {'x000.npy': part(np.zeros(6_250_000, 'f4'))}, zipfile.ZIP_DEFLATED)
    data = one.read_bytes()
    start = data.rfind(b'PK\x01\x02')
    local, entry, end = data[:start], bytearray(data[start:-22]), data[-22:]
    whole, directory = b'', b''
    for number in range(times):
        name = b'x%03d.npy' % number
        entry[42:46] = struct.pack('<L', 0 if shared else len(whole))
        directory += entry.replace(b'x000.npy', name)
        whole += b'' if shared and number else local.replace(b'x000.npy', name)
    sizes = struct.pack('<2H2L', times, times, len(directory), len(whole))
    file.write_bytes(whole + directory + end[:8] + sizes + end[20:])
    return file


@pytest.mark.parametrize('shared', [False, True])
def test_gigabytes_in_a_small_file(shared, tmp_path):
    """140 arrays of 25 MB, 3.5 GB in all: separate ones in 3.4 MB, or one that all names share."""
    file = many(tmp_path / 'bomb.npz', 140, shared)
    assert file.stat().st_size < (40_000 if shared else 3_600_000)
    with zipfile.ZipFile(file) as archive:
        assert sum(one.file_size for one in archive.infolist()) > 3.5e9
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=r'bomb\.npz'):
            read_weights(file)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ('width', 'depth', 'heads'), [(200_000, 1, 3), (192, 100_000, 3), (192, 1, 0), (192, 0, 3)]
)
def test_small_arrays_that_ask_for_a_large_model(width, depth, heads, tmp_path):
    """A kilobyte of arrays whose sizes are those of a model of terabytes."""
    blocks = {'Transformer/encoderblock/LayerNorm_0/scale': np.zeros((depth, 0, 1), 'f4')}
    arrays = {
        'embedding/kernel': np.zeros((1, 1, 1, width), 'f4'),
        'Transformer/posembed_input/pos_embedding': np.zeros((1, 4, 1), 'f4'),
        'Transformer/encoderblock/MultiHeadDotProductAttention_1/query/kernel': np.zeros(
            (1, heads, 1), 'f4'
        ),
        'Transformer/encoderblock/MlpBlock_3/Dense_0/kernel': np.zeros((1, width), 'f4'),
        **blocks,
    }
    np.savez(tmp_path / 'a.npz', **arrays)
    with pytest.raises(UserError, match=r'a\.npz is not the \.npz of a plain Vision Transformer'):
        read_weights(tmp_path / 'a.npz')
