"""Faults as a user meets them: how each is made, and the command that meets it.

The tests run every case and compare what is printed with docs/messages.md;
``python benchmarks/messages.py`` writes that page from the same runs.
"""

from __future__ import annotations

import functools
import json
import os
import re
import resource
import shutil
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cv2
import forked
import numpy as np
import torch
from PIL import Image
from tool import SMALL_MASK_RCNN, SMALL_UPERNET, write_config

#: Nothing is loaded in separate processes unless the case is about that.
ALONE = (
    'train_dataloader.num_workers=0', 'train_dataloader.persistent_workers=False',
    'val_dataloader.num_workers=0', 'val_dataloader.persistent_workers=False',
)  # fmt: skip
ADE = ('small.py', '--data-root', 'data/ade20k', '--work-dir', 'work')
COCO = ('detector.py', '--data-root', 'data/coco', '--work-dir', 'work')
IMAGE = 'data/ade20k/images/training/ADE_train_00000003.jpg'
LABEL = 'data/ade20k/annotations/training/ADE_train_00000003.png'


@dataclass
class Case:
    """A fault: ``make`` spoils the folder; ``before`` runs in the process of the tool."""

    title: str
    tool: str
    words: tuple
    make: Callable[[Path], object] = lambda folder: None
    before: Callable[[], None] | None = None
    alone: bool = True


def prepare(folder: Path, data: Path, trained: Path | None = None) -> Path:
    """A folder with two small configs, a copy of the data, and checkpoints to spoil."""
    folder.mkdir(parents=True)
    write_config(folder, SMALL_UPERNET)
    write_config(folder, SMALL_MASK_RCNN, 'detector.py')
    shutil.copytree(data, folder / 'data')
    if trained:
        for name in ('segmentor.pth', 'detector.pth'):
            os.link(trained / name, folder / name)
    return folder


def train_both(folder: Path, data: Path) -> Path:
    """segmentor.pth and detector.pth: one step, one epoch."""
    prepare(folder, data)
    for words, options, made, name in (
        (ADE, ['train_cfg.max_iters=1', 'train_cfg.val_interval=9'], 'iter_1.pth', 'segmentor.pth'),
        (COCO, ['train_cfg.max_epochs=1', 'train_cfg.val_begin=9'], 'epoch_1.pth', 'detector.pth'),
    ):
        done = forked.run('train.py', *words, '--cfg-options', *ALONE, *options, cwd=folder)
        assert done.code == 0, done.err
        os.rename(folder / 'work' / made, folder / name)
        shutil.rmtree(folder / 'work')
    return folder


def run(case: Case, folder: Path) -> forked.Done:
    """Make the fault and run the command."""
    case.make(folder)
    words = case.words
    if case.tool == 'train.py' and case.alone:
        words = (*words, *(() if '--cfg-options' in words else ('--cfg-options',)), *ALONE)
    return forked.run(case.tool, *words, cwd=folder, before=case.before)


def message(done: forked.Done, folder: Path) -> str:
    """What the user reads at the end, without what differs from run to run."""
    found = re.search(r'(?ms)^(error: |usage: .*?error: )(.*)', done.err)
    text = f'error: {found[2].strip()}' if found else done.err.strip()
    text = text.replace(f'{folder.resolve()}/', '')
    text = re.sub(r'process \d+', 'process 12345', text)
    text = re.sub(r'since [\d:T+-]+', 'since 2030-01-01T12:00:00+00:00', text)
    return text.replace(socket.gethostname(), 'thishost')


# How faults are made.


def text(path: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / path).write_text(content)


def config(content: str, base: str = 'small.py') -> Callable[[Path], object]:
    return text('mine.py', f"_base_ = ['{base}']\n{content}" if base else content)


def cut(path: str, share: float) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        data = (folder / path).read_bytes()
        (folder / path).unlink()  # it may be a link to what others use
        (folder / path).write_bytes(data[: int(len(data) * share)])

    return make


def flip(folder: Path) -> None:
    data = bytearray((folder / 'segmentor.pth').read_bytes())
    data[len(data) // 2] ^= 1
    (folder / 'segmentor.pth').unlink()
    (folder / 'segmentor.pth').write_bytes(data)


def label(values: np.ndarray) -> Callable[[Path], object]:
    return lambda folder: cv2.imwrite(str(folder / LABEL), values)


def turned(folder: Path) -> None:
    """The camera was upside down, and says so; the label map was made of the pixels."""
    tags = Image.Exif()
    tags[0x0112] = 3
    with Image.open(folder / IMAGE) as picture:
        picture.load()
    picture.save(folder / IMAGE, exif=tags)


def one_row(folder: Path) -> None:
    """Resized to fit into anything, it has no height."""
    cv2.imwrite(str(folder / IMAGE), np.full((1, 20000, 3), 99, np.uint8))
    cv2.imwrite(str(folder / LABEL), np.ones((1, 20000), np.uint8))


def spoiled_weights(folder: Path) -> None:
    from cb_mm.checkpoints.read import read_checkpoint

    content = read_checkpoint(folder / 'segmentor.pth')
    content['state_dict']['backbone.blocks.1.mlp.fc1.weight'][0, 0] = float('nan')
    (folder / 'segmentor.pth').unlink()
    torch.save(content, folder / 'segmentor.pth')


class Bomb:
    """Runs a command when it is unpickled without care."""

    def __reduce__(self) -> tuple:
        return os.system, ('touch PWNED',)


def bomb(folder: Path) -> None:
    torch.save({'state_dict': {'w': torch.ones(1)}, 'extra': Bomb()}, folder / 'stranger.pth')


def coco_records(change: Callable[[dict], object]) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        file = folder / 'data/coco/annotations/instances_train2017.json'
        content = json.loads(file.read_text())
        change(content)
        file.write_text(json.dumps(content))

    return make


def other_size(content: dict) -> None:
    content['images'][2].update(width=48, height=32)


def work_with(*files: str) -> Callable[[Path], object]:
    """A work directory with these checkpoints, cut off."""

    def make(folder: Path) -> None:
        (folder / 'work').mkdir()
        for name in files:
            (folder / 'work' / name).write_bytes((folder / 'segmentor.pth').read_bytes()[:9999])

    return make


_held = []


def hold(folder: Path) -> None:
    """As another run would."""
    from cb_mm.fileio.folder_lock import FolderLock

    _held.append(FolderLock(folder / 'work', 'work_dir'))


# What happens in the process of the tool.


def kill_workers() -> None:
    """A process that loads data is killed, as by the kernel when memory runs out."""
    from torch.utils.data import get_worker_info

    from cb_mm.engine.hooks import sample_guard

    load = sample_guard.GuardedSamples.__call__

    def loaded(self: object, indices: list) -> list:
        if get_worker_info() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return load(self, indices)

    sample_guard.GuardedSamples.__call__ = loaded


def nan_at(step: int, value: float = float('nan'), rank: int = 0) -> None:
    """The loss of one step is not finite, in one process."""
    from mmengine.model import BaseModel

    if os.environ.get('RANK', '0') != str(rank):
        return

    parse, calls = BaseModel.parse_losses, []

    def parsed(self: object, losses: dict) -> tuple:
        loss, logs = parse(self, losses)
        calls.append(loss)
        return (loss * value, logs) if len(calls) == step else (loss, logs)

    BaseModel.parse_losses = parsed


def full_disk(size: int = 300_000) -> None:
    """No file can grow beyond the size: what a quota does."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def overwritten(words: tuple, *options: str) -> tuple:
    return (*words, '--cfg-options', *options)


SWEEP = ('test.py', ('small.py', 'segmentor.pth', '--data-root', 'data/ade20k', '--out', 'out',
         '--cfg-options', 'test_dataloader.num_workers=0'))  # fmt: skip

CASES: dict[str, list[Case]] = {
    'Data': [
        Case('An image that cannot be decoded', 'train.py', ADE, text(IMAGE, '<html>404')),
        Case('The same, loaded in a separate process', 'train.py',
             overwritten(ADE, 'train_dataloader.num_workers=1'), text(IMAGE, ''), alone=False),
        Case('A JPEG that is cut off', 'train.py', ADE, cut(IMAGE, 0.8)),
        Case('A label map of another size', 'train.py', ADE, label(np.ones((96, 64), np.uint8))),
        Case('A label that belongs to no class', 'train.py', ADE,
             label(np.full((64, 96), 200, np.uint8))),
        Case('An image that its EXIF tag rotates', 'train.py', ADE, turned),
        Case('An image of one row', 'train.py', ADE, one_row),
        Case('A label map that cannot be decoded', 'train.py', ADE, cut(LABEL, 0.5)),
        Case('An annotation of another size', 'train.py', COCO, coco_records(other_size)),
        Case('A box that is not a number', 'train.py', COCO, coco_records(
             lambda c: c['annotations'][0].update(bbox=[float('nan'), 1, 2, 3]))),
        Case('A process that loads data is killed', 'train.py',
             overwritten(ADE, 'train_dataloader.num_workers=1'), before=kill_workers, alone=False),
        Case('A broken image in a test', *SWEEP,
             text('data/ade20k/images/validation/ADE_val_00000002.jpg', '<html>404')),
    ],
    'Loss': [
        Case('The loss is NaN', 'train.py', ADE, before=functools.partial(nan_at, 4)),
        Case('The loss is infinite', 'train.py', COCO,
             before=functools.partial(nan_at, 1, float('inf'))),
        Case('A learning rate that is far too high', 'train.py',
             overwritten(ADE, 'optim_wrapper.clip_grad=None', 'optim_wrapper.optimizer.lr=1e30')),
    ],
    'Checkpoints': [
        Case('A checkpoint that is cut off', 'train.py', (*ADE, '--resume', 'segmentor.pth'),
             cut('segmentor.pth', 0.6)),
        Case('An empty one', 'train.py', (*ADE, '--resume', 'segmentor.pth'),
             cut('segmentor.pth', 0)),
        Case('A damaged one', 'train.py', (*ADE, '--resume', 'segmentor.pth'), flip),
        Case('No complete one', 'train.py', (*ADE, '--resume'),
             work_with('iter_2.pth', 'iter_4.pth')),
        Case('Of another architecture', 'train.py',
             overwritten((*ADE, '--resume', 'segmentor.pth'), 'model.decode_head.channels=24')),
        Case('Of other settings, which the weights do not show', 'train.py',
             overwritten((*ADE, '--resume', 'segmentor.pth'), 'model.backbone.arch.num_heads=4')),
        Case('Of another task', 'train.py', (*ADE, '--resume', 'detector.pth')),
        Case('Of another task, in a test', 'test.py', (SWEEP[1][0], 'detector.pth', *SWEEP[1][2:])),
        Case('Weights that are not finite', 'train.py', (*ADE, '--resume', 'segmentor.pth'),
             spoiled_weights),
        Case('The same, in a test', *SWEEP, spoiled_weights),
        Case('The same, to start from', 'train.py', (*ADE, '--init', 'segmentor.pth'),
             spoiled_weights),
        Case('A file that would run code', 'train.py', (*ADE, '--init', 'stranger.pth'), bomb),
        Case('Weights in place of a training run', 'train.py', (*ADE, '--resume', 'bare.pth'),
             lambda folder: torch.save({'w': torch.ones(2)}, folder / 'bare.pth')),
        Case('A work directory that is used already', 'train.py', ADE, work_with('iter_2.pth')),
        Case('Two runs in one work directory', 'train.py', ADE, hold),
    ],
    'Disk': [
        Case('The disk is full when a checkpoint is written', 'train.py', ADE, before=full_disk),
        Case('The disk is full when a result is written', *SWEEP,
             before=functools.partial(full_disk, 4000)),
        Case('The work directory cannot be made', 'train.py', (*ADE[:-1], 'file/work'),
             text('file', '')),
    ],
    'Configs': [
        Case('A type that is not known', 'train.py', ('mine.py', *ADE[1:]),
             config("model = dict(backbone=dict(type='ViTBC'))")),
        Case('An argument that is not known', 'train.py', ('mine.py', *ADE[1:]),
             config("model = dict(backbone=dict(broadcats='cb'))")),
        Case('A hook that is not known', 'train.py', ('mine.py', *ADE[1:]),
             config("custom_hooks = [dict(type='ReplyHook')]")),
        Case('A wrong word', 'train.py', ('mine.py', *ADE[1:]),
             config("model = dict(backbone=dict(broadcast='bc'))")),
        Case('Not Python', 'train.py', ('mine.py', *ADE[1:]), config('model = dict(')),
        Case('A base that does not exist', 'train.py', ('mine.py', *ADE[1:]),
             config('', 'smal.py')),
        Case('No model', 'train.py', ('mine.py', *ADE[1:]), config('modle = dict()', '')),
        Case('One image per batch, and a batch norm after pooling', 'train.py',
             overwritten(ADE, 'train_dataloader.batch_size=1')),
        Case('An option that is misspelt', 'train.py',
             overwritten(ADE, 'model.backbone.broadcats=cb')),
    ],
    '--safe-config': [
        Case('A config with a program in it', 'train.py', ('mine.py', '--safe-config', *ADE[1:]),
             config("import os\nos.system('touch PWNED')")),
        Case('A type that is an import path', 'train.py', ('mine.py', '--safe-config', *ADE[1:]),
             config("custom_hooks = [dict(type='os.system', command='touch PWNED')]",
                    'small.py')),
        Case('A custom module', 'test.py', ('mine.py', 'segmentor.pth', '--safe-config'),
             config("custom_imports = dict(imports=['antigravity'])", 'small.py')),
    ],
}  # fmt: skip
