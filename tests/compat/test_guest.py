"""A good guest: what importing cb_mm changes in the host's process, and what it leaves alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from mmengine.fileio import LocalBackend, get_file_backend
from mmengine.runner.checkpoint import CheckpointLoader, load_checkpoint

from cb_mm import safe_io
from cb_mm.compat import mmcv_ops
from cb_mm.errors import MissingFile, UserError
from cb_mm.fileio.backend import AtomicBackend

REPO = Path(__file__).resolve().parents[2]
JOB = REPO / 'tests' / 'guest_job.py'
#: timm's lists of models, in which LocalViT registers.
TIMM_LISTS = {
    f'timm.models._registry.{name}'
    for name in ('_model_default_cfgs', '_model_entrypoints', '_model_pretrained_cfgs',
                 '_model_to_module')
}  # fmt: skip


def changes(module: str) -> set[str]:
    """Import a module in a process of its own; return every place that it changes there."""
    command = [sys.executable, '-W', 'ignore', str(JOB), module]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return set(json.loads(done.stdout))


def test_importing_changes_nothing_but_the_ops():
    """Registries get what is registered; of all else, the stand-in for absent ops alone."""
    changed = changes('cb_mm')
    ops = {place for place in changed if place.split('.')[:2] == ['mmcv', '_ext']}
    assert changed - ops - TIMM_LISTS == set()
    assert bool(ops) == (mmcv_ops.source() == 'torchvision')


def test_safe_io_is_what_changes_mmengine():
    """The same look finds what is switched on, so that it is no blind one."""
    changed = {place for place in changes('cb_mm.safe_io') if place.startswith('mmengine')}
    assert {
        'mmengine.runner.checkpoint.load_url',
        'mmengine.runner.checkpoint.CheckpointLoader._schemes',
        'mmengine.fileio.io.prefix_to_backends',
        'mmengine.print_log',
    } <= changed


@pytest.fixture
def plain_mmengine():
    """Switch mmengine's own reading and writing on, as where only cb_mm is imported."""
    safe_io.uninstall()
    yield
    safe_io.install()


def test_without_safe_io_checkpoints_load_as_upstream(plain_mmengine, tmp_path):
    with pytest.raises(FileNotFoundError) as missing:
        CheckpointLoader.load_checkpoint(str(tmp_path / 'none.pth'))
    assert not isinstance(missing.value, UserError)
    file = tmp_path / 'own.pth'
    torch.save({'state_dict': {'w': torch.ones(2)}, 'meta': {'config': 'x = 1'}}, file)
    assert load_checkpoint(torch.nn.Linear(1, 1), str(file))['meta'] == {'config': 'x = 1'}
    assert type(get_file_backend(str(file))) is LocalBackend


def test_safe_io_can_be_switched_on_after_mmengine_has_worked(plain_mmengine, tmp_path):
    """A config is read before its custom_imports are: mmengine has a backend in use by then."""
    used = get_file_backend(str(tmp_path), enable_singleton=True)
    assert type(used) is LocalBackend
    safe_io.install()
    safe_io.install()
    assert type(get_file_backend(str(tmp_path), enable_singleton=True)) is AtomicBackend
    with pytest.raises(MissingFile, match=r'none\.pth does not exist') as missing:
        CheckpointLoader.load_checkpoint(str(tmp_path / 'none.pth'))
    assert isinstance(missing.value, FileNotFoundError)
    assert isinstance(missing.value, UserError)
