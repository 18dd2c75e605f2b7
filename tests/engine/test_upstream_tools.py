"""Our hooks in the hands of mmseg's and mmdet's own ``tools/train.py``, from a config alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import cv2
import numpy as np
import pytest
from forked import Done, run
from mmengine.registry import HOOKS
from old_checkpoint import CHECKPOINT
from tool import SMALL_MASK_RCNN, SMALL_UPERNET, write_config

from cb_mm.checkpoints.label_set import KEY
from cb_mm.checkpoints.read import read_checkpoint
from cb_mm.datasets import write_scenes
from cb_mm.engine import hooks

EVERY_HOOK = """
custom_imports = dict(_delete_=True, imports=['cb_mm'])
custom_hooks = [
    dict(type='AttentionHook', interval=1, layers=[0, -1]),
    dict(type='CheckpointMatchHook'), dict(type='FiniteLossHook'), dict(type='MeanLossHook'),
    dict(type='ProvenanceHook'), dict(type='ReplayHook'), dict(type='SampleGuardHook'),
    dict(type='SaveEveryHook', time='1h'), dict(type='StartReportHook'),
    dict(type='StopOnSignalHook'),
]
default_hooks = dict(checkpoint=dict(type='SafeCheckpointHook', interval=1))
visualizer = dict(vis_backends=[dict(type='TensorboardVisBackend')])
train_dataloader = dict(num_workers=1, persistent_workers=False)
val_cfg = val_dataloader = val_evaluator = None
"""
#: A program with a `main` as our tools have one, around the other's.
AROUND = """
import runpy, sys
def main(words):
    sys.argv = [{tool!r}, *words]
    runpy.run_path({tool!r}, run_name='__main__')
    return 0
"""


def upstream_tool(package: str) -> Path:
    """Where the tool of mmseg or mmdet is installed."""
    file = Path(importlib.util.find_spec(package).origin).parent / '.mim' / 'tools' / 'train.py'
    if not file.is_file():
        pytest.skip(f'{package} is installed without its tools')
    return file


@pytest.fixture(params=['mmseg', 'mmdet'])
def train(request, tmp_path):
    """Run the tool of one package on a small config with every hook and more words in it."""
    around = tmp_path / 'around.py'
    around.write_text(AROUND.format(tool=str(upstream_tool(request.param))))
    data = write_scenes(tmp_path / 'data', train=4, val=2, size=(64, 96))
    segments = request.param == 'mmseg'
    base, root = (SMALL_UPERNET, data.ade20k) if segments else (SMALL_MASK_RCNN, data.coco)
    length = 'max_iters=2, val_interval=9' if segments else 'max_epochs=1, val_interval=9'
    write_config(tmp_path, base, 'base.py')

    def run_tool(more: str = '') -> Done:
        text = f"_base_ = ['base.py']{EVERY_HOOK}train_cfg = dict({length})\n{more}\n"
        config = write_config(tmp_path, text)
        roots = [f'train_dataloader.dataset.data_root={root}']
        return run(around, config, '--work-dir', tmp_path / 'work', '--cfg-options', *roots,
                   cwd=tmp_path)  # fmt: skip

    run_tool.package, run_tool.root = request.param, Path(root)
    return run_tool


def test_every_hook_is_registered_and_exported():
    for name in hooks.__all__:
        assert HOOKS.get(name) is getattr(hooks, name)
        if name != 'SafeCheckpointHook':
            assert f"dict(type='{name}'" in EVERY_HOOK


@pytest.mark.slow
def test_a_run_with_every_hook(train, tmp_path):
    done = train()
    assert done.code == 0, done.err[-3000:]
    assert 'small.py (' in done.out  # the start report
    (file,) = (tmp_path / 'work').glob('*_[1-2].pth') if train.package == 'mmdet' else [
        tmp_path / 'work' / 'iter_2.pth'
    ]  # fmt: skip
    assert 'broadcast' in read_checkpoint(file)['meta'][KEY]
    assert not list((tmp_path / 'work').glob('*.part'))
    check_events(tmp_path / 'work', 4, [1, 2] if train.package == 'mmseg' else [1])


def check_events(work: Path, depth: int, steps: list[int]) -> None:
    """What AttentionHook wrote, as TensorBoard itself reads it."""
    accumulator = pytest.importorskip('tensorboard.backend.event_processing.event_accumulator')
    (folder,) = {file.parent for file in work.rglob('events.out.tfevents*')}
    events = accumulator.EventAccumulator(str(folder), size_guidance={'images': 0})
    events.Reload()
    for name in ('entropy', 'sink_mass', 'broadcast'):
        tags = [f'attention/{name}/layer_{i:02d}' for i in range(depth)]
        assert set(tags) <= set(events.Tags()['scalars'])
        for tag in tags:
            points = events.Scalars(tag)
            assert [point.step for point in points] == steps
            assert all(0 <= point.value < 10 for point in points)
    pictures = [f'attention/first_training_image/layer_{i:02d}' for i in (0, depth - 1)]
    assert set(events.Tags()['images']) == set(pictures)
    for tag in pictures:
        assert [picture.step for picture in events.Images(tag)] == steps
        image = cv2.imdecode(
            np.frombuffer(events.Images(tag)[0].encoded_image_string, np.uint8), cv2.IMREAD_COLOR
        )
        assert image.std() > 5


@pytest.mark.slow
def test_a_loss_that_is_nan_is_caught(train):
    head = 'decode_head=dict(loss_decode' if train.package == 'mmseg' else 'rpn_head=dict(loss_bbox'
    done = train(f"model = dict({head}=dict(loss_weight=float('nan'))))")
    assert done.code == 1
    assert 'the loss is NaN at iteration 1' in done.err
    assert 'skip=True of FiniteLossHook' in done.err


@pytest.mark.slow
def test_a_broken_image_is_named(train):
    folder = 'images/training' if train.package == 'mmseg' else 'train2017'
    for file in (train.root / folder).iterdir():
        file.write_bytes(b'<html>not found</html>')
    done = train()
    assert done.code == 1
    assert f'{folder}/' in done.err
    assert 'not an image that OpenCV can decode' in done.err
    assert 'skip=True of SampleGuardHook' in done.err


@pytest.mark.slow
def test_a_checkpoint_of_another_model_is_not_resumed(train):
    """The original mmengine needs safe_io to resume at all with a new torch."""
    done = train(
        "custom_imports = dict(_delete_=True, imports=['cb_mm', 'cb_mm.safe_io'])\n"
        f'load_from, resume = {str(CHECKPOINT)!r}, True'
    )
    assert done.code == 1
    assert str(CHECKPOINT) in done.err
    # mmseg's tool resumes by its option alone: there the file is one to start from, and its record
    # is compared. mmdet's resumes, and the tensors are compared first.
    said = {
        'mmseg': 'Take the config or the weights that match',
        'mmdet': 'does not belong to the model of the config',
    }
    assert said[train.package] in done.err
