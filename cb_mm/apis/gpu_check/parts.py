"""The parts of the check: each runs alone, and returns the lines of its section."""

from __future__ import annotations

import copy
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.device import get_device
from timm.layers import DropPath
from torch import nn

from ...checkpoints.read import read_checkpoint
from ...config.loading import load_config
from ...datasets import write_scenes
from ...engine.optim.precision import PRECISIONS, Precision, choose_precision
from ...errors import UserError
from ..benchmark_models import Subject, build_subject
from ..benchmark_report import time_in_turns
from ..training import train
from .roofline import GPUS, seconds
from .training_step import count_training_step, with_mmseg_heads

UPERNET = ('upernet_vit_ti_cb', 'upernet_vit_s_cb', 'upernet_vit_b_cb')
SMALL_UPERNET = 'demo_upernet_vit_ti_cb'
MASK_RCNN = 'mask_rcnn_vit_ti_cb'
_COMMAND = (
    'torchrun --standalone --nproc_per_node=2 -m cb_mm_cli train {config} '
    '--data-root {data} --work-dir {work} --launcher pytorch'
)


@dataclass(frozen=True)
class Plan:
    """What is checked, at which size.

    Attributes:
        folder: For the files of the runs.
        small: One small recipe on small images, for a machine without a GPU.
        say: Called with a line of progress.
    """

    folder: Path
    small: bool
    say: Callable[[str], None]

    @property
    def device(self) -> str:
        """Where the models run."""
        return get_device().partition(':')[0]

    @property
    def segmentors(self) -> tuple[str, ...]:
        """Recipes of mmseg."""
        return (SMALL_UPERNET,) if self.small else UPERNET

    def precisions(self) -> Iterator[Precision]:
        """Yield those that the device has."""
        for name in PRECISIONS:
            try:
                chosen = choose_precision(name)
            except UserError:
                continue
            if chosen is not None:
                yield chosen


def table(*rows: tuple) -> list[str]:
    """Return a Markdown table; the first row is its head."""
    lines = ['| ' + ' | '.join(map(str, row)) + ' |' for row in rows]
    return [lines[0], '|' + '---|' * len(rows[0]), *lines[1:]]


def training_steps(plan: Plan) -> list[str]:
    """Compare loss and gradient of one step with float32 on the CPU, in every precision."""
    rows: list[tuple] = [('recipe', 'precision', 'loss', 'loss on the CPU', 'gradient differs by')]
    recipes = plan.segmentors if plan.small else (*plan.segmentors, MASK_RCNN)
    for recipe in recipes:
        expected = None
        for precision in (Precision('fp32', 'cpu'), *plan.precisions()):
            plan.say(f'a step of {recipe} in {precision.name} on {precision.device}')
            loss, gradient = _step(recipe, precision)
            if expected is None:
                expected = loss, gradient
                continue
            if recipe == MASK_RCNN:  # which boxes are drawn differs between devices
                told = 'finite' if math.isfinite(loss) else 'NOT finite'
            else:
                told = f'{float((gradient - expected[1]).norm() / expected[1].norm()):.1e}'
            rows.append((recipe, precision.name, f'{loss:.5f}', f'{expected[0]:.5f}', told))
    return table(*rows)


def _step(recipe: str, precision: Precision) -> tuple[float, torch.Tensor]:
    """Return the loss and the gradient of all weights, without dropout."""
    subject = build_subject(load_config(recipe), recipe, (64, 64), 2)
    model = subject.model.to(precision.device).train()
    for part in model.modules():
        if isinstance(part, (nn.Dropout, nn.Dropout2d, DropPath)):
            part.eval()
    images = subject.images.to(precision.device)
    samples = [sample.to(precision.device) for sample in subject.samples]
    with precision.products():
        with precision.autocast():
            loss, _ = model.parse_losses(model(images, samples, mode='loss'))
        # A loss scaler would find such a factor: small gradients are zero in float16.
        scale = 2.0**12 if precision.name == 'fp16' else 1.0
        (loss * scale).backward()
    grads = [
        p.grad.flatten().float().cpu() / scale for p in model.parameters() if p.grad is not None
    ]
    return float(loss.detach()), torch.cat(grads)


def resuming(plan: Plan) -> list[str]:
    """Train, stop half way, resume: the weights must be those of a run that was not stopped."""
    scenes = write_scenes(plan.folder / 'scenes', train=8, val=2, size=(64, 96))

    def run(name: str, iterations: int, resume: str | None = None) -> dict:
        plan.say(f'training to iteration {iterations}' + (', resumed' if resume else ''))
        done = train(
            _short(iterations), data_root=scenes.ade20k, work_dir=plan.folder / name, resume=resume
        )
        assert done.checkpoint is not None
        return read_checkpoint(done.checkpoint)['state_dict']

    whole = run('whole', 4)
    run('parts', 2)
    resumed = run('parts', 4, resume='auto')
    differing = [key for key in whole if not torch.equal(whole[key], resumed[key])]
    if not differing:
        return [f'All {len(whole)} tensors are equal to the last bit.']
    worst = max(float((whole[k].float() - resumed[k].float()).abs().max()) for k in differing)
    return [f'**{len(differing)} of {len(whole)} tensors differ**, by at most {worst:.1e}.']


def _short(iterations: int) -> Config:
    config = load_config(SMALL_UPERNET)
    config.merge_from_dict(
        {
            'train_cfg.max_iters': iterations,
            'train_cfg.val_interval': 1000,
            'train_dataloader.batch_size': 2,
            'train_dataloader.num_workers': 0,
            'train_dataloader.persistent_workers': False,
            'default_hooks.checkpoint.interval': 2,
            'default_hooks.logger.interval': 1,
        }
    )
    for key in ('val_cfg', 'val_dataloader', 'val_evaluator'):
        config[key] = None
    return config


def two_gpus(plan: Plan) -> list[str]:
    """Train with one batch in two processes and in one: the losses should agree."""
    if plan.device == 'cuda' and torch.cuda.device_count() < 2:
        return ['Not run: it needs two GPUs.']
    scenes = write_scenes(plan.folder / 'scenes', train=8, val=2, size=(64, 96))
    config = _short(2)
    for part, option in (
        ('backbone', 'drop_path_rate'),
        ('decode_head', 'dropout_ratio'),
        ('auxiliary_head', 'dropout_ratio'),
    ):
        config.model[part][option] = 0.0  # each process draws its own
    config.train_dataloader.batch_size = 4
    plan.say('training in one process')
    train(copy.deepcopy(config), data_root=scenes.ade20k, work_dir=plan.folder / 'one')
    config.train_dataloader.batch_size = 2
    file = plan.folder / 'two.py'
    config.dump(str(file))
    plan.say('training in two processes')
    folders = {'config': file, 'data': scenes.ade20k, 'work': plan.folder / 'two'}
    # Filled in word by word: a folder may have a space in its name.
    words = [word.format(**folders) for word in _COMMAND.split()[1:]]
    command = [sys.executable, '-m', 'torch.distributed.run', *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise UserError(f'training in two processes failed: {done.stderr[-2000:]}')
    one, two = (_losses(plan.folder / name) for name in ('one', 'two'))
    rows = [('iteration', 'one process', 'two', 'differ by')]
    for step, (a, b) in enumerate(zip(one, two, strict=True), 1):
        rows.append((str(step), f'{a:.6f}', f'{b:.6f}', f'{abs(a - b) / abs(a):.1e}'))
    note = 'They have the same batches, and no dropout.'
    if plan.device == 'cpu':
        note += ' On a CPU, batch norms see the images of one process alone.'
    return [*table(*rows), '', note]


def _losses(work_dir: Path) -> list[float]:
    lines = next(work_dir.glob('*/vis_data/scalars.json')).read_text().splitlines()
    return [scalars['loss'] for scalars in map(json.loads, lines) if 'loss' in scalars]


def throughput(plan: Plan) -> list[str]:
    """Time training steps with our heads and with mmseg's, beside the roofline's estimate."""
    side, repeats = (64, 2) if plan.small else (512, 7)
    names = [f'{gpu.name}: estimated' for gpu in GPUS]
    rows: list[tuple] = [
        ('recipe', 'precision', 'ours, ms', "mmseg's heads, ms", 'ours / mmseg', *names)
    ]
    for recipe in plan.segmentors:
        config = load_config(recipe)
        pair = {'ours': config, 'mmseg': with_mmseg_heads(config)}
        for precision in plan.precisions():
            plan.say(f'timing {recipe} in {precision.name}')
            jobs = {
                name: _subject(one, name, side, precision).train_step for name, one in pair.items()
            }
            times = time_in_turns(jobs, repeats)
            ours, theirs = (times[name].summary()['median_s'] for name in pair)
            counts = [
                count_training_step(one, precision.name, (side, side)) for one in pair.values()
            ]
            estimates = [
                '{:.2f}'.format(
                    seconds(counts[0].costs, gpu, precision.name)
                    / seconds(counts[1].costs, gpu, precision.name)
                )
                for gpu in GPUS
            ]
            measured = (f'{1e3 * ours:.1f}', f'{1e3 * theirs:.1f}', f'{ours / theirs:.2f}')
            rows.append((recipe, precision.name, *measured, *estimates))
    return table(*rows)


def _subject(config: Config, name: str, side: int, precision: Precision) -> Subject:
    subject = build_subject(copy.deepcopy(config), name, (side, side), 2)
    subject.precision = precision
    return subject


PARTS: dict[str, tuple[str, Callable[[Plan], list[str]]]] = {
    'steps': ('A training step against the CPU', training_steps),
    'resume': ('Resuming', resuming),
    'gpus': ('Two processes against one', two_gpus),
    'throughput': ("Training steps against mmseg's heads", throughput),
}
