"""Draw sparse attention patterns: who attends to whom, and what one patch attends to.

Examples:
  python tools/draw_patterns.py                                     # all seven, 14 x 14 patches
  python tools/draw_patterns.py R+W+G --grid 32 48 --block 8        # one, on another grid
  python tools/draw_patterns.py W --block 1 --layout sequence --window 5
  python tools/draw_patterns.py R --random 2 --seed 7 --out r.png

The patterns are those of ViTCB(attention=...): R random, W window, G global, and their sums. The
class token is drawn as the first row and column; it is always global.
"""

from __future__ import annotations

import argparse

from .options import in_options, tool_parser

COMBINATIONS = ('R', 'W', 'G', 'R+W', 'W+G', 'R+G', 'R+W+G')


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = tool_parser(__doc__)
    parser.add_argument('patterns', nargs='*', metavar='PATTERN', help=' '.join(COMBINATIONS))
    parser.add_argument(
        '--grid', type=int, nargs=2, default=(14, 14), metavar=('ROWS', 'COLUMNS'), help='(14 14)'
    )
    parser.add_argument('--prefix', type=int, default=1, metavar='N', help='prefix tokens (1)')
    parser.add_argument('--random', type=int, metavar='N', help='random blocks per block (3)')
    parser.add_argument('--window', type=int, metavar='N', help='blocks across, odd (3)')
    parser.add_argument('--global-tokens', type=int, metavar='N', help='global patches (16)')
    parser.add_argument('--block', type=int, metavar='N', help='side of a block in patches (4)')
    parser.add_argument('--layout', metavar='NAME', help='grid or sequence (grid)')
    parser.add_argument('--seed', type=int, metavar='N', help='of the random blocks (0)')
    parser.add_argument(
        '--out', default='patterns.png', metavar='FILE', help='.png, .svg or .pdf (patterns.png)'
    )
    args = parser.parse_args(argv)
    if min(*args.grid) < 1 or args.prefix < 0:
        parser.error('--grid is at least 1 1, --prefix at least 0')
    if not args.out.lower().endswith(('.png', '.svg', '.pdf')):
        parser.error('--out must end with .png, .svg or .pdf')
    return args


def run(args: argparse.Namespace) -> None:
    """Draw and write."""
    import dataclasses

    from cb_mm.attention.pattern_figures import draw_patterns
    from cb_mm.fileio.atomic import write_atomically
    from cb_mm.fileio.figures import figure_bytes
    from cb_mm.models.attention.sparse_pattern import SparsePattern

    names = ('random', 'window', 'global_tokens', 'block', 'layout', 'seed')
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    patterns = {}
    for title in args.patterns or COMBINATIONS:
        pattern = SparsePattern.read(title)
        # A size that is given does not bring back a part that the name leaves out.
        parts = {key: value for key, value in given.items() if getattr(pattern, key) != 0
                 or key in ('layout', 'seed')}  # fmt: skip
        patterns[title] = dataclasses.replace(pattern, **parts)
    figure = draw_patterns(patterns, tuple(args.grid), args.prefix)
    kind = args.out.rpartition('.')[2].lower()
    write_atomically(args.out, figure_bytes(figure, kind, dpi=100))
    print(f'wrote {args.out}')


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 when all is well, 2 when the user must fix something."""
    args = parse(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args), in_options)
