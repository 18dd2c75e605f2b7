r"""Draw the attention of a model over images, and write a page to explore it interactively.

Examples:
  # the class token's attention in every head of the last layer, and all layers at a glance
  python tools/visualize_attention.py configs/upernet_vit_s.py upernet_vit_s.pth street.jpg

  # with and without CB, the patch at x = 320, y = 200, the weaker part of each map left out
  python tools/visualize_attention.py configs/upernet_vit_s.py upernet_vit_s.pth street.jpg \
      --compare configs/upernet_vit_s_cb.py upernet_vit_s_cb.pth --query 320,200 --threshold 0.2

  # one HTML file to click through, for a ViT from timm with weights from a file
  python tools/visualize_attention.py vit_tiny_patch16_224 vit_tiny.safetensors street.jpg \
      --size 224 --html

  # which patches the logits of two classes come from, and rollout of the class token
  python tools/visualize_attention.py configs/upernet_vit_s.py upernet_vit_s.pth street.jpg \
      --classes road sky --rollout --clip 99

CONFIG is the config of a segmentor or detector, with the CHECKPOINT that was trained with it; or
the name of a ViT in timm, with its weights. For every image there are, in the folder of --out:
IMAGE_heads_layerN (one row per model, one column per head), IMAGE_grid (all layers and heads),
IMAGE_overlay_layerN (mean of the heads, at the image's own size), IMAGE.json and IMAGE.csv with
the numbers, IMAGE_rollout and IMAGE_classes where they are asked for, and IMAGE.html with --html.
"""

from __future__ import annotations

import argparse
import sys

from .options import add_attention_models, api_parser, attention_args, in_options


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = api_parser(__doc__)
    add_attention_models(parser, 'IMAGE', 'shown beside the first')
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
        metavar='cls|mean|X,Y',
        help='whose attention: class token, mean of all patches, or the patch at this pixel (cls)',
    )
    parser.add_argument(
        '--threshold',
        type=float,
        metavar='Q',
        help='do not draw what is below Q; every map goes from 0 to 1 (0)',
    )
    parser.add_argument(
        '--opacity', type=float, metavar='O', help='of the strongest colour over the image (0.85)'
    )
    parser.add_argument(
        '--clip',
        type=float,
        metavar='P',
        help='percentile of a map that is drawn as 1, against single outliers (100: the largest)',
    )
    parser.add_argument(
        '--blend',
        choices=('value', 'flat'),
        help='opacity follows the value, or is the same everywhere (value)',
    )
    parser.add_argument(
        '--rollout', action='store_true', help='also draw attention rollout, through all layers'
    )
    parser.add_argument(
        '--classes',
        nargs='+',
        metavar='CLASS',
        help='names or numbers of segmentation classes: draw which patches their logits come from',
    )
    parser.add_argument('--html', action='store_true', help='write a page to explore interactively')
    return attention_args(parser, argv)


def run(args: argparse.Namespace) -> None:
    """Draw everything and print the files."""
    from cb_mm.apis import visualize_attention

    options = dict(vars(args))
    for path in visualize_attention(options.pop('config'), **options, verbose=True).paths:
        print(path)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 when all is well, 2 when the user must fix something."""
    args = parse(argv)
    from cb_mm.errors import exit_code

    try:
        return exit_code(lambda: run(args), in_options)
    except KeyboardInterrupt:
        print(f'stopped; what was drawn is in {args.out}', file=sys.stderr)
        return 130
