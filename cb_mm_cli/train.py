"""Train a model from a config.

Examples:
  python tools/train.py configs/upernet_vit_s_cb.py --init deit_small.pth
  python tools/train.py configs/upernet_vit_s_cb.py --schedule 40k --data-root /data/ade20k
  python tools/train.py configs/upernet_vit_s_cb.py --iters 4000    # all of it, 40 times shorter
  python tools/train.py configs/upernet_vit_s_cb.py --resume
  torchrun --nproc_per_node=8 tools/train.py configs/upernet_vit_s_cb.py --launcher pytorch

Ctrl-C, SIGTERM, SIGUSR1 and SIGHUP finish the iteration and save a checkpoint that --resume finds;
the exit code is 128 + the signal's number (130 for Ctrl-C, 143 for SIGTERM).
"""

from __future__ import annotations

import argparse
import os
import sys

from .options import (
    add_cfg_options,
    add_running,
    add_trust_checkpoint,
    api_parser,
    count,
    in_options,
)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the options; nothing heavy is imported before they are valid."""
    parser = api_parser(__doc__)
    add = parser.add_argument
    add('config', metavar='CONFIG', help='config file')
    add('--schedule', metavar='NAME', help='a schedule of the config: 40k or 160k for UperNet')
    add('--iters', type=count, metavar='N', help='train for N iterations: warm-up, decay, '
        'validation, logging and checkpoints are scaled with it')  # fmt: skip
    add('--epochs', type=count, metavar='N', help='the same, where the config counts epochs')
    add('--init', metavar='WEIGHTS', help='start the backbone from this file (.pth, .safetensors, '
        '.npz, of any ViT layout) or timm model name')  # fmt: skip
    add('--work-dir', metavar='DIR', help='where results go (default: work_dirs/CONFIG_SCHEDULE)')
    add('--resume', nargs='?', const='auto', metavar='CKPT', help='resume from this checkpoint, or '
        'from the last complete one in the work directory')  # fmt: skip
    add('--save-every', metavar='TIME', help='save by the clock too, such as 30min, 2h or 90s; one '
        'file, replaced each time')  # fmt: skip
    add('--auto-scale-lr', action='store_true', help="scale the lr by batch / recipe's batch")
    add('--seed', type=int, metavar='N', help="seed of everything random (default: the config's)")
    add('--logger', choices=['tensorboard', 'wandb'], help='log there too')
    add('--skip-broken', action='store_true', help='train without images and labels that cannot be '
        'used; they are listed at the end (default: stop at the first)')  # fmt: skip
    add('--skip-nan', action='store_true', help='skip steps whose loss is NaN or infinite')
    add_running(parser, 'tf32 on GPUs that have it, fp32 elsewhere')
    add_cfg_options(parser, 'train_dataloader.batch_size=4')
    add_trust_checkpoint(parser, '--init and --resume files')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Parse, call the library, return the exit code."""
    options = vars(parse(argv))
    os.environ.setdefault('LOCAL_RANK', str(options.pop('local_rank')))

    from cb_mm.apis import train
    from cb_mm.errors import exit_code

    try:
        return exit_code(lambda: train(**options, verbose=True), in_options)
    except KeyboardInterrupt:  # once training runs, Ctrl-C saves a checkpoint first
        print('stopped before training began; nothing was saved.', file=sys.stderr)
        return 130
