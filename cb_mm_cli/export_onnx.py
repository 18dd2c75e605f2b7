r"""Export a trained segmentor to ONNX, for any batch and image size, and check it.

    python tools/export_onnx.py configs/upernet_vit_s_cb.py work_dirs/upernet_vit_s_cb/best.pth \
        --out vit_s_cb.onnx

The input `images` is float32 (batch, 3, height, width), normalised as in training; the numbers
are in the file's metadata. The output `logits` is (batch, classes, height, width). The file is
written only if onnxruntime gives the same logits as torch at two sizes.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from .options import add_cfg_options, add_matching, add_trust_checkpoint, api_parser, in_options


def size(text: str) -> tuple[int, int]:
    """Parse HEIGHTxWIDTH, both positive."""
    match = re.fullmatch(r'([1-9]\d*)x([1-9]\d*)', text)
    if not match:
        raise argparse.ArgumentTypeError(f'{text!r} is not HEIGHTxWIDTH, such as 512x640')
    return int(match[1]), int(match[2])


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = api_parser(__doc__)
    parser.add_argument('config', help='config file of a segmentor')
    parser.add_argument('checkpoint', help='its trained weights')
    parser.add_argument('--out', required=True, help='ONNX file to write')
    parser.add_argument(
        '--check-sizes',
        nargs='+',
        type=size,
        metavar='HxW',
        help='image sizes to check at (default: 256x256 200x328)',
    )
    parser.add_argument(
        '--tolerance',
        type=float,
        help='accepted difference, as a share of the largest logit (default: 0.0001)',
    )
    add_matching(parser)
    add_cfg_options(parser, 'model.decode_head.num_classes=11')
    add_trust_checkpoint(parser)
    return parser.parse_args(argv)


def run(args: argparse.Namespace) -> None:
    """Export, and print the differences."""
    from cb_mm.apis import export_onnx

    options = vars(args)
    written = export_onnx(options.pop('config'), **options, verbose=True)
    for (height, width), found in written.differences.items():
        share = f'{found.relative:.1e} of the largest logit'
        print(f'{height}x{width}: largest difference to torch {found.largest:.2e}, {share}')
    print(f'written: {written.file}')


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when all is well, 2 when the user must fix something."""
    args = parse(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args), in_options)
