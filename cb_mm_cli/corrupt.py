"""Draw a contact sheet of corruptions: one row per corruption, one column per severity.

Examples:
  python tools/corrupt.py street.jpg                          # all corruptions, severities 1-5
  python tools/corrupt.py street.jpg --corruption frost snow  # these two
  python tools/corrupt.py street.jpg --severity 3             # all, at one severity
  python tools/corrupt.py street.jpg --corruption gaussian_noise=5,10 gaussian_blur=1,2 --detail
  python tools/corrupt.py *.jpg --suite table9 --out sheets   # one sheet per image
  python tools/corrupt.py *.jpg --suite table9 --out sheets --format pdf

The noise is that of testing with the same seed. Corruptions work on the whole image; the pictures
of the sheet are then made smaller, which hides noise: --detail shows the middle pixel by pixel.
The ice of frost is drawn, not photographed as in ImageNet-C; --frost-pictures takes photographs.
"""

from __future__ import annotations

import argparse

from .options import in_options, tool_parser

#: Endings of a file; anything else is a folder.
FILES = ('.png', '.svg', '.pdf')


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = tool_parser(__doc__)
    parser.add_argument('images', nargs='+', metavar='IMAGE', help='image files')
    parser.add_argument(
        '--corruption',
        nargs='+',
        default=[],
        metavar='NAME[=LEVEL,...]',
        help='what to draw, with levels in the unit of the corruption (all, at their severities)',
    )
    parser.add_argument(
        '--severity', type=int, metavar='1-5', help='for corruptions without a level (all five)'
    )
    parser.add_argument(
        '--frost-pictures', metavar='DIR', help='photographs of frost, in place of drawn ice'
    )
    parser.add_argument('--suite', metavar='NAME', help='draw a suite: table9, imagenet-c')
    parser.add_argument(
        '--out',
        metavar='PATH',
        help='a .png, .svg or .pdf file for one image, a folder for several '
        '(IMAGE_corruptions.png, here)',
    )
    parser.add_argument(
        '--format',
        choices=('png', 'svg', 'pdf'),
        help='of the sheets in a folder (png); a file is what its name says',
    )
    parser.add_argument('--seed', type=int, default=0, metavar='N', help='seed of the noise (0)')
    parser.add_argument(
        '--width', type=int, default=240, metavar='PX', help='width of one picture (240)'
    )
    parser.add_argument('--detail', action='store_true', help='the middle of the image, unscaled')
    args = parser.parse_args(argv)
    if args.width < 32:
        parser.error('--width must be at least 32')
    if args.out and args.out.lower().endswith(FILES) and len(args.images) > 1:
        parser.error('--out: several images need a folder, not a file')
    if args.out and args.out.lower().endswith(FILES) and args.format:
        parser.error('--format: the name of --out says it already')
    return args


def run(args: argparse.Namespace) -> None:
    """Draw and write one sheet for every image."""
    from pathlib import Path

    from cb_mm.corruption import CORRUPTIONS, cells_for
    from cb_mm.corruption.contact_sheet import write_contact_sheet

    named = args.corruption or ([] if args.suite else list(CORRUPTIONS))
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
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args), in_options)
