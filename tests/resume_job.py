"""A small real training job for the tests of resuming: run as a script, killed from outside.

usage: resume_job.py WORK_DIR MAX_EPOCHS [resume] [kill-after-epoch N]
"""

from __future__ import annotations

import os
import signal
import sys

import torch
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.runner import Runner
from torch import nn

import cb_mm.safe_io  # noqa: F401  (under test: it makes mmengine resume, safely)


class Net(BaseModel):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 1)

    def forward(self, x, y, mode):
        return dict(loss=((self.linear(x)[:, 0] - y) ** 2).mean())


class Data(torch.utils.data.Dataset):
    metainfo = dict(classes=('a', 'b'))

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index):
        x = torch.arange(4.0) * 0.1 + index * 0.01
        return dict(x=x, y=x.sum())


class KillAfter(Hook):
    """Ends the process as a power cut would."""

    priority = 'LOWEST'  # after the checkpoint is on disk

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def after_train_epoch(self, runner) -> None:
        if runner.epoch + 1 == self.epoch:
            os.kill(os.getpid(), signal.SIGKILL)


def main(work_dir: str, epochs: str, *words: str) -> None:
    torch.manual_seed(0)  # the net is built before the runner sets its seed
    hooks = [KillAfter(int(words[words.index('kill') + 1]))] if 'kill' in words else []
    runner = Runner(
        Net(),
        work_dir=work_dir,
        train_dataloader=dict(
            dataset=Data(),
            batch_size=4,
            sampler=dict(type='DefaultSampler', shuffle=True),
            collate_fn=dict(type='default_collate'),
        ),
        train_cfg=dict(by_epoch=True, max_epochs=int(epochs)),
        optim_wrapper=dict(optimizer=dict(type='AdamW', lr=0.1)),
        param_scheduler=[
            dict(type='LinearLR', start_factor=0.1, by_epoch=False, end=5),
            dict(type='CosineAnnealingLR', by_epoch=True, T_max=4),
        ],
        default_hooks=dict(checkpoint=dict(type='CheckpointHook', interval=1)),
        custom_hooks=[dict(type='EMAHook'), *hooks],
        randomness=dict(seed=0),
        resume='resume' in words,
        log_level='ERROR',
    )
    runner.train()
    print('epochs', runner.epoch)


if __name__ == '__main__':
    main(*sys.argv[1:])
