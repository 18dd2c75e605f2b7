"""How much of a sweep is corruption: the suite imagenet-c at severity 3, with 0, 1 and 2 workers.

A pass over clean images and one over each of the 15 corruptions run in turns, with the demo model
and the embedded scenes. The corruption itself is timed inside the passes, in whichever process it
runs. From the times of corruption_speed.py, the table also says how many processor cores would feed
a GPU that takes 30 images a second; that part is arithmetic, not a measurement.

Examples:
  python benchmarks/corruption_share.py
  python benchmarks/corruption_share.py --images 10 --rounds 1 --out /tmp

Writes corruption_share.json and corruption_share.md.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

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


def time_corruption() -> Any:
    """Let every corruption add its seconds to a counter that the forked workers share."""
    from cb_mm.corruption.transform import ImageCorruption

    spent, plain = multiprocessing.get_context('fork').Value('d', 0.0), ImageCorruption.transform

    def timed(self: ImageCorruption, results: dict) -> dict:
        started = time.perf_counter()
        results = plain(self, results)
        with spent.get_lock():
            spent.value += time.perf_counter() - started
        return results

    ImageCorruption.transform = timed
    return spent


def time_passes(folder: Path, workers: int, rounds: int, spent: Any) -> dict[str, dict]:
    """Return the median seconds of a pass, and of corrupting in it, for every corruption."""
    from cb_mm.corruption import SUITES
    from cb_mm.robustness.console_log import quiet_console
    from cb_mm.robustness.jobs import Job
    from cb_mm.robustness.tester import ModelUnderTest

    config = prepared_config(folder)
    config.test_dataloader.num_workers = workers
    config.test_dataloader.persistent_workers = workers > 0
    cells = [cell for cell in SUITES['imagenet-c'] if cell.severity in (None, SEVERITY)]
    seconds: dict[str, list[tuple[float, float]]] = {cell.key: [] for cell in cells}
    with quiet_console():
        tester = ModelUnderTest(config, folder / 'demo.pth', cache_bytes=1 << 31)
        tester.run(Job(cells[0]))  # fills the caches
        for _ in range(rounds):
            for cell in cells:
                spent.value, started = 0.0, time.perf_counter()
                tester.run(Job(cell))
                seconds[cell.key].append((time.perf_counter() - started, spent.value))
    return {
        key: {
            'pass': statistics.median(whole for whole, _ in values),
            'corrupting': statistics.median(part for _, part in values),
        }
        for key, values in seconds.items()
    }


def cores_needed(speed: dict) -> dict[str, float]:
    """Return, per corruption, the cores that corrupt 30 images a second, from a speed report."""
    rows: dict[str, list[float]] = {}
    for row in speed['rows']:
        rows.setdefault(row['corruption'], []).append(row['ours_ms'])
    return {name: GPU_RATE * statistics.mean(values) / 1e3 for name, values in rows.items()}


def table(report: dict) -> str:
    """Return the result as Markdown."""
    lines = [
        '# Share of corruption in a sweep',
        '',
        '`python benchmarks/corruption_share.py`',
        '',
        f'The suite imagenet-c at severity {SEVERITY} on the demo model, {report["images"]} '
        f'images, {_passes(report["rounds"])}, images decoded before; '
        f'{report["machine"]["processor"]}, {report["machine"]["cores"]} cores, torch threads: '
        f'{report["machine"]["threads"]}. Means of the 15 corruptions. Corrupting is timed where '
        'it happens; workers corrupt while the model computes.',
        '',
        '| workers | clean pass, s | corrupted pass, s | corrupting, s | share | largest share |',
        '|---|---|---|---|---|---|',
    ]
    for workers, passes in report['passes'].items():
        corrupted = {key: one for key, one in passes.items() if key != 'clean'}
        mean = {
            name: statistics.mean(one[name] for one in corrupted.values())
            for name in ('pass', 'corrupting')
        }
        shares = {key: 100 * one['corrupting'] / one['pass'] for key, one in corrupted.items()}
        most = max(shares, key=shares.__getitem__)
        lines.append(
            f'| {workers} | {passes["clean"]["pass"]:.2f} | {mean["pass"]:.2f} | '
            f'{mean["corrupting"]:.3f} | {100 * mean["corrupting"] / mean["pass"]:.1f} % | '
            f'{shares[most]:.1f} % ({most.partition("=")[0]}) |'
        )
    cores = report['cores']
    name = max(cores, key=cores.__getitem__)
    size = report['speed_image']
    lines += [
        '',
        f'By arithmetic from corruption_speed.md (mean of the severities): {GPU_RATE} images of '
        f'{size["height"]} × {size["width"]} a second take {GPU_RATE} × '
        f'{1e3 * statistics.mean(cores.values()) / GPU_RATE:.1f} ms = '
        f'{statistics.mean(cores.values()):.2f} s of a core per second on average over all '
        f'corruptions, and {cores[name]:.2f} s for the slowest ({name}). So '
        f'{_workers(math.ceil(cores[name]))} up with such a GPU in corrupting; reading and '
        'resizing come on top.',
        '',
    ]
    return '\n'.join(lines)


def _passes(rounds: int) -> str:
    return 'one pass each' if rounds == 1 else f'median of {rounds} passes'


def _workers(number: int) -> str:
    return 'one worker keeps' if number == 1 else f'{number} workers keep'


def run(args: argparse.Namespace) -> None:
    """Measure, print the table, write both files."""
    from parts.about import machine

    from cb_mm.fileio.atomic import write_atomically

    speed = json.loads((HERE / 'results' / 'corruption_speed.json').read_text())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, args.images)
        spent = time_corruption()
        passes = {str(n): time_passes(folder, n, args.rounds, spent) for n in WORKERS}
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
