"""Downloads: every address its own file in the cache, and nothing but weights in it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch
from pickle_words import archive, call, plain, saved, table
from safetensors.torch import save

from cb_mm.checkpoints import read as checkpoint
from cb_mm.checkpoints.downloads import download
from cb_mm.checkpoints.sources import read_weights
from cb_mm.errors import UserError
from cb_mm.models import ViTCB

PAGES = {
    '/a/model.pth': saved({'w': torch.zeros(1)}),
    '/b/model.pth': saved({'w': torch.ones(1)}),
    '/model.pth?version=1': saved({'w': torch.full((1,), 1.0)}),
    '/model.pth?version=2': saved({'w': torch.full((1,), 2.0)}),
    '/old.pth': saved({'w': torch.ones(1)}, _use_new_zipfile_serialization=False),
    '/a.safetensors': save({'w': torch.ones(1)}),
    '/login.pth': b'\n <!DOCTYPE html><html><form>Please log in</form></html>',
    '/denied.pth': b'{"error": "access denied"}',
    '/short.pth': saved({'w': torch.ones(1000)}),
    '/..%2f..%2f.bashrc': saved({'w': torch.ones(1)}),
    '/vit-12345678.pth': saved({'w': torch.ones(1)}),
    '/evil.pth': archive(table({'w': call('os.system', plain('touch PWNED'))})),
}


class Handler(BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        type(self).asked.append(self.path)
        body = PAGES.get(self.path)
        self.send_response(200 if body else 404)
        self.send_header('Content-Length', str(len(body or b'')))
        self.end_headers()
        self.wfile.write((body or b'')[: 100 if self.path == '/short.pth' else None])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, 'get_dir', lambda: str(tmp_path / 'hub'))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Handler, 'asked', [], raising=False)
    server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f'http://127.0.0.1:{server.server_port}'
    server.shutdown()
    server.server_close()


def cached(folder) -> list[str]:
    return [file.name for file in folder.rglob('*') if file.is_file()]


def test_one_name_at_two_addresses(site, tmp_path):
    pages = ['/a/model.pth', '/b/model.pth', '/model.pth?version=1', '/model.pth?version=2']
    for _ in range(2):
        assert [read_weights(site + page)[0]['w'].item() for page in pages] == [0, 1, 1, 2]
    assert Handler.asked == pages  # once each
    assert cached(tmp_path / 'hub' / 'checkpoints') == ['model.pth'] * 4


@pytest.mark.parametrize('page', ['/old.pth', '/a.safetensors'])
def test_kinds_of_weights(site, page):
    assert read_weights(site + page)[0]['w'].item() == 1


@pytest.mark.parametrize(
    ('page', 'message'),
    [
        ('/login.pth', 'a web page instead of weights'),
        ('/denied.pth', 'returned no weights'),
        ('/short.pth', r'100 of \d+ bytes'),
        ('/absent.pth', 'HTTP 404'),
    ],
)
def test_what_is_no_weights_is_not_kept(site, page, message, tmp_path, monkeypatch):
    for _ in range(2):
        with pytest.raises(UserError, match=message) as caught:
            read_weights(site + page)
        assert page in str(caught.value)
        assert '\n' not in str(caught.value)
    assert cached(tmp_path / 'hub') == []
    monkeypatch.setitem(PAGES, page, PAGES['/a/model.pth'] + b'')
    if page != '/short.pth':  # the server is well again
        assert read_weights(site + page)[0]['w'].item() == 0


def test_a_name_does_not_leave_the_cache(site, tmp_path):
    file = download(f'{site}/..%2f..%2f.bashrc')
    assert file.resolve().is_relative_to(tmp_path / 'hub' / 'checkpoints')
    assert file.name == 'weights.pth'


def test_hash_in_a_name(site, tmp_path):
    with pytest.raises(UserError, match='SHA-256'):
        download(f'{site}/vit-12345678.pth', check_hash=True)
    assert cached(tmp_path / 'hub') == []
    download(f'{site}/vit-12345678.pth')


@pytest.mark.parametrize(
    'address', ['http://[::1', 'http://', 'http:///a.pth', 'http://a b/c.pth', 'https://127.0.0.1:x/a']
)  # fmt: skip
def test_what_is_no_address(address):
    with pytest.raises(UserError) as caught:
        read_weights(address)
    assert address in str(caught.value)


def test_mmengine_downloads_the_same_way(site):
    from mmengine.runner import CheckpointLoader

    for page, value in (('/a/model.pth', 0), ('/b/model.pth', 1)):
        assert CheckpointLoader.load_checkpoint(site + page)['w'].item() == value
    with pytest.raises(UserError, match='web page'):
        CheckpointLoader.load_checkpoint(f'{site}/login.pth')


def test_a_config_does_not_vouch_for_a_download(site, tmp_path, monkeypatch):
    """``trust`` in init_cfg is refused; without it the file is; the command line alone can."""
    monkeypatch.setattr(checkpoint, '_trusted', set())
    address = f'{site}/evil.pth'
    options = dict(arch='tiny', img_size=32, pyramid=False)
    for trust in (True, False, 'yes'):
        init = dict(type='Pretrained', checkpoint=address, trust=trust)
        with pytest.raises(UserError, match='cannot vouch for a file'):
            ViTCB(**options, init_cfg=init).init_weights()
    assert Handler.asked == []
    model = ViTCB(**options, init_cfg=dict(type='Pretrained', checkpoint=address))
    checkpoint.trust(f'{site}/other.pth')
    with pytest.raises(UserError, match=r'os\.system'):
        model.init_weights()
    assert not (tmp_path / 'PWNED').exists()
    checkpoint.trust(address)
    with pytest.raises(UserError):  # it ran, and returned no weights
        model.init_weights()
    assert (tmp_path / 'PWNED').exists()


def test_npz_from_an_address(site, monkeypatch, tmp_path):
    np.savez(tmp_path / 'a.npz', x=np.zeros(3))
    monkeypatch.setitem(PAGES, '/a.npz', (tmp_path / 'a.npz').read_bytes())
    with pytest.raises(UserError, match='plain Vision Transformer'):
        read_weights(f'{site}/a.npz')
