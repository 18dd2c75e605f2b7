"""How much of a sweep is corruption: the suite imagenet-c at severity 3, with 0, 1 and 2 workers.

A pass over clean images and one over each of the 15 corruptions run in turns, with the demo model
and the embedded scenes. What a pass takes beyond the clean one is what corruption costs. From the
times of corruption_speed.py, the table also says how many processor cores would feed a GPU that
takes 30 images a second; that part is arithmetic, not a measurement.

Examples:
  python benchmarks/corruption_share.py
  python benchmarks/corruption_share.py --images 10 --rounds 1 --out /tmp

Writes corruption_share.json and corruption_share.md.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path

from parts.options import parse_counts
from sweep_time import HERE, prepare, prepared_config

SEVERITY = 3
WORKERS = (0, 1, 2)
GPU_RATE = 30  # images a second


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument('--images', type=int, default=20, metavar='N', help='test images (20)')
    parser.add_argument('--rounds', type=int, default=3, metavar='N', help='turns each (3)')
    parser.add_argument(
        '--out', default=str(HERE / 'results'), metavar='DIR', help='folder of the results'
    )
    return parse_counts(parser, argv, ('images', 'rounds'))


def time_passes(folder: Path, workers: int, rounds: int) -> dict[str, float]:
    """Return the median seconds of a pass, for clean images and for every corruption."""
    from cb_mm.corruption import SUITES
    from cb_mm.robustness.console_log import quiet_console
    from cb_mm.robustness.jobs import Job
    from cb_mm.robustness.tester import ModelUnderTest

    config = prepared_config(folder)
    config.test_dataloader.num_workers = workers
    config.test_dataloader.persistent_workers = workers > 0
    cells = [cell for cell in SUITES['imagenet-c'] if cell.severity in (None, SEVERITY)]
    seconds: dict[str, list[float]] = {cell.key: [] for cell in cells}
    with quiet_console():
        tester = ModelUnderTest(config, folder / 'demo.pth', cache_bytes=1 << 31)
        tester.run(Job(cells[0]))  # fills the caches
        for _ in range(rounds):
            for cell in cells:
                started = time.perf_counter()
                tester.run(Job(cell))
                seconds[cell.key].append(time.perf_counter() - started)
    return {key: statistics.median(values) for key, values in seconds.items()}


def cores_needed(speed: dict) -> dict[str, float]:
    """Return, per corruption, the cores that corrupt 30 images a second, from a speed report."""
    rows: dict[str, list[float]] = {}
    for row in speed['rows']:
        rows.setdefault(row['corruption'], []).append(row['ours_ms'])
    return {name: GPU_RATE * statistics.mean(values) / 1e3 for name, values in rows.items()}


def table(report: dict) -> str:
    """Return the result as Markdown."""
    lines = [
        f'The suite imagenet-c at severity {SEVERITY} on the demo model, {report["images"]} '
        f'images, median of {report["rounds"]} passes, images decoded before; '
        f'{report["machine"]["cores"]} cores, torch threads: {report["machine"]["threads"]}.',
        '',
        '| workers | clean pass, s | corrupted pass, s (mean of 15) | share of corruption |',
        '|---|---|---|---|',
    ]
    for workers, passes in report['passes'].items():
        clean = passes['clean']
        mean = statistics.mean(value for key, value in passes.items() if key != 'clean')
        share = max(0.0, 100 * (1 - clean / mean))
        lines.append(f'| {workers} | {clean:.2f} | {mean:.2f} | {share:.0f} % |')
    cores = report['cores']
    name = max(cores, key=cores.__getitem__)
    size = report['speed_image']
    lines += [
        '',
        f'By arithmetic from corruption_speed.md: {GPU_RATE} images of {size["height"]} × '
        f'{size["width"]} a second take {statistics.mean(cores.values()):.2f} cores on average '
        f'over all corruptions, and {cores[name]:.2f} for the slowest ({name}). So '
        f'{math.ceil(cores[name])} worker(s) keep up with such a GPU in corrupting; reading and '
        'resizing come on top.',
        '',
    ]
    return '\n'.join(lines)


def run(args: argparse.Namespace) -> None:
    """Measure, print the table, write both files."""
    from cb_mm.apis.benchmark_report import machine
    from cb_mm.fileio.atomic import write_atomically

    speed = json.loads((HERE / 'results' / 'corruption_speed.json').read_text())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, args.images)
        passes = {str(n): time_passes(folder, n, args.rounds) for n in WORKERS}
    report = {
        'images': args.images,
        'rounds': args.rounds,
        'machine': machine(),
        'passes': passes,
        'cores': cores_needed(speed),
        'speed_image': speed['image'],
    }
    print(table(report))
    out = Path(args.out)
    write_atomically(out / 'corruption_share.json', json.dumps(report, indent=1) + '\n')
    write_atomically(out / 'corruption_share.md', table(report))


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 0 on success, 2 on a user error."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args))


if __name__ == '__main__':
    sys.exit(main())
