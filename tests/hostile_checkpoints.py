"""Checkpoints that somebody made to do harm, and a process that reads them within bounds.

words: FOLDER, in which every case is read; prints a line of JSON for each.
"""

from __future__ import annotations

import copy
import io
import json
import os
import random
import resource
import signal
import struct
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pickle_words as w
from pickle_words import (
    archive,
    array,
    build,
    call,
    many,
    name,
    new,
    number_type,
    old,
    plain,
    raw,
    saved,
    storage,
    table,
    tensor,
)  # fmt: skip

ARRAY_STATE = many(*map(plain, (1, (1,))), number_type('f8'), plain(False), raw(bytes(8)))
EMPTY = call(
    'numpy._core.multiarray._reconstruct', name('numpy.ndarray'), plain((0,)), raw(b'b')
)  # fmt: skip
HISTORY = 'mmengine.logging.history_buffer.HistoryBuffer'
TOUCH = plain('touch PWNED')


def state_of(code: str, shape: object, data: bytes) -> bytes:
    return many(plain(1), plain(shape), number_type(code), plain(False), raw(data))


def history(log: bytes, count: bytes, length: object = 10) -> bytes:
    state = {'_log_history': log, '_count_history': count, 'max_length': plain(length)}
    return build(new(HISTORY), table(state))


def copies() -> dict[str, bytes]:
    """One long text or container, and thousands of calls that each make another of it."""

    def often(function: str, *arguments: bytes) -> bytes:
        first = name(function) + b'q\x07' + many(*arguments) + b'q\x08R'
        return b'](' + first + b'h\x07h\x08R' * 9000 + b'e'

    numbers, options = [*range(20_000)], plain({f'a{n}': 1 for n in range(20_000)})
    state = many(plain(1), plain((1 << 19,)), number_type('u1'), plain(False), raw(bytes(1 << 19)))
    empty = name('argparse.Namespace') + b')\x81'
    return {
        'bytes copied': often('_codecs.encode', plain('a' * (1 << 20)), plain('latin1')),
        'sets copied': often('builtins.set', plain(numbers)),
        'pairs copied': often('collections.OrderedDict', plain([(n, 1) for n in numbers])),
        'counts copied': often('collections.Counter', plain(dict.fromkeys(numbers, 1))),
        'numbers of numpy copied': often(
            'numpy._core.multiarray.scalar', number_type('S99999'), raw(b'a' * 99_999)
        ),
        'options copied': b'](' + empty + options + b'q\x08b' + (empty + b'h\x08b') * 3000 + b'e',
        'arrays copied': b'](' + build(EMPTY, state + b'q\x08') + build(EMPTY, b'h\x08') * 3000
        + b'e',
    }  # fmt: skip


def values() -> dict[str, bytes]:
    """Hostile values; each stands in an archive and in a file of the old kind."""
    two = array((2,), number_type('f8'), bytes(16))
    cases = {
        # numpy as it is
        'ndarray of pointers': call('numpy.ndarray', plain((1,)), plain('O'), raw(b'A' * 8)),
        'ndarray before its memory': call(
            'numpy.ndarray', plain((4,)), plain('f8'), raw(bytes(32)), plain(-4096)
        ),
        'ndarray with strides': call(
            'numpy.ndarray', plain((9,)), plain('f8'), raw(bytes(8)), plain(0), plain((1 << 40,))
        ),
        'ndarray made new': new('numpy.ndarray', plain((1,)), plain('O'), raw(b'A' * 8)),
        'ndarray of gigabytes': call('numpy.ndarray', plain((1 << 34,)), plain('f8')),
        'reconstruct of pointers': call(
            'numpy.core.multiarray._reconstruct', name('numpy.ndarray'), plain((1,)), plain('O')
        ),
        'reconstruct of gigabytes': call(
            'numpy._core.multiarray._reconstruct', name('numpy.ndarray'), plain((1 << 34,)),
            raw(b'd'),
        ),
        'array of objects': build(EMPTY, state_of('O8', (1,), b'A' * 8)),
        'array of records': build(EMPTY, state_of('V8', (1,), b'A' * 8)),
        'array of dates': build(EMPTY, state_of('M8', (1,), b'A' * 8)),
        'array too long': build(EMPTY, state_of('f8', (1 << 30,), bytes(8))),
        'array of negative size': build(EMPTY, state_of('f8', (-1, -1), bytes(8))),
        'array of overflowing size': build(EMPTY, state_of('f8', (1 << 32, 1 << 32), b'')),
        'array with a list as data': build(
            EMPTY, many(plain(1), plain((1,)), number_type('f8'), plain(False), plain([1]))
        ),
        'array of 100 axes': build(EMPTY, state_of('f8', (1,) * 100, bytes(8))),
        'array built twice': build(build(EMPTY, ARRAY_STATE), state_of('f8', (2,), bytes(16))),
        'array of another order': build(
            EMPTY,
            many(plain(1), plain((1,)), number_type('f8', '>'), plain(False), raw(bytes(8))),
        ),
        'text that does not exist': array((1,), number_type('U1'), b'\xff' * 4),
        'dtype of a list': call('numpy.dtype', plain([('a', 'O')]), plain(False), plain(True)),
        'dtype of objects': call('numpy.dtype', plain('O'), plain(False), plain(True)),
        'dtype with parts': build(
            call('numpy.dtype', plain('f8')),
            many(*map(plain, (3, '|', None, ['a'], {'a': 1}, 8, 1, 16))),
        ),
        'scalar of an object': call(
            'numpy._core.multiarray.scalar', number_type('O8'), raw(b'A' * 8)
        ),
        'scalar without bytes': call('numpy._core.multiarray.scalar', number_type('f8')),
        'scalar too short': call('numpy._core.multiarray.scalar', number_type('c16'), raw(b'a')),
        'frombuffer': call('numpy.frombuffer', raw(bytes(8))),
        'memmap': call('numpy.memmap', plain('PWNED'), plain('u1'), plain('w+')),
        'fromfile': call('numpy.fromfile', plain('/etc/hostname')),
        'save': call('numpy.save', plain('PWNED'), plain(1)),
        # tensors
        'offset beyond': tensor(offset=1 << 20),
        'stride beyond': tensor(size=(4,), stride=(1 << 20,)),
        'negative stride': tensor(stride=(-1,)),
        'negative offset': tensor(offset=-4),
        'negative size': tensor(size=(-4,)),
        'more strides than sizes': tensor(size=(2,), stride=(1, 1)),
        'overflowing size': tensor(size=(1 << 40, 1 << 40, 0), stride=(0, 0, 0)),
        'forty gigabytes': tensor(size=(10_000_000_000,), stride=(0,)),
        'overlapping rows': tensor(size=(100_000, 100_000), stride=(0, 0)),
        'storage too long': tensor(count=1 << 28, size=(1 << 28,)),
        'storage of another kind': tensor(count=4, kind='torch.DoubleStorage'),
        'storage of no kind': tensor(kind='torch.Tensor'),
        'storage absent': tensor(key='1'),
        'storage elsewhere': tensor(key='../version'),
        'storage without a name': many(plain('storage'), plain(1)) + b'Q',
        'module as a storage': many(plain('module'), name('collections.OrderedDict'), *[TOUCH] * 2)
        + b'Q',
        'number as a storage': plain(5) + b'Q',
        'tensor of a list': call(
            'torch._utils._rebuild_tensor_v2', plain([1]), plain(0), plain((1,)), plain((1,)),
            plain(False), plain(None),
        ),
        'sparse outside': call(
            'torch._utils._rebuild_sparse_tensor', call(
                'torch.serialization._get_layout', plain('torch.sparse_coo')
            ),
            many(tensor(), tensor(), plain((1, 1))),
        ),
        'nested outside': call('torch._utils._rebuild_nested_tensor', *[tensor()] * 4),
        'meta': call(
            'torch._utils._rebuild_meta_tensor_no_storage', name('torch.float32'),
            plain((1 << 40,)), plain((1,)), plain(False),
        ),
        'quantized': call('torch._utils._rebuild_qtensor', storage(4)),
        'wrapper': call('torch._utils._rebuild_wrapper_subclass', name('torch.Tensor')),
        'from numpy': call(
            'torch._utils._rebuild_device_tensor_from_numpy', two, name('torch.float32'),
            plain('cpu'), plain(False),
        ),
        'type of another function': call(
            'torch._tensor._rebuild_from_type_v2', name('builtins.getattr'), name('torch.Tensor'),
            many(name(HISTORY), plain('min')), table({}),
        ),
        'attributes of a tensor': call(
            'torch._tensor._rebuild_from_type_v2', name('torch._utils._rebuild_tensor_v2'),
            name('torch.Tensor'), plain(()), table({'__class__': name(HISTORY)}),
        ),
        'storage by its size': call('torch.storage.UntypedStorage', plain(1 << 36)),
        'typed storage by its size': call('torch.FloatStorage', plain(1 << 36)),
        'tensor by its size': call('torch.Tensor', plain(1 << 34)),
        'tensor class by its size': call('torch.FloatTensor', plain(1 << 34)),
        'tensor with a state': build(new('torch.Tensor'), many(storage(4), *map(plain, (9, (9,))))),
        'parameter of a number': call(
            'torch._utils._rebuild_parameter', plain(1), plain(True), plain(None)
        ),
        'parameter by its size': new('torch.nn.parameter.Parameter', plain(1 << 34)),
        'device of a megabyte': call('torch.device', plain('c' * (1 << 20))),
        'size of texts': call('torch.Size', plain(['a'])),
        # Python
        'bytearray of gigabytes': call('builtins.bytearray', plain(1 << 36)),
        'bytes of gigabytes': call('builtins.bytes', plain(1 << 36)),
        'slow encoding': call('_codecs.encode', plain('\u0661' * 100_000), plain('idna')),
        'encoding that imports': call('_codecs.encode', plain('a'), plain('zlib')),
        'set of colliding numbers': call(
            'builtins.set', plain([n * (2**61 - 1) for n in range(50_000)])
        ),
        'colliding keys': plain(dict.fromkeys(n * (2**61 - 1) for n in range(50_000))),
        'tuple as a key': plain({(1, 2): 3}),
        'tensor as a key': b'}' + tensor() + plain(1) + b's',
        'complex of a long text': call('builtins.complex', plain('1' * 1_000_000)),
        'slice of tensors': call('builtins.slice', tensor(), tensor()),
        'counter of a text': call('collections.Counter', plain('a' * 1_000_000)),
        'pairs that are none': call('collections.OrderedDict', plain([1, 2])),
        'getattr of a name': call('builtins.getattr', name('torch.Tensor'), plain('tofile')),
        'getattr of globals': call('builtins.getattr', name(HISTORY), plain('__init__')),
        'getattr of an object': call('builtins.getattr', new(HISTORY), plain('min')),
        'state for a class': build(name('argparse.Namespace'), table({'x': plain(1)})),
        'slots for a class': build(name(HISTORY), many(plain(None), table({'mean': plain(1)}))),
        'state for a list': build(plain([]), table({'x': plain(1)})),
        'state for a tensor': build(tensor(), table({'data': plain(1)})),
        'options that are none': build(new('argparse.Namespace'), plain([1])),
        'options with arguments': new('argparse.Namespace', plain(1)),
        'items for a class': name('argparse.Namespace') + plain('x') + plain(1) + b's',
        'items for a tensor': tensor() + plain(0) + plain(1) + b's',
        'append to a tuple': plain((1,)) + plain(1) + b'a',
        'append to a class': name(HISTORY) + plain(1) + b'a',
        'class as a value': name('numpy.ndarray'),
        'function as a value': name('torch._utils._rebuild_tensor_v2'),
        'call of a dictionary': plain({}) + plain((1,)) + b'R',
        'call without a tuple': name('collections.OrderedDict') + plain(1) + b'R',
        # what mmengine computes with
        'history of text': history(plain('abc'), plain('abc')),
        'history of text arrays': history(*[array((1,), number_type('U1'), bytes(4))] * 2),
        'history of two lengths': history(two, array((1,), number_type('f8'), bytes(8))),
        'history of a table': history(*[array((1, 2), number_type('f8'), bytes(16))] * 2),
        'history of no length': history(two, two, -1),
        'history with methods': build(
            new(HISTORY), table({'statistics_methods': table({'mean': name(HISTORY)})})
        ),
        'history that is none': build(new(HISTORY), plain(None)),
        'history without a state': new(HISTORY),
        'history filled later': (
            history(EMPTY + b'q\x07', EMPTY + b'q\x08')
            + build(b'h\x07', state_of('U1', (1,), bytes(4))) + b'\x86'
            + build(b'h\x08', state_of('U1', (1,), bytes(4))) + b'\x86'
        ),
        # steps that no checkpoint has
        'INST': b'(' + TOUCH + b'ios\nsystem\n',
        'OBJ': b'(' + name('os.system') + TOUCH + b'o',
        'EXT1': b'\x82\x01',
        'EXT4': b'\x84\x01\x00\x00\x00',
        'PERSID': b'Ptext\n',
        'NEWOBJ_EX': name('argparse.Namespace') + plain(()) + plain({}) + b'\x92',
        'STACK_GLOBAL': b'\x8c\x05posix\x8c\x06system\x93' + many(TOUCH) + b'R',
        'STACK_GLOBAL of numbers': plain(1) + plain(2) + b'\x93',
        'dotted name': b'\x8c\x05torch\x8c\x0dTensor.tofile\x93' + many(TOUCH) + b'R',
        'LONG4': b'\x8b' + struct.pack('<i', 1 << 20) + b'\x7f' * (1 << 20),
        'a number of a megabyte': b'L' + b'9' * (1 << 20) + b'L\n',
        'a text of four gigabytes': b'X\xff\xff\xff\xffabc',
        'bytes of exabytes': b'\x8e' + struct.pack('<Q', 1 << 60),
        'a place in memory far away': plain(1) + b'r\xff\xff\xff\xff',
        'nothing below': b'R',
        'no mark': plain(1) + b't',
        'GLOBAL without a name': b'cposix\n\n',
        # shapes of containers
        'a list that holds itself': b']q\x07h\x07a',
        'options that hold themselves': new('argparse.Namespace') + b'q\x07}' + plain('x')
        + b'h\x07sb',
        'very deep': b']' * 300_000 + b'a' * 299_999,
        'tuples deep': plain(()) + b'\x85' * 200_000,
        'eight million lists': b'](' + b']' * 8_000_000 + b'e',
        'many empty dictionaries': b'](' + (name('collections.OrderedDict') + b'q\x07')
        + b'h\x07)R' * 2_500_000 + b'e',
        'many sets': b'](' + b'\x8f' * 4_000_000 + b'e',
        'one tensor very often': b'](' + tensor() + b'q\x07' + b'h\x07' * 500_000 + b'e',
        **copies(),
        'counter of pairs that double': call('collections.Counter', plain({})) + b'(' + plain('x')
        + plain((1,)) + b'q\x07' + b'h\x07\x86q\x07' * 60 + b'u',
        'axes by the thousand': b'](' + name('torch._utils._rebuild_parameter') + b'q\x07'
        + many(tensor(size=(0,) + (1,) * 62, stride=(1,) * 63), plain(True), plain(None))
        + b'q\x08R' + b'h\x07h\x08R' * 660_000 + b'e',
        'doubling': plain([1]) + b'q\x07' + b'h\x07h\x07\x86q\x07' * 60,
    }  # fmt: skip
    for gadget in (
        'os.system', 'posix.system', 'nt.system', 'builtins.eval', 'builtins.exec',
        'builtins.__import__', 'builtins.open', 'builtins.map', 'builtins.type',
        'builtins.__build_class__', 'operator.attrgetter', 'operator.call', 'functools.partial',
        'functools.reduce', 'importlib.import_module', 'pickle.loads', '_pickle.loads',
        'marshal.loads', 'types.FunctionType', 'types.CodeType', 'copyreg._reconstructor',
        'copyreg.__newobj__', 'codecs.decode', 'pty.spawn', 'pdb.run', 'timeit.main',
        'webbrowser.open', 'tempfile.mkdtemp', 'shutil.rmtree', 'pathlib.Path.write_text',
        'torch.load', 'torch.jit.load', 'torch.ops.load_library', 'torch.hub.load',
        'torch.utils.cpp_extension.load', 'torch.fx.graph_module.reduce_graph_module',
        'numpy.load', 'numpy.ctypeslib.load_library', 'numpy.f2py.compile',
        'numpy.testing._private.utils.runstring', 'mmengine.config.Config.fromstring',
        'mmengine.fileio.load', 'mmengine.runner.load_checkpoint', 'cb_mm.checkpoints.read.trust',
        'cb_mm.checkpoints.read.read_checkpoint', 'collections.namedtuple', 'collections.UserDict',
        'argparse.FileType', 'argparse.ArgumentParser', f'{HISTORY}.register_statistics',
    ):  # fmt: skip
        cases[f'calls {gadget}'] = call(gadget, TOUCH)
    return cases


def files() -> dict[str, bytes]:
    """Hostile containers: the pickle in them is an innocent one."""
    good = archive(table({'w': tensor()}))
    start = good.find(b'PK\x01\x02')
    end = good[-22:]
    evil = archive(table({'w': call('os.system', TOUCH)}))

    def with_end(**changed: int) -> bytes:
        fields = dict(zip(
            ('disk', 'of', 'here', 'all', 'length', 'start', 'comment'),
            struct.unpack('<4H2LH', end[4:]), strict=True,
        ))  # fmt: skip
        fields.update(changed)
        return good[:-22] + end[:4] + struct.pack('<4H2LH', *fields.values())

    def rewritten(change: Callable[[zipfile.ZipFile], None]) -> bytes:
        stream = io.BytesIO(good)
        with zipfile.ZipFile(stream, 'a') as out:
            change(out)
        return stream.getvalue()

    def packed() -> bytes:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, 'w', zipfile.ZIP_DEFLATED) as out:
            out.writestr('archive/data.pkl', w.program(table({'w': tensor(50_000_000, (9,))})))
            out.writestr('archive/data/0', bytes(200_000_000))
        return stream.getvalue()

    directory = good[start:-22]
    second = directory.replace(b'archive/version', b'archive/versiom')
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode='w') as out:
        for part in ('storages', 'tensors', 'pickle'):
            data = w.program(call('os.system', TOUCH))
            info = tarfile.TarInfo(part)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
    bomb = packed()
    packs = bomb.find(b'PK\x01\x02', len(bomb) - 200)  # its directory; torch would read the other
    again = bomb[-22:-14] + struct.pack('<2H2LH', 2, 2, len(bomb) - 22 - packs, packs, 0)
    flags = bytearray(good)
    flags[start + 8] |= 1
    overlapping = bytearray(good)
    entry = good.find(b'PK\x01\x02', start + 4)
    overlapping[entry + 42 : entry + 46] = good[start + 42 : start + 46]
    locator = b'PK\x06\x07' + struct.pack('<LQL', 0, len(good) - 22, 1)
    record = b'PK\x06\x06' + struct.pack('<Q2H2L4Q', 44, 45, 45, 0, 0, 1, 1, len(directory), start)
    numbers = struct.pack('<q', 4) + bytes(16)
    return {
        'bytes behind the end': good + b'abc',
        'bomb with bytes behind the end': bomb + b'abc',
        'bomb': bomb,
        'bomb with two directories': bomb[:-22] + second + bomb[-22:],
        'bomb with two directories and ends': bomb + directory + again,
        'pickle in front of an archive': w.program(call('os.system', TOUCH)) + good,
        'archive behind an archive': evil + good,
        'archive in a comment': with_end(comment=len(evil)) + evil,
        'two directories': good[:start] + second + directory + end,
        'two ends': good + end,
        'two ends of which the first is true': with_end(length=0, all=0, here=0) + end,
        'directory elsewhere': with_end(start=start - 8),
        'directory longer': with_end(length=len(directory) + 22),
        'entries more': with_end(all=9, here=9),
        'entries fewer': with_end(all=1, here=1),
        'entries of two counts': with_end(here=1),
        'two disks': with_end(disk=1),
        'zip64 says something else': good[:-22] + record + locator + end,
        'zip64 locator alone': good[:-22] + locator + end,
        'a name twice': rewritten(lambda out: out.writestr('archive/data/0', bytes(16))),
        'a program twice': rewritten(lambda out: out.writestr('other/data.pkl', b'.')),
        'encrypted': bytes(flags),
        'parts that share bytes': bytes(overlapping),
        'TorchScript': archive(table({}), {}, **{'constants.pkl': w.program(plain(()))}),
        'other order of bytes': archive(table({}), {}, byteorder=b'big'),
        'old tar': tar.getvalue(),
        'true and false with other values': archive(
            table({'w': tensor(16, (16,), (1,), kind='torch.BoolStorage')}), {'0': b'\xff' * 16}
        ),
        'forty gigabytes of overlapping rows': archive(
            table({'w': tensor(225_000, (100_000, 100_000), (1, 1))}), {'0': bytes(900_000)}
        ),
        'many views': archive(
            table({'w': b'](' + tensor(10_000, (10_000,))
                   + (storage(10_000) + b'q\x07' + name('torch._utils._rebuild_tensor') + b'q\x08')
                   + (b'h\x08(h\x07K\x00' + plain((10_000,)) + plain((1,)) + b'tR') * 100_000
                   + b'e'}),
            {'0': bytes(40_000)},
        ),
        'old: terabytes': old(table({'w': tensor(1 << 40, (9,), more=(plain(None),))})),
        'old: negative': old(table({'w': tensor(-4, (0,), more=(plain(None),))})),
        'old: not filled': old(table({'w': tensor(more=(plain(None),))}), (), b''),
        'old: filled twice': old(
            table({'w': tensor(more=(plain(None),))}), ('0', '0'), numbers + numbers
        ),
        'old: filled elsewhere': old(table({'w': tensor(more=(plain(None),))}), ('0', '1')),
        'old: another length': old(
            table({'w': tensor(more=(plain(None),))}), data=struct.pack('<q', 1 << 60) + bytes(16)
        ),
        'old: view beyond': old(table({'w': tensor(more=(plain(('1', 2, 1 << 40)),))})),
        'old: view before': old(table({'w': tensor(more=(plain(('1', -64, 4)),))})),
        'old: keys that are none': old(table({'w': tensor(more=(plain(None),))}), ({},)),
    }  # fmt: skip


def random_programs(count: int) -> dict[str, bytes]:
    """Programs of random steps over names that are, or once were, allowed."""
    cases = {}
    for seed in range(count):
        chance = random.Random(seed)
        atoms = [
            plain(0), plain(-1), plain(1 << 40), plain('O'), plain('f8'), plain(()), plain((1,)),
            plain((1 << 33,)), plain(None), plain(True), plain([]), plain({}), raw(b'A' * 8),
            tensor(), storage(4), number_type('f8'), EMPTY, new(HISTORY),
            new('argparse.Namespace'), plain('touch PWNED'), plain('min'), plain(1.5), b'h\x00',
            b'h\x01', b'h\x02', b'\x8f',
        ]  # fmt: skip
        names = [
            'numpy.ndarray', 'numpy.dtype', 'numpy._core.multiarray._reconstruct',
            'numpy.core.multiarray.scalar', 'torch._utils._rebuild_tensor_v2', 'torch.Tensor',
            'torch._utils._rebuild_parameter', 'torch.storage.UntypedStorage', 'torch.device',
            'torch._tensor._rebuild_from_type_v2', 'builtins.getattr', 'builtins.bytearray',
            '_codecs.encode', 'collections.OrderedDict', 'collections.Counter', 'builtins.set',
            HISTORY, 'argparse.Namespace', 'torch.Size', 'builtins.slice', 'torch.float32',
            'torch.FloatStorage', 'torch._utils._rebuild_tensor_v3', 'os.system',
        ]  # fmt: skip
        steps = [
            b'R', b'\x81', b'b', b'a', b's', b'\x85', b'\x86', b'\x87', b'q\x00', b'q\x01',
            b'q\x02', b'Q', b'(', b't', b'e', b'u', b'\x90',
        ]  # fmt: skip
        body = b''.join(plain(0) + step for step in (b'q\x00', b'q\x01', b'q\x02'))
        for _ in range(chance.randrange(4, 40)):
            kind = chance.random()
            if kind < 0.45:
                body += chance.choice(atoms)
            elif kind < 0.6:
                arguments = [chance.choice(atoms) for _ in range(chance.randrange(7))]
                body += call(chance.choice(names), *arguments)
            elif kind < 0.7:
                body += name(chance.choice(names))
            else:
                body += chance.choice(steps)
        cases[f'random {seed}'] = archive(b'}' + plain('x') + b'(' + body + b'ts')
    return cases


def all_cases() -> dict[str, bytes]:
    hostile = values()
    return {
        **{f'{key} (zip)': archive(table({'state_dict': v})) for key, v in hostile.items()},
        **{
            f'{key} (old)': old(table({'state_dict': v}), (), b'')
            for key, v in hostile.items()
            if len(v) < 1000
        },
        **files(),
        **random_programs(300),
    }


FORBIDDEN = (
    'os.system', 'os.exec', 'os.posix_spawn', 'subprocess.Popen', 'os.fork', 'os.remove',
    'os.rename', 'os.rmdir', 'os.mkdir', 'os.chmod', 'os.putenv', 'shutil.rmtree',
    'socket.connect', 'ctypes.dlopen', 'code.__new__', 'marshal.loads', 'pickle.find_class',
)  # fmt: skip


def read(file: Path) -> str:
    """Read a file and look at what came, as the tools do."""
    from cb_mm.checkpoints.layouts import state_dicts_in
    from cb_mm.checkpoints.match import require_finite, weights_in
    from cb_mm.checkpoints.read import read_checkpoint
    from cb_mm.errors import UserError

    try:
        content = read_checkpoint(file)
        require_finite(weights_in(content), file)
        list(state_dicts_in(content))
        copy.deepcopy(content)
    except UserError as error:
        return 'refused' if file.name in str(error) and '\n' not in str(error) else str(error)
    except BaseException as error:
        return f'{type(error).__name__}: {error}'[:500]
    return 'read'


def watch(event: str, args: tuple) -> None:
    """End the process when it writes, removes, starts or connects to anything."""
    writes = event == 'open' and isinstance(args[2], int) and args[2] & 3
    if watching and (event in FORBIDDEN or writes):
        os.write(2, f'{event} {args}\n'.encode())
        os._exit(99)


watching: list[str] = []


def main(folder: str) -> None:
    """Read all cases within a gigabyte and a minute of work each; print how each ended."""
    os.chdir(folder)
    warm, file = Path('warm.pth'), Path('case.pth')
    warm.write_bytes(saved({'w': [1]}))
    assert read(warm) == 'read'
    cases = all_cases()
    used = int(Path('/proc/self/statm').read_text().split()[0]) * os.sysconf('SC_PAGE_SIZE')
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.addaudithook(watch)
    for key, data in cases.items():
        file.write_bytes(data)
        signal.setitimer(signal.ITIMER_PROF, 60)  # of this process alone: machines can be busy
        watching.append(key)
        end = read(file)
        watching.clear()
        print(json.dumps([key, end]), flush=True)


if __name__ == '__main__':
    main(sys.argv[1])
