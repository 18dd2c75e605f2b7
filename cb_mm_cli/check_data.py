"""Check a data set before it is used: layout, counts, files, sizes, labels, annotations.

Examples:
  python tools/check_data.py my_config.py               # the data sets of any config
  python tools/check_data.py --dataset ade20k data/ADEChallengeData2016
  python tools/check_data.py --dataset coco data/coco --quick
  python tools/check_data.py --dataset coco data/coco --split val2017 --json problems.json
  python tools/check_data.py --dataset ade20k data/mine --num-classes 12
  python tools/check_data.py --dataset imagenet data/imagenet --quick
  python tools/check_data.py --dataset vqav2 data/vqav2 --quick
  python tools/check_data.py --dataset cityscapes data/cityscapes    # acdc, dark-zurich, voc, ...

The full check decodes every file. The quick one reads all names and a few files; training and
testing do it by themselves before they start.

exit code:
  0  the data set can be used (there may be warnings and notes)
  1  errors were found in it
  2  the command is wrong, or the folder does not exist
"""

from __future__ import annotations

import argparse
import os

from .options import add_safe_config, in_options, tool_parser

SPLITS = {
    'ade20k': ('training', 'validation'),
    'coco': ('train2017', 'val2017'),
    'imagenet': ('train', 'val'),
    'vqav2': ('train2014', 'val2014'),
    'cityscapes': ('train', 'val'),
    'acdc': ('fog', 'night', 'rain', 'snow'),
    'dark-zurich': ('val',),
    'voc': ('train', 'aug', 'val'),
    'coco-stuff': ('train2017', 'val2017'),
}


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = tool_parser(__doc__)
    parser.add_argument(
        'target', metavar='CONFIG|DIR', help='a config, or the root folder of a known data set'
    )
    parser.add_argument('--dataset', choices=tuple(SPLITS), help='the layout of a folder')
    parser.add_argument('--data-root', metavar='DIR', help="in place of the config's folder")
    parser.add_argument('--quick', action='store_true', help='all names, but only a few files')
    parser.add_argument(
        '--split', action='append', metavar='NAME', help='only this part (may be repeated)'
    )
    parser.add_argument(
        '--num-classes', type=int, metavar='N', help='ade20k: labels 0 to N are allowed (150)'
    )
    parser.add_argument('--json', metavar='FILE', help='write every finding to this file')
    parser.add_argument(
        '--examples', type=int, default=5, metavar='N', help='shown per kind of finding (5)'
    )
    parser.add_argument('--workers', type=int, metavar='N', help='threads (one per processor)')
    add_safe_config(parser)
    args = parser.parse_args(argv)
    if args.dataset is None and os.path.isdir(args.target):
        parser.error('--dataset is missing: a folder needs the name of its layout')
    if args.dataset is not None and args.data_root:
        parser.error('--data-root is for a config')
    known = SPLITS.get(args.dataset, ('train', 'val', 'test'))
    for split in args.split or ():
        if split not in known:
            parser.error(f'--split: {split!r} is not one of {", ".join(known)}')
    args.split = args.split or known
    if args.num_classes is not None:
        if args.dataset != 'ade20k':
            parser.error('--num-classes is for --dataset ade20k')
        if not 1 <= args.num_classes <= 254:
            parser.error('--num-classes must be 1 to 254')
    if args.examples < 0 or (args.workers is not None and args.workers < 1):
        parser.error('--examples must not be negative, --workers must be at least 1')
    return args


def main(argv: list[str] | None = None) -> int:
    """Run the check and print what it found; see the exit codes above."""
    args = parse(argv)
    from tqdm import tqdm

    from cb_mm.config import load_config, restricted, set_data_root
    from cb_mm.datasets.checks.configured import check_config
    from cb_mm.datasets.checks.registry import check
    from cb_mm.errors import exit_code

    usable = True

    def job() -> None:
        nonlocal usable
        options = {
            'quick': args.quick,
            'splits': args.split,
            # disable=None: no bar where the output is not a terminal
            'progress': lambda jobs, n: tqdm(jobs, 'reading', total=n, leave=False, disable=None),
            'workers': args.workers,
        }
        if args.dataset is None:
            config = load_config(args.target)
            set_data_root(config, args.data_root)
            report = check_config(config, **options)
        else:
            if args.num_classes:
                options['num_classes'] = args.num_classes
            report = check(args.dataset, args.target, **options)
        usable = report.ok
        print(report.text(args.examples))
        if args.json:
            report.write_json(args.json)
            print(f'everything is in {args.json}')

    with restricted.only_data(args.safe_config):
        return exit_code(job, in_options) or (0 if usable else 1)
