"""Memory and time of the attention statistics, compared with the plain forward pass.

Computes every measure of every layer and head of a ViT: at 1024 x 1024 pixels (4,097 tokens) the
maps of ViT-S would take 4.8 GB if they were kept. Memory is the peak beyond the libraries and
weights that are already loaded, measured in a separate process each time; the median is reported.
Times are measured in turns in one process and reported as a ratio.

Examples:
  python benchmarks/attention_memory.py
  python benchmarks/attention_memory.py --arch tiny --size 512 --out /tmp

Writes attention_memory.json and attention_memory.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: Depth and heads, to compute the size of the maps.
ARCHES = {'tiny': (12, 3), 'small': (12, 6), 'base': (12, 12)}
MEMORY_LIMIT = 600e6
TIME_LIMIT = 4.0


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument('--arch', choices=ARCHES, default='small')
    parser.add_argument('--size', type=int, default=1024, metavar='N', help='side in pixels (1024)')
    parser.add_argument('--repeats', type=int, default=3, metavar='N', help='turns each (3)')
    parser.add_argument('--threads', type=int, default=1, metavar='N', help='threads (1)')
    parser.add_argument(
        '--out', default=str(HERE / 'results'), metavar='DIR', help='folder of the results'
    )
    # What a child process does; this one only starts them.
    parser.add_argument('--job', choices=('plain', 'statistics', 'time'), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if min(args.repeats, args.threads) < 1 or args.size < 16:
        parser.error('--repeats and --threads are at least 1, --size at least 16')
    return args


def work(args: argparse.Namespace) -> dict:
    """Measure in one process."""
    import torch
    from parts.about import machine

    from cb_mm.apis.benchmark_report import peak_memory, ratio, time_in_turns
    from cb_mm.attention import capture, measure
    from cb_mm.models import ViTCB

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = ViTCB(args.arch, out_indices=(-1,), pyramid=False).eval()
    images = torch.randn(1, 3, args.size, args.size)

    def plain() -> None:
        with torch.no_grad():
            model(images)

    def measured() -> None:
        with torch.no_grad(), capture(model, measure):
            model(images)

    jobs = {'plain': plain, 'statistics': measured}
    if args.job == 'time':
        times = time_in_turns(jobs, args.repeats)
        return {
            'machine': machine(),
            'times': {name: found.summary() for name, found in times.items()},
            'ratios': {
                clock: ratio(times['statistics'], times['plain'], clock)
                for clock in ('cpu', 'wall')
            },
        }
    # Neither libraries and weights count, nor the peak while they were loaded.
    return {'peak': peak_memory(jobs[args.job])}


def start(args: argparse.Namespace, job: str) -> dict:
    """Run one job in a separate process."""
    words = [
        *('--arch', args.arch, '--size', str(args.size), '--repeats', str(args.repeats)),
        *('--threads', str(args.threads), '--job', job),
    ]
    command = [sys.executable, str(Path(__file__).resolve()), *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def table(result: dict) -> str:
    """Return the numbers as Markdown."""
    memory, cpu = result['memory'], result['ratios']['cpu']
    times = result['times']
    return '\n'.join(
        [
            f'ViT-{result["arch"]} at {result["size"]} × {result["size"]} pixels, '
            f'{result["tokens"]:,} tokens, {result["threads"]} thread(s). All maps would take '
            f'{result["all_maps"] / 1e9:.1f} GB.',
            '',
            '| | plain forward | with statistics of all layers | |',
            '|---|---|---|---|',
            f'| peak memory, median | {memory["plain"] / 1e6:,.0f} MB | '
            f'{memory["statistics"] / 1e6:,.0f} MB | {memory["added"] / 1e6:+,.0f} MB '
            f'(limit {MEMORY_LIMIT / 1e6:.0f}) |',
            f'| CPU time, median | {times["plain"]["cpu_median_s"]:.1f} s | '
            f'{times["statistics"]["cpu_median_s"]:.1f} s | × {cpu["ratio"]:.2f} '
            f'({cpu["lower_quartile"]:.2f} to {cpu["upper_quartile"]:.2f}; limit {TIME_LIMIT:g}) |',
            '',
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """Measure, write, print; return 1 if a limit is exceeded."""
    args = parse_args(argv)
    if args.job:
        print(json.dumps(work(args)))
        return 0
    depth, heads = ARCHES[args.arch]
    tokens = 1 + (-(-args.size // 16)) ** 2
    peaks: dict[str, list[int]] = {'plain': [], 'statistics': []}
    for _ in range(args.repeats):
        for job, found in peaks.items():
            found.append(start(args, job)['peak'])
    memory = {job: statistics.median(found) for job, found in peaks.items()}
    memory['added'] = memory['statistics'] - memory['plain']
    result = {
        'arch': args.arch,
        'size': args.size,
        'tokens': tokens,
        'threads': args.threads,
        'all_maps': 4 * depth * heads * tokens**2,
        'memory': memory,
        'peaks': peaks,
        **start(args, 'time'),
    }
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / 'attention_memory.json').write_text(json.dumps(result, indent=2) + '\n')
    (out / 'attention_memory.md').write_text(table(result))
    print(table(result))
    kept = memory['added'] < MEMORY_LIMIT and result['ratios']['cpu']['ratio'] < TIME_LIMIT
    return 0 if kept else 1


if __name__ == '__main__':
    sys.exit(main())
