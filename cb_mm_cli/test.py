"""Test a model on clean images, under corruption, or attacked; results in one table, never lost.

Examples:
  python tools/test.py CONFIG CHECKPOINT                       # plain testing, upstream's figures
  python tools/test.py CONFIG CHECKPOINT --suite table9        # Table 9 of the paper
  python tools/test.py CONFIG CHECKPOINT --suite imagenet-c    # 15 corruptions, 5 severities
  python tools/test.py CONFIG CHECKPOINT --corruption gaussian_noise=5,10 gaussian_blur=2
  python tools/test.py CONFIG CHECKPOINT --corruption fog snow --severity 3
  python tools/test.py CONFIG CHECKPOINT --fgsm 1 2 4          # ε in grey levels
  python tools/test.py CONFIG CHECKPOINT --attack pgd=2,4 segpgd=4 --repeats 2
  python tools/test.py CONFIG CHECKPOINT --suite table9 --compare OTHER/results.json
  python tools/test.py CONFIG CHECKPOINT --suite table9 --html  # one page to look at
  python tools/test.py CONFIG CHECKPOINT --suite table9 --metrics calibration boundary
  python tools/test.py IMAGENET_CONFIG CHECKPOINT --test-set imagenet-a --data-root DIR
  python tools/test.py CITYSCAPES_CONFIG CHECKPOINT --test-set acdc-night --data-root DIR
  torchrun --nproc_per_node=8 tools/test.py CONFIG CHECKPOINT --suite table9 --launcher pytorch

Clean images and deterministic corruptions are tested once, random ones --repeats times. Each
finished pass is in results.jsonl at once; the same command resumes after a kill. At the end there
are results.md, .json, .csv, per_class.csv, robustness.png and .svg, and scores/ image by image.
"""

from __future__ import annotations

import argparse
import os
import sys

from .options import (
    add_cfg_options,
    add_formats,
    add_running,
    add_trust_checkpoint,
    api_parser,
    in_options,
)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the options; nothing heavy is imported before they are valid."""
    parser = api_parser(__doc__)
    add = parser.add_argument
    add('config', metavar='CONFIG', help='config file')
    add('checkpoint', metavar='CHECKPOINT', help='weights of exactly this model')
    add('--suite', metavar='NAME', help='a named set of corruptions: table9, imagenet-c, '
        'cityscapes-c, coco-c, clean')  # fmt: skip
    add('--corruption', nargs='+', dest='corruptions', metavar='NAME[=LEVEL,...]',
        help='corruptions, with levels in their own unit, or at severities 1 to 5')  # fmt: skip
    add('--frost-pictures', metavar='DIR', help='photographs of frost, as ImageNet-C has them; '
        'without them the ice of frost is drawn')  # fmt: skip
    add('--severity', type=int, metavar='1-5', help='for corruptions without a level (all five)')
    add('--fgsm', nargs='+', type=float, metavar='EPS', help='attack each image by one '
        'step of EPS grey levels along the gradient of the loss')  # fmt: skip
    add('--attack', nargs='+', dest='attacks', metavar='NAME=EPS,...',
        help='attacks of many steps within EPS grey levels: bim, pgd, segpgd, cospgd; with _l2 '
        '(pgd_l2=128) the root of the sum of squared changes is bounded')  # fmt: skip
    add('--attack-steps', type=int, metavar='N', help='steps of an attack (20)')
    add('--attack-step-size', type=float, metavar='SHARE', help='length of a step as a share '
        'of EPS (2.5 / steps, at most 1)')  # fmt: skip
    add('--attack-restarts', type=int, metavar='N', help='random starts per image, of which the '
        'best counts (1)')  # fmt: skip
    add('--no-random-start', action='store_false', dest='random_start', help='attacks begin at '
        'the image itself, in a single pass')  # fmt: skip
    add('--repeats', type=int, metavar='N', help='passes of a random corruption or start (5)')
    add('--seed', type=int, metavar='N', help='seed of the noise (0)')
    add('--limit', type=int, metavar='N', help='only the first N images')
    add(
        '--out',
        default='auto',
        metavar='DIR',
        help='where results go (work_dirs/CONFIG_SCHEDULE/test_...)',
    )
    add('--metrics', nargs='+', metavar='NAME', help='measure this too: calibration (ECE, Brier '
        'score, reliability diagram), boundary (boundary IoU)')  # fmt: skip
    add('--compare', metavar='FILE', help='results.json of another model, for a table of both')
    add('--reference', metavar='FILE', help='results.json of the model that mCE, the mean '
        'corruption error, refers to')  # fmt: skip
    add('--detect', type=float, metavar='POINTS', help='with --compare: a difference for which to '
        'say how many repeats and images would find it (1)')  # fmt: skip
    add('--save-corrupted', metavar='DIR', help='write the corrupted images there, as PNG')
    add('--show-dir', metavar='DIR', help='draw predictions over the images, there')
    add('--html', action='store_true', help='also write report.html: tables, curves, worst '
        'classes and images')  # fmt: skip
    add_formats(parser)
    add('--cache-mb', type=int, metavar='N', help='maximum memory for decoded images ' 'and label '
        'maps, in MiB per process (2048)')  # fmt: skip
    add('--test-set', metavar='NAME', help='another test set of the config: imagenet-v2, '
        'imagenet-real, imagenet-a, imagenet-c; acdc, acdc-fog, ..., dark-zurich')  # fmt: skip
    add_running(parser, "torch's settings, as upstream tests")
    add_cfg_options(parser, 'test_dataloader.batch_size=4')
    add_trust_checkpoint(parser)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Parse, call the library, return the exit code."""
    options = vars(parse(argv))
    config = options.pop('config')
    os.environ.setdefault('LOCAL_RANK', str(options.pop('local_rank')))

    from cb_mm.apis import evaluate_robustness
    from cb_mm.engine.signals import Stopped, signal_name
    from cb_mm.errors import exit_code

    try:
        return exit_code(lambda: evaluate_robustness(config, **options, verbose=True), in_options)
    except KeyboardInterrupt:  # before the first pass
        return stopped('SIGINT', 130)
    except Stopped as stop:
        return stopped(signal_name(stop.code - 128), stop.code)


def stopped(signal: str, code: int) -> int:
    """Print how to resume; return the exit code."""
    if os.environ.get('RANK', '0') == '0':
        print(
            f'stopped by {signal}: finished passes are kept and in the report; the same command '
            'resumes.',
            file=sys.stderr,
        )
    return code
