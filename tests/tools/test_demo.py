"""What `make demo` runs: every step, but with few scenes and two iterations."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import forked
import pytest
import torch
from tool import REPO, SMALL_CROPS, write_config

from cb_mm.checkpoints.provenance import Provenance
from cb_mm.checkpoints.read import read_checkpoint
from cb_mm.checkpoints.shipped import WEIGHTS, shipped_folder
from cb_mm.config.loading import load_config

#: And with as little work as that takes.
SHORT = f"""{SMALL_CROPS}
train_dataloader.update(batch_size=2, num_workers=0, persistent_workers=False)
train_cfg = dict(max_iters=2, val_interval=2)
"""


@pytest.fixture
def demo():
    spec = importlib.util.spec_from_file_location('demo', REPO / 'tools' / 'demo.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_its_vit_is_the_one_that_was_trained(demo):
    """Every part of the recipe that weights do not show: heads, broadcast, mean and std."""
    recipe = load_config('cifar10_vit_micro_cb').model
    model = load_config(demo.CONFIG).model
    assert demo.WEIGHTS == 'cb_mm/vit_micro_cifar10_cb'
    assert model.backbone.arch == recipe.backbone.arch
    assert model.backbone.broadcast == recipe.backbone.broadcast == 'cb'
    for name in ('mean', 'std'):
        assert model.data_preprocessor[name] == recipe.data_preprocessor[name]


@pytest.mark.slow
def test_it_starts_from_the_published_weights(demo, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    short = write_config(tmp_path, SHORT)
    monkeypatch.setattr(demo, 'CONFIG', short)
    printed = {}

    def call(words: list[str]) -> int:
        tool = Path(words[1]).name
        few = ('--train', '8', '--val', '4') if tool == 'make_scenes.py' else ()
        done = forked.run(tool, *words[2:], *few, cwd=tmp_path)
        printed[tool] = done.out + done.err
        return done.code

    monkeypatch.setattr(demo.subprocess, 'call', call)
    assert demo.main(['--out', 'out']) == 0, list(printed.values())[-1]
    assert 'weights  cb_mm/vit_micro_cifar10_cb (' in printed['train.py']
    content = read_checkpoint(tmp_path / 'out' / 'train' / 'iter_2.pth')
    assert str(Provenance.of_checkpoint(content)) == 'cb in layers 4-7, position end'
    # The rate of these two iterations is that of a warm-up: they change the weights by little.
    published = read_checkpoint(shipped_folder(demo.WEIGHTS) / WEIGHTS)['state_dict']
    blocks = {name: value for name, value in published.items() if '.blocks.' in name}
    assert len(blocks) == 8 * 12
    for name, value in blocks.items():
        torch.testing.assert_close(content['state_dict'][name], value, rtol=0, atol=1e-3)
    assert 'clean mIoU' in capsys.readouterr().out
    assert len(list((tmp_path / 'out' / 'attention').glob('*.html'))) == 1
