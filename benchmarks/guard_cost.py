"""What the guards and replay of a run cost: training with and without them, in turns.

With: `cb_mm.apis.train` as it is, with named and checked samples, a seed for every sample and
iteration, the check of the loss, safe checkpoints and records. Without: mmengine's Runner, its
own hooks and sampler. Model, data and augmentation are the same, in one process that loads the
data itself. The model is so small that a few milliseconds show; the table compares them with a
step of UperNet ViT-S on the same machine. All times are the CPU time of the process.

Examples:
  python benchmarks/guard_cost.py --camvid ../shared/data/camvid
  python benchmarks/guard_cost.py --camvid ../shared/data/camvid --turns 9 --out /tmp

Writes guard_cost.json and .md. Run upernet_speed.py first: its training step is read.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from parts.options import BENCHMARKS, BESIDE, parse_counts

SKIPPED = 2  # iterations that fill caches


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add('--camvid', type=Path, default=BESIDE / 'data/camvid', metavar='DIR')
    add('--turns', type=int, default=5, metavar='N', help='turns (5)')
    add('--iterations', type=int, default=20, metavar='N', help='counted in a turn (20)')
    add('--out', type=Path, default=BENCHMARKS / 'results', metavar='DIR',
        help='folder of the results')  # fmt: skip
    return parse_counts(parser, argv, ('turns', 'iterations'))


def small_config(arm: str, folder: Path, args: argparse.Namespace) -> Any:
    """Return the config of a way, with a model of one block."""
    from mmengine.config import Config
    from parts.whole_job_configs import write_config

    iterations = args.iterations + SKIPPED
    config = Config.fromfile(write_config(arm, folder / 'config.py', args.camvid, 64, iterations))
    model = config.model
    model.backbone.update(
        arch=dict(embed_dim=32, depth=4, num_heads=2, patch_size=16), out_indices=(0, 1, 2, 3)
    )
    model.backbone.pop('img_size', None)
    model.decode_head.update(in_channels=[32] * 4, channels=16)
    model.auxiliary_head.update(in_channels=32, channels=16)
    config.default_hooks.logger.interval = 10
    config.custom_hooks.append(dict(type='StepClock'))
    config.work_dir = str(folder / 'run')
    return config


def seconds(arm: str, folder: Path, args: argparse.Namespace) -> list[float]:
    """Train once; return the CPU seconds of each counted iteration."""
    from mmengine.runner import Runner
    from parts.step_times import StepClock
    from parts.whole_job_configs import OURS

    from cb_mm.apis import train

    StepClock.times.clear()
    folder.mkdir()
    config = small_config(arm, folder, args)
    with contextlib.redirect_stdout(io.StringIO()):  # the config
        if arm == OURS:
            train(config, work_dir=config.work_dir)
        else:
            Runner.from_cfg(config).train()
    steps = [after - before for before, after in itertools.pairwise(StepClock.times)]
    return steps[SKIPPED - 1 :]


def measure(args: argparse.Namespace) -> dict[str, list[float]]:
    """Return the median CPU seconds of an iteration in every turn, by way."""
    from parts.whole_job_configs import BARE, OURS

    found: dict[str, list[float]] = {OURS: [], BARE: []}
    # One folder for all: mmengine's visualizer writes to that of the first run.
    with tempfile.TemporaryDirectory() as name:
        for turn in range(args.turns):
            for arm in (OURS, BARE) if turn % 2 else (BARE, OURS):
                folder = Path(name, f'{turn}{"ours" if arm == OURS else "bare"}')
                found[arm].append(statistics.median(seconds(arm, folder, args)))
                print(f'{arm}: {1000 * found[arm][-1]:.1f} ms', file=sys.stderr, flush=True)
    return found


def run(args: argparse.Namespace) -> None:
    """Measure, print, write."""
    import torch
    from parts.about import machine
    from parts.markdown import table
    from parts.whole_job_configs import BARE, OURS

    from cb_mm.errors import UserError
    from cb_mm.fileio.atomic import write_atomically

    torch.set_num_threads(1)
    file = args.out / 'upernet_speed_small.json'
    file = file if file.is_file() else BENCHMARKS / 'results' / file.name
    if not file.is_file():
        raise UserError(f'there is no {file}. Run benchmarks/upernet_speed.py --arch small first.')
    step = json.loads(file.read_text())['rows']['ours']['training step']['cpu_fastest_s']
    started, found = time.time(), measure(args)
    extra = statistics.median(
        ours - bare for ours, bare in zip(found[OURS], found[BARE], strict=True)
    )
    whole = {
        'machine': machine(), 'minutes': (time.time() - started) / 60, 'seconds': found,
        'extra_s': extra, 'step_s': step, 'share': extra / step,
    }  # fmt: skip
    rows = [
        ['with guards and replay', f'{1000 * statistics.median(found[OURS]):.1f}'],
        ['without', f'{1000 * statistics.median(found[BARE]):.1f}'],
        ['difference, median of the turns', f'{1000 * extra:.1f}'],
        ['a step of UperNet ViT-S at 512 × 512, fastest', f'{1000 * step:,.0f}'],
        ['difference / step', f'{extra / step:.4f}'],
    ]
    text = table(['one iteration of two images', 'CPU ms'], rows) + '\n'
    write_atomically(args.out / 'guard_cost.json', json.dumps(whole, indent=1) + '\n')
    write_atomically(args.out / 'guard_cost.md', text)
    print(text)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 0 on success, 2 on a user error."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args))


if __name__ == '__main__':
    sys.exit(main())
