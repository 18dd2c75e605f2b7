"""Speed of Mask R-CNN with a ViT at 800 x 1333: ours, mmdet's, torchvision's; and its options.

Images of 800 x 1344, which is what 800 x 1333 is padded to: 4,200 patches. Random weights, with a
classifier that takes every box for an object, so that 100 boxes reach the mask head; in training
128 objects, so that 512 boxes and 128 masks are trained. One image, also in training steps; in
turns, on one thread, in CPU time.
  ours         ViTCB with CB, pyramid, mmdet's FPN and heads (configs/mask_rcnn_vit_*_cb.py)
  mmdet        timm's ViT by mmseg's TIMMBackbone, mmseg's Feature2Pyramid, the same heads
  torchvision  its MaskRCNN and FPN on timm's ViT with the layers of our pyramid; its numbers of
               proposals, samples and RoI bins are set to those of mmdet's config

Kinds:
  forward, training step  these models
  parts                   where the time of our and mmdet's forward pass goes
  attention               windows (ViTDet's way) and sparse patterns in the ViT, forward
  attention, training     the same in a training step

Examples:
  python benchmarks/mask_rcnn_speed.py --arch small --kind forward
  python benchmarks/mask_rcnn_speed.py --size 256 256 --repeats 1 --out /tmp

Writes mask_rcnn_speed.json and .md; other kinds in them are kept.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

from parts.options import BENCHMARKS, parse_counts

ARCHS = {'tiny': 'ti', 'small': 's'}
KINDS = ('forward', 'training step', 'parts', 'attention', 'attention, training')
#: Options of ViTCB; the four blocks without windows are ViTDet's, whose windows are of 14 patches.
ATTENTION: dict[str, dict[str, Any]] = {
    'dense': {},
    'windows of 14, 4 global blocks': dict(window=14),
    'sparse W+G': dict(attention='W+G'),
    'sparse R+W+G': dict(attention='R+W+G'),
}


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add('--arch', nargs='+', choices=ARCHS, default=list(ARCHS))
    add('--kind', nargs='+', choices=KINDS, default=list(KINDS))
    add('--size', type=int, nargs=2, default=(800, 1344), metavar=('H', 'W'), help='(800 1344)')
    add('--repeats', type=int, default=3, metavar='N', help='turns of every kind (3)')
    add('--out', type=Path, default=BENCHMARKS / 'results', metavar='DIR',
        help='folder of the results')  # fmt: skip
    args = parse_counts(parser, argv, ('repeats',))
    if min(args.size) < 32 or any(side % 32 for side in args.size):
        parser.error('--size takes multiples of 32, to which detectors pad')
    return args


def build(arch: str, size: tuple[int, int], peer: bool = False, **options: Any) -> Any:
    """Build our model with these options of the backbone, or mmdet's."""
    from parts.mask_rcnn_models import add_objects, expect_objects

    from cb_mm.apis.benchmark_models import build_subject
    from cb_mm.apis.gpu_check.detection_step import with_timm_backbone
    from cb_mm.config.loading import load_config

    name = f'mask_rcnn_vit_{ARCHS[arch]}{"" if peer else "_cb"}.py'
    config = load_config(BENCHMARKS.parent / 'configs' / name)
    if peer:
        config = with_timm_backbone(config)
    else:
        config.model.backbone.update(options)
    subject = build_subject(config, 'mmdet' if peer else 'ours', size, batch=1)
    add_objects(subject)
    expect_objects(subject.model.roi_head.bbox_head.fc_cls, 0)
    return subject


def compare(arch: str, kind: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measure one kind; return a row for each model."""
    from parts.in_turns import measure
    from parts.mask_rcnn_models import OfTorchvision

    size = tuple(args.size)
    if kind.startswith('attention'):
        models = {name: build(arch, size, **options) for name, options in ATTENTION.items()}
    else:
        ours = build(arch, size)
        models = {'ours': ours, 'mmdet': build(arch, size, peer=True)}
        if kind == 'parts':
            return {name: parts_of(one, args.repeats) for name, one in models.items()}
        models['torchvision'] = OfTorchvision(ours, arch)
    if kind in ('forward', 'attention'):
        rows = measure({name: one.forward for name, one in models.items()}, args.repeats)
    else:  # too long for a turn that does not count
        rows = measure({name: one.train_step for name, one in models.items()}, args.repeats, 0)
    for name, one in models.items():
        rows[name]['parameters'] = sum(p.numel() for p in one.model.parameters())
    return rows


def parts_of(subject: Any, repeats: int) -> dict[str, float]:
    """Return the median seconds of every part."""
    from parts.mask_rcnn_models import seconds_of_parts

    subject.forward()
    turns = [seconds_of_parts(subject.model, subject.forward) for _ in range(repeats)]
    return {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}


def table(runs: dict[str, Any]) -> str:
    """Return all runs as Markdown."""
    from parts.in_turns import cells
    from parts.markdown import table as markdown

    texts = []
    for arch in ARCHS:
        for pair in (KINDS[:2], KINDS[3:]):
            found = [runs.get(f'{arch}, {kind}', {}).get('rows', {}) for kind in pair]
            if not any(found):
                continue
            head = [f'Mask R-CNN ViT-{arch}']
            for kind in ('forward', 'training step'):
                head += [f'{kind}, CPU s (fastest)', 'peak MiB', 'first / it (of fastest)']
            names = found[0] or found[1]
            rows = [
                [name, *cells(found[0].get(name)), *cells(found[1].get(name))] for name in names
            ]
            texts.append(markdown(head, rows))
        if parts := runs.get(f'{arch}, parts', {}).get('rows'):
            head = [f'parts of ViT-{arch}, forward, CPU s', *parts]
            names = sorted(parts['ours'], key=lambda name: -parts['ours'][name])
            rows = [[name, *(f'{one[name]:.2f}' for one in parts.values())] for name in names]
            texts.append(markdown(head, rows))
    return '\n\n'.join(texts) + '\n'


def run(args: argparse.Namespace) -> None:
    """Measure, print, write after each kind."""
    import torch
    from parts.about import machine
    from parts.records import Records

    import cb_mm  # noqa: F401
    from cb_mm.fileio.atomic import write_atomically

    torch.set_num_threads(1)
    records = Records(args.out / 'mask_rcnn_speed.json', {'size': list(args.size)})
    for arch in args.arch:
        for kind in args.kind:
            rows = compare(arch, kind, args)
            records.add(f'{arch}, {kind}', {'machine': machine(), 'rows': rows})
            write_atomically(args.out / 'mask_rcnn_speed.md', table(records.runs))
    print(table(records.runs))


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 0 on success, 2 on a user error."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args))


if __name__ == '__main__':
    sys.exit(main())
