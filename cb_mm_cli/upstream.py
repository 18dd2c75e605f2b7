"""Run a tool of mmseg, mmdet or mmpretrain as it is, with the recipes of cb_mm known by name.

Examples:
  cb-mm upstream mmseg train my_config.py --work-dir work
  cb-mm upstream mmdet test my_config.py work/epoch_12.pth
  cb-mm upstream mmdet train mask_rcnn_vit_ti_cb

my_config.py may then have a base such as _base_ = ['cb_mm::upernet_vit_s_cb.py'], which mmengine
on its own refuses: it knows this syntax for a fixed list of packages only. Its ignore_index reaches
heads, data sets and metrics, as in cb-mm train. All words after the name of the tool are its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import runpy
import sys
from pathlib import Path

from .options import in_options, tool_parser

PACKAGES = ('mmseg', 'mmdet', 'mmpretrain')


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line up to the words of the tool."""
    parser = tool_parser(__doc__)
    parser.add_argument('package', choices=PACKAGES, help='whose tool')
    parser.add_argument('tool', help='its name: train, test, ...')
    parser.add_argument('words', nargs=argparse.REMAINDER, help="the tool's own arguments")
    args = parser.parse_args(argv)
    spec = importlib.util.find_spec(args.package)
    if spec is None or spec.origin is None:
        parser.error(f'{args.package} is not installed')
    tools = Path(spec.origin).parent / '.mim' / 'tools'
    args.file = tools / f'{args.tool}.py'
    if not args.file.is_file():
        names = ', '.join(sorted(file.stem for file in tools.glob('*.py')))
        parser.error(f'{args.package} has no tool {args.tool}; it has: {names or "none"}')
    return args


def main(argv: list[str] | None = None) -> int:
    """Run the tool within this process; its errors are its own, ours have one message."""
    args = parse(argv)
    from cb_mm.config.ignore_index import followed_in_every_config
    from cb_mm.config.recipes import names_are_known, recipe_file
    from cb_mm.errors import exit_code

    def job() -> None:
        with names_are_known(), followed_in_every_config():
            runpy.run_path(str(args.file), run_name='__main__')

    words = list(args.words)
    if words and not Path(words[0]).exists():
        words[0] = str(recipe_file(words[0]) or words[0])
    before = sys.argv
    sys.argv = [str(args.file), *words]
    try:
        return exit_code(job, in_options)
    finally:
        sys.argv = before
