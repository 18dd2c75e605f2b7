"""Test a model on clean and corrupted images, and never lose a result.

The model is built and loaded once. Every finished pass is on disk before the next one starts, and
the same command resumes where it was stopped.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.dist import (
    all_gather_object,
    broadcast_object_list,
    get_world_size,
    init_dist,
    is_main_process,
)
from tqdm import tqdm

from ..checkpoints.normalization import set_normalization
from ..compat import families as family
from ..config.explain import building
from ..config.loading import replace_sync_bn
from ..engine.acceleration import speed_up
from ..engine.failures import explained
from ..engine.signals import Stopped, StopRequest, stop_on_signals
from ..engine.training import RunOptions, check_data, prepare_config, start_processes
from ..errors import UserError
from ..fileio.atomic import write_atomically
from ..fileio.safe_text import csv_text
from .banner import start_banner
from .console_log import quiet
from .identity import file_digest, sweep_identity
from .jobs import FGSM, Job, plan_cells, plan_jobs
from .metrics import HEADLINES, Scores
from .records import SweepRecords, job_facts
from .report import check_comparable, write_report
from .results_file import read_compared
from .tester import ModelUnderTest, metric_configs


@dataclass
class SweepOptions(RunOptions):
    """The options of ``tools/test.py``."""

    checkpoint: str = ''
    corruption: Sequence[str] = ()
    severity: int | None = None
    suite: str | None = None
    fgsm: Sequence[float] = ()
    repeats: int = 5
    limit: int | None = None
    out: str | None = None
    save_corrupted: str | None = None
    show_dir: str | None = None
    compare: str | None = None
    cache_mb: int = 2048
    test_set: str | None = None


class _Bar(tqdm):
    """Without tqdm's own thread: the workers are forked while the bar is there."""

    monitor_interval = 0


def sweep(options: SweepOptions) -> Path:
    """Everything that ``tools/test.py`` does. Returns the folder of the results.

    Raises:
        Stopped: a signal asked for the end; there is a report of what is finished.
    """
    cells = plan_cells(options.suite, options.corruption, options.severity, options.fgsm)
    jobs = plan_jobs(cells, options.repeats)
    if options.limit is not None and options.limit < 1:
        raise UserError(f'--limit {options.limit}: at least one image is needed.')
    if options.cache_mb < 0:
        raise UserError(f'--cache-mb {options.cache_mb} is negative; 0 keeps nothing in memory.')
    other = read_compared(options.compare) if options.compare else None
    checkpoint = file_digest(options.checkpoint)
    with building(options.config):
        config = prepare_config(options, test_set=options.test_set)
    with building(config):
        set_normalization(
            config, options.normalization, options.checkpoint, options.trust_checkpoint
        )
        metric_configs(config)
        replace_sync_bn(config)  # it needs several GPUs, and in testing it does what BN does
        check_data(config, ['test'])
    start_processes(config)
    if config.launcher != 'none' and not torch.distributed.is_initialized():
        init_dist(config.launcher, **(config.get('env_cfg') or {}).get('dist_cfg', {}))
    main = is_main_process()
    with quiet(keep=main) as (log, console):
        with building(config):
            tester = ModelUnderTest(
                config,
                options.checkpoint,
                trust=options.trust_checkpoint,
                seed=options.seed or 0,
                limit=options.limit,
                cache_bytes=options.cache_mb << 20,
                save_to=options.save_corrupted,
                show_to=options.show_dir,
                attacks=any(job.cell.name == FGSM for job in jobs),
                amp=options.amp,
                allow_mismatch=options.allow_broadcast_mismatch,
            )
        speed_up(tester.model, options.channels_last, options.compile)
        identity = sweep_identity(config, checkpoint, tester, jobs, options.seed or 0, options.amp)
        if other is not None:
            check_comparable(identity, tester.dataset.metainfo, other)
        out = Path(options.out or _default_folder(config, options, identity))
        if not main:
            with stop_on_signals() as stop:
                _follow(tester, stop)
            torch.distributed.destroy_process_group()
            return out
        try:
            about = _about(config, options, tester)
            records = SweepRecords(out / 'results.jsonl', identity, about, jobs)
        except UserError:
            broadcast_object_list([None])  # the other processes wait for the plan
            raise
        kept = 'What was finished is kept; the same command resumes.'
        with (
            records,
            explained(config, loader='test_dataloader', after=lambda: kept, folder=out),
            stop_on_signals() as stop,
        ):
            log.open(out / 'test.log')
            try:
                _lead(tester, jobs, records, options, console, stop)
            except Stopped:
                if records.cells:  # a report of what there is
                    write_report(out, records.header, records.cells, other)
                raise
            text = write_report(out, records.header, records.cells, other)
            print(f'\n{text}\n\nresults: {out}', file=console, flush=True)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    return out


def _lead(
    tester: ModelUnderTest,
    jobs: Sequence[Job],
    records: SweepRecords,
    options: SweepOptions,
    console: Any,
    stop: StopRequest,
) -> None:
    """Run what is left to do, on the main process, until a signal asks for the end."""
    unfinished = [job for job in jobs if job.key not in records]
    # Pictures that were asked for later are made without touching the record.
    pending = [job for job in jobs if job in unfinished or tester.lacks_pictures(job)]
    broadcast_object_list([pending])
    done = len(jobs) - len(unfinished)
    print(start_banner(tester, jobs, done, records, options), file=console, flush=True)
    bar = _Bar(
        total=len(pending) * len(tester.dataset),
        unit='image',
        dynamic_ncols=True,
        mininterval=0.2 if sys.stderr.isatty() else 15,  # a log file needs fewer lines
        miniters=1,
        leave=False,
        disable=not pending,
    )
    with bar:
        for number, job in enumerate(pending, 1):
            bar.set_description(f'{number}/{len(pending)} {job.key}', refresh=False)
            started = time.perf_counter()
            scores = tester.run(job, _progress(bar, stop))
            seconds = time.perf_counter() - started
            bar.n = number * len(tester.dataset)
            if job.key in records:
                _end_together(stop)
                continue
            file = Path('scores') / f'{job.key}.csv'
            _write_image_scores(records.path.parent / file, tester.dataset.names, scores)
            records.append(_record(job, scores, len(tester.dataset), seconds, str(file), options))
            figures = '  '.join(
                f'{HEADLINES.get(name, name)} {value:.2f}' for name, value in headline(scores)
            )
            repeat = f', repeat {job.repeat + 1}' if job.cell.random else ''
            line = f'[{len(records.cells)}/{len(jobs)}] {job.cell.label}{repeat}: {figures}'
            bar.write(f'{line}  ({seconds:.1f} s)', file=console)
            console.flush()
            _end_together(stop)


def _follow(tester: ModelUnderTest, stop: StopRequest) -> None:
    """Run the same jobs as the main process."""
    plan: list[Any] = [None]
    broadcast_object_list(plan)
    if plan[0] is None:
        raise SystemExit(2)  # the main process says why
    for job in plan[0]:
        tester.run(job)
        _end_together(stop)


def _progress(bar: tqdm, stop: StopRequest) -> Callable[[int], Any]:
    """Progress of all processes, judged by this one; a process alone may stop after any batch."""

    def after_batch(images: int) -> None:
        bar.update(min(images * get_world_size(), bar.total - bar.n))
        if stop.number and get_world_size() == 1:
            raise Stopped(stop.number)

    return after_batch


def _end_together(stop: StopRequest) -> None:
    """After a pass, which all processes finish together: end if any of them was asked to."""
    for number in all_gather_object(stop.number):
        if number:
            raise Stopped(number)


def headline(scores: Scores) -> list[tuple[str, float]]:
    """The figures that stand for the whole: mIoU, or box AP and mask AP."""
    found = [(name, scores.metrics[name]) for name in HEADLINES if name in scores.metrics]
    return found or list(scores.metrics.items())[:1]


def _record(
    job: Job, scores: Scores, images: int, seconds: float, file: str, options: SweepOptions
) -> dict[str, Any]:
    return {
        **job_facts(job),
        'seed': options.seed or 0,
        'images': images,
        'seconds': round(seconds, 3),
        'finished': datetime.now(timezone.utc).isoformat(timespec='milliseconds'),
        'metrics': scores.metrics,
        'units': scores.units,
        'upstream': scores.upstream,
        'per_class': scores.per_class,
        'per_image': file,
    }


def _write_image_scores(path: Path, names: Sequence[str], scores: Scores) -> None:
    rows = zip(names, *scores.per_image.values(), strict=True)
    known = (['' if isinstance(x, float) and math.isnan(x) else x for x in row] for row in rows)
    write_atomically(path, csv_text([['image', *scores.per_image], *known]))


def _default_folder(config: Config, options: SweepOptions, identity: Mapping[str, Any]) -> Path:
    """One folder for one command: another checkpoint or option never meets old results."""
    plain = not (options.corruption or options.fgsm)
    name = (options.suite or 'clean') if plain else 'custom'
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]
    return Path(config.work_dir) / f'test_{name}_{digest}'


def _about(config: Config, options: SweepOptions, tester: ModelUnderTest) -> dict[str, Any]:
    return {
        'config': options.config,
        'schedule': config.get('schedule'),
        'checkpoint': options.checkpoint,
        'dataset': str(config.test_dataloader.dataset.get('type')),
        'classes': list(tester.dataset.metainfo.get('classes') or ()),
        'suite': options.suite,
        'parameters': sum(p.numel() for p in tester.model.parameters()),
        'family': family.current_family(),
        'torch': torch.__version__,
        'device': next(tester.model.parameters()).device.type,
        'processes': get_world_size(),
    }
