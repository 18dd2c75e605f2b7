"""Large images: UperNet ViT-S whole, in sliding windows, and whole with sparse attention.

The model of configs/cityscapes (19 classes), one image to logits of its size, on one thread. The
ways take turns in one process; time is CPU time, memory the peak of the forward pass.
  whole    the whole image at once
  sliding  windows of 512 x 512, by two thirds of their side
  sparse   the whole image, attention over the blocks around a block and 16 global patches (W+G)
An exponent is the slope of log(time) over log(pixels): 1 is linear, 2 quadratic.

With --test, tools/test.py is run on images of 2048 x 1024, as configs/cityscapes tests them and
whole, and the largest resident memory of its process is compared with 4 GiB.

Examples:
  python benchmarks/large_images.py --side 512 768 1024 --repeats 3
  python benchmarks/large_images.py --side 2048 --repeats 1
  python benchmarks/large_images.py --side --test slide whole

Writes large_images.json and .md; other sizes in them are kept.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from parts.options import BENCHMARKS, parse_counts

REPO = BENCHMARKS.parent
CONFIG = REPO / 'configs/cityscapes/cityscapes_upernet_vit_s_cb.py'
SIDES = (512, 768, 1024, 1536, 2048)
WINDOW, STRIDE = (512, 512), (341, 341)
LIMIT = 4 * 2**30
IMAGES, HEIGHT, WIDTH = 2, 1024, 2048


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add('--side', type=int, nargs='*', default=list(SIDES), metavar='N', help='of the images')
    add('--repeats', type=int, default=1, metavar='N', help='turns each (1)')
    add(
        '--test', nargs='*', choices=('slide', 'whole'), default=[], help='ways to test 2048 x 1024'
    )
    add('--out', type=Path, default=BENCHMARKS / 'results', metavar='DIR',
        help='folder of the results')  # fmt: skip
    return parse_counts(parser, argv, ('repeats',))


def jobs_of(side: int) -> dict[str, Any]:
    """Return a forward pass for each way, by name."""
    import torch

    from cb_mm.apis.benchmark_models import build_subject
    from cb_mm.config.loading import load_config

    def job(mode: str, **backbone: Any) -> Any:
        config = load_config(CONFIG)
        config.model.test_cfg = dict(mode=mode, crop_size=WINDOW, stride=STRIDE)
        config.model.backbone.update(backbone)
        subject = build_subject(config, mode, (side, side), batch=1)
        model = subject.model.eval()

        def forward() -> None:
            with torch.no_grad():
                model.inference(subject.images, [dict(subject.samples[0].metainfo)])

        return forward

    return {'whole': job('whole'), 'sliding': job('slide'), 'sparse': job('whole', attention='W+G')}


def measure_side(side: int, repeats: int) -> dict[str, Any]:
    """Measure all ways on images of one size."""
    from parts.in_turns import measure

    for one in jobs_of(128).values():  # what is done once in a process
        one()
    return measure(jobs_of(side), repeats, warm_up=0)


def test_tool(mode: str, folder: Path) -> dict[str, Any]:
    """Run tools/test.py on made-up Cityscapes; return the peak of its process and its CPU time."""
    options = [f'model.test_cfg.mode={mode}', 'test_dataloader.num_workers=0']
    words = [sys.executable, str(REPO / 'tools/test.py'), str(CONFIG), str(folder / 'model.pth')]
    words += ['--data-root', str(folder), '--out', str(folder / f'out_{mode}'), '--cfg-options']
    words += [*options, 'test_dataloader.persistent_workers=False']
    with (folder / 'log.txt').open('w') as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit((folder / 'log.txt').read_text())
    return {'peak_bytes': usage.ru_maxrss * 1024, 'cpu_s': usage.ru_utime + usage.ru_stime}


def write_data(folder: Path) -> None:
    """Write images and label maps in the layout of Cityscapes, and a checkpoint."""
    import cv2
    import numpy as np
    import torch

    from cb_mm.apis.benchmark_models import build_subject
    from cb_mm.config.loading import load_config

    rng = np.random.default_rng(0)
    for kind, suffix, count in (
        ('leftImg8bit', 'leftImg8bit', 256),
        ('gtFine', 'gtFine_labelTrainIds', 19),
    ):
        place = folder / kind / 'val/town'
        place.mkdir(parents=True)
        for number in range(IMAGES):
            shape = (HEIGHT // 64, WIDTH // 64) + ((3,) if count == 256 else ())
            small = rng.integers(0, count, shape, dtype=np.uint8)
            image = cv2.resize(small, (WIDTH, HEIGHT), interpolation=cv2.INTER_NEAREST)
            cv2.imwrite(str(place / f'town_{number:06}_000019_{suffix}.png'), image)
    model = build_subject(load_config(CONFIG), 'test', (512, 1024), batch=1).model
    torch.save({'state_dict': model.state_dict(), 'meta': {}}, folder / 'model.pth')


def exponents(runs: dict[str, Any], from_side: int = SIDES[0]) -> dict[str, float]:
    """Fit log(CPU seconds) over log(pixels) for every way."""
    sides = sorted(int(key) for key in runs if key.isdigit() and int(key) >= from_side)
    if len(sides) < 2:
        return {}
    found = {}
    for name in runs[str(sides[0])]['rows']:
        times = [math.log(runs[str(s)]['rows'][name]['cpu_median_s']) for s in sides]
        found[name] = statistics.linear_regression([2 * math.log(s) for s in sides], times).slope
    return found


def table(runs: dict[str, Any]) -> str:
    """Return all runs as Markdown."""
    from parts.markdown import table as markdown

    sides = sorted(int(key) for key in runs if key.isdigit())
    texts = []
    if sides:
        names = list(runs[str(sides[0])]['rows'])
        head = [
            'side',
            *(f'{n}, CPU s' for n in names),
            *(f'{n}, peak MiB' for n in names),
            'fastest',
        ]
        lines = []
        for side in sides:
            rows = runs[str(side)]['rows']
            seconds = {name: rows[name]['cpu_median_s'] for name in names}
            lines.append([str(side), *(f'{s:.1f}' for s in seconds.values())])
            lines[-1] += [f'{rows[name]["peak_bytes"] / 2**20:,.0f}' for name in names]
            lines[-1].append(min(seconds, key=seconds.__getitem__))
        for from_side in (sides[0], 1024):
            if slopes := exponents(runs, from_side):
                line = [f'exponent from {from_side}', *(f'{slopes[name]:.2f}' for name in names)]
                lines.append(line + ['–'] * (len(names) + 1))
        texts.append(markdown(head, lines))
    tests = {key: run for key, run in runs.items() if not key.isdigit()}
    if tests:
        head = ['tools/test.py on 2048 × 1024', 'peak of the process, MiB', 'of 4 GiB', 'CPU s']
        lines = [
            [key, f'{peak / 2**20:,.0f}', f'{peak / LIMIT:.2f}', f'{run["cpu_s"]:.0f}']
            for key, run in tests.items()
            for peak in (run['peak_bytes'],)
        ]
        texts.append(markdown(head, lines))
    return '\n\n'.join(texts) + '\n'


def run(args: argparse.Namespace) -> None:
    """Measure, print, write after each size."""
    import torch
    from parts.about import machine
    from parts.records import Records

    import cb_mm  # noqa: F401
    from cb_mm.fileio.atomic import write_atomically

    torch.set_num_threads(1)
    records = Records(args.out / 'large_images.json', {'window': WINDOW[0], 'stride': STRIDE[0]})
    for side in args.side:
        rows = measure_side(side, args.repeats)
        records.add(str(side), {'machine': machine(), 'rows': rows})
        print(
            side, json.dumps({name: row['cpu_median_s'] for name, row in rows.items()}), flush=True
        )
    if args.test:
        with tempfile.TemporaryDirectory() as name:
            write_data(Path(name))
            for mode in args.test:
                records.add(mode, {'machine': machine(), **test_tool(mode, Path(name))})
    write_atomically(args.out / 'large_images.md', table(records.runs))
    print(table(records.runs))


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 0 on success, 2 on a user error."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args))


if __name__ == '__main__':
    sys.exit(main())
