"""Options shared by the command lines of all studies; imports little, for a quick ``--help``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parent.parent
#: Real images and weights, if they are next to the repository.
BESIDE = BENCHMARKS.parent.parent / 'shared'


def study_parser(text: str, name: str) -> argparse.ArgumentParser:
    """Make a parser with this help text, and the folder options of a study of that name."""
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
    """Add the option for the weights that a backbone starts from."""
    parser.add_argument(
        '--weights', type=Path, metavar='FILE', help='ImageNet weights of a plain ViT-Ti/16',
        default=BESIDE / 'weights/vit_tiny_patch16_224_in1k.safetensors',
    )  # fmt: skip


def parse_counts(
    parser: argparse.ArgumentParser, argv: list[str] | None, counts: Iterable[str]
) -> argparse.Namespace:
    """Parse the arguments; the options listed as counts must be at least 1."""
    args = parser.parse_args(argv)
    for name in counts:
        if getattr(args, name) < 1:
            parser.error(f'--{name.replace("_", "-")} must be at least 1')
    return args
