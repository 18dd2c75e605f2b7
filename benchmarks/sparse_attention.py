"""Growth of sparse attention's time, memory and work with the number of tokens, against dense.

Runs the attention of ViT-S (6 heads of 64 channels) on square grids after one class token: torch's
fused dense kernel, which never forms the map; the plain dense product, which does; and the sparse
patterns. Measures a forward pass, and a forward and backward pass, all in turns in one process, on
one thread; times are medians of the CPU time. The exponent is the slope of log(value) over
log(tokens) from --fit-from tokens upwards: 1 is linear, 2 quadratic. Memory is the peak.

Examples:
  python benchmarks/sparse_attention.py
  python benchmarks/sparse_attention.py --sides 14 32 --repeats 3 --out /tmp

Writes sparse_attention.json, sparse_attention.md and sparse_attention.png.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIDES = (14, 20, 28, 40, 56, 64, 80, 96)  # 196 to 9,216 patches
HEADS, CHANNELS = 6, 64
#: The plain product stores its map: beyond this it would take gigabytes.
PLAIN_LIMIT = 64


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument('--sides', type=int, nargs='+', default=SIDES, metavar='N', help='patches')
    parser.add_argument(
        '--patterns', nargs='+', default=['W', 'R+W+G'], metavar='NAME', help='(W R+W+G)'
    )
    parser.add_argument('--block', type=int, default=4, metavar='N', help='side of a block (4)')
    parser.add_argument('--repeats', type=int, default=5, metavar='N', help='turns each (5)')
    parser.add_argument('--fit-from', type=int, default=784, metavar='N', help='tokens (784)')
    parser.add_argument(
        '--out', default=str(HERE / 'results'), metavar='DIR', help='folder of the results'
    )
    args = parser.parse_args(argv)
    if min(args.repeats, args.block, *args.sides) < 1:
        parser.error('--repeats, --block and --sides are at least 1')
    return args


def exponent(rows: list[dict], key: str, start: int) -> float | None:
    """Fit a line to the logarithms and return its slope; None with fewer than two points."""
    points = [(row['tokens'], row[key]) for row in rows if row['tokens'] >= start and row[key]]
    if len(points) < 2:
        return None
    slope, _ = statistics.linear_regression(
        *([math.log(value) for value in values] for values in zip(*points, strict=True))
    )
    return slope


def jobs_of(args: argparse.Namespace, train: bool) -> dict:
    """Return something to run for each (kind, side)."""
    import dataclasses

    import torch
    import torch.nn.functional as F

    from cb_mm.models.attention.sparse import sparse_attention
    from cb_mm.models.attention.sparse_pattern import SparsePattern, make_plan

    def plain(q, k, v):
        return (q @ k.transpose(-2, -1)).softmax(-1) @ v

    def fused(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, scale=1.0)

    def job(attend, tokens: int):
        generator = torch.Generator().manual_seed(0)
        q, k, v = (torch.randn(1, HEADS, tokens, CHANNELS, generator=generator) for _ in range(3))
        q = q * CHANNELS**-0.5
        if not train:
            return torch.no_grad()(lambda: attend(q, k, v))
        leaves = [x.requires_grad_() for x in (q, k, v)]
        return lambda: torch.autograd.grad(attend(*leaves).sum(), leaves)

    jobs = {}
    for side in args.sides:
        tokens = side * side + 1
        jobs['dense, fused', side] = job(fused, tokens)
        if side <= PLAIN_LIMIT:
            jobs['dense, plain', side] = job(plain, tokens)
        for name in args.patterns:
            pattern = dataclasses.replace(SparsePattern.read(name), block=args.block)
            plan = make_plan(pattern, (side, side), prefix=1)
            jobs[f'sparse {name}', side] = job(
                lambda q, k, v, plan=plan: sparse_attention(q, k, v, plan), tokens
            )
    return jobs


def measure(args: argparse.Namespace, train: bool) -> dict:
    """Measure the rows and exponents of every kind."""
    from cb_mm.apis.benchmark_report import count_multiplications, peak_memory, time_in_turns

    jobs = jobs_of(args, train)
    times = time_in_turns(jobs, args.repeats)
    report: dict[str, dict] = {}
    for (kind, side), job in jobs.items():
        row = {
            'side': side,
            'tokens': side * side + 1,
            **times[kind, side].summary(),
            'peak_bytes': peak_memory(job),
            'multiplications': count_multiplications(job),
        }
        report.setdefault(kind, {'rows': []})['rows'].append(row)
    for part in report.values():
        part['exponent'] = {
            key: exponent(part['rows'], key, args.fit_from)
            for key in ('cpu_median_s', 'peak_bytes', 'multiplications')
        }
    return report


def table(report: dict) -> str:
    """Return both passes as Markdown."""
    words = []
    for title, kinds in report.items():
        sides = sorted({row['side'] for part in kinds.values() for row in part['rows']})
        for what, key, scale in (
            ('CPU time, ms', 'cpu_median_s', 1e3),
            ('peak memory, MiB', 'peak_bytes', 2**-20),
            ('multiply-adds, M', 'multiplications', 1e-6),
        ):
            words += [f'{title}: {what}', '']
            words.append(f'| tokens | {" | ".join(str(s * s + 1) for s in sides)} | exponent |')
            words.append('|---' * (len(sides) + 2) + '|')
            for kind, part in kinds.items():
                values = {row['side']: row[key] for row in part['rows']}
                cells = [
                    f'{scale * values[side]:.3g}' if values.get(side) else '–' for side in sides
                ]
                slope = part['exponent'][key]
                cells.append('–' if slope is None else f'{slope:.2f}')
                words.append(f'| {kind} | {" | ".join(cells)} |')
            words.append('')
    return '\n'.join(words)


def plot(report: dict) -> bytes:
    """Draw a PNG of time and memory over the tokens, both axes logarithmic."""
    from cb_mm.fileio.figures import blank_figure, figure_bytes

    kinds = report['forward and backward']
    colours = dict(
        zip(kinds, ('#888888', '#b0643c', '#4878a8', '#3c8c5a', '#8050a0'), strict=False)
    )
    figure = blank_figure(9, 3.6)
    axes = figure.subplots(1, 2)
    for axis, key, scale, label in (
        (axes[0], 'cpu_median_s', 1e3, 'forward and backward, CPU ms'),
        (axes[1], 'peak_bytes', 2**-20, 'forward and backward, peak MiB'),
    ):
        for kind, part in kinds.items():
            rows = [row for row in part['rows'] if row[key]]
            slope = part['exponent'][key]
            power = '' if slope is None else f', exponent {slope:.2f}'
            axis.loglog(
                [row['tokens'] for row in rows],
                [scale * row[key] for row in rows],
                'o-',
                color=colours.get(kind),
                markersize=3,
                label=f'{kind}{power}',
            )
        tokens = sorted({row['tokens'] for part in kinds.values() for row in part['rows']})
        axis.set_xticks(tokens, [str(count) for count in tokens], fontsize=7, rotation=45)
        axis.minorticks_off()
        axis.set_xlabel('tokens')
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7, frameon=False)
    figure.tight_layout()
    return figure_bytes(figure, dpi=110)


def run(args: argparse.Namespace) -> None:
    """Measure, print, write."""
    import torch
    from parts.about import machine

    import cb_mm  # noqa: F401
    from cb_mm.fileio.atomic import write_atomically

    torch.set_num_threads(1)
    report = {
        'forward': measure(args, train=False),
        'forward and backward': measure(args, train=True),
    }
    print(table(report))
    options = {key: getattr(args, key) for key in ('block', 'repeats', 'fit_from')}
    content = {'machine': machine(), **options, **report}
    folder = Path(args.out)
    write_atomically(folder / 'sparse_attention.json', json.dumps(content, indent=1) + '\n')
    write_atomically(folder / 'sparse_attention.md', table(report))
    write_atomically(folder / 'sparse_attention.png', plot(report))


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 0 on success, 2 on a user error."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args))


if __name__ == '__main__':
    sys.exit(main())
