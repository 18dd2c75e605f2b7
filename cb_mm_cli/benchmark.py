"""Measure models: parameters, multiplications, latency, throughput, memory, training step.

    python tools/benchmark.py configs/upernet_vit_s_cb.py
    python tools/benchmark.py configs/upernet_vit_s_cb.py --against configs/upernet_vit_s.py
    python tools/benchmark.py my_config.py --size 512 512 --batch 2 --train --out results
    python tools/benchmark.py my_config.py --channels-last --precision bf16 --compile

All models run in turns, in one process, on random weights and made-up images, so that other load on
the machine affects all of them. Shown are medians and quartiles; ratios are to the first model, and
lower is better. --channels-last, --precision and --compile measure every model once more in each
way, and show by how much its logits then differ.

With --out the folder gets benchmark.json, benchmark.md, benchmark.png and benchmark.svg.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from .options import add_cfg_options, add_formats, api_parser, count, in_options


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = api_parser(__doc__)
    parser.add_argument('config', help='config file of the model')
    parser.add_argument(
        '--against', nargs='+', default=[], metavar='CONFIG', help='models to compare it with'
    )
    parser.add_argument(
        '--size',
        nargs=2,
        type=count,
        metavar=('H', 'W'),
        help='height and width of the images (512 512)',
    )
    parser.add_argument('--batch', type=count, metavar='N', help='images at once (1)')
    parser.add_argument('--repeats', type=count, metavar='N', help='turns (7)')
    parser.add_argument('--train', action='store_true', help='also measure a training step')
    parser.add_argument(
        '--channels-last', action='store_true', help='also with the channels-last memory format'
    )
    parser.add_argument(
        '--precision',
        nargs='+',
        choices=['fp32', 'tf32', 'bf16', 'fp16'],
        help='also in these precisions',
    )
    parser.add_argument('--bf16', action='store_true', help='short for --precision bf16')
    parser.add_argument('--compile', action='store_true', help='also under torch.compile')
    parser.add_argument('--threads', type=count, metavar='N', help='threads of torch (its default)')
    parser.add_argument('--out', metavar='DIR', help='folder for JSON, table and plot')
    add_formats(parser)
    add_cfg_options(parser, 'model.backbone.broadcast=cb_s')
    return parser.parse_args(argv)


def run(args: argparse.Namespace) -> None:
    """Measure, print, write."""
    from cb_mm.apis import benchmark

    options = vars(args)
    out, given = options.pop('out', None), {}
    if 'formats' in options:
        given['formats'] = options.pop('formats')
    configs = [options.pop('config'), *options.pop('against')]
    report = benchmark(configs, **options, verbose=True)
    print(report.table())
    for file in report.save(out, **given) if out else ():
        print(f'written: {file}')


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when all is well, 2 when the user must fix something."""
    args = parse(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args), in_options)
