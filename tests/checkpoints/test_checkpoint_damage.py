"""Property tests of reading checkpoints: damaged or hostile, nothing runs, hangs or swells."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import forked
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cb_mm.checkpoints.match import require_fit
from cb_mm.checkpoints.read import read_checkpoint
from cb_mm.errors import UserError

#: Run in a process of its own, with bounded memory and a bounded time.
FLIPS = """
import random, resource, signal, sys
from pathlib import Path
import torch
import cb_mm
from cb_mm.checkpoints.read import read_checkpoint
from cb_mm.errors import UserError
from mmengine.logging import HistoryBuffer

file, kind, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
numbers = torch.Generator().manual_seed(0)
content = {
    'meta': {'epoch': 1, 'iter': 4, 'seed': 0},
    'state_dict': {f'layer{i}.weight': torch.randn(4, 4, generator=numbers) for i in range(3)},
    'message_hub': {'log_scalars': {'loss': HistoryBuffer([1.0], [1])}},
    'optimizer': {'state': {0: {'step': torch.tensor(1.0)}}, 'param_groups': [{'lr': 0.1}]},
}
if kind == 'safetensors':
    from safetensors.torch import save_file
    save_file(content['state_dict'], file)
else:
    torch.save(content, file, _use_new_zipfile_serialization=kind == 'zip')
whole = file.read_bytes()

def weights(read):
    state = read.get('state_dict', read)
    if not isinstance(state, dict):
        return None
    return {k: v.tolist() if isinstance(v, torch.Tensor) else repr(v) for k, v in state.items()}

expected = weights(read_checkpoint(file))
used = int(Path('/proc/self/statm').read_text().split()[0]) * 4096 if sys.platform == 'linux' else 0
if used:  # half a gigabyte more than before the first damaged file
    resource.setrlimit(resource.RLIMIT_AS, (used + (512 << 20),) * 2)
FORBIDDEN = ('os.system', 'os.exec', 'os.posix_spawn', 'subprocess.Popen', 'os.fork', 'os.remove',
             'socket.connect')
def forbidden(event, args):
    if not armed:
        return
    # Importing a module of Python's own is an exec too, of code from its file.
    code = event == 'exec' and getattr(args[0], 'co_filename', '<').startswith('<')
    write = event == 'open' and args[2] & 3 and str(args[0]) != str(file)
    if event in FORBIDDEN or code or write:
        print('RAN', event, args)
        sys.stdout.flush()
        signal.raise_signal(signal.SIGABRT)
armed = False
sys.addaudithook(forbidden)
random = random.Random(0)
tally = {'error': 0, 'same': 0, 'other': 0}
for _ in range(count):
    damaged = bytearray(whole)
    for _ in range(random.choice((1, 1, 1, 4))):
        damaged[random.randrange(len(whole))] ^= 1 << random.randrange(8)
    file.write_bytes(damaged)
    signal.alarm(20)
    armed = True
    try:
        read = read_checkpoint(file)
        armed = False
        same = weights(read) == expected
        tally['same' if same else 'other'] += 1
    except UserError as error:
        assert file.name in str(error), error
        tally['error'] += 1
    armed = False
    signal.alarm(0)
print(tally)
"""


@pytest.mark.parametrize(
    ('kind', 'count'),
    [
        pytest.param('zip', 10_000, marks=pytest.mark.slow),
        ('zip', 500),
        ('legacy', 1500),
        ('safetensors', 1500),
    ],
)
def test_flipped_bits(kind, count, tmp_path):
    """10,000 damaged files of the kind that mmengine writes: an error, or the very same weights.

    torch's old format and safetensors have no checksums, so that changed numbers pass there.
    """
    file = tmp_path / ('a.safetensors' if kind == 'safetensors' else 'a.pth')
    done = forked.run('-c', FLIPS, file, kind, count, cwd=tmp_path, seconds=500)
    assert done.code == 0, done.out + done.err
    tally = eval(done.out.strip().splitlines()[-1], {})
    assert sum(tally.values()) == count
    assert tally['error'] > count / 10
    if kind == 'zip':
        assert tally['other'] == 0, tally


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    data=st.binary(max_size=300),
    start=st.sampled_from([b'', b'PK\x03\x04', b'\x80\x02', b'\x80\x04']),
)
def test_any_bytes(data, start, tmp_path_factory):
    """300 files of any bytes."""
    file = tmp_path_factory.getbasetemp() / 'any.pth'
    file.write_bytes(start + data)
    with pytest.raises(UserError):
        read_checkpoint(file)


class Call:
    """Unpickles to the call of a function."""

    def __init__(self, module: str, name: str, *args: object) -> None:
        self.call = module, name, args

    def __reduce__(self) -> tuple:
        import importlib

        module, name, args = self.call
        return getattr(importlib.import_module(module), name), args


NEST = {'a': torch.ones(1)}
for _ in range(40):
    NEST = {'a': NEST, 'b': NEST}  # two to the power of forty paths
GADGETS = {
    'os.system': Call('os', 'system', 'touch PWNED'),
    'subprocess': Call('subprocess', 'Popen', ['touch', 'PWNED']),
    'runpy': Call('runpy', 'run_path', 'evil.py'),
    'import': Call('builtins', '__import__', 'antigravity'),
    'exec': Call('builtins', 'exec', 'open("PWNED", "w")'),
    'compile': Call('builtins', 'compile', '1', 'x', 'eval'),
    'open': Call('builtins', 'open', 'PWNED', 'w'),
    'getattr': Call('builtins', 'getattr', torch.Tensor, 'tofile'),
    'attrgetter': Call('operator', 'attrgetter', 'system'),
    'methodcaller': Call('operator', 'methodcaller', 'system'),
    'partial': Call('functools', 'partial', print),
    'rmtree': Call('shutil', 'rmtree', 'folder'),
    'socket': Call('socket', 'create_connection', ('127.0.0.1', 9)),
    'torch.load': Call('torch', 'load', 'PWNED'),
    'load_from_bytes': Call('torch.storage', '_load_from_bytes', b'x'),
    'torch.hub': Call('torch.hub', 'load', 'a/b', 'c'),
    'config': Call('mmengine.config', 'Config', {}),
    'numpy.load': Call('numpy', 'load', 'PWNED', None, True),
    'thread': Call('threading', 'Timer', 0, print),
    'ctypes': Call('ctypes', 'CDLL', 'PWNED'),
}


@pytest.mark.parametrize('style', ['zip', 'legacy'])
@pytest.mark.parametrize('name', GADGETS)
def test_gadgets_are_refused(name, style, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'evil.py').write_text('open("PWNED", "w")')
    (tmp_path / 'folder').mkdir()
    content = {'state_dict': {'w': torch.ones(2)}, 'x': GADGETS[name]}
    torch.save(content, 'a.pth', _use_new_zipfile_serialization=style == 'zip')
    with pytest.raises(UserError, match=r'a\.pth holds'):
        read_checkpoint('a.pth')
    assert not Path('PWNED').exists()
    assert Path('folder').exists()
    assert 'antigravity' not in sys.modules


def test_packed_archives_are_refused(tmp_path):
    """A megabyte of zeros in a kilobyte: what a zip bomb is made of."""
    torch.save({'w': torch.zeros(1 << 18)}, tmp_path / 'a.pth')
    with (
        zipfile.ZipFile(tmp_path / 'a.pth') as old,
        zipfile.ZipFile(tmp_path / 'bomb.pth', 'w', zipfile.ZIP_DEFLATED) as new,
    ):
        for part in old.infolist():
            new.writestr(part.filename, old.read(part))
    with pytest.raises(UserError, match=r'bomb\.pth is packed'):
        read_checkpoint(tmp_path / 'bomb.pth')


@pytest.mark.parametrize(
    ('claim', 'message'),
    [
        (torch.zeros(1).expand(10**15), 'impossible size'),
        (torch.zeros(1).expand(10**9), r'1,000,000,000 numbers of which only 1 .*clone'),
        (torch.zeros(100).as_strided((10**5, 10**4), (0, 0)), r'only 100 .*clone'),
        ([torch.zeros(1 << 20)] * 100 + [torch.zeros(1 << 20)[i:] for i in range(2)], None),
        (NEST, 'hold one another too many times'),
    ],
)
def test_claims_are_not_believed(claim, message, tmp_path):
    """Tensors that repeat their numbers, and containers that hold each other."""
    torch.save({'weight': claim}, tmp_path / 'a.pth')
    if message is None:
        read_checkpoint(tmp_path / 'a.pth')
        return
    with pytest.raises(UserError, match=rf'a\.pth .*{message}'):
        read_checkpoint(tmp_path / 'a.pth')


def test_small_repetitions_are_read(tmp_path):
    """As in the position ids of some models."""
    torch.save({'ids': torch.arange(7).expand(3, 7)}, tmp_path / 'a.pth')
    assert read_checkpoint(tmp_path / 'a.pth')['ids'].tolist() == [[*range(7)]] * 3


@pytest.mark.parametrize('value', [float('nan'), float('inf'), -float('inf')])
def test_values_that_are_not_finite(value):
    weights = {'weight': torch.tensor([[1.0, value]]), 'bias': torch.zeros(1)}
    with pytest.raises(UserError, match='weight are not all finite'):
        require_fit(torch.nn.Linear(2, 1), weights, 'a.pth')
    require_fit(torch.nn.Linear(2, 1), {**weights, 'weight': torch.ones(1, 2)}, 'a.pth')
