"""Where the time of a sweep on CamVid goes, and how well workers hide the loading behind the model.

The passes of Table 9 (five repeats) and of imagenet-c, all severities, run first without workers,
with every part timed: decoding, corruption, the rest of the pipeline, the model, the metric. Then
with workers: the passes should take little more than the larger of loading and model with metric.
Images of 480 x 360, one thread, random weights (they do not change the time).
  small  the first two blocks of a ViT-Ti and a light head: about as long as a slow corruption
  UperNet  UperNet ViT-Ti with 128 channels, as in benchmarks/camvid_study.py

Few images stand for all: the table says how many were run, and what 101 images take by arithmetic.

Examples:
  python benchmarks/sweep_parts.py --model small
  python benchmarks/sweep_parts.py --model UperNet --images 2 --suite table9

Writes sweep_parts.json and .md; other models and suites in them are kept. Needs CamVid.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parts.options import BENCHMARKS, BESIDE, parse_counts

MODELS = ('small', 'UperNet')
SUITES = ('table9', 'imagenet-c')
REPEATS = 5
ALL_IMAGES = 101
LOADING = ('decoding', 'corruption', 'rest of the pipeline')
TESTING = ('model', 'metric')


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add('--model', nargs='+', choices=MODELS, default=list(MODELS))
    add('--suite', nargs='+', choices=SUITES, default=list(SUITES))
    add('--images', type=int, default=10, metavar='N', help='test images (10)')
    add('--severity', type=int, choices=range(1, 6), help='of imagenet-c (all)')
    add('--workers', type=int, nargs='+', default=[1, 2], metavar='N', help='(1 2)')
    add('--camvid', type=Path, default=BESIDE / 'data/camvid', metavar='DIR')
    add('--out', type=Path, default=BENCHMARKS / 'results', metavar='DIR',
        help='folder of the results')  # fmt: skip
    return parse_counts(parser, argv, ('images',))


def config_of(model: str, camvid: Path) -> Any:
    """Return the config of a model on CamVid, images at their own size."""
    from mmengine.config import Config
    from parts.camvid import find_camvid

    config = Config.fromfile(BENCHMARKS / 'parts/camvid_upernet.py')
    config.merge_from_dict(find_camvid(camvid).config(crop=224, scale=(480, 360), batch=1))
    config.test_dataloader.dataset.data_root = str(camvid.resolve())
    if model == 'small':
        config.model.backbone.update(arch_changes=dict(depth=2), out_indices=(0, 1), pyramid=False)
        config.model.decode_head = dict(
            type='FCNHead', in_channels=192, in_index=1, channels=64, num_convs=1, kernel_size=1,
            concat_input=False, num_classes=11, norm_cfg=dict(type='BN'), ignore_index=11,
            align_corners=False, loss_decode=dict(type='CrossEntropyLoss'),
        )  # fmt: skip
        config.model.auxiliary_head = None
    return config


def jobs_of(suite: str, severity: int | None) -> list[Any]:
    """Return all passes of a suite."""
    from cb_mm.corruption import SUITES as CELLS
    from cb_mm.robustness.jobs import plan_jobs

    cells = [c for c in CELLS[suite] if severity is None or c.severity in (None, severity)]
    return plan_jobs(cells, REPEATS if suite == 'table9' else 1)


def tester_of(config: Any, workers: int, images: int) -> Any:
    """Build model and images."""
    import torch
    from mmengine.registry import MODELS as REGISTRY
    from mmengine.registry import init_default_scope

    from cb_mm.robustness.tester import ModelUnderTest

    config.test_dataloader.update(num_workers=workers, persistent_workers=workers > 0)
    init_default_scope('mmseg')
    torch.manual_seed(0)
    model = REGISTRY.build(config.model)
    return ModelUnderTest(config, model=model, limit=images, cache_bytes=1 << 31)


def seconds_of(tester: Any, jobs: list[Any]) -> float:
    """Run all passes; return their wall time. The first pass, which starts workers, is extra."""
    tester.run(jobs[0])
    started = time.perf_counter()
    for job in jobs:
        tester.run(job)
    return time.perf_counter() - started


def seconds_of_parts(tester: Any, jobs: list[Any]) -> dict[str, float]:
    """Run all passes without workers, decoding each image once; return the time of parts."""
    from cb_mm.datasets.checks.samples import step_lists
    from cb_mm.robustness import tester as module
    from cb_mm.robustness.data import SweepCorruption
    from cb_mm.robustness.image_store import StoredLoader

    spent: Counter[str] = Counter()

    def timed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run_timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                spent[name] += time.perf_counter() - started

        return run_timed

    for steps in step_lists(tester.dataset.dataset):
        for place, step in enumerate(steps):
            kinds = {SweepCorruption: 'corruption', StoredLoader: 'decoding'}
            steps[place] = timed(kinds.get(type(step), 'rest of the pipeline'), step)
    tester.predict = timed('model', tester.predict)
    evaluator = module.JobEvaluator
    kept = {name: getattr(evaluator, name) for name in ('process', 'evaluate')}
    started = time.perf_counter()
    try:
        for name, method in kept.items():
            setattr(evaluator, name, timed('metric', method))
        for job in jobs:
            tester.run(job)
    finally:
        for name, method in kept.items():
            setattr(evaluator, name, method)
    spent['all'] = time.perf_counter() - started
    return dict(spent)


def measure(model: str, suite: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measure one suite on one model."""
    from cb_mm.robustness.console_log import quiet_console

    jobs = jobs_of(suite, args.severity)
    with quiet_console():
        config = config_of(model, args.camvid)
        parts = seconds_of_parts(tester_of(config, 0, args.images), jobs)
        workers = {
            str(count): seconds_of(tester_of(config, count, args.images), jobs)
            for count in args.workers
        }
    larger = max(sum(parts.get(p, 0) for p in group) for group in (LOADING, TESTING))
    ratios = {count: seconds / larger for count, seconds in workers.items()}
    return dict(
        images=args.images, passes=len(jobs), severity=args.severity, parts=parts,
        workers=workers, larger=larger, to_larger=ratios,
    )  # fmt: skip


def table(runs: dict[str, Any]) -> str:
    """Return all runs as Markdown."""
    from parts.markdown import table as markdown

    if not runs:
        return ''
    counts = list(next(iter(runs.values()))['workers'])
    head = ['sweep', 'images × passes', 'no workers, s', *LOADING, *TESTING]
    head += [f'{n} worker(s), s (/ larger)' for n in counts]
    head += [f'by arithmetic, {ALL_IMAGES} images, s']
    rows = []
    for key, run in runs.items():
        parts = run['parts']
        rows.append([key, f'{run["images"]} × {run["passes"]}', f'{parts["all"]:.1f}'])
        rows[-1] += [f'{100 * parts.get(p, 0) / parts["all"]:.1f} %' for p in LOADING + TESTING]
        rows[-1] += [f'{run["workers"][n]:.1f} ({run["to_larger"][n]:.2f})' for n in counts]
        best = min(run['workers'].values())
        rows[-1].append(f'{best * ALL_IMAGES / run["images"]:.0f}')
    return markdown(head, rows) + '\n'


def run(args: argparse.Namespace) -> None:
    """Measure, print, write after each suite."""
    import torch
    from parts.about import machine
    from parts.records import Records

    import cb_mm  # noqa: F401
    from cb_mm.fileio.atomic import write_atomically

    torch.set_num_threads(1)
    records = Records(args.out / 'sweep_parts.json', {'repeats': REPEATS})
    for model in args.model:
        for suite in args.suite:
            name = f'{suite}, severity {args.severity}' if args.severity else suite
            found = measure(model, suite, args)
            records.add(f'{model}, {name}', {'machine': machine(), **found})
            write_atomically(args.out / 'sweep_parts.md', table(records.runs))
    print(table(records.runs))


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 0 on success, 2 on a user error."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args))


if __name__ == '__main__':
    sys.exit(main())
