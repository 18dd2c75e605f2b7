r"""Measure the attention of a model on images: entropy, distance, sparsity, by layer and head.

Examples:
  # a folder of images, each at 224 x 224
  python tools/analyze_attention.py configs/upernet_vit_s.py upernet_vit_s.pth val/ --size 224

  # with and without CB: the paper's Figures 4 and 7, and 8 for CB_S
  python tools/analyze_attention.py configs/upernet_vit_s.py upernet_vit_s.pth val/ \
      --compare configs/upernet_vit_s_cb_s.py upernet_vit_s_cb_s.pth --limit 500

  # a ViT from timm with weights from a file, and an external value drawn beside it
  python tools/analyze_attention.py vit_tiny_patch16_224 vit_tiny.safetensors val/ --size 224 \
      --reference 4.4 "ViT-S, the paper's mean (Figure 4)"

In the folder of --out: summary.json and summary.csv with means and 95 % intervals, images.jsonl
with one line per image and model, and the figures. A run that was stopped leaves all it has
measured; the same command resumes it.
"""

from __future__ import annotations

import argparse
import sys

from .options import add_attention_models, api_parser, attention_args, count, in_options


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = api_parser(__doc__)
    add_attention_models(parser, 'IMAGES', 'measured on the same images')
    parser.add_argument('--limit', type=count, metavar='N', help='the first N images (all)')
    parser.add_argument(
        '--percentiles',
        nargs='+',
        type=float,
        metavar='P',
        help='of the entropy of the rows; the first is drawn (15 85)',
    )
    parser.add_argument(
        '--reference',
        nargs=2,
        action='append',
        default=[],
        dest='references',
        metavar=('VALUE', 'TEXT'),
        help='an external entropy, drawn as a line with this text; may be repeated',
    )
    parser.add_argument('--overwrite', action='store_true', help='replace other records in --out')
    args = attention_args(parser, argv)
    try:
        args.references = [(float(value), text) for value, text in args.references]
    except ValueError as error:
        parser.error(f'--reference: {error}')
    return args


def run(args: argparse.Namespace) -> None:
    """Measure, and print a table."""
    from cb_mm.apis import attention_statistics

    options = dict(vars(args))
    summary = attention_statistics(options.pop('config'), **options, verbose=True)
    print(summary.table())
    print(f'written to {args.out}')


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 when all is well, 2 when the user must fix something."""
    args = parse(argv)
    from cb_mm.engine.signals import Stopped, signal_name
    from cb_mm.errors import exit_code

    try:
        return exit_code(lambda: run(args), in_options)
    except KeyboardInterrupt:  # before anything was measured
        return stopped('SIGINT', args.out, 130)
    except Stopped as stop:
        return stopped(signal_name(stop.code - 128), args.out, stop.code)


def stopped(signal: str, out: str, code: int) -> int:
    """Print how to resume; return the exit code."""
    print(
        f'stopped by {signal}: what was measured is in {out}; the same command resumes.',
        file=sys.stderr,
    )
    return code
