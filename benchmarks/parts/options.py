"""What the command lines of all studies have in common; light, for a quick ``--help``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parent.parent
#: Real images and weights, where they lie beside the repository.
BESIDE = BENCHMARKS.parent.parent / 'shared'


def study_parser(text: str, name: str) -> argparse.ArgumentParser:
    """A parser with the text as its help, and the folders of a study of that name."""
    parser = argparse.ArgumentParser(
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add('--work', type=Path, default=Path('work_dirs', name), metavar='DIR',
        help='checkpoints and logs')  # fmt: skip
    add('--out', type=Path, default=BENCHMARKS / 'results', metavar='DIR',
        help='folder of the results')  # fmt: skip
    return parser


def add_weights(parser: argparse.ArgumentParser) -> None:
    """Weights that a backbone starts from."""
    parser.add_argument(
        '--weights', type=Path, metavar='FILE', help='ImageNet weights of a plain ViT-Ti/16',
        default=BESIDE / 'weights/vit_tiny_patch16_224_in1k.safetensors',
    )  # fmt: skip


def parse_counts(
    parser: argparse.ArgumentParser, argv: list[str] | None, counts: Iterable[str]
) -> argparse.Namespace:
    """Parse; the options named as counts must be at least 1."""
    args = parser.parse_args(argv)
    for name in counts:
        if getattr(args, name) < 1:
            parser.error(f'--{name.replace("_", "-")} must be at least 1')
    return args
