"""Checkpoints made to do harm: nothing runs, is removed, hangs, swells or dies; real ones load."""

from __future__ import annotations

import argparse
import io
import json
import os
import struct
import subprocess
import sys
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path

import numpy as np
import pickle_words as w
import pytest
import torch
from mmengine.logging import HistoryBuffer

from cb_mm.checkpoints.mmengine_files import _load_stream
from cb_mm.checkpoints.read import SAFETENSORS_META, read_checkpoint
from cb_mm.checkpoints.sources import read_weights, source_digest
from cb_mm.errors import UserError

JOB = Path(__file__).parents[1].joinpath('hostile_checkpoints.py')
#: Made to do harm, and found to hold nothing but plain data.
HARMLESS = (
    'reconstruct of pointers', 'reconstruct of gigabytes', 'history without a state',
    'a place in memory far away', 'one tensor very often',
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != 'linux', reason='bounds of memory are of Linux')
def test_hostile_checkpoints(tmp_path):
    """More than 600 files, by hand and over the steps of pickles, with one error line each."""
    words = [sys.executable, str(JOB), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900)
    ends = dict(json.loads(line) for line in done.stdout.splitlines())
    assert done.returncode == 0, ([*ends][-1:], done.stderr[-2000:])
    assert len(ends) > 600
    odd = {key: end for key, end in ends.items() if end not in ('read', 'refused')}
    assert not odd
    passed = {key for key, end in ends.items() if end == 'read' and not key.startswith('random')}
    assert {key.removesuffix(' (zip)').removesuffix(' (old)') for key in passed} == {*HARMLESS}
    assert sorted(file.name for file in tmp_path.iterdir()) == ['case.pth', 'warm.pth']


def content() -> dict:
    """Everything that real checkpoints hold."""
    shared = torch.arange(12.0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    return {
        'state_dict': model.state_dict(),
        'tied': [shared, shared.view(3, 4).t(), shared[4:6]],
        'parameter': torch.nn.Parameter(torch.ones(2, 2)),
        'kinds': {
            str(kind): torch.ones(3).to(kind)
            for kind in (torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.bool,
                         torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
        },
        'none': torch.empty(0, 3),
        'number': torch.tensor(3.5),
        'args': argparse.Namespace(lr=0.1, size=np.float32(2), when=np.int64(3), on=np.True_),
        'array': np.arange(6.0).reshape(2, 3),
        'columns': np.asfortranarray(np.arange(6).reshape(2, 3)),
        'names': np.array(['road', 'sky']),
        'text': np.str_('abc'),
        'message_hub': {'log_scalars': OrderedDict(loss=HistoryBuffer([1.0, 3.0], [1, 1]))},
        'milestones': Counter({8: 1, 11: 1}),
        'plain': [1, -1, 1 << 40, 2.5, None, True, 'grün', b'\x00\xff', b'', (1, (2,)), {1, 2}],
        'kind': torch.float32,
        'device': torch.device('cpu'),
        'size': torch.Size([1, 2]),
        'part': slice(1, None, 2),
        'complex': 1 + 2j,
    }  # fmt: skip


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return type(a) is type(b) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return type(a) is type(b) and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, HistoryBuffer):
        return type(b) is HistoryBuffer and all(map(same, a.data, b.data)) and a.mean() == b.mean()
    if isinstance(a, dict):
        return type(a) is type(b) and [*a] == [*b] and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize('protocol', [2, 3, 4, 5])
@pytest.mark.parametrize('zipped', [True, False])
def test_everything_real_is_read(protocol, zipped, tmp_path):
    file, whole = tmp_path / 'a.pth', content()
    torch.save(whole, file, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    found = read_checkpoint(file)
    assert [*found] == [*whole]
    assert [key for key in whole if not same(whole[key], found[key])] == []
    assert found['state_dict']._metadata == whole['state_dict']._metadata
    assert found['parameter'].requires_grad
    tied = found['tied']
    tied[0].fill_(7)  # they are still one piece of memory
    assert bool((tied[1] == 7).all())
    assert bool((tied[2] == 7).all())
    found['message_hub']['log_scalars']['loss'].update(5.0)
    torch.save(found, tmp_path / 'again.pth')  # nothing of our own has got into it
    assert [*torch.load(tmp_path / 'again.pth', weights_only=False)] == [*whole]


@pytest.mark.skipif(not hasattr(torch, 'uint16'), reason='of newer versions of torch')
def test_newer_kinds_of_numbers(tmp_path):
    torch.save({'w': torch.arange(5).to(torch.uint16)[1:]}, tmp_path / 'a.pth')
    assert read_checkpoint(tmp_path / 'a.pth')['w'].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize('core', ['core', '_core'])
def test_arrays_of_both_versions_of_numpy(core, tmp_path):
    numbers = w.array((2,), w.number_type('f8'), np.arange(2.0).tobytes(), core)
    scalar = w.call(
        f'numpy.{core}.multiarray.scalar', w.number_type('i8'), w.raw(b'\x05' + bytes(7))
    )
    (tmp_path / 'a.pth').write_bytes(w.archive(w.table({'a': numbers, 's': scalar})))
    found = read_checkpoint(tmp_path / 'a.pth')
    assert found['a'].tolist() == [0, 1]
    assert found['s'] == 5


def test_tensor_with_attributes(tmp_path):
    tensor = torch.ones(3)
    tensor.note = 'kept by torch'
    torch.save({'w': tensor}, tmp_path / 'a.pth')
    assert torch.equal(read_checkpoint(tmp_path / 'a.pth')['w'], torch.ones(3))


def test_zip64(tmp_path):
    """Parts of the larger kind, and a directory whose end says to look at the larger end."""
    file = tmp_path / 'a.pth'
    with zipfile.ZipFile(file, 'w') as out:
        with out.open('a/data.pkl', 'w', force_zip64=True) as part:
            part.write(w.program(w.table({'w': w.tensor()})))
        with out.open('a/data/0', 'w', force_zip64=True) as part:
            part.write(np.arange(4, dtype=np.float32).tobytes())
    assert read_checkpoint(file)['w'].tolist() == [0, 1, 2, 3]
    whole = w.saved({'w': torch.arange(4.0)})
    assert whole[-98:-94] == b'PK\x06\x06'
    file.write_bytes(whole[:-14] + b'\xff' * 12 + bytes(2))
    assert read_checkpoint(file)['w'].tolist() == [0, 1, 2, 3]
    file.write_bytes(file.read_bytes() + b'\0')
    with pytest.raises(UserError, match='bytes behind its end'):
        read_checkpoint(file)


def test_more_parts_than_any_weights_have(tmp_path):
    """Python keeps ten times as much about an empty part as the part itself takes."""
    parts, directory, number = bytearray(), bytearray(), 200_001
    for part in range(number):
        common = struct.pack('<5H3L2H', 20, 0, 0, 0, 33, 0, 0, 0, 6, 0)
        entry = struct.pack('<3H2L', 0, 0, 0, 0, len(parts))
        directory += b'PK\x01\x02\x14\0' + common + entry + b'%06x' % part
        parts += b'PK\x03\x04' + common + b'%06x' % part
    place, length = len(parts), len(directory)
    record = struct.pack('<Q2H2L4Q', 44, 45, 45, 0, 0, number, number, length, place)
    locator = struct.pack('<LQL', 0, place + length, 1)
    end = struct.pack('<4H2LH', 0, 0, 0xFFFF, 0xFFFF, length, place, 0)
    file = tmp_path / 'a.pth'
    file.write_bytes(
        parts + directory + b'PK\x06\x06' + record + b'PK\x06\x07' + locator + b'PK\x05\x06' + end
    )
    assert len(zipfile.ZipFile(file).namelist()) == number
    with pytest.raises(UserError, match='200,001 parts'):
        read_checkpoint(file)


@pytest.mark.parametrize(
    ('tensor', 'message'),
    [
        (torch.zeros(3, device='meta'), 'meta tensor'),
        (torch.eye(3).to_sparse(), r'sparse tensor.*to_dense'),
        (torch.eye(3).to_sparse_csr(), r'sparse tensor.*to_dense'),
        (torch.zeros(3).to(torch.float8_e4m3fn), 'float8_e4m3fn'),
        (torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), 'quantized|qint8'),
    ],
)
def test_tensors_that_no_model_here_has(tensor, message, tmp_path):
    file = tmp_path / 'a.pth'
    torch.save({'w': tensor}, file)
    with pytest.raises(UserError, match=rf'a\.pth holds .*({message})') as caught:
        read_checkpoint(file)
    assert '\n' not in str(caught.value)
    with pytest.raises(UserError, match='holds'):  # whoever made it
        read_checkpoint(file, trust=True)


def test_float8_in_safetensors(tmp_path):
    from safetensors.torch import save_file

    save_file({'w': torch.zeros(3).to(torch.float8_e5m2)}, tmp_path / 'a.safetensors')
    with pytest.raises(UserError, match='float8_e5m2'):
        read_checkpoint(tmp_path / 'a.safetensors')


@pytest.mark.parametrize('zipped', [True, False])
def test_streams_run_nothing(zipped, tmp_path, monkeypatch):
    """What mmengine's rarer file backends fetch into memory."""
    monkeypatch.chdir(tmp_path)
    body = w.table({'state_dict': w.call('os.system', w.plain('touch PWNED'))})
    data = w.archive(body) if zipped else w.old(body, (), b'')
    for weights_only in (None, True, False):
        with pytest.raises(UserError, match=r'os\.system'):
            _load_stream(io.BytesIO(data), 'cpu', weights_only)
    assert not Path('PWNED').exists()
    good = w.saved({'w': torch.ones(2)}, _use_new_zipfile_serialization=zipped)
    assert torch.equal(_load_stream(io.BytesIO(good))['w'], torch.ones(2))


def safetensors(header: object, data: bytes = bytes(16)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, 'little') + text + data


PLAIN = {'dtype': 'F32', 'shape': [4], 'data_offsets': [0, 16]}


@pytest.mark.parametrize(
    'data',
    [
        safetensors({'a': PLAIN, 'b': PLAIN}),  # one memory twice
        safetensors({'a': {**PLAIN, 'shape': [1 << 40], 'data_offsets': [0, 1 << 42]}}),
        safetensors({'a': {**PLAIN, 'shape': [-4]}}),
        safetensors({'a': {**PLAIN, 'shape': [4] + [1] * 99}}),
        safetensors({'a': {**PLAIN, 'shape': [3]}}),
        safetensors({'a': {**PLAIN, 'data_offsets': [16, 0]}}),
        safetensors({'a': PLAIN}, bytes(99)),
        safetensors(b'[' * 200_000),
        (1 << 62).to_bytes(8, 'little') + b'{}',
        safetensors({'__metadata__': {SAFETENSORS_META: '[' * 200_000}, 'a': PLAIN}),
        safetensors({'__metadata__': {SAFETENSORS_META: 'NaN'}, 'a': PLAIN}),
        safetensors({'__metadata__': {SAFETENSORS_META: f'[{"{}," * 4_000_000}1]'}, 'a': PLAIN}),
    ],
    ids=['shared', 'beyond', 'negative', 'many axes', 'other size', 'backwards', 'bytes behind',
         'deep', 'long header', 'deep record', 'record that is none', 'long record'],
)  # fmt: skip
def test_hostile_safetensors(data, tmp_path):
    (tmp_path / 'a.safetensors').write_bytes(data)
    with pytest.raises(UserError, match=r'a\.safetensors') as caught:
        read_checkpoint(tmp_path / 'a.safetensors')
    assert '\n' not in str(caught.value)


def test_a_record_in_safetensors_cannot_replace_the_weights(tmp_path):
    record = json.dumps({'state_dict': 5, 'config': 'import os', 'optimizer': [1]})
    header = {'__metadata__': {SAFETENSORS_META: record}, 'a': PLAIN}
    (tmp_path / 'a.safetensors').write_bytes(safetensors(header))
    found = read_checkpoint(tmp_path / 'a.safetensors')
    assert set(found) == {'state_dict', 'meta'}
    assert found['state_dict']['a'].tolist() == [0, 0, 0, 0]
    assert 'config' not in found['meta']


@pytest.mark.parametrize('suffix', ['.pth', '.safetensors', '.npz'])
def test_pipes_and_devices_are_not_read(suffix, tmp_path):
    """Reading them would wait for ever, or never end."""
    pipe, device = tmp_path / f'pipe{suffix}', tmp_path / f'zero{suffix}'
    os.mkfifo(pipe)
    device.symlink_to('/dev/zero')
    for file in (pipe, device):
        for read in (read_weights, source_digest):
            with pytest.raises(UserError, match=file.name):
                read(file)


def test_loop_of_links(tmp_path):
    (tmp_path / 'a.pth').symlink_to(tmp_path / 'b.pth')
    (tmp_path / 'b.pth').symlink_to(tmp_path / 'a.pth')
    with pytest.raises(UserError, match=r'a\.pth (cannot be found|does not exist)'):
        read_checkpoint(tmp_path / 'a.pth')
    for read in (read_checkpoint, source_digest):
        with pytest.raises(UserError, match=r'cannot be found|does not exist'):
            read('a\0.pth')
