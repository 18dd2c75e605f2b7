"""Check a machine with GPUs, and write one page to attach to an issue.

Examples:
  python tools/check_gpu.py
  python tools/check_gpu.py --parts steps resume --out my_gpu.md

Its parts, about ten minutes together:
  steps       a training step of each recipe in each precision against float32 on the CPU
  resume      a run that was stopped and resumed against one that was not, bit by bit
  gpus        two processes, each with a GPU, against one; on a CPU without
  throughput  training steps against mmseg's own heads, beside benchmarks/roofline.py's estimate

A part that fails is reported, and the others still run; the exit code is then 1. Without a GPU the
same code runs on one small recipe: this shows that it works, and its times mean nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from .options import api_parser, in_options

PARTS = ['steps', 'resume', 'gpus', 'throughput']


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = api_parser(__doc__)
    parser.add_argument('--parts', nargs='+', choices=PARTS, help='only these (all)')
    parser.add_argument('--small', action='store_true', help='one small recipe, as without a GPU')
    parser.add_argument('--out', default='gpu_check.md', metavar='FILE', help='(gpu_check.md)')
    return parser.parse_args(argv)


def run(args: argparse.Namespace) -> int:
    """Check, write, print where."""
    from cb_mm.apis import check_gpu
    from cb_mm.errors import UserError

    options = vars(args)
    out = Path(options.pop('out'))
    if out.is_dir() or not out.parent.is_dir():  # said before ten minutes of work
        raise UserError(f'`out` {out}: it must be a file in a folder that exists.')
    report = check_gpu(**options, verbose=True)
    for file in report.save(out.parent, out.name):
        print(f'written: {file}')
    if report.failed:
        print(f'failed: {", ".join(report.failed)}')
    return 1 if report.failed else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when all parts ran, 1 when one failed, 2 on a wrong option."""
    args = parse(argv)
    from cb_mm.errors import exit_code

    codes: list[int] = []
    return exit_code(lambda: codes.append(run(args)), in_options) or codes[0]
