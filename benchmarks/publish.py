"""Put models that the study has trained into the package, each with a card of what was measured.

The model is always that of seed 0, whatever the seeds scored: none is selected. Its card says what
it was trained on and what its own test gave, and the mean over seeds.

Examples:
  python benchmarks/publish.py --work work_dirs/study --shared DIR

Then `--init cb_mm/vit_micro_cifar10_cb` loads it. Writes cb_mm/checkpoints/weights/.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from parts.options import BESIDE, study_parser
from parts.study_plan import PUBLISHED, QUESTIONS, Run

#: Arm of `cifar` -> the recipe that it is.
RECIPES = {'none': 'cifar10_vit_micro', 'cb': 'cifar10_vit_micro_cb'}
DATA = 'CIFAR-10: the 50,000 training images, stored as JPEG'
#: Every so many test images are enough to see that a file is the right one.
STEP = 20


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = study_parser(__doc__, 'study')
    add = parser.add_argument
    add('--shared', type=Path, default=BESIDE, metavar='DIR', help='folder of data and weights')
    add('--licence', default='apache-2.0', metavar='NAME', help='of the weights (apache-2.0)')
    return parser.parse_args(argv)


def publish(args: argparse.Namespace) -> str:
    """Publish both models; return what was done."""
    from parts.study_data import StudyData
    from parts.study_work import Worker

    from cb_mm.apis import push_to_hub
    from cb_mm.checkpoints.shipped import FOLDER, INDEX, WEIGHTS, shipped_models
    from cb_mm.errors import UserError
    from cb_mm.fileio.atomic import write_atomically

    data = StudyData(args.shared, args.work)
    records = json.loads((args.out / 'study.json').read_text())['runs']
    index, lines = shipped_models(), []
    for arm, recipe in RECIPES.items():
        name = PUBLISHED[arm]
        run = Run('cifar', arm, 0)
        folder = Worker(data, args.work).folder(run)
        checkpoint = folder / 'epoch_8.pth'
        if run.key not in records or not checkpoint.is_file():
            raise UserError(f'{run.key} is not finished, or not in {args.work}. Do it first.')
        push_to_hub(
            folder / 'config.py', checkpoint, FOLDER / name, results=folder / 'test', data=DATA,
            licence=args.licence, name=name,
        )  # fmt: skip
        (FOLDER / name / 'config.py').unlink()  # the recipe, which the package has
        card = FOLDER / name / 'README.md'
        general = card.read_text().partition('## Use')[0]
        write_atomically(card, general + _story(name, arm, recipe, records))
        file = FOLDER / name / WEIGHTS
        correct, tested = _correct(recipe, file, data.cifar10())
        index[name] = {
            'recipe': recipe,
            'sha256': hashlib.sha256(file.read_bytes()).hexdigest(),
            'step': STEP,
            'images': tested,
            'correct': correct,
        }
        write_atomically(FOLDER / INDEX, json.dumps(index, indent=1) + '\n')
        lines.append(f'{name}: {correct} of {tested} right, {file.stat().st_size / 1e6:.1f} MB')
    return '\n'.join(lines)


def _story(name: str, arm: str, recipe: str, records: dict[str, Any]) -> str:
    from cb_mm.robustness.statistics import summarize

    seeds = [r['scores']['clean'] for key, r in records.items() if key.startswith(f'cifar/{arm}/')]
    value = summarize(seeds)
    others = 'No other seed has been trained so far.'
    if value.std:
        spread = f'{value.mean:.2f} on average, standard deviation {value.std:.2f}'
        others = f'Top-1 over its {value.n} seeds: {spread}.'
    return f"""## Use

It comes with cb_mm:

```bash
cb-mm test {recipe} cb_mm/{name} --data-root /data/cifar10
```

## How it came about

Seed 0 of "{QUESTIONS['cifar'].arms[arm].title}" in the registered study of cb_mm
(`docs/study.md`): 8 epochs in float32 on one CPU thread. {others}
It knows 32² pictures of ten classes and is meant for trying things out.
"""


def _correct(config: str, weights: Path, root: Path) -> tuple[int, int]:
    """Return how many of every `STEP`-th test image are classified rightly, and their number."""
    from cb_mm.apis import evaluate_robustness

    count = len(list((root / 'test').glob('*/*')))
    indices = list(range(0, count, STEP))
    with tempfile.TemporaryDirectory() as folder:
        evaluate_robustness(
            config, weights, suite='clean', data_root=root, out=folder,
            cfg_options=[f'test_dataloader.dataset.indices={indices}'],
        )  # fmt: skip
        results = json.loads(Path(folder, 'results.json').read_text())
    share = results['cells'][0]['metrics']['top1']['mean'] / 100
    return round(share * len(indices)), len(indices)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 0 on success, 2 on a user error."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: print(publish(args)))


if __name__ == '__main__':
    sys.exit(main())
