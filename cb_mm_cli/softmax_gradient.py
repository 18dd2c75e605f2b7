r"""Measure how steep softmax is on the attention rows of a model, by layer (the paper's Figure 5).

Examples:
  python tools/softmax_gradient.py configs/upernet_vit_s.py upernet_vit_s.pth val/ --size 224
  python tools/softmax_gradient.py vit_tiny_patch16_224 vit_tiny.safetensors images/ \
      --compare deit_tiny_patch16_224 deit_tiny.safetensors --limit 50

In the folder of --out: softmax_gradient.json, and the figure: nuclear norm of the gradient against
the distance from uniform attention, per head, and by depth.
"""

from __future__ import annotations

import argparse

from .options import add_attention_models, api_parser, attention_args, count, in_options


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = api_parser(__doc__)
    add_attention_models(parser, 'IMAGES', 'measured on the same images')
    parser.add_argument('--limit', type=count, metavar='N', help='the first N images (all)')
    return attention_args(parser, argv)


def run(args: argparse.Namespace) -> None:
    """Measure, and print the mean norm of every layer."""
    from cb_mm.apis import softmax_gradient

    options = dict(vars(args))
    for model in softmax_gradient(options.pop('config'), **options, verbose=True):
        means = ' '.join(f'{value:.3f}' for value in model.norm.mean(axis=1))
        print(f'{model.name}: nuclear norm by layer {means} (uniform {1 - 1 / model.tokens:.3f})')
    print(f'written to {args.out}')


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 when all is well, 2 when the user must fix something."""
    args = parse(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args), in_options)
