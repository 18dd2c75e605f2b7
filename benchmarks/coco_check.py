"""Does the Mask R-CNN recipe train on real images? A check on a few COCO images, not a result.

`configs/mask_rcnn_vit_ti.py` and `mask_rcnn_vit_ti_cb.py` start from the ImageNet weights of a
plain ViT-Ti and train on a small part of COCO in its own layout, on images with a short side of
320. It passes if, for both, the loss of the last twenty iterations is below two thirds of that of
the first twenty. A hundred iterations on a few images do not say which is better.

Examples:
  python benchmarks/coco_check.py --coco data/coco_mini --weights vit_tiny.safetensors
  python benchmarks/coco_check.py --epochs 3 --work work_dirs/longer --out longer

Run again after a kill, it continues where it stopped. Writes coco_check.json and .md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from parts.options import BENCHMARKS, BESIDE, add_weights, parse_counts, study_parser

MODELS = {'none': 'mask_rcnn_vit_ti', 'CB': 'mask_rcnn_vit_ti_cb'}
COUNTED = 20  # iterations at either end


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = study_parser(__doc__, 'coco_check')
    add_weights(parser)
    add = parser.add_argument
    add('--coco', type=Path, default=BESIDE / 'data/coco_mini', metavar='DIR',
        help='a part of COCO 2017, in its layout')  # fmt: skip
    add('--epochs', type=int, default=1, metavar='N', help='training epochs (1)')
    return parse_counts(parser, argv, ['epochs'])


def write_config(file: Path, name: str, epochs: int) -> None:
    """Write the recipe with smaller images and a shorter schedule; nothing else changes."""
    from mmengine.config import Config

    from cb_mm.fileio.atomic import write_atomically

    config = Config.fromfile(BENCHMARKS.parent / 'configs' / f'{name}.py')
    resize = dict(type='Resize', scale=(533, 320), keep_ratio=True)
    load, annotations, flip, _, pack = config.train_dataloader.dataset.pipeline
    config.train_dataloader.dataset.pipeline = [load, annotations, flip, resize, pack]
    for loader in (config.val_dataloader, config.test_dataloader):
        loader.dataset.pipeline[1] = resize
    for loader in (config.train_dataloader, config.val_dataloader, config.test_dataloader):
        loader.update(num_workers=0, persistent_workers=False)
    warm_up, steps = config.param_scheduler
    warm_up.end = 50
    steps.update(milestones=[max(epochs - 1, 1)], end=epochs)
    config.train_cfg.update(max_epochs=epochs, val_interval=epochs)
    config.default_hooks.logger.interval = 1
    config.default_hooks.checkpoint.save_best = None
    write_atomically(file, config.pretty_text)


def check(args: argparse.Namespace) -> str:
    """Train both and return the table."""
    from parts.markdown import table
    from parts.records import Records
    from parts.tool_call import call_tool
    from parts.training_log import scalars

    from cb_mm.errors import UserError
    from cb_mm.fileio.atomic import write_atomically

    for path in (args.coco / 'annotations' / 'instances_train2017.json', args.weights):
        if not path.is_file():
            raise UserError(f'there is no file {path}. See --coco and --weights.')
    records = Records(args.out / 'coco_check.json', {'epochs': args.epochs})
    for model, name in MODELS.items():
        if model in records.runs:
            continue
        folder = (args.work / name).resolve()
        file = folder / 'config.py'
        if not file.is_file():
            write_config(file, name, args.epochs)
        if not (folder / f'epoch_{args.epochs}.pth').is_file():
            call_tool(
                'train.py', file, '--data-root', args.coco.resolve(), '--work-dir', folder,
                '--init', args.weights.resolve(), '--normalization', 'half', '--resume',
                '--allow-broadcast-mismatch', log=folder / 'log.txt',
            )  # fmt: skip
        records.add(model, summary(scalars(folder)))
        print(f'{model}: done', flush=True)
    rows = [
        [model, f'{run["iterations"]}', f'{run["loss"][0]:.2f}', f'{run["loss"][1]:.2f}',
         *(f'{run["AP50"][kind]:.3f}' for kind in ('box', 'mask')),
         'yes' if run['loss'][1] < run['loss'][0] * 2 / 3 else 'NO']
        for model, run in records.runs.items()
    ]  # fmt: skip
    head = ['model', 'iterations', 'loss, first 20', 'loss, last 20', 'AP50 box', 'AP50 mask']
    text = table([*head, 'trains'], rows) + '\n'
    write_atomically(args.out / 'coco_check.md', text)
    return text


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the loss at both ends and the final scores, from a training log."""
    losses = dict(sorted((line['step'], line['loss']) for line in lines if 'loss' in line))
    values = list(losses.values())
    scores = [line for line in lines if 'coco/bbox_mAP_50' in line][-1]
    return {
        'iterations': len(values),
        'loss': [sum(part) / len(part) for part in (values[:COUNTED], values[-COUNTED:])],
        'AP50': {'box': scores['coco/bbox_mAP_50'], 'mask': scores['coco/segm_mAP_50']},
    }


def main(argv: list[str] | None = None) -> int:
    """Run the check."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: print(check(args)))


if __name__ == '__main__':
    sys.exit(main())
