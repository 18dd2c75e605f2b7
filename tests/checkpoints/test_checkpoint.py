"""Reading checkpoints: real ones load, broken ones are named, hostile ones run nothing."""

from __future__ import annotations

import argparse
import os
import pickle
import signal
from pathlib import Path

import forked
import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.runner import CheckpointLoader, load_checkpoint
from safetensors.torch import save_file

from cb_mm.checkpoints import read as checkpoint
from cb_mm.checkpoints.read import read_checkpoint
from cb_mm.errors import UserError

JOB = Path(__file__).parents[1].joinpath('resume_job.py')


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path, function=os.system) -> None:
        self.marker, self.function = marker, function

    def __reduce__(self):
        return self.function, (f'touch {self.marker}',)


def run_job(*words: object) -> forked.Done:
    return forked.run('-c', JOB.read_text(), *words, cwd=JOB.parent)


@pytest.mark.slow
def test_killed_training_resumes_to_the_same_weights(tmp_path):
    whole = run_job(tmp_path / 'whole', 4)
    assert whole.code == 0, whole.err
    killed = run_job(tmp_path / 'cut', 4, 'kill', 2)
    assert killed.code == -signal.SIGKILL
    resumed = run_job(tmp_path / 'cut', 4, 'resume')
    assert resumed.code == 0, resumed.err
    assert resumed.out.split()[-1] == '4'
    a, b = (read_checkpoint(tmp_path / name / 'epoch_4.pth') for name in ('whole', 'cut'))
    assert a['meta']['iter'] == b['meta']['iter'] == 16
    for key, value in a['state_dict'].items():
        assert torch.equal(value, b['state_dict'][key])
    for key, value in a['ema_state_dict'].items():
        assert torch.equal(value, b['ema_state_dict'][key])
    history = b['message_hub']['log_scalars']['train/loss']
    assert isinstance(history, HistoryBuffer)
    assert np.isfinite(history.mean())


def test_reads_what_people_save(tmp_path):
    weights = {'w': torch.arange(3.0)}
    options = argparse.Namespace(lr=0.1, size=np.float32(2), when=np.int64(3))
    whole = dict(model=weights, args=options, shape=np.zeros((2, 2)), part=slice(1, 2))
    torch.save(whole, tmp_path / 'a.pth')
    read = read_checkpoint(tmp_path / 'a.pth')
    assert torch.equal(read['model']['w'], weights['w'])
    assert read['args'] == options
    torch.save(weights, tmp_path / 'old.pth', _use_new_zipfile_serialization=False)
    assert torch.equal(read_checkpoint(str(tmp_path / 'old.pth'))['w'], weights['w'])
    save_file(weights, tmp_path / 'a.safetensors')
    assert torch.equal(read_checkpoint(tmp_path / 'a.safetensors')['w'], weights['w'])


@pytest.mark.parametrize('style', ['zip', 'legacy', 'pickle2', 'pickle4', 'pickle5'])
@pytest.mark.parametrize('function', [os.system, os.popen, eval, exec])
def test_malicious_pickle_is_refused_and_does_not_run(tmp_path, style, function):
    marker, file = tmp_path / 'marker', tmp_path / 'evil.pth'
    evil = dict(state_dict=dict(w=torch.ones(1)), extra=Bomb(marker, function))
    if style.startswith('pickle'):
        file.write_bytes(pickle.dumps(Bomb(marker, function), protocol=int(style[-1])))
    else:
        torch.save(evil, file, _use_new_zipfile_serialization=style == 'zip')
    name = function.__name__
    with pytest.raises(UserError, match=rf'evil\.pth.*{name}.*`trust_checkpoint`'):
        read_checkpoint(file)
    with pytest.raises(UserError, match=name):  # mmengine's own ways in
        CheckpointLoader.load_checkpoint(str(file), map_location='cpu')
    with pytest.raises(UserError, match=name):
        load_checkpoint(torch.nn.Linear(1, 1), str(file))
    assert not marker.exists()


def test_getattr_opens_nothing_but_histories(tmp_path):
    """mmengine's histories need `getattr`; nothing else may use it."""

    class Reach:
        def __reduce__(self):
            return getattr, (HistoryBuffer, '__init__')

    torch.save(dict(x=Reach()), tmp_path / 'reach.pth')
    with pytest.raises(UserError, match='getattr'):
        read_checkpoint(tmp_path / 'reach.pth')


@pytest.mark.slow
def test_resume_and_load_from_refuse_it_too(tmp_path):
    assert run_job(tmp_path, 1).code == 0
    content = read_checkpoint(tmp_path / 'epoch_1.pth')
    marker = tmp_path / 'marker'
    torch.save({**content, 'extra': Bomb(marker)}, tmp_path / 'epoch_1.pth')
    done = run_job(tmp_path, 2, 'resume')
    assert done.code != 0
    assert 'posix.system' in done.err
    assert not marker.exists()


def test_config_text_in_a_checkpoint_is_not_run(tmp_path):
    """mmengine executes ``meta['config']`` when it resumes."""
    torch.save(dict(state_dict={}, meta=dict(config='import os', epoch=1)), tmp_path / 'a.pth')
    assert read_checkpoint(tmp_path / 'a.pth')['meta'] == dict(epoch=1)


def test_trust_opens_one_file(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, '_trusted', set())
    for name in ('mine', 'other'):
        torch.save(dict(extra=Bomb(tmp_path / f'marker_{name}')), tmp_path / f'{name}.pth')
    checkpoint.trust(tmp_path / 'mine.pth')
    CheckpointLoader.load_checkpoint(str(tmp_path / 'mine.pth'), map_location='cpu')
    assert (tmp_path / 'marker_mine').exists()
    with pytest.raises(UserError):
        read_checkpoint(tmp_path / 'other.pth')
    read_checkpoint(tmp_path / 'other.pth', trust=True)
    assert (tmp_path / 'marker_other').exists()


@pytest.mark.parametrize('share', [0.0, 0.01, 0.5, 0.99])
@pytest.mark.parametrize('kind', ['zip', 'legacy', 'safetensors'])
def test_truncated(tmp_path, share, kind):
    file = tmp_path / ('cut.safetensors' if kind == 'safetensors' else 'cut.pth')
    weights = {'w': torch.ones(1000)}
    if kind == 'safetensors':
        save_file(weights, file)
    else:
        torch.save(weights, file, _use_new_zipfile_serialization=kind == 'zip')
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * share)])
    with pytest.raises(UserError, match=r'cut\.(pth|safetensors)'):
        read_checkpoint(file)


def test_foreign_files(tmp_path):
    cases = {
        'page.pth': b'<html>404 not found</html>',
        'text.pth': b'hello world\n' * 50,
        'zeros.pth': bytes(5000),
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=f'{name}.*not a torch checkpoint'):
            read_checkpoint(tmp_path / name)
    torch.save(torch.ones(3), tmp_path / 'tensor.pth')
    with pytest.raises(UserError, match='holds a Tensor'):
        read_checkpoint(tmp_path / 'tensor.pth')
    with pytest.raises(UserError, match='does not exist'):
        read_checkpoint(tmp_path / 'absent.pth')
    with pytest.raises(UserError, match='folder'):
        read_checkpoint(tmp_path)


def test_downloaded_files_are_read_safely(tmp_path):
    """Through mmengine's http loader, from a real server on this machine."""
    import threading
    from functools import partial
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    served, cache = tmp_path / 'served', tmp_path / 'cache'
    served.mkdir()
    torch.save({'w': torch.ones(2)}, served / 'good.pth')
    torch.save({'w': Bomb(tmp_path / 'marker')}, served / 'bad.pth')
    server = ThreadingHTTPServer(
        ('127.0.0.1', 0), partial(SimpleHTTPRequestHandler, directory=served)
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        from mmengine.runner.checkpoint import load_from_http

        url = f'http://127.0.0.1:{server.server_port}'
        good = load_from_http(f'{url}/good.pth', 'cpu', str(cache), progress=False)
        assert torch.equal(good['w'], torch.ones(2))
        with pytest.raises(UserError, match=r'posix\.system'):
            load_from_http(f'{url}/bad.pth', 'cpu', str(cache), progress=False)
        assert not (tmp_path / 'marker').exists()
    finally:
        server.shutdown()
