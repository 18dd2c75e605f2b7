"""Which models of mmseg and mmdet work here: each config tested, trained for a step, run on CUDA.

Every row is a config that mmseg or mmdet ships, on small images of the embedded scenes and with
random weights:
  test    `cb_mm.apis.evaluate_robustness` on one image, clean and noisy, on the CPU
  train   one step of `cb_mm.apis.train` with the config's losses and optimizer, on the CPU
  cuda    the raw outputs on CUDA tensors that have a shape and a device but no data

Examples:
  python benchmarks/supported_models.py                # rows that are not in the results yet
  python benchmarks/supported_models.py --again        # also those that did not work
  python benchmarks/supported_models.py --only segformer dino --out /tmp/some --work /tmp/work

Each row runs in a process of its own. Run again after a kill, it continues where it stopped.
Writes supported_models.json, and docs/supported_models.md beside the default results.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from parts.options import BENCHMARKS, study_parser
from parts.upstream_models import MODELS, Model

PAGE = BENCHMARKS.parent / 'docs' / 'supported_models.md'
RESULTS = 'supported_models.json'
ON_CPU, ON_CUDA = ('test', 'train'), ('cuda',)


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = study_parser(__doc__, 'supported_models')
    add = parser.add_argument
    add('--only', nargs='+', default=[''], metavar='TEXT',
        help='rows whose config has one of these in its path, in this order')  # fmt: skip
    add('--again', action='store_true', help='run rows again that did not work')
    return parser.parse_args(argv)


def chosen(args: argparse.Namespace) -> list[Model]:
    """Return the rows that were asked for."""
    from cb_mm.errors import UserError

    models = [model for text in args.only for model in MODELS if text in model.key]
    if not models:
        raise UserError(f'--only {" ".join(args.only)}: no config has this in its path.')
    return models


def run(args: argparse.Namespace, stages: tuple[str, ...]) -> None:
    """Run the stages of all rows that lack them."""
    from parts.records import Records
    from parts.upstream_run import CORRUPTION, SEVERITY, in_a_fork, warm_up

    from cb_mm.compat.families import software_versions
    from cb_mm.datasets import write_scenes

    models = chosen(args)
    scenes = (args.work / 'scenes').resolve()
    write_scenes(scenes, train=6, val=2, size=(128, 160))
    settings = {'corruption': CORRUPTION, 'severity': SEVERITY, 'software': software_versions()}
    records = Records(args.out / RESULTS, settings)

    def lacking(model: Model) -> list[str]:
        found = records.runs.get(model.key, {})
        return [s for s in stages if s not in found or (args.again and not found[s]['works'])]

    todo = [(model, lacking(model)) for model in models if lacking(model)]
    if todo:
        warm_up()
    for model, missing in todo:
        found = in_a_fork(model, scenes, missing, args.work.resolve())
        records.add(model.key, records.runs.get(model.key, {}) | found)
        for stage, result in found.items():
            print(f'{model.key} {stage}: {result.get("reason", "works")}', flush=True)


def page(runs: Mapping[str, Mapping[str, Any]], software: Mapping[str, str]) -> str:
    """Return the page of the results."""
    from parts.supported_models_page import write_page

    return write_page(runs, software)


def main(argv: list[str] | None = None) -> int:
    """Run the study; 0 when all rows have a result, 2 when the user must fix something."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code
    from cb_mm.fileio.atomic import write_atomically

    def job() -> None:
        if not __debug__:  # below, in a process of its own
            run(args, ON_CUDA)
            return
        run(args, ON_CPU)
        # Without asserts (-O): mmcv's deformable attention compares values in one, and there are
        # none. The other stages keep theirs.
        words = sys.argv[1:] if argv is None else argv
        subprocess.run([sys.executable, '-O', __file__, *words], check=True)
        results = json.loads((args.out / RESULTS).read_text())
        if args.out == BENCHMARKS / 'results':
            write_atomically(PAGE, page(results['runs'], results['settings']['software']))

    return exit_code(job)


if __name__ == '__main__':
    sys.exit(main())
