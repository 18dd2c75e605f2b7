r"""Measure the attention of a model on images: entropy, distance, sparsity, by layer and head.

Examples:
  # a folder of images, each at 224 x 224
  python tools/analyze_attention.py configs/upernet_vit_s.py upernet_vit_s.pth val/ --size 224

  # with and without CB: the paper's Figures 4 and 7, and 8 for CB_S
  python tools/analyze_attention.py configs/upernet_vit_s.py upernet_vit_s.pth val/ \
      --compare configs/upernet_vit_s_cb_s.py upernet_vit_s_cb_s.pth --limit 500

  # a ViT from timm with weights from a file, and a value from elsewhere drawn beside it
  python tools/analyze_attention.py vit_tiny_patch16_224 vit_tiny.safetensors val/ --size 224 \
      --reference 4.4 "ViT-S, the paper's mean (Figure 4)"

In the folder of --out: summary.json and summary.csv with means and 95 % intervals, images.jsonl
with a line for every image, and the figures. A run that was stopped leaves all it has measured;
the same command goes on from there.
"""

from __future__ import annotations

import argparse
import re
import sys


def size(text: str) -> tuple[int, int]:
    """SIDE or HEIGHTxWIDTH."""
    match = re.fullmatch(r'([1-9]\d*)(?:x([1-9]\d*))?', text)
    if not match:
        raise argparse.ArgumentTypeError(f'{text!r} is not a size such as 224 or 512x640')
    return int(match[1]), int(match[2] or match[1])


def count(text: str) -> int:
    """A positive number."""
    if not re.fullmatch(r'[1-9]\d*', text):
        raise argparse.ArgumentTypeError(f'{text!r} is not a positive number')
    return int(text)


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument('config', metavar='CONFIG', help='config file, or name of a timm ViT')
    parser.add_argument('checkpoint', metavar='CHECKPOINT', help='its weights')
    parser.add_argument('images', nargs='+', metavar='IMAGES', help='image files or folders')
    parser.add_argument(
        '--compare',
        nargs=2,
        metavar=('CONFIG', 'CHECKPOINT'),
        help='a second model, measured on the same images',
    )
    parser.add_argument(
        '--names', nargs='+', metavar='NAME', help='what to call the models (after their configs)'
    )
    parser.add_argument('--limit', type=count, metavar='N', help='the first N images (all)')
    parser.add_argument(
        '--size', type=size, metavar='N|HxW', help="resize every image (each image's own size)"
    )
    parser.add_argument(
        '--percentiles',
        nargs='+',
        type=float,
        default=[15, 85],
        metavar='P',
        help='of the entropy of the rows; the first is drawn (15 85)',
    )
    parser.add_argument(
        '--reference',
        nargs=2,
        action='append',
        default=[],
        metavar=('VALUE', 'TEXT'),
        help='an entropy from elsewhere, drawn as a line with this text; may be repeated',
    )
    parser.add_argument(
        '--format',
        nargs='+',
        choices=('png', 'svg', 'pdf'),
        default=['png', 'svg'],
        help='of the figures (png svg)',
    )
    parser.add_argument('--out', default='attention', metavar='DIR', help='folder (attention)')
    parser.add_argument('--overwrite', action='store_true', help='replace other records in --out')
    parser.add_argument('--device', metavar='DEVICE', help='cpu, cuda, ... (a GPU if there is one)')
    parser.add_argument(
        '--safe-config', action='store_true', help='refuse configs that hold more than data'
    )
    parser.add_argument(
        '--trust-checkpoint', action='store_true', help='let checkpoints run the code they hold'
    )
    args = parser.parse_args(argv)
    if args.names and len(args.names) != 1 + bool(args.compare):
        parser.error(f'--names: give {1 + bool(args.compare)}, one for each model')
    try:
        args.reference = [(float(value), text) for value, text in args.reference]
    except ValueError as error:
        parser.error(f'--reference: {error}')
    return args


def run(args: argparse.Namespace) -> None:
    """Measure, and print a table."""
    from pathlib import Path

    from cb_mm import safe_config
    from cb_mm.attention.analysis import AnalysisOptions, ModelChoice, analyze, table

    if args.safe_config:
        safe_config.enable()
    choices = [(args.config, args.checkpoint), *([args.compare] if args.compare else [])]
    names = args.names or [None] * len(choices)
    models = [ModelChoice(*choice, name) for choice, name in zip(choices, names, strict=True)]
    summaries = analyze(
        AnalysisOptions(
            models,
            args.images,
            Path(args.out),
            size=args.size,
            limit=args.limit,
            percentiles=args.percentiles,
            references=args.reference,
            formats=args.format,
            device=args.device,
            overwrite=args.overwrite,
            trust=args.trust_checkpoint,
        )
    )
    print(table(summaries))
    print(f'written to {args.out}')


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 when all is well, 2 when the user must mend something."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    try:
        return exit_code(lambda: run(args))
    except KeyboardInterrupt:
        print(f'stopped; what was measured is in {args.out}', file=sys.stderr)
        return 130


if __name__ == '__main__':
    sys.exit(main())
