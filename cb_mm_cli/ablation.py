"""Run an ablation of the paper: train every row, and print its table beside ours.

Examples:
  python tools/ablation.py table4 --data-root /data/imagenet           # ImageNet, 300 epochs a row
  python tools/ablation.py table4 --commands                           # only print the commands
  python tools/ablation.py table3 --config configs/cifar100/cifar100_vit_s.py --epochs 10
  python tools/ablation.py table1 --rows "ViT-S" "(C)" --format csv

The same command again skips finished rows and resumes the one that was stopped. Each row has a
folder in --work-dir, and the table is there as Markdown, CSV and JSON.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence

from .options import (
    add_cfg_options,
    add_running,
    add_trust_checkpoint,
    api_parser,
    count,
    in_options,
)

NAMES = (
    'table1', 'table2', 'table3', 'table4', 'table_s16', 'table_s17', 'figure9', 'figure3',
)  # fmt: skip


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the options; nothing heavy is imported before they are valid."""
    parser = api_parser(__doc__)
    add = parser.add_argument
    add('name', choices=NAMES, metavar='NAME', help=' '.join(NAMES))
    add('--config', metavar='CONFIG', help="a classification config with a ViTCB, for all rows "
        "(default: each row's ImageNet recipe)")  # fmt: skip
    add('--rows', nargs='+', metavar='LABEL', help='only these rows (all)')
    add('--commands', action='store_true', default=False, help='print the full-scale command of '
        'every row, and train nothing')  # fmt: skip
    add('--iters', type=count, metavar='N', help='train for N iterations, if the config counts '
        'them; the schedule is scaled')  # fmt: skip
    add('--epochs', type=count, metavar='N', help='the same, where the config counts epochs')
    add('--work-dir', metavar='DIR', help='where results go (default: work_dirs/ablation_NAME)')
    add('--format', choices=['markdown', 'csv', 'json'], default='markdown',
        help='of the printed table (markdown)')  # fmt: skip
    add('--seed', type=int, metavar='N', help="seed of everything random (default: the config's)")
    add_running(parser, 'tf32 on GPUs that have it, fp32 elsewhere')
    add_cfg_options(parser, 'train_dataloader.batch_size=4')
    add_trust_checkpoint(parser)
    return parser.parse_args(argv)


def command(recipe: str, options: Sequence[str], data_root: str = 'DIR') -> str:
    """Return the full-scale command of a row; ``recipe`` is a name or the file of a config."""
    config = recipe if recipe.endswith('.py') else f'configs/imagenet/{recipe}.py'
    words = ['python', 'tools/train.py', config, '--data-root', data_root]
    return shlex.join([*words, *(['--cfg-options', *options] if options else [])])


def run(options: dict) -> None:
    """Print the commands, or train and print the table."""
    form, only_commands = options.pop('format'), options.pop('commands')
    if only_commands:
        from cb_mm.apis.ablations import chosen_rows, row_changes

        config, name = options.get('config'), options['name']
        for row in chosen_rows(name, options.get('rows')):
            changes = row_changes(name, row, config is not None)
            changes += options.get('cfg_options', ())
            print(command(config or row.recipe, changes, options.get('data_root') or 'DIR'))
        return
    from cb_mm.apis import run_ablation

    print(getattr(run_ablation(**options), form)(), end='')


def main(argv: list[str] | None = None) -> int:
    """Parse, call the library, return the exit code."""
    options = vars(parse(argv))
    os.environ.setdefault('LOCAL_RANK', str(options.pop('local_rank')))
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(options), in_options)
