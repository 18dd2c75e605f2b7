"""A good guest: what importing cb_mm changes in the host's process, and what it leaves alone."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from mmengine.fileio import LocalBackend, get_file_backend
from mmengine.runner.checkpoint import CheckpointLoader, load_checkpoint
from robustness_models import SmallModel

from cb_mm import safe_io
from cb_mm.apis import benchmark
from cb_mm.apis.host_process import unchanged_process
from cb_mm.checkpoints.mmengine_files import safe_files
from cb_mm.compat import mmcv_ops, mmpretrain_guard
from cb_mm.config import load_config, restricted
from cb_mm.errors import MissingFile, UserError
from cb_mm.fileio.backend import AtomicBackend

REPO = Path(__file__).resolve().parents[2]
JOB = REPO / 'tests' / 'guest_job.py'
ALL = slice(None)
#: timm's lists of models, in which LocalViT registers.
TIMM_LISTS = {
    f'timm.models._registry.{name}'
    for name in ('_model_default_cfgs', '_model_entrypoints', '_model_pretrained_cfgs',
                 '_model_to_module', '_model_with_tags', '_module_to_models')
}  # fmt: skip


#: What stays after a call of `cb_mm.apis`, and why.
STAYS = re.compile(
    '|'.join([
        # upstream modules that were imported, with what they do to the process when they are
        r'sys\.(meta_path|path)', r'warnings\.filters', r'torch\.(export|fx|jit|utils)\..*',
        r'.*\.__warningregistry__',  # what has been warned of once
        r'mmengine\.fileio\.file_client\.FileClient\._instances',  # caches, filled at first use
        r'mmengine\.logging\.history_buffer\.HistoryBuffer\._statistics_methods',
        r'mmcv\.transforms\..*\._methods_with_randomness',  # a list of mmcv's own
        r'torch\.optim\.\w+\.\w+\.step',  # torch wraps it when the first optimizer is built
    ])
)  # fmt: skip
#: What a training run leaves besides: its Runner, and the generators that it has seeded.
OF_A_RUNNER = {
    'mmengine.logging.logger.MMLogger._instance_dict',
    'mmengine.logging.message_hub.MessageHub._instance_dict',
    'mmengine.registry.default_scope.DefaultScope._instance_dict',
    'mmengine.visualization.visualizer.Visualizer._instance_dict',
    'random state', 'torch settings',
}  # fmt: skip


def run_job(*words: object) -> dict:
    """Run the job in a process of its own; return what it prints."""
    command = [sys.executable, '-W', 'ignore', str(JOB), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def changes(module: str) -> set[str]:
    """Import a module in a process of its own; return every place that it changes there."""
    return set(run_job(module))


def test_importing_changes_nothing_but_the_ops():
    """Registries get what is registered; of all else, the stand-in for absent ops alone."""
    changed = changes('cb_mm')
    ops = {place for place in changed if place.split('.')[:2] == ['mmcv', '_ext']}
    # Beside a transformers that does not fit it, mmpretrain would keep mmdet from being imported.
    fits = mmpretrain_guard._fit(*map(mmpretrain_guard._folder, ('mmpretrain', 'transformers')))
    switched = set() if fits else {'mmpretrain.utils.dependency.WITH_MULTIMODAL'}
    assert changed - ops - TIMM_LISTS == switched
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


@pytest.mark.slow
def test_after_a_call_the_process_is_as_before(tmp_path, scenes):
    """Also after a call with safe_config=True, with a config that names cb_mm.safe_io."""
    small = SmallModel(tmp_path, 'seg', scenes.ade20k, own_labels=False)
    image = next((scenes.ade20k / 'images' / 'validation').glob('*.jpg'))
    found = run_job('calls', small.config, small.checkpoint, small.data, image, tmp_path / 'out')
    assert set(found) == {
        'evaluate_robustness', 'attention_statistics', 'visualize_attention', 'predict',
        'benchmark', 'train',
    }  # fmt: skip
    for name, changed in found.items():
        left = {
            place
            for place, (before, _) in changed.items()
            # A logger that was not there before is that of a module that was imported.
            if not STAYS.fullmatch(place) and not (place.startswith('logger ') and before is None)
        }
        assert left == (OF_A_RUNNER if name == 'train' else set()), name


@pytest.mark.parametrize('used', [True, False])
def test_generators_of_gpus_are_put_back_where_the_host_uses_them(used, monkeypatch):
    states = ['of the first', 'of the second']
    monkeypatch.setattr('torch.cuda.is_initialized', lambda: used)
    monkeypatch.setattr('torch.cuda.get_rng_state_all', lambda: [*states])
    monkeypatch.setattr('torch.cuda.set_rng_state_all', lambda new: states.__setitem__(ALL, new))
    with unchanged_process():
        states[:] = ['seeded', 'seeded']
    assert states == (['of the first', 'of the second'] if used else ['seeded', 'seeded'])


def test_safe_configs_are_asked_for_by_one_call_alone(tmp_path):
    program = tmp_path / 'program.py'
    program.write_text('import os\nmodel = dict(type=os.sep)\n')
    with pytest.raises(UserError, match='`safe_config`'):
        benchmark(program, safe_config=True)
    assert not restricted.enabled()
    assert load_config(program).model.type == '/'
    with restricted.only_data():  # the host's own choice stays
        with pytest.raises(UserError, match='`safe_config`'):
            benchmark(program, safe_config=True)
        assert restricted.enabled()
    assert not restricted.enabled()


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


def test_a_call_switches_safe_io_on_until_it_returns(plain_mmengine, tmp_path):
    with safe_files():
        assert type(get_file_backend(str(tmp_path))) is AtomicBackend
        importlib.import_module('cb_mm.safe_io')  # as a config of ours does
    assert type(get_file_backend(str(tmp_path))) is LocalBackend
    again = importlib.import_module('cb_mm.safe_io')  # a host that asks for it later gets it
    assert type(get_file_backend(str(tmp_path))) is AtomicBackend
    again.uninstall()


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
