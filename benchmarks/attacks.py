"""Attacks on real models and real images: what each costs a model, and what it costs in time.

Three models: UperNet with ViT-Ti, trained shortly on CamVid; Mask R-CNN with ViT-Ti, trained on ten
images of COCO and tested on the same; DeiT-Ti on ImageNet. FGSM, BIM, PGD (L∞ and L2), and SegPGD
and CosPGD for segmentation, all in one sweep for each model, so every attack sees the same images.
Times are CPU time of the attack alone, per image, as a ratio to FGSM's, on a few images one after
the other.

Examples:
  python benchmarks/attacks.py                       # all three
  python benchmarks/attacks.py --tasks segmentation  # a part; run again for the rest

Run again after a kill, it continues where it stopped. Needs CamVid, a part of COCO, images of
ImageNet, and the weights of ViT-Ti and DeiT-Ti. Writes attacks.json and attacks.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from parts.options import BESIDE, add_weights, parse_counts, study_parser

TASKS = ('segmentation', 'detection', 'classification')
_COUNTS = ('iterations', 'epochs', 'seg_images', 'det_images', 'cls_images', 'steps', 'repeats')


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = study_parser(__doc__, 'attacks')
    add_weights(parser)
    add = parser.add_argument
    for name, folder in (('camvid', 'camvid'), ('coco', 'coco_mini'), ('imagenet', 'imagenet_val')):
        add(f'--{name}', type=Path, default=BESIDE / 'data' / folder, metavar='DIR',
            help=f'folder of {name}')  # fmt: skip
    add('--deit', type=Path, metavar='FILE', help='weights of DeiT-Ti',
        default=BESIDE / 'weights/deit_tiny_patch16_224_in1k.safetensors')  # fmt: skip
    add('--tasks', nargs='+', choices=TASKS, default=TASKS, help='which (all)')
    add('--iterations', type=int, default=160, metavar='N', help='of the segmentor (160)')
    add('--epochs', type=int, default=42, metavar='N', help='of the detector (42)')
    add('--seg-images', type=int, default=10, metavar='N', help='images to attack (10)')
    add('--det-images', type=int, default=10, metavar='N', help='images to attack (10)')
    add('--cls-images', type=int, default=100, metavar='N', help='images to attack (100)')
    add('--steps', type=int, default=10, metavar='N', help='of an attack (10)')
    add('--repeats', type=int, default=1, metavar='N', help='passes with a random start (1)')
    return parse_counts(parser, argv, _COUNTS)


def study(args: argparse.Namespace) -> str:
    """Train, attack, and return the tables."""
    from parts.attack_models import classifier, detector, segmentor
    from parts.attack_table import attack_subject, tables
    from parts.records import Records

    from cb_mm.fileio.atomic import write_atomically

    names = [*_COUNTS]
    records = Records(args.out / 'attacks.json', {name: getattr(args, name) for name in names})
    work = args.work.resolve()
    make = {
        'segmentation': lambda: segmentor(
            work / 'segmentation', args.camvid, args.weights.resolve(), args.iterations
        ),
        'detection': lambda: detector(
            work / 'detection', args.coco, args.weights.resolve(), args.det_images, args.epochs
        ),
        'classification': lambda: classifier(args.imagenet, args.deit.resolve()),
    }
    limits = dict(zip(TASKS, (args.seg_images, args.det_images, args.cls_images), strict=True))
    for task in args.tasks:
        if task not in records.runs:
            folder = work / task
            found = attack_subject(
                task, make[task](), folder / 'attacks', limits[task], args.steps, args.repeats
            )
            records.add(task, found)
            print(f'{task}: done', flush=True)
    text = tables(records.runs, records.settings)
    write_atomically(args.out / 'attacks.md', text)
    return text


def main(argv: list[str] | None = None) -> int:
    """Run the study."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: print(study(args)))


if __name__ == '__main__':
    sys.exit(main())
