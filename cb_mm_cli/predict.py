r"""Predict on images, folders, videos or a camera: overlays, label maps, COCO JSON and a table.

Examples:
  python tools/predict.py CONFIG CHECKPOINT street.jpg --out predictions
  python tools/predict.py CONFIG CHECKPOINT photos 'more/*.png' --out predictions --batch-size 4
  python tools/predict.py CONFIG CHECKPOINT drive.mp4 --out predictions      # a video of overlays
  python tools/predict.py CONFIG CHECKPOINT 0 --limit 100 --out predictions  # camera 0
  python tools/predict.py CONFIG CHECKPOINT street.jpg --corruption fog=3 --side-by-side

CONFIG is that of a segmentor, a detector or a classifier, with the CHECKPOINT that was trained with
it. In the folder of --out: overlays/ with a legend, labels/ (class numbers as PNG, in the colours
of the data set), predictions.json (COCO, for detectors), predictions.csv (areas, counts or the five
best classes), videos/, and predictions.jsonl, from which --resume continues.
"""

from __future__ import annotations

import argparse
import sys

from .options import (
    add_cfg_options,
    add_matching,
    add_trust_checkpoint,
    api_parser,
    count,
    in_options,
)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = api_parser(__doc__)
    add = parser.add_argument
    add('config', metavar='CONFIG', help='config file')
    add('checkpoint', metavar='CHECKPOINT', help='weights of exactly this model')
    add('inputs', nargs='+', metavar='INPUT', help='images, folders, patterns, videos, or the '
        'number of a camera')  # fmt: skip
    add('--out', default='predictions', metavar='DIR', help='folder (predictions)')
    add('--corruption', nargs='+', dest='corruptions', metavar='NAME[=LEVEL,...]',
        help='also predict on corrupted images, with levels as in a test')  # fmt: skip
    add('--severity', type=int, metavar='1-5', help='for corruptions without a level (all five)')
    add('--seed', type=int, metavar='N', help='seed of the noise (0)')
    add('--opacity', type=float, metavar='O', help='of the colours over the image (0.5)')
    add('--score', type=float, metavar='S', help='minimum score of a detection that is drawn and '
        'counted (0.3)')  # fmt: skip
    add('--side-by-side', action='store_true', help='image and prediction, clean and corrupted, '
        'in one picture')  # fmt: skip
    add('--batch-size', type=count, metavar='N', help='images of one size that go through the '
        'model together (1)')  # fmt: skip
    add('--limit', type=count, metavar='N', help='only the first N images and frames')
    add('--resume', action='store_true', help='skip what is finished in --out')
    add('--overwrite', action='store_true', help='replace what is in --out')
    add('--device', metavar='DEVICE', help='cpu, cuda, ... (a GPU if there is one)')
    add_matching(parser)
    add_cfg_options(parser, 'model.test_cfg.mode=whole')
    add_trust_checkpoint(parser)
    return parser.parse_args(argv)


def run(args: argparse.Namespace) -> None:
    """Predict, and print where the results are."""
    from cb_mm.apis import predict

    options = dict(vars(args))
    predictions = predict(options.pop('config'), **options, verbose=True)
    print(f'predictions: {predictions.folder}')


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 when all is well, 2 when the user must fix something."""
    args = parse(argv)
    from cb_mm.engine.signals import Stopped, signal_name
    from cb_mm.errors import exit_code

    try:
        return exit_code(lambda: run(args), in_options)
    except KeyboardInterrupt:
        return stopped('SIGINT', 130, args.out)
    except Stopped as stop:
        return stopped(signal_name(stop.code - 128), stop.code, args.out)


def stopped(signal: str, code: int, out: str) -> int:
    """Print how to resume; return the exit code."""
    print(
        f'stopped by {signal}: what is finished is in {out}; --resume continues.', file=sys.stderr
    )
    return code
