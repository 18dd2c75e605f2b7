"""Jobs measured in turns: time, and the memory of the same turns; rows for JSON and Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cb_mm.apis.benchmark_report import peak_memory, ratio, time_in_turns


def measure(
    jobs: Mapping[str, Callable[[], object]], repeats: int, warm_up: int = 1
) -> dict[str, dict[str, Any]]:
    """Return a row per job: its times, the largest peak of its turns, and the first job / it.

    Memory is measured in the turns themselves: a separate run of a minute would double the time.
    """
    peaks: dict[str, list[int]] = {name: [] for name in jobs}

    def watched(name: str) -> Callable[[], None]:
        return lambda: peaks[name].append(peak_memory(jobs[name]) or 0)

    times = time_in_turns({name: watched(name) for name in jobs}, repeats, warm_up)
    first = times[next(iter(jobs))]
    rows = {}
    for name, found in times.items():
        quotient = ratio(first, found)
        quotient['of_fastest'] = min(first.cpu) / min(found.cpu)
        rows[name] = {**found.summary(), 'peak_bytes': max(peaks[name]), 'first_to_this': quotient}
    return rows


def cells(row: Mapping[str, Any] | None) -> list[str]:
    """Return CPU seconds, peak MiB and ratio as Markdown cells; dashes where nothing was run."""
    if row is None:
        return ['–'] * 3
    quotient = row['first_to_this']
    return [
        f'{row["cpu_median_s"]:.2f} ({row["cpu_fastest_s"]:.2f})',
        f'{row["peak_bytes"] / 2**20:,.0f}',
        f'{quotient["ratio"]:.2f} ({quotient["of_fastest"]:.2f})',
    ]
