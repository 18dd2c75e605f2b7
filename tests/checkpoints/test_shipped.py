"""Weights that come with the package: found by name, checked, and as good as their card says."""

from __future__ import annotations

import hashlib
import json
import tarfile

import pytest
import torch
from safetensors.torch import save_file
from tool import REPO

from cb_mm.checkpoints import shipped
from cb_mm.checkpoints.backbone_weights import load_weights
from cb_mm.checkpoints.shipped import is_shipped_name, shipped_folder, shipped_models
from cb_mm.checkpoints.sources import read_weights, source_digest
from cb_mm.errors import UserError
from cb_mm.fileio.digests import content_digest
from cb_mm.models import ViTCB

ARCH = dict(patch_size=4, embed_dim=16, depth=2, num_heads=2)


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """A package with one small model."""
    file = tmp_path / 'small' / shipped.WEIGHTS
    file.parent.mkdir()
    model = ViTCB(ARCH, img_size=32, out_indices=(1,), pyramid=False)
    save_file(model.state_dict(), file, {'format': 'pt'})
    entry = {'sha256': hashlib.sha256(file.read_bytes()).hexdigest()}
    (tmp_path / shipped.INDEX).write_text(json.dumps({'small': entry}))
    monkeypatch.setattr(shipped, 'FOLDER', tmp_path)
    return file


def test_a_model_is_loaded_by_name(weights):
    model = ViTCB(ARCH, img_size=32, out_indices=(1,), pyramid=False)
    load_weights(model, 'cb_mm/small')
    expected = read_weights(weights)[0]
    assert all(torch.equal(expected[key], value) for key, value in model.state_dict().items())
    assert source_digest('cb_mm/small') == content_digest(weights)


def test_another_name_lists_what_there_is(weights):
    with pytest.raises(UserError) as error:
        read_weights('cb_mm/smal')
    text = str(error.value)
    assert text.startswith('cb_mm/smal: no such weights come with cb_mm.')
    assert 'Did you mean' in text
    assert text.endswith('There are: cb_mm/small.')


def test_a_changed_file_is_refused(weights):
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    for use in (read_weights, source_digest):
        with pytest.raises(UserError, match=r'checksum differs\. Install cb_mm again'):
            use('cb_mm/small')
    weights.unlink()
    with pytest.raises(UserError, match='is missing'):
        read_weights('cb_mm/small')


def test_files_of_the_user_come_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_shipped_name('cb_mm/small')
    assert not is_shipped_name('cb_mm/small.pth')
    assert not is_shipped_name('cb_mm/a/small')
    assert not is_shipped_name('small')
    (tmp_path / 'cb_mm').mkdir()
    (tmp_path / 'cb_mm' / 'small').touch()
    assert not is_shipped_name('cb_mm/small')


@pytest.fixture(scope='module')
def some_cifar(tmp_path_factory):
    """Every so many real test images, and the classes."""
    archive = REPO.parent / 'shared' / 'data' / 'cifar10.tar.gz'
    if not archive.is_file():
        pytest.skip(f'needs {archive}')
    root, step = tmp_path_factory.mktemp('cifar10'), 20
    with tarfile.open(archive) as tar:
        files = sorted((m for m in tar if m.isfile() and m.name.lstrip('./').startswith('test/')),
                       key=lambda member: member.name)  # fmt: skip
        tar.extractall(root, files[::step], filter='data')
    return root


@pytest.mark.parametrize('name', sorted(shipped_models()))
def test_a_card_tells_the_truth(name, some_cifar, tmp_path):
    """Loaded by name, the weights are right for as many real images as when published."""
    pytest.importorskip('mmpretrain')
    from cb_mm.apis import evaluate_robustness

    entry = shipped_models()[name]
    assert entry['step'] == 20
    evaluate_robustness(
        entry['recipe'], f'cb_mm/{name}', suite='clean', data_root=some_cifar,
        out=tmp_path / 'test',
    )  # fmt: skip
    results = json.loads((tmp_path / 'test' / 'results.json').read_text())
    found = results['cells'][0]['metrics']['top1']['mean'] * entry['images'] / 100
    assert found == pytest.approx(entry['correct'], abs=0.01)
    card = (shipped_folder(f'cb_mm/{name}') / 'README.md').read_text()
    assert '| clean |' in card
    assert 'CIFAR-10' in card
