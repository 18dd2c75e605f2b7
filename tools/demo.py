"""Scaled-down recipe on embedded data: draw scenes, train, test under corruption, look inside.

Training starts from the published ViT-micro with CB, which comes with the package.

Examples:
  python tools/demo.py                  # a few minutes on two cores; results in demo_out/
  python tools/demo.py --out /tmp/demo

Called again, it resumes where it was interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

from cb_mm_cli.options import tool_parser

REPO = Path(__file__).resolve().parent.parent
CONFIG = REPO / 'configs' / 'demo' / 'demo_upernet_vit_micro_cb.py'
WEIGHTS = 'cb_mm/vit_micro_cifar10_cb'


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the options."""
    parser = tool_parser(__doc__)
    parser.add_argument('--out', default='demo_out', metavar='DIR', help='default: demo_out')
    return parser.parse_args(argv)


def step(title: str, tool: str, *words: object) -> None:
    """Run a tool as a user would, and show the command."""
    shown = shlex.join(os.path.relpath(w) if isinstance(w, Path) else str(w) for w in words)
    print(f'\n=== {title}\n$ python tools/{tool} {shown}', flush=True)
    code = subprocess.call([sys.executable, str(REPO / 'tools' / tool), *map(str, words)])
    if code:
        sys.exit(code)


def main(argv: list[str] | None = None) -> int:
    """Run all steps, then print where everything is."""
    out = Path(parse(argv).out).resolve()
    started = time.monotonic()
    data, work = out / 'scenes', out / 'train'
    step('Draw the scenes', 'make_scenes.py', data)
    step('Train UperNet on the published ViT-micro + CB', 'train.py', CONFIG, '--init', WEIGHTS,
         '--data-root', data / 'ade20k', '--work-dir', work, '--resume')  # fmt: skip
    checkpoint = max(work.glob('iter_*.pth'), key=lambda file: int(file.stem.split('_')[1]))
    step('Test it, clean and under the corruptions of Table 9', 'test.py', CONFIG, checkpoint,
         '--data-root', data / 'ade20k', '--suite', 'table9', '--repeats', 2,
         '--out', out / 'robustness')  # fmt: skip
    image = sorted((data / 'ade20k' / 'images' / 'validation').glob('*.jpg'))[0]
    step('Look at its attention', 'visualize_attention.py', CONFIG, checkpoint, image,
         '--size', '96x128', '--clip', 99, '--names', 'ViT-micro + CB', '--layers', '-2', '-1',
         '--html', '--out', out / 'attention')  # fmt: skip

    from cb_mm.datasets.scenes.baseline import most_frequent_class

    name, nothing = most_frequent_class(data / 'ade20k')
    results = json.loads((out / 'robustness' / 'results.json').read_text())
    minutes = (time.monotonic() - started) / 60
    print(f'\n=== Done in {minutes:.1f} minutes')
    print((out / 'robustness' / 'results.md').read_text().rstrip())
    print(
        f'\nclean mIoU {clean_miou(results):.1f}; always predicting "{name}" '
        f'would get {nothing:.1f}\n'
    )
    for what, where in (
        ('data set', data),
        ('checkpoint and log', work),
        ('tables and plot', out / 'robustness'),
        ('attention pictures and explorer', out / 'attention'),
    ):
        print(f'{what:<32} {os.path.relpath(where)}')
    return 0


def clean_miou(results: dict) -> float:
    """Return the score on clean images."""
    clean = next(cell for cell in results['cells'] if cell['corruption'] == 'clean')
    return clean['metrics']['mIoU']['mean']


if __name__ == '__main__':
    sys.exit(main())
