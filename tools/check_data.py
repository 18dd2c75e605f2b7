"""Check a data set before it is used: layout, counts, files, sizes, labels, annotations.

Examples:
  python tools/check_data.py --dataset ade20k data/ADEChallengeData2016
  python tools/check_data.py --dataset coco data/coco --quick
  python tools/check_data.py --dataset coco data/coco --split val2017 --json problems.json
  python tools/check_data.py --dataset ade20k data/mine --num-classes 12
  python tools/check_data.py --dataset imagenet data/imagenet --quick

The full check decodes every file. The quick one reads all names and a few files; training and
testing do it by themselves before they start.

exit code:
  0  the data set can be used (there may be warnings and notes)
  1  errors were found in it
  2  the command is wrong, or the folder does not exist
"""

from __future__ import annotations

import argparse
import sys

from _options import tool_parser

SPLITS = {
    'ade20k': ('training', 'validation'),
    'coco': ('train2017', 'val2017'),
    'imagenet': ('train', 'val'),
}


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = tool_parser(__doc__)
    parser.add_argument('dir', metavar='DIR', help='root folder of the data set')
    parser.add_argument('--dataset', required=True, choices=tuple(SPLITS), help='its layout')
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
    args = parser.parse_args(argv)
    for split in args.split or ():
        if split not in SPLITS[args.dataset]:
            parser.error(f'--split: {split!r} is not one of {", ".join(SPLITS[args.dataset])}')
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
    args = parse_args(argv)
    from tqdm import tqdm

    from cb_mm.datasets.checks.registry import check
    from cb_mm.errors import exit_code

    usable = True

    def job() -> None:
        nonlocal usable
        options = {'num_classes': args.num_classes} if args.num_classes else {}
        report = check(
            args.dataset,
            args.dir,
            quick=args.quick,
            splits=args.split or SPLITS[args.dataset],
            # disable=None: no bar where the output is not a terminal
            progress=lambda jobs, n: tqdm(jobs, 'reading', total=n, leave=False, disable=None),
            workers=args.workers,
            **options,
        )
        usable = report.ok
        print(report.text(args.examples))
        if args.json:
            report.write_json(args.json)
            print(f'everything is in {args.json}')

    return exit_code(job) or (0 if usable else 1)


if __name__ == '__main__':
    sys.exit(main())
