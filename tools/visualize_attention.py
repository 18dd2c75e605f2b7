r"""Draw the attention of a model over images, and write a page to explore it by hand.

Examples:
  # the class token's attention in every head of the last layer, and all layers in small
  python tools/visualize_attention.py configs/upernet_vit_s.py upernet_vit_s.pth street.jpg

  # with and without CB, the patch at x = 320, y = 200, the weaker part of each map left out
  python tools/visualize_attention.py configs/upernet_vit_s.py upernet_vit_s.pth street.jpg \
      --compare configs/upernet_vit_s_cb.py upernet_vit_s_cb.pth --query 320,200 --threshold 0.2

  # one HTML file to click through, for a ViT from timm with weights from a file
  python tools/visualize_attention.py vit_tiny_patch16_224 vit_tiny.safetensors street.jpg \
      --size 224 --html

CONFIG is the config of a segmentor or detector, with the CHECKPOINT that was trained with it; or
the name of a ViT in timm, with its weights. For every image there are, in the folder of --out:
IMAGE_heads_layerN (a row a model, a column a head), IMAGE_grid (all layers and heads),
IMAGE_overlay_layerN (mean of the heads, at the image's own size), IMAGE.json and IMAGE.csv with
the numbers, and IMAGE.html with --html.
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


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument('config', metavar='CONFIG', help='config file, or name of a timm ViT')
    parser.add_argument('checkpoint', metavar='CHECKPOINT', help='its weights')
    parser.add_argument('images', nargs='+', metavar='IMAGE', help='image files or folders')
    parser.add_argument(
        '--compare',
        nargs=2,
        metavar=('CONFIG', 'CHECKPOINT'),
        help='a second model, shown beside the first',
    )
    parser.add_argument(
        '--names', nargs='+', metavar='NAME', help='what to call the models (after their configs)'
    )
    parser.add_argument(
        '--layers',
        nargs='+',
        type=int,
        metavar='N',
        help='layers from 0, -1 is the last (grid and page: all; other figures: the last)',
    )
    parser.add_argument('--heads', nargs='+', type=int, metavar='N', help='heads from 0 (all)')
    parser.add_argument(
        '--query',
        default='cls',
        metavar='cls|mean|X,Y',
        help='whose attention: class token, mean of all patches, or the patch at this pixel (cls)',
    )
    parser.add_argument(
        '--threshold',
        type=float,
        default=0.0,
        metavar='Q',
        help='do not draw what is below Q; every map goes from 0 to 1 (0)',
    )
    parser.add_argument(
        '--opacity', type=float, default=0.7, metavar='O', help='of the map over the image (0.7)'
    )
    parser.add_argument('--html', action='store_true', help='write a page to explore by hand')
    parser.add_argument(
        '--size', type=size, metavar='N|HxW', help="resize every image (each image's own size)"
    )
    parser.add_argument(
        '--format',
        nargs='+',
        choices=('png', 'svg', 'pdf'),
        default=['png', 'svg'],
        help='of the figures (png svg)',
    )
    parser.add_argument('--out', default='attention', metavar='DIR', help='folder (attention)')
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
    return args


def run(args: argparse.Namespace) -> None:
    """Draw, and print the files."""
    from pathlib import Path

    from cb_mm import safe_config
    from cb_mm.attention.analysis import ModelChoice
    from cb_mm.attention.visualization import VisualizationOptions, visualize

    if args.safe_config:
        safe_config.enable()
    choices = [(args.config, args.checkpoint), *([args.compare] if args.compare else [])]
    names = args.names or [None] * len(choices)
    models = [ModelChoice(*choice, name) for choice, name in zip(choices, names, strict=True)]
    written = visualize(
        VisualizationOptions(
            models,
            args.images,
            Path(args.out),
            layers=args.layers,
            heads=args.heads,
            query=args.query,
            threshold=args.threshold,
            opacity=args.opacity,
            html=args.html,
            size=args.size,
            formats=args.format,
            device=args.device,
            trust=args.trust_checkpoint,
        )
    )
    for path in written:
        print(path)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 when all is well, 2 when the user must mend something."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    try:
        return exit_code(lambda: run(args))
    except KeyboardInterrupt:
        print(f'stopped; what was drawn is in {args.out}', file=sys.stderr)
        return 130


if __name__ == '__main__':
    sys.exit(main())
