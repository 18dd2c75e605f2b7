"""Draw a contact sheet of corruptions, or write a corrupted copy of a data set.

Examples:
  python tools/corrupt.py street.jpg                          # all corruptions, severities 1-5
  python tools/corrupt.py street.jpg --corruption frost snow  # these two
  python tools/corrupt.py street.jpg --severity 3             # all, at one severity
  python tools/corrupt.py street.jpg --corruption gaussian_noise=5,10 gaussian_blur=1,2 --detail
  python tools/corrupt.py *.jpg --suite table9 --out sheets   # one sheet per image
  python tools/corrupt.py *.jpg --suite table9 --out sheets --format pdf
  python tools/corrupt.py --dataset CONFIG --suite cityscapes-c --out cityscapes_c --workers 8
  python tools/corrupt.py --dataset CONFIG --corruption fog --out DIR --format jpg --quality 85

The noise is that of testing with the same seed. Corruptions work on the whole image; the pictures
of the sheet are then made smaller, which hides noise: --detail shows the middle pixel by pixel.
The ice of frost is drawn, not photographed as in ImageNet-C; --frost-pictures takes photographs.

A copy has the images of the config's test set in OUT/CORRUPTION/SEVERITY/, with their own paths
and names, and links to the labels: test on it with --data-root OUT/CORRUPTION/SEVERITY. The same
command resumes; the files are the same for any number of --workers.
"""

from __future__ import annotations

import argparse
import sys

from .options import add_cfg_options, in_options, tool_parser

#: Endings of a file; anything else is a folder.
FILES = ('.png', '.svg', '.pdf')
#: Options of a copy alone -> their names in the library.
COPY = ('workers', 'limit', 'quality', 'data_root', 'test_set', 'cfg_options', 'safe_config')
SHEET_FORMATS, COPY_FORMATS = ('png', 'svg', 'pdf'), ('png', 'jpg')


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = tool_parser(__doc__)
    add = parser.add_argument
    add('images', nargs='*', metavar='IMAGE', help='image files, for contact sheets')
    add('--dataset', metavar='CONFIG', help='write a corrupted copy of the test set of this config')
    add('--corruption', nargs='+', default=[], dest='corruptions', metavar='NAME[=LEVEL,...]',
        help='what to draw, with levels in the unit of the corruption (a sheet: all, at their '
        'severities)')  # fmt: skip
    add('--severity', type=int, metavar='1-5', help='for corruptions without a level (all five)')
    add('--frost-pictures', metavar='DIR', help='photographs of frost, in place of drawn ice')
    add('--suite', metavar='NAME', help='table9, imagenet-c, cityscapes-c or coco-c')
    add('--out', metavar='PATH', help='a copy: its folder; sheets: a .png, .svg or .pdf file for '
        'one image, a folder for several (IMAGE_corruptions.png, here)')  # fmt: skip
    add('--format', choices=(*SHEET_FORMATS, 'jpg'), help='of the sheets in a folder: png, svg or '
        'pdf; of a copy: png, which keeps every pixel, or jpg (png)')  # fmt: skip
    add('--seed', type=int, default=0, metavar='N', help='seed of the noise (0)')
    add('--width', type=int, metavar='PX', help='a sheet: width of one picture (240)')
    add('--detail', action='store_true', help='a sheet: the middle of the image, unscaled')
    add('--quality', type=int, metavar='1-100', help="a copy: of jpg (85, as ImageNet-C's files)")
    add('--workers', type=int, metavar='N', help='a copy: processes that write (0: this one)')
    add('--limit', type=int, metavar='N', help='a copy: only the first N images')
    add('--data-root', metavar='DIR', help="a copy: folder of the data set, not the config's")
    add('--test-set', metavar='NAME', help='a copy: another test set of the config')
    add_cfg_options(parser, 'test_dataloader.dataset.img_suffix=.png')
    args = parser.parse_args(argv)
    if bool(args.images) == bool(args.dataset):
        parser.error('give image files for contact sheets, or --dataset for a copy')
    (_check_copy if args.dataset else _check_sheets)(parser, args)
    return args


def _check_copy(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    if not args.out:
        parser.error('--out is missing: the folder for the copy')
    if args.width is not None or args.detail:
        parser.error('--width and --detail are for contact sheets')
    if args.format not in (None, *COPY_FORMATS):
        parser.error('--format: a copy is png or jpg')


def _check_sheets(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    for name in COPY:
        if getattr(args, name):
            parser.error(f'--{name.replace("_", "-")} is for a copy (--dataset)')
    if args.format not in (None, *SHEET_FORMATS):
        parser.error('--format: a sheet is png, svg or pdf')
    args.width = 240 if args.width is None else args.width
    if args.width < 32:
        parser.error('--width must be at least 32')
    if args.out and args.out.lower().endswith(FILES) and len(args.images) > 1:
        parser.error('--out: several images need a folder, not a file')
    if args.out and args.out.lower().endswith(FILES) and args.format:
        parser.error('--format: the name of --out says it already')


def copy(args: argparse.Namespace) -> None:
    """Write a corrupted copy of a data set."""
    from cb_mm.apis import corrupt_dataset

    names = ('suite', 'corruptions', 'severity', 'seed', 'frost_pictures', 'format', *COPY)
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    corrupt_dataset(args.dataset, args.out, **given, verbose=True)


def draw(args: argparse.Namespace) -> None:
    """Draw and write one sheet for every image."""
    from pathlib import Path

    from cb_mm.corruption import CORRUPTIONS, cells_for
    from cb_mm.corruption.contact_sheet import write_contact_sheet

    named = args.corruptions or ([] if args.suite else list(CORRUPTIONS))
    cells = cells_for(args.suite, named, args.severity)
    for image in args.images:
        out = Path(args.out or '.')
        if out.suffix.lower() not in FILES:
            out = out / f'{Path(image).stem}_corruptions.{args.format or "png"}'
        write_contact_sheet(
            out,
            image,
            cells,
            seed=args.seed,
            width=args.width,
            detail=args.detail,
            frost_pictures=args.frost_pictures,
        )
        print(out)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 when all is well, 2 when the user must fix something."""
    args = parse(argv)
    from cb_mm.engine.signals import Stopped, signal_name
    from cb_mm.errors import exit_code

    try:
        return exit_code(lambda: (copy if args.dataset else draw)(args), in_options)
    except Stopped as stop:
        name = signal_name(stop.code - 128)
        print(f'stopped by {name}: what is written is kept; the same command resumes.',
              file=sys.stderr)  # fmt: skip
        return stop.code
