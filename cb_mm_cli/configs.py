"""List the recipes, copy one to change it, or print where they are.

Examples:
  cb-mm configs                                   # all recipes, with the paper's scores
  cb-mm configs mask_rcnn                         # those whose names contain this
  cb-mm configs modern                            # those of a folder
  cb-mm configs copy upernet_vit_s_cb my.py       # a short file that inherits from the recipe
  cb-mm configs copy upernet_vit_s_cb my.py --flat   # one file with everything in it
  cb-mm configs copy my.py flat.py --flat         # the same of a config of yours
  cb-mm configs path                              # the folder of the recipes
  cb-mm train upernet_vit_s_cb ...                # no copy needed: a name will do

A config that inherits works in cb-mm and in "cb-mm upstream"; a flat one also in mmseg's and
mmdet's own tools, as does one whose base is named by mmengine's syntax for environment variables:
  export CB_MM_CONFIGS=$(cb-mm configs path)      # _base_ = ['{{$CB_MM_CONFIGS:}}/NAME.py']
Scores are the paper's, in per cent; we did not measure them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .options import in_options, tool_parser

_INHERITING = '''"""{what}. Change here what should differ.

    cb-mm train {file}
"""

_base_ = ['cb_mm::{name}.py']
'''


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line; ``copy`` is a word of its own, anything else a part of a name."""
    words = list(argv or ())
    copying = words[:1] == ['copy']
    parser = tool_parser(__doc__)
    add = parser.add_argument
    if copying:
        parser.usage = '%(prog)s copy RECIPE FILE [--flat] [--force]'
        add('recipe', metavar='RECIPE', help='its name; with --flat also a config file')
        add('file', metavar='FILE', help='.py file to write')
        add('--flat', action='store_true', help='with everything in it, without a base')
        add('--force', action='store_true', help='replace a file that is there')
    else:
        parser.usage = '%(prog)s [TEXT] | path | copy RECIPE FILE [--flat] [--force]'
        add('text', nargs='?', default='', metavar='TEXT', help='part of a name, or a folder')
    args = parser.parse_args(words[1:] if copying else words)
    if copying and not args.file.endswith('.py'):
        parser.error(f'{args.file}: a config must end with .py')
    return args


def list_recipes(text: str) -> None:
    """Print a table: name, what it is, and the paper's score by schedule."""
    from cb_mm.config.recipes import recipes
    from cb_mm.errors import UserError, did_you_mean

    named = [one for one in recipes() if text in one.name]
    shown = named or [one for one in recipes() if text == one.file.parent.name]
    if not shown:
        near = did_you_mean(text, [one.name for one in recipes()])
        raise UserError(f'no recipe has "{text}" in its name.{near} "cb-mm configs" lists all.')
    name_width = max(len(one.name) for one in shown)
    what_width = max(len(one.what) for one in shown)
    print(f"{'recipe':<{name_width}}  {'what it trains':<{what_width}}  the paper's score")
    for one in shown:
        scores = '; '.join(
            f'{score} ({schedule})' if schedule and len(one.paper) > 1 else score
            for schedule, score in one.paper.items()
        )
        print(f'{one.name:<{name_width}}  {one.what:<{what_width}}  {scores or "–"}')


def copy_recipe(args: argparse.Namespace) -> None:
    """Write a recipe to a file, whole or as a base."""
    from cb_mm.config.loading import load_config
    from cb_mm.config.recipes import files, recipes
    from cb_mm.errors import UserError, did_you_mean
    from cb_mm.fileio.atomic import write_atomically

    name, own = args.recipe.removesuffix('.py'), args.flat and Path(args.recipe).is_file()
    if not own and name not in files():
        raise UserError(
            f'there is no recipe {name}.{did_you_mean(name, files())} "cb-mm configs" lists them.'
        )
    file = Path(args.file)
    if file.exists() and not args.force:
        raise UserError(f'{file} is there already. Pass --force to replace it.')
    if args.flat:
        text = load_config(args.recipe if own else name).pretty_text
    else:
        what = next(one.what for one in recipes() if one.name == name)
        text = _INHERITING.format(what=what, name=name, file=file)
    write_atomically(file, text.encode())
    print(f'written: {file}')


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 when all is well, 2 when the user must fix something."""
    args = parse(argv)
    from cb_mm.errors import exit_code

    def job() -> None:
        if 'recipe' in args:
            copy_recipe(args)
        elif args.text == 'path':
            from cb_mm.config.recipes import folder

            print(folder())
        else:
            list_recipes(args.text)

    return exit_code(job, in_options)
