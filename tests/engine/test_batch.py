"""What a resumed run says when it has other processes or another batch than its checkpoint."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from mmengine.config import Config
from torch.utils.data import DataLoader

from cb_mm.engine import batch
from cb_mm.engine.batch import SCALE, changed_scale, run_scale


@pytest.fixture
def runner():
    """What is asked of a runner: batches of two, three of which make an update."""
    config = Config(dict(optim_wrapper=dict(accumulative_counts=3)))
    return SimpleNamespace(train_dataloader=DataLoader(range(8), batch_size=2), cfg=config)


def said(runner, **scale) -> str | None:
    return changed_scale({'meta': {SCALE: scale}}, runner)


def test_the_scale_of_a_run(runner, monkeypatch):
    monkeypatch.setattr(batch, 'get_world_size', lambda: 4)
    assert run_scale(runner) == {'processes': 4, 'batch': 24}


def test_a_change_is_told(runner):
    assert said(runner, processes=1, batch=6) is None
    assert said(runner, processes=2, batch=6) == (
        'the checkpoint is of 2 processes and a batch of 6: the same batch, shared among 1 now'
    )
    assert said(runner, processes=2, batch=12) == (
        'the checkpoint is of 2 processes and a batch of 12, this run of 1 process and 6: its lr '
        'is for the former, and its iterations have other images'
    )


def test_an_older_checkpoint_says_nothing(runner):
    assert changed_scale({}, runner) is None
    assert said(runner) is None
    assert said(runner, processes='2', batch=12) is None
