"""Can Mask R-CNN memorise eight images? A check that detection trains, not a result.

    python benchmarks/overfit_mask_rcnn.py [--epochs 150] [--out DIR]

Trains `configs/demo/demo_mask_rcnn_vit_ti_cb.py` from random weights on eight scenes and tests it
on the same eight. It passes when box and mask AP50 are above 0.5.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from parts.training_log import scalars

from cb_mm.datasets import write_scenes

REPO = Path(__file__).resolve().parent.parent


def main() -> int:
    """Train, read the last scores from the log, and compare them with the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument('--epochs', type=int, default=150)
    parser.add_argument('--out', type=Path, default=Path('work_dirs/overfit_mask_rcnn'))
    args = parser.parse_args()
    data = write_scenes(args.out / 'scenes', train=8, val=1).coco
    steps = [int(args.epochs * share) for share in (0.8, 0.95)]
    options = {
        'train_cfg.max_epochs': args.epochs,
        'train_cfg.val_interval': args.epochs,
        'param_scheduler.1.milestones': f'[{steps[0]},{steps[1]}]',
        'param_scheduler.1.end': args.epochs,
        'default_hooks.checkpoint.interval': args.epochs,
        'optim_wrapper.optimizer.lr': 5e-4,
        # tested on the training images
        'val_dataloader.dataset.ann_file': 'annotations/instances_train2017.json',
        'val_dataloader.dataset.data_prefix.img': 'train2017/',
        'val_evaluator.ann_file': 'demo_out/scenes/coco/annotations/instances_train2017.json',
    }
    work = args.out / 'train'
    code = subprocess.call(
        [
            sys.executable,
            str(REPO / 'tools' / 'train.py'),
            str(REPO / 'configs' / 'demo' / 'demo_mask_rcnn_vit_ti_cb.py'),
            *('--data-root', str(data), '--work-dir', str(work), '--resume', '--cfg-options'),
            *(f'{key}={value}' for key, value in options.items()),
        ]
    )
    if code:
        return code
    scores = [line for line in scalars(work) if 'coco/bbox_mAP_50' in line][-1]
    found = {name: scores[f'coco/{name}_mAP_50'] for name in ('bbox', 'segm')}
    record = {'epochs': args.epochs, 'AP50': found, 'passed': min(found.values()) > 0.5}
    results = REPO / 'benchmarks' / 'results'
    results.mkdir(exist_ok=True)
    (results / 'overfit_mask_rcnn.json').write_text(json.dumps(record, indent=1) + '\n')
    print(record)
    return 0 if record['passed'] else 1


if __name__ == '__main__':
    sys.exit(main())
