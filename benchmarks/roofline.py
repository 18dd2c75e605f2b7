"""Estimate training steps on GPUs that are not here: our heads against mmseg's.

Operations, bytes and kernels of a training step of UperNet (forward, losses, backward, AdamW) are
counted on fake CUDA tensors, which have shapes and types but no values. Published figures of the
A100 and the H100 turn them into times: a kernel takes 5 µs to start, its operations at the peak
rate or its bytes at the peak bandwidth, whichever is longest. No kernel reaches these peaks, so
the times are lower bounds; read the ratios. Backbone and pyramid are the same in both models.

Examples:
  python benchmarks/roofline.py
  python benchmarks/roofline.py --arch s --size 640 --batch 4 --out /tmp

Writes roofline.json and roofline.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ARCHS = {'ti': 'upernet_vit_ti_cb.py', 's': 'upernet_vit_s_cb.py', 'b': 'upernet_vit_b_cb.py'}
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
    parser.add_argument('--arch', nargs='+', choices=ARCHS, default=list(ARCHS), help='ViT sizes')
    parser.add_argument('--size', type=int, default=512, metavar='N', help='image side (512)')
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
    from cb_mm.apis.gpu_check.roofline import GPUS, seconds
    from cb_mm.apis.gpu_check.training_step import count_training_step, with_mmseg_heads
    from cb_mm.config.loading import load_config

    config = load_config(HERE.parent / 'configs' / ARCHS[arch])
    row: dict[str, Any] = {'arch': arch, 'precision': precision}
    for name, one in (('ours', config), ('mmseg', with_mmseg_heads(config))):
        step = count_training_step(one, precision, (size, size), batch)
        row[name] = {
            'kernels': step.kernels,
            'operations': sum(cost.operations for cost in step.costs),
            'bytes': sum(cost.bytes for cost in step.costs),
            'seconds': {gpu.name: seconds(step.costs, gpu, precision) for gpu in GPUS},
        }
    row['ratio'] = {
        gpu.name: row['ours']['seconds'][gpu.name] / row['mmseg']['seconds'][gpu.name]
        for gpu in GPUS
    }
    return row


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


def run(args: argparse.Namespace) -> None:
    """Count, print, write."""
    from cb_mm.fileio.atomic import write_atomically

    rows = []
    for arch in args.arch:
        for precision in PRECISIONS:
            rows.append(estimate(arch, precision, args.size, args.batch))
            print(table(rows[-1:]).splitlines()[-1], flush=True)
    about = {'size': args.size, 'batch': args.batch, 'rows': rows}
    out = Path(args.out)
    write_atomically(out / 'roofline.json', json.dumps(about, indent=1) + '\n')
    write_atomically(out / 'roofline.md', table(rows))


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 0 on success, 2 on a user error."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args))


if __name__ == '__main__':
    sys.exit(main())
