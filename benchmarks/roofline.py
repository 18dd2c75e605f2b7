"""Estimate training steps on GPUs that are not here: our heads against mmseg's, ViTCB against timm.

Operations, bytes and kernels of a training step of UperNet (forward, losses, backward, AdamW) are
counted on fake CUDA tensors, which have shapes and types but no values. Published figures of the
A100 and the H100 turn them into times: a kernel takes 5 µs to start, its operations at the peak
rate or its bytes at the peak bandwidth, whichever is longest. No kernel reaches these peaks, so
the times are lower bounds; read the ratios. Backbone and pyramid are the same in both models.

Mask R-CNN has mmdet's heads: there ViTCB is compared with timm's own ViT, both with CB (in timm's
the paper's one line) and both without. Its images are of 800 × 1344; what depends on values
(matching, sampling, NMS, losses) is not counted.

Examples:
  python benchmarks/roofline.py
  python benchmarks/roofline.py --arch s --size 640 --batch 4 --out /tmp

Writes roofline.json and roofline.md, and the same of Mask R-CNN: roofline_mask_rcnn.json and .md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # torch is not imported for --help
    from cb_mm.apis.gpu_check.training_step import StepCost

HERE = Path(__file__).resolve().parent
ARCHS = ('ti', 's', 'b')
PRECISIONS = {
    'fp32': 'fp32',
    'torch': "torch's default",
    'tf32': 'tf32 (our default)',
    'bf16': 'bf16 or fp16',
}


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument('--arch', nargs='+', choices=ARCHS, default=ARCHS, help='ViT sizes')
    parser.add_argument(
        '--size', type=int, default=512, metavar='N', help='image side of UperNet (512)'
    )
    parser.add_argument('--batch', type=int, default=2, metavar='N', help='images at once (2)')
    parser.add_argument(
        '--out', default=str(HERE / 'results'), metavar='DIR', help='folder of the results'
    )
    args = parser.parse_args(argv)
    if min(args.size, args.batch) < 1:
        parser.error('the numbers are at least 1')
    return args


def estimate(arch: str, precision: str, size: int, batch: int) -> dict[str, Any]:
    """Return what both models ask of a GPU, the times on each GPU, and their ratio."""
    from cb_mm.apis.gpu_check.training_step import count_training_step, with_mmseg_heads
    from cb_mm.config.loading import load_config

    config = load_config(HERE.parent / 'configs' / f'upernet_vit_{arch}_cb.py')
    row: dict[str, Any] = {'arch': arch, 'precision': precision}
    for name, one in (('ours', config), ('mmseg', with_mmseg_heads(config))):
        row[name] = asked(count_training_step(one, precision, (size, size), batch), precision)
    row['ratio'] = ratio(row['ours'], row['mmseg'])
    return row


def estimate_mask_rcnn(arch: str, precision: str, batch: int) -> dict[str, Any]:
    """Return the same for Mask R-CNN: ViTCB and timm's ViT, both with CB and both without."""
    from cb_mm.apis.gpu_check.detection_step import count_detection_step, with_timm_backbone
    from cb_mm.config.loading import load_config

    configs = HERE.parent / 'configs'
    row: dict[str, Any] = {'arch': arch, 'precision': precision}
    for name, end in (('cb', '_cb'), ('none', '')):
        config = load_config(configs / f'mask_rcnn_vit_{arch}{end}.py')
        timm = with_timm_backbone(config)
        ours = count_detection_step(config, precision, batch=batch)
        theirs = count_detection_step(timm, precision, batch=batch, like=config)
        row[name] = {'ours': asked(ours, precision), 'timm': asked(theirs, precision)}
        row[name]['ratio'] = ratio(row[name]['ours'], row[name]['timm'])
    return row


def asked(step: StepCost, precision: str) -> dict[str, Any]:
    """Return what a step asks of a GPU, and the time on each."""
    from cb_mm.apis.gpu_check.roofline import GPUS, seconds

    return {
        'kernels': step.kernels,
        'operations': sum(cost.operations for cost in step.costs),
        'bytes': sum(cost.bytes for cost in step.costs),
        'seconds': {gpu.name: seconds(step.costs, gpu, precision) for gpu in GPUS},
    }


def ratio(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, float]:
    """Return our time as a share of theirs, on each GPU."""
    return {gpu: time / theirs['seconds'][gpu] for gpu, time in ours['seconds'].items()}


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown; each cell has ours and mmseg's."""
    gpus = list(rows[0]['ratio'])
    heads = ['ViT', 'precision', 'kernels', 'Tflop', 'GB']
    heads += [text for gpu in gpus for text in (f'{gpu}, ms', 'ours / mmseg')]
    lines = ['| ' + ' | '.join(heads) + ' |', '|' + '---|' * len(heads)]
    for row in rows:
        ours, theirs = row['ours'], row['mmseg']
        cells = [
            row['arch'].capitalize(),
            PRECISIONS[row['precision']],
            f'{ours["kernels"]:,} / {theirs["kernels"]:,}',
            f'{ours["operations"] / 1e12:.2f} / {theirs["operations"] / 1e12:.2f}',
            f'{ours["bytes"] / 1e9:.1f} / {theirs["bytes"] / 1e9:.1f}',
        ]
        for gpu in gpus:
            mine, other = ours['seconds'][gpu], theirs['seconds'][gpu]
            cells += [f'{1e3 * mine:.1f} / {1e3 * other:.1f}', f'{row["ratio"][gpu]:.2f}']
        lines.append('| ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines) + '\n'


def table_of_mask_rcnn(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown; each cell has ViTCB's and timm's."""
    gpus = list(rows[0]['cb']['ratio'])
    heads = ['ViT', 'precision', 'CB', 'kernels', 'Tflop', 'GB']
    heads += [text for gpu in gpus for text in (f'{gpu}, ms', 'ours / timm')]
    lines = ['| ' + ' | '.join(heads) + ' |', '|' + '---|' * len(heads)]
    for row in rows:
        for name, told in (('cb', 'yes'), ('none', 'no')):
            pair = [row[name]['ours'], row[name]['timm']]
            cells = [
                row['arch'].capitalize(),
                PRECISIONS[row['precision']],
                told,
                ' / '.join(f'{one["kernels"]:,}' for one in pair),
                f'{pair[0]["operations"] / 1e12:.2f}',
                ' / '.join(f'{one["bytes"] / 1e9:.1f}' for one in pair),
            ]
            for gpu in gpus:
                cells += [' / '.join(f'{1e3 * one["seconds"][gpu]:.1f}' for one in pair)]
                cells += [f'{row[name]["ratio"][gpu]:.3f}']
            lines.append('| ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines) + '\n'


def run(args: argparse.Namespace) -> None:
    """Count, print, write."""
    parts: dict[str, tuple[Callable[..., dict], Callable[[list[dict]], str], dict]] = {
        'roofline': (estimate, table, {'size': args.size, 'batch': args.batch}),
        'roofline_mask_rcnn': (estimate_mask_rcnn, table_of_mask_rcnn, {'batch': args.batch}),
    }
    from cb_mm.fileio.atomic import write_atomically

    for name, (count, layout, about) in parts.items():
        rows = []
        for arch in args.arch:
            for precision in PRECISIONS:
                rows.append(count(arch, precision, **about))
                print(*layout(rows[-1:]).splitlines()[2:], sep='\n', flush=True)
        text = json.dumps({**about, 'rows': rows}, indent=1)
        write_atomically(Path(args.out) / f'{name}.json', text + '\n')
        write_atomically(Path(args.out) / f'{name}.md', layout(rows))


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 0 on success, 2 on a user error."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args))


if __name__ == '__main__':
    sys.exit(main())
