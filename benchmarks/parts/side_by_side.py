"""Run several long jobs at a time, with one line of progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

Job = TypeVar('Job')
_SECONDS = 30  # between two progress checks


def side_by_side(
    do: Callable[[Job], Any],
    lengths: Mapping[Job, int],
    place: Callable[[Job], int],
    jobs: int,
) -> Iterator[tuple[Job, Any]]:
    """Do all jobs, some at a time; yield each with its result when it is finished.

    Args:
        do: Does one job, in a thread: it should wait for a process.
        lengths: Job -> its number of steps.
        place: Number of finished steps of a running job.
        jobs: How many run at a time.
    """
    started, total, before = time.monotonic(), sum(lengths.values()), None
    finished: set[Job] = set()
    with ThreadPoolExecutor(jobs) as pool:
        waiting: dict[Future, Job] = {pool.submit(do, job): job for job in lengths}
        try:
            while waiting:
                done, _ = wait(waiting, timeout=_SECONDS, return_when=FIRST_COMPLETED)
                for future in done:
                    job = waiting.pop(future)
                    finished.add(job)
                    yield job, future.result()
                running = [job for future, job in waiting.items() if future.running()]
                steps = {job: place(job) for job in running}
                now = sum(lengths[job] for job in finished) + sum(steps.values())
                before = now if before is None else before
                pace = (time.monotonic() - started) / max(now - before, 1)
                left = (total - now) * pace if now > before else None
                _say(len(finished), len(lengths), steps, lengths, left)
        finally:  # a job failed, or Ctrl-C: running jobs end by themselves or with us
            pool.shutdown(wait=False, cancel_futures=True)


def _say(
    done: int, number: int, steps: Mapping[Any, int], lengths: Mapping[Any, int],
    left: float | None,
) -> None:  # fmt: skip
    running = ', '.join(f'{job.key} {step}/{lengths[job]}' for job, step in steps.items())
    rest = '' if left is None else f'; about {left / 3600:.1f} h left'
    end, start = ('', '\r\033[K') if sys.stdout.isatty() else ('\n', '')
    print(f'{start}{done} of {number} runs done; {running}{rest}', end=end, flush=True)
