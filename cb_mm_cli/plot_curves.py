"""Draw the curves of training runs from their logs: loss, evaluation loss, accuracy.

Examples:
  python tools/plot_curves.py work_dirs/plain work_dirs/cb --names ViT-S CB     # Figure S11
  python tools/plot_curves.py work_dirs/ablation_figure3/8_layers*              # Figure 3
  python tools/plot_curves.py work_dirs/run --metrics loss mIoU --format pdf --out run

Any run of mmengine will do. Configs for classification log validation/cross_entropy.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .options import add_formats, api_parser, in_options


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = api_parser(__doc__)
    add = parser.add_argument
    add('runs', nargs='+', metavar='RUN', help='work directories, or files scalars.json')
    add('--names', nargs='+', metavar='NAME', help='of the runs (those of their folders)')
    add('--metrics', nargs='+', metavar='NAME', help='what to draw (all that the logs have)')
    add('--out', metavar='FILE', default='curves',
        help='without its ending (curves)')  # fmt: skip
    add_formats(parser)
    args = parser.parse_args(argv)
    if 'names' in args and len(args.names) != len(args.runs):
        parser.error(f'--names: give {len(args.runs)}, one for each run')
    return args


def run(args: argparse.Namespace) -> None:
    """Draw and write."""
    from cb_mm.apis import plot_curves

    for name in plot_curves(**vars(args)).files:
        print(f'wrote {Path(args.out).parent / name}')


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 when all is well, 2 when the user must fix something."""
    args = parse(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args), in_options)
