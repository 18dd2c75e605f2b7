"""Running a tool as a user does: in a process of its own, from any folder."""

from __future__ import annotations

import contextlib
import os
import random
import runpy
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
TOOLS = REPO / 'tools'
CONFIGS = REPO / 'configs'

#: The demo recipes, made small enough for a test.
SMALL_UPERNET = """
_base_ = ['{configs}/demo/demo_upernet_vit_ti_cb.py']
model = dict(
    data_preprocessor=dict(size=(48, 48)),
    backbone=dict(
        arch=dict(_delete_=True, embed_dim=48, depth=4, num_heads=3),
        out_indices=(0, 1, 2, 3),
        drop_path_rate=0.2,
    ),
    decode_head=dict(in_channels=[48, 48, 48, 48], channels=16),
    auxiliary_head=dict(in_channels=48, channels=8),
)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='RandomResize', scale=(96, 64), ratio_range=(0.9, 1.5), keep_ratio=True),
    dict(type='RandomCrop', crop_size=(48, 48), cat_max_ratio=0.75),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(96, 64), keep_ratio=True),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(batch_size=4, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
train_cfg = dict(max_iters=6, val_interval=6)
param_scheduler = [dict(type='PolyLR', power=1.0, by_epoch=False, begin=0, end=6)]
default_hooks = dict(
    logger=dict(interval=1), checkpoint=dict(interval=2, max_keep_ckpts=-1)
)
auto_scale_lr = dict(base_batch_size=4)
"""

SMALL_MASK_RCNN = """
_base_ = ['{configs}/demo/demo_mask_rcnn_vit_ti_cb.py']
model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dim=48, depth=4, num_heads=3), out_indices=(0, 1, 2, 3)
    ),
    neck=dict(in_channels=[48, 48, 48, 48]),
    train_cfg=dict(rpn_proposal=dict(nms_pre=100, max_per_img=50), rcnn=dict(sampler=dict(num=32))),
    test_cfg=dict(rpn=dict(nms_pre=100, max_per_img=50), rcnn=dict(max_per_img=20)),
)
train_cfg = dict(max_epochs=2, val_interval=2)
default_hooks = dict(logger=dict(interval=1), checkpoint=dict(interval=1))
"""

#: The demo's recipe, but narrow, on small crops and with a small head: what the pages run.
NARROW_DEMO = """
_base_ = ['{configs}/demo/demo_upernet_vit_ti_cb.py']
model = dict(
    data_preprocessor=dict(size=(48, 48)),
    backbone=dict(arch=dict(_delete_=True, embed_dim=48, depth=12, num_heads=3)),
    decode_head=dict(
        _delete_=True, type='FCNHead', in_channels=48, in_index=2, channels=16, num_convs=1,
        num_classes=16, norm_cfg=dict(type='SyncBN'),
    ),
    auxiliary_head=dict(in_channels=48, channels=8),
)
train_pipeline = _base_.train_pipeline
train_pipeline[3].update(crop_size=(48, 48))
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
"""

#: What `make demo` trains, on small crops; its ViT has to take the published weights.
SMALL_CROPS = """
_base_ = ['{configs}/demo/demo_upernet_vit_micro_cb.py']
model = dict(data_preprocessor=dict(size=(32, 32)))
train_pipeline = _base_.train_pipeline
train_pipeline[3].update(crop_size=(32, 32))
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
"""


def config_file(name: str) -> Path:
    """A config that we ship, by its name alone, whichever family's folder it is in."""
    (found,) = [file for file in CONFIGS.rglob(f'{name}.py') if '_base_' not in file.parts]
    return found


def write_config(folder: Path, text: str, name: str = 'small.py') -> Path:
    """A config of a user's own, outside the repository."""
    path = folder / name
    path.write_text(text.replace('{configs}', str(CONFIGS)))
    return path


def link_configs(folder: Path) -> None:
    """Put the folder of our configs there, with small ones for the demo's recipes."""
    shutil.copytree(CONFIGS, folder / 'configs', copy_function=os.symlink)
    for text, kind in ((NARROW_DEMO, 'ti'), (SMALL_CROPS, 'micro')):
        name = f'demo_upernet_vit_{kind}_cb.py'
        (folder / 'configs' / 'demo' / name).unlink()
        write_config(folder / 'configs' / 'demo', text, name)


def command(name: str, *words: object, processes: int = 1) -> list[str]:
    """The words of a shell that run ``tools/NAME``."""
    start = [sys.executable]
    if processes > 1:
        start += ['-m', 'torch.distributed.run', '--standalone', f'--nproc_per_node={processes}']
        words = (*words, '--launcher', 'pytorch')
    return [*start, str(TOOLS / name), *map(str, words)]


def run(name: str, *words: object, cwd: Path, processes: int = 1) -> subprocess.CompletedProcess:
    """Run ``tools/NAME`` to its end."""
    return subprocess.run(
        command(name, *words, processes=processes),
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
    )


def main_of(tool: str) -> Callable[[list[str]], int]:
    """A tool or ``cb-mm`` as a function, for tests where starting Python would take the longest."""
    if tool == 'cb-mm':
        from cb_mm_cli.command import main

        return main
    sys.path.insert(0, str(TOOLS))  # as Python does when it runs a script there
    try:
        return runpy.run_path(str(TOOLS / tool))['main']
    finally:
        sys.path.remove(str(TOOLS))


def free_port() -> int:
    """A port that nothing listens on, and that the system gives to no outgoing connection."""
    while True:
        port = random.randrange(10_000, 30_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(('', port))
            return port


def environment() -> dict[str, str]:
    """One thread per process: small tensors gain nothing from more."""
    return {**os.environ, 'OMP_NUM_THREADS': '1'}
