"""What CB does on real images: UperNet with ViT-Ti on CamVid, with and without CB, several seeds.

Two starts: the ImageNet weights of a plain ViT-Ti, to which CB is added, and random weights, where
neither side has an advantage. Four models each: none, CB in the upper layers, CB in all, CB_S. Runs
with the same seed see the same crops in the same order and start from the same values, so models
are compared seed by seed. Every run is then tested under the corruptions of Table 9, and its
attention is measured by depth.

Examples:
  python benchmarks/camvid_study.py --camvid data/camvid --weights vit_tiny.safetensors
  python benchmarks/camvid_study.py --starts imagenet --seeds 1   # a part; run again for the rest
  python benchmarks/camvid_study.py --report                      # only report what is finished

Run again after a kill, it continues where it stopped. A run in --out is not repeated, even if its
checkpoints are gone. Needs weights of a plain ViT-Ti/16, and CamVid with labels 0 to 10 and 11 for
none: as in the SegNet tutorial (train, trainannot, val, valannot), or in images/{train,val} and
annotations/{train,val}. Takes seven to nine hours on two cores. Writes camvid_study.json, .md and
.png.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from parts.camvid_models import MODELS, STARTS
from parts.options import BESIDE, add_weights, parse_counts, study_parser


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = study_parser(__doc__, 'camvid_study')
    add_weights(parser)
    add = parser.add_argument
    add('--camvid', type=Path, default=BESIDE / 'data/camvid', metavar='DIR',
        help='folder of CamVid')  # fmt: skip
    add('--starts', nargs='+', choices=STARTS, default=list(STARTS), help='which (both)')
    add('--models', nargs='+', choices=MODELS, default=list(MODELS), help='which (all four)')
    add('--seeds', type=int, default=3, metavar='N', help='training runs of each model (3)')
    add('--imagenet', type=int, default=1500, metavar='N', help='iterations from weights (1500)')
    add('--scratch', type=int, default=3000, metavar='N', help='iterations from scratch (3000)')
    add('--batch', type=int, default=4, metavar='N', help='crops per iteration (4)')
    add('--repeats', type=int, default=1, metavar='N', help='passes of a random corruption (1)')
    add('--limit', type=int, metavar='N', help='test on the first N images only')
    add(
        '--attention-images',
        type=int,
        default=25,
        metavar='N',
        help='images for the attention (25)',
    )
    add('--jobs', type=int, default=2, metavar='N', help='runs at a time, sharing the cores (2)')
    add('--report', action='store_true', help='only write the report of what is finished')
    counts = ('seeds', 'imagenet', 'scratch', 'batch', 'repeats', 'attention_images', 'jobs')
    return parse_counts(parser, argv, counts)


def study(args: argparse.Namespace) -> str:
    """Do all missing runs, with a report after each; return its text."""
    import torch
    from parts.camvid_report import write_report
    from parts.camvid_run import Run, Runner, Settings
    from parts.records import Records
    from parts.side_by_side import side_by_side

    from cb_mm.errors import UserError

    settings = Settings(
        args.imagenet, args.scratch, args.batch, args.repeats, args.limit, args.attention_images
    )
    records = Records(args.out / 'camvid_study.json', vars(settings))
    # Seed by seed, so that what is finished can be compared at any time.
    runs = [
        Run(start, model, seed)
        for start in args.starts
        for seed in range(args.seeds)
        for model in args.models
    ]
    todo = [] if args.report else [run for run in runs if run.key not in records.runs]
    if todo:
        camvid, weights = args.camvid.resolve(), args.weights.resolve()
        threads = max(torch.get_num_threads() // args.jobs, 1)
        runner = Runner(settings, camvid, weights, args.work.resolve(), threads)
        if not weights.is_file() and any(run.start == 'imagenet' for run in todo):
            raise UserError(
                f'there is no file {weights}. Pass the weights of a ViT-Ti with --weights.'
            )
        lengths = {run: settings.iterations(run.start) for run in todo}
        for run, record in side_by_side(runner.do, lengths, runner.iteration, args.jobs):
            records.add(run.key, record)
            write_report(records, args.out)
    return write_report(records, args.out)


def main(argv: list[str] | None = None) -> int:
    """Run the study."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: print(study(args)))


if __name__ == '__main__':
    sys.exit(main())
