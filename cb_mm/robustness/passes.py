"""The passes of a sweep, on one process or several; each is on disk when it is finished."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TextIO

import torch
from mmengine.dist import all_reduce, broadcast_object_list, get_world_size
from tqdm import tqdm

from ..engine.signals import Stopped, StopRequest
from .attacks.traces import summarize_traces, write_traces
from .banner import start_banner
from .image_scores import write_image_scores
from .jobs import Job
from .metrics import HEADLINES, Scores
from .records import SweepRecords, job_facts
from .tester import ModelUnderTest

if TYPE_CHECKING:
    from .sweep import SweepOptions


class _Bar(tqdm):
    """A progress bar without tqdm's own thread: the workers are forked while the bar exists."""

    monitor_interval = 0


def lead(
    tester: ModelUnderTest,
    jobs: Sequence[Job],
    records: SweepRecords,
    options: SweepOptions,
    console: TextIO | None,
    stop: StopRequest,
) -> None:
    """Run what is left to do, on the main process, until a signal asks for the end.

    Args:
        tester: The model and its images.
        jobs: All passes.
        records: Where they are kept.
        options: Of the sweep.
        console: Where to print progress; None for nowhere.
        stop: Whether a signal requested the end.
    """
    unfinished = [job for job in jobs if job.key not in records]
    # Pictures that were requested later are made without changing the record.
    pending = [job for job in jobs if job in unfinished or tester.lacks_pictures(job)]
    broadcast_object_list([pending])
    done = len(jobs) - len(unfinished)
    if console is not None:
        print(start_banner(tester, jobs, done, records, options), file=console, flush=True)
    bar = _Bar(
        total=len(pending) * len(tester.dataset),
        unit='image',
        dynamic_ncols=True,
        mininterval=0.2 if sys.stderr.isatty() else 15,  # a log file needs fewer lines
        miniters=1,
        leave=False,
        disable=console is None or not pending,
    )
    with bar:
        for number, job in enumerate(pending, 1):
            bar.set_description(f'{number}/{len(pending)} {job.key}', refresh=False)
            started = time.perf_counter()
            scores = tester.run(job, _after_batch(tester, stop, bar))
            seconds = time.perf_counter() - started
            bar.n = number * len(tester.dataset)
            if scores is None or job.key in records:  # the scores are the main process's
                _end_together(stop)
                continue
            names, folder = tester.dataset.names, records.path.parent
            file = write_image_scores(folder, job.key, names, scores)
            if scores.traces:
                write_traces(folder, job.key, names, scores.traces)
            records.append(_record(job, scores, len(tester.dataset), seconds, str(file), options))
            if console is not None:
                place = f'[{len(records.cells)}/{len(jobs)}]'
                bar.write(f'{place} {_line(job, scores)}  ({seconds:.1f} s)', file=console)
                console.flush()
            _end_together(stop)


def _line(job: Job, scores: Scores) -> str:
    figures = '  '.join(
        f'{HEADLINES.get(name, name)} {value:.2f}' for name, value in headline(scores)
    )
    repeat = f', repeat {job.repeat + 1}' if job.cell.random else ''
    return f'{job.cell.label}{repeat}: {figures}'


def follow(tester: ModelUnderTest, stop: StopRequest) -> None:
    """Run the same jobs as the main process."""
    plan: list[Any] = [None]
    broadcast_object_list(plan)
    if plan[0] is None:
        raise SystemExit(2)  # the main process reports why
    for job in plan[0]:
        tester.run(job, _after_batch(tester, stop))
        _end_together(stop)


def _after_batch(
    tester: ModelUnderTest, stop: StopRequest, bar: tqdm | None = None
) -> Callable[[int], Any]:
    """Show the progress of all processes, judged by this one, and end when one was asked to."""
    left = tester.loader.common_batches  # the same in all processes

    def after_batch(images: int) -> None:
        nonlocal left
        if bar is not None:
            bar.update(min(images * get_world_size(), bar.total - bar.n))
        if left > 0:
            _end_together(stop)
        left -= 1

    return after_batch


def _end_together(stop: StopRequest) -> None:
    """End here, where all processes are at the same place, if any of them was asked to."""
    number = torch.tensor([stop.number])
    if get_world_size() > 1:
        all_reduce(number, 'max')
    if number.item():
        stop.leaving = get_world_size() > 1
        raise Stopped(int(number.item()))


def headline(scores: Scores) -> list[tuple[str, float]]:
    """Return the headline figures: mIoU, or box AP and mask AP."""
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
        'curves': scores.curves,
        'per_image': file,
    } | ({'attack': summarize_traces(scores.traces)} if scores.traces else {})
