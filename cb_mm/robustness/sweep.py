"""Test a model on clean and corrupted images, and never lose a result.

The model is built and loaded once. Every finished pass is on disk before the next one starts, and
the same command again goes on where it was stopped.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.dist import broadcast_object_list, get_world_size, init_dist, is_main_process
from tqdm import tqdm

from .. import family
from ..atomic import write_atomically
from ..building import building
from ..config import replace_sync_bn
from ..errors import UserError
from ..normalization import set_normalization
from ..run_errors import explained
from ..runner import RunOptions, check_data, prepare_config, start_processes
from ..speed import speed_up
from .data import labels_without_image
from .identity import config_digest, file_digest
from .jobs import FGSM, Job, count, plan_cells, plan_jobs
from .metrics import HEADLINES, Scores
from .quiet import quiet
from .records import RecordFile
from .report import check_comparable, read_results, write_report
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
    """Everything that ``tools/test.py`` does. Returns the folder of the results."""
    cells = plan_cells(options.suite, options.corruption, options.severity, options.fgsm)
    jobs = plan_jobs(cells, options.repeats)
    if options.limit is not None and options.limit < 1:
        raise UserError(f'--limit {options.limit}: at least one image is needed.')
    if options.cache_mb < 0:
        raise UserError(f'--cache-mb {options.cache_mb} is negative; 0 keeps nothing in memory.')
    other = read_results(options.compare) if options.compare else None
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
        identity = {
            'config': config_digest(config),
            'checkpoint': checkpoint,
            'data': tester.dataset.digest,
            'images': len(tester.dataset),
            'seed': options.seed or 0,
            'repeats': max(job.repeat for job in jobs) + 1,
            'cells': [cell.key for cell in cells],
        }
        if options.amp:  # the only way to run that is meant to move figures
            identity['amp'] = True
        if other is not None:
            check_comparable(identity, other)
        out = Path(options.out or _default_folder(config, options, identity))
        if not main:
            _follow(tester)
            torch.distributed.destroy_process_group()
            return out
        try:
            records = RecordFile(out / 'results.jsonl', identity, _about(config, options, tester))
        except UserError:
            broadcast_object_list([None])  # the other processes wait for the plan
            raise
        kept = 'What was finished is kept; the same command goes on.'
        with records, explained(config, loader='test_dataloader', after=lambda: kept, folder=out):
            log.open(out / 'test.log')
            try:
                _lead(tester, jobs, records, options, console)
            except KeyboardInterrupt:
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
    records: RecordFile,
    options: SweepOptions,
    console: Any,
) -> None:
    """Run what is left to do, on the main process."""
    done = {record['key'] for record in records.cells}
    unfinished = [job for job in jobs if job.key not in done]
    # Pictures that were asked for later are made without touching the record.
    pending = [job for job in jobs if job.key not in done or tester.lacks_pictures(job)]
    broadcast_object_list([pending])
    _print_start(tester, jobs, len(jobs) - len(unfinished), records, options, console)
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
            scores = tester.run(job, _whole_team(bar))
            seconds = time.perf_counter() - started
            bar.n = number * len(tester.dataset)
            if job.key in done:
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


def _follow(tester: ModelUnderTest) -> None:
    """Run the same jobs as the main process."""
    plan: list[Any] = [None]
    broadcast_object_list(plan)
    if plan[0] is None:
        raise SystemExit(2)  # the main process says why
    for job in plan[0]:
        tester.run(job)


def _whole_team(bar: tqdm) -> Callable[[int], Any]:
    """Progress of all processes, judged by this one."""
    return lambda images: bar.update(min(images * get_world_size(), bar.total - bar.n))


def headline(scores: Scores) -> list[tuple[str, float]]:
    """The figures that stand for the whole: mIoU, or box AP and mask AP."""
    found = [(name, scores.metrics[name]) for name in HEADLINES if name in scores.metrics]
    return found or list(scores.metrics.items())[:1]


def _record(
    job: Job, scores: Scores, images: int, seconds: float, file: str, options: SweepOptions
) -> dict[str, Any]:
    return {
        'key': job.key,
        'corruption': job.cell.name,
        'level': job.cell.level,
        'severity': job.cell.severity,
        'random': job.cell.random,
        'repeat': job.repeat,
        'seed': options.seed or 0,
        'images': images,
        'seconds': round(seconds, 3),
        'finished': datetime.now(timezone.utc).isoformat(timespec='milliseconds'),
        'metrics': scores.metrics,
        'upstream': scores.upstream,
        'per_class': scores.per_class,
        'per_image': file,
    }


def _write_image_scores(path: Path, names: Sequence[str], scores: Scores) -> None:
    table = io.StringIO()
    writer = csv.writer(table, lineterminator='\n')
    writer.writerow(['image', *scores.per_image])
    for row in zip(names, *scores.per_image.values(), strict=True):
        writer.writerow(['' if isinstance(x, float) and math.isnan(x) else x for x in row])
    write_atomically(path, table.getvalue())


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


def _print_start(
    tester: ModelUnderTest,
    jobs: Sequence[Job],
    done: int,
    records: RecordFile,
    options: SweepOptions,
    console: Any,
) -> None:
    size, batch = len(tester.dataset), len(tester.loader.batches.batches[0])
    device = next(tester.model.parameters()).device.type
    cells = list(dict.fromkeys(job.cell.key for job in jobs))
    shown = ', '.join(cells[:8]) + (f', … {len(cells)} in all' if len(cells) > 8 else '')
    repeats = max(job.repeat for job in jobs) + 1
    rows = {
        'config': options.config,
        'checkpoint': options.checkpoint,
        'images': f'{size}, {batch} a batch, on {device} × {get_world_size()}',
        'cells': shown,
        'passes': f'{len(jobs)}' + (f' ({repeats} repeats of random cells)' if repeats > 1 else ''),
        'memory': f'decoded images stay in memory, up to {options.cache_mb} MiB a process',
        'results': os.path.join(records.path.parent, ''),
    }
    if done:
        rows['done'] = f'{done} of {len(jobs)} passes, by an earlier run; going on'
    lonely = labels_without_image(tester.dataset.dataset)
    if lonely:
        rows['note'] = (
            f'{count(len(lonely), "label map")} without an image, such as {lonely[0]}: not tested'
        )
    width, rule = max(map(len, rows)), '-' * 72
    text = [rule, *(f'{name:<{width}}  {value}' for name, value in rows.items()), rule]
    print('\n'.join(text), file=console, flush=True)
