"""Train a model from a config.

Examples:
  python tools/train.py configs/upernet_vit_s_cb.py --init deit_small.pth
  python tools/train.py configs/upernet_vit_s_cb.py --schedule 40k --data-root /data/ade20k
  python tools/train.py configs/upernet_vit_s_cb.py --resume
  torchrun --nproc_per_node=8 tools/train.py configs/upernet_vit_s_cb.py --launcher pytorch
"""

from __future__ import annotations

import argparse
import os
import sys


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The options; nothing heavy is imported before they are right."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add('config', metavar='CONFIG', help='config file')
    add('--schedule', metavar='NAME', help='a schedule of the config: 40k or 160k for UperNet')
    add('--data-root', metavar='DIR', help="folder of the data set, instead of the config's")
    add('--init', metavar='WEIGHTS', help='start the backbone from this file (.pth, .safetensors, '
        '.npz, of any ViT layout) or timm model name')  # fmt: skip
    add('--work-dir', metavar='DIR', help='where results go (default: work_dirs/CONFIG_SCHEDULE)')
    add('--resume', nargs='?', const='auto', metavar='CKPT', help='go on from this checkpoint, or '
        'from the last whole one in the work directory')  # fmt: skip
    add('--amp', action='store_true', help='mixed precision: float16 on GPU, bfloat16 on CPU')
    add('--channels-last', action='store_true', help='the memory format that most convolutions '
        'prefer; same result')  # fmt: skip
    add('--compile', action='store_true', help='torch.compile for backbone, neck and heads: '
        'minutes at the start, less later; same result')  # fmt: skip
    add('--auto-scale-lr', action='store_true', help="scale the lr by batch / recipe's batch")
    add('--seed', type=int, metavar='N', help="seed of everything random (default: the config's)")
    add('--logger', choices=['tensorboard', 'wandb'], help='log there too')
    add('--cfg-options', nargs='+', default=[], metavar='KEY=VALUE', help='change the config, such '
        'as train_dataloader.batch_size=4')  # fmt: skip
    add('--trust-checkpoint', action='store_true', help='open --init and --resume files that hold '
        'more than weights: they can run any code')  # fmt: skip
    add('--skip-broken', action='store_true', help='train without images and labels that cannot be '
        'used; they are listed at the end (default: stop at the first)')  # fmt: skip
    add('--skip-nan', action='store_true', help='leave out steps whose loss is NaN or infinite')
    add('--safe-config', action='store_true', help='refuse a config that holds more than data')
    add('--normalization', metavar='NAME', help='mean and std of the images: imagenet, half '
        '(127.5), clip, or weights to follow the weights')  # fmt: skip
    add('--allow-broadcast-mismatch', action='store_true', help='take weights that say '
        'that they were trained with another broadcast')  # fmt: skip
    add('--launcher', choices=['none', 'pytorch', 'slurm', 'mpi'], default='none',
        help='how the processes were started (default: none, one process)')  # fmt: skip
    add('--local_rank', '--local-rank', type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Parse, one library call, exit code."""
    options = vars(parse(argv))
    os.environ.setdefault('LOCAL_RANK', str(options.pop('local_rank')))

    from cb_mm.errors import exit_code
    from cb_mm.runner import TrainOptions, train

    return exit_code(lambda: train(TrainOptions(**options)))


if __name__ == '__main__':
    sys.exit(main())
