"""A training run of a fraction of a second that saves the last and the best: for killing.

words: WORK_DIR [resume]
"""

from __future__ import annotations

import sys

import torch
from mmengine.evaluator import BaseMetric, Evaluator
from mmengine.model import BaseModel
from mmengine.runner import Runner
from torch import nn

import cb_mm.safe_io  # noqa: F401
from cb_mm.errors import exit_code


class Net(BaseModel):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 1)

    def forward(self, x, y, mode):
        loss = ((self.linear(x)[:, 0] - y) ** 2).mean()
        return dict(loss=loss) if mode == 'loss' else [loss]


class Data(torch.utils.data.Dataset):
    metainfo = dict(classes=('a', 'b'))

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index):
        x = torch.arange(4.0) * 0.1 + index * 0.01
        return dict(x=x, y=x.sum())


class Score(BaseMetric):
    """Any number that depends on all weights: the best is not always the last."""

    def process(self, data_batch, data_samples) -> None:
        self.results.append(float(data_samples[0]))

    def compute_metrics(self, results) -> dict:
        return {'score': (sum(results) * 1e3) % 1}


def main(words: list[str]) -> int:
    """Exit code."""
    return exit_code(lambda: train(*words))


def train(work_dir: str, *words: str) -> None:
    """Six iterations; checkpoint and validation after every second."""
    torch.manual_seed(0)
    loading = dict(dataset=Data(), batch_size=4, collate_fn=dict(type='default_collate'))
    Runner(
        Net(),
        work_dir=work_dir,
        train_dataloader=dict(
            sampler=dict(type='ReplayInfiniteSampler', shuffle=True), **loading
        ),
        val_dataloader=dict(sampler=dict(type='DefaultSampler', shuffle=False), **loading),
        val_evaluator=Evaluator([Score()]),
        val_cfg=dict(),
        train_cfg=dict(by_epoch=False, max_iters=6, val_interval=2),
        optim_wrapper=dict(optimizer=dict(type='AdamW', lr=0.1)),
        param_scheduler=[dict(type='PolyLR', by_epoch=False, begin=0, end=6)],
        default_hooks=dict(
            checkpoint=dict(
                type='SafeCheckpointHook', by_epoch=False, interval=2, max_keep_ckpts=1,
                save_best='score', rule='greater',
            )
        ),
        custom_hooks=[dict(type='ReplayHook')],
        randomness=dict(seed=0),
        resume='resume' in words,
        log_level='ERROR',
    ).train()  # fmt: skip


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
