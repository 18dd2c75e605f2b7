"""Growth of the backbone's time and memory with the number of tokens, the width and the batch.

ViTCB with CB, forward without gradients, everything in turns in one process; time is the CPU time
of the process. The exponent is the slope of log(time) over log(tokens): 1 is linear, 2 quadratic.
Memory is the peak of the forward pass.

Examples:
  python benchmarks/growth.py
  python benchmarks/growth.py --arch tiny --repeats 9 --out /tmp

Writes growth.json and growth.png.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIDES = (224, 320, 448, 640, 832, 1024)  # 196 to 4,096 tokens of 16 x 16 pixels
WIDTHS = (192, 384, 768)
BATCHES = (1, 2, 4, 8)


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument('--arch', choices=('tiny', 'small', 'base'), default='small')
    parser.add_argument('--repeats', type=int, default=5, metavar='N', help='turns each (5)')
    parser.add_argument('--threads', type=int, default=1, metavar='N', help='threads (1)')
    parser.add_argument(
        '--out', default=str(HERE / 'results'), metavar='DIR', help='folder of the results'
    )
    args = parser.parse_args(argv)
    if min(args.repeats, args.threads) < 1:
        parser.error('--repeats and --threads are at least 1')
    return args


def exponent(sizes: list[float], values: list[float]) -> float:
    """Fit a straight line to the logarithms and return its slope."""
    slope, _ = statistics.linear_regression(
        [math.log(size) for size in sizes], [math.log(value) for value in values]
    )
    return slope


def measure(args: argparse.Namespace) -> dict:
    """Measure time and memory of every size, width and batch."""
    import torch

    from cb_mm.apis.benchmark_report import count_multiplications, peak_memory, time_in_turns
    from cb_mm.models import ViTCB

    torch.set_num_threads(args.threads)

    def job(arch, side: int, batch: int):
        model = ViTCB(arch, broadcast='cb', pyramid=False, img_size=side).eval()
        images = torch.randn(batch, 3, side, side)

        def forward() -> None:
            with torch.no_grad():
                model(images)

        return forward

    def width(dims: int) -> dict:
        return dict(embed_dim=dims, depth=12, num_heads=dims // 64)

    series = {
        'tokens': {(side // 16) ** 2: job(args.arch, side, 1) for side in SIDES},
        'width': {dims: job(width(dims), 224, 1) for dims in WIDTHS},
        'batch': {batch: job(args.arch, 224, batch) for batch in BATCHES},
    }
    report = {}
    for name, jobs in series.items():
        times = time_in_turns(jobs, args.repeats)
        rows = [
            {
                name: size,
                **times[size].summary(),
                'peak_bytes': peak_memory(run_it),
                'multiplications': count_multiplications(run_it),
            }
            for size, run_it in jobs.items()
        ]
        sizes = [row[name] for row in rows]
        slope = {
            'time': exponent(sizes, [row['cpu_median_s'] for row in rows]),
            'multiplications': exponent(sizes, [row['multiplications'] for row in rows]),
        }
        if name == 'tokens':  # the others are too small for the resident memory to show
            slope['memory'] = exponent(sizes[2:], [row['peak_bytes'] or 1 for row in rows[2:]])
        report[name] = {'rows': rows, 'exponent': slope}
        print(f'\n| {name} | CPU ms, median | peak MiB | GMAC |\n|---|---|---|---|')
        for row in rows:
            print(
                f'| {row[name]} | {1e3 * row["cpu_median_s"]:.1f} '
                f'| {(row["peak_bytes"] or 0) / 2**20:.0f} | {row["multiplications"] / 1e9:.1f} |'
            )
        print('exponents:', {key: round(value, 2) for key, value in slope.items()}, flush=True)
    return report


def plot(report: dict) -> bytes:
    """Draw a PNG of time and memory over the tokens, both axes logarithmic."""
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    from cb_mm.fileio.figures import blank_figure, figure_bytes

    rows, slope = report['tokens']['rows'], report['tokens']['exponent']
    tokens = [row['tokens'] for row in rows]
    figure = blank_figure(8, 3.2)
    left, right = figure.subplots(1, 2)
    left.loglog(tokens, [1e3 * row['cpu_median_s'] for row in rows], 'o-', color='#4878a8')
    left.set_ylabel('forward, CPU ms')
    left.set_title(f'time: exponent {slope["time"]:.2f}', fontsize=9)
    right.loglog(tokens, [(row['peak_bytes'] or 1) / 2**20 for row in rows], 'o-', color='#b0643c')
    right.set_ylabel('peak, MiB')
    right.set_title(f'memory: exponent {slope["memory"]:.2f} (from {tokens[2]})', fontsize=9)
    for axis in (left, right):
        axis.set_xticks(tokens, [str(count) for count in tokens], fontsize=8)
        # 1, 2 and 5 of every decade: an axis of less than one decade then has labels too
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(StrMethodFormatter('{x:g}'))
        axis.minorticks_off()
        axis.set_xlabel('tokens')
        axis.grid(alpha=0.3)
    figure.tight_layout()
    return figure_bytes(figure, dpi=110)


def run(args: argparse.Namespace) -> None:
    """Measure, print, write."""
    from parts.about import machine

    import cb_mm  # noqa: F401
    from cb_mm.fileio.atomic import write_atomically

    report = measure(args)
    content = {'machine': machine(), 'arch': args.arch, 'repeats': args.repeats, **report}
    write_atomically(Path(args.out) / 'growth.json', json.dumps(content, indent=1) + '\n')
    write_atomically(Path(args.out) / 'growth.png', plot(report))


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 0 on success, 2 on a user error."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args))


if __name__ == '__main__':
    sys.exit(main())
