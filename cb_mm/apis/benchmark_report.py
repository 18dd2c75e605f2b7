"""Measurement of models side by side: time in turns, memory, multiplications; table, JSON, plot."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ..fileio.atomic import write_atomically
from ..fileio.figures import USUAL_FORMATS, check_formats, new_figure, save_figure
from ..fileio.result_files import write_json
from ..fileio.safe_text import figure_text
from ..models.ops.products import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LIBRARIES = ('torch', 'timm', 'numpy', 'mmengine', 'mmcv', 'mmsegmentation', 'mmdet')
_OTHER_NAMES = {'mmcv': ('mmcv-lite',), 'mmdet': ('onedl-mmdetection',)}


@dataclass
class Times:
    """Seconds of every turn of one job: wall time, and processor time of all threads."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, float]:
        """Return median, quartiles and minimum of wall time; median and minimum of CPU time."""
        low, _, high = quartiles(self.wall)
        return {
            'median_s': statistics.median(self.wall),
            'lower_quartile_s': low,
            'upper_quartile_s': high,
            'fastest_s': min(self.wall),
            'cpu_median_s': statistics.median(self.cpu),
            'cpu_fastest_s': min(self.cpu),
            'turns': len(self.wall),
        }


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return lower quartile, median and upper quartile; for one value, that value."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method='inclusive')
    return low, middle, high


def time_in_turns(
    jobs: Mapping[str, Callable[[], object]], repeats: int, warm_up: int = 1
) -> dict[str, Times]:
    """Run all jobs in turns, so that other load on the machine affects all of them.

    Every round begins with another job. The first ``warm_up`` rounds are not counted.
    """
    names = list(jobs)
    times = {name: Times() for name in names}
    for turn in range(-warm_up, repeats):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            wall, cpu = _timed(jobs[name])
            if turn >= 0:
                times[name].wall.append(wall)
                times[name].cpu.append(cpu)
    return times


def _timed(job: Callable[[], object]) -> tuple[float, float]:
    _wait_for_gpu()
    wall, cpu = time.perf_counter(), time.process_time()
    job()
    _wait_for_gpu()
    return time.perf_counter() - wall, time.process_time() - cpu


def _wait_for_gpu() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def ratio(ours: Times, theirs: Times, clock: str = 'cpu') -> dict[str, Any]:
    """Return ours / theirs: median and quartiles of the quotients turn by turn.

    Turns of one round are close together, so that a machine that slows down slows both.
    """
    mine, peer = getattr(ours, clock), getattr(theirs, clock)
    low, middle, high = quartiles([a / b for a, b in zip(mine, peer, strict=True)])
    return {'ratio': middle, 'lower_quartile': low, 'upper_quartile': high, 'clock': clock}


def count_multiplications(job: Callable[[], object]) -> int:
    """Count the multiply-adds of the products and convolutions that a job runs."""
    # torch does not count its fused attention on the CPU; the plain one does the same products.
    with (
        FlopCounterMode(display=False, custom_mapping=counted()) as counter,
        sdpa_kernel(SDPBackend.MATH),
    ):
        job()
    return counter.get_total_flops() // 2


def peak_memory(job: Callable[[], object]) -> int | None:
    """Return the peak bytes that a job adds to what was in use; None if not known.

    On a GPU those of torch's allocator; on Linux the resident memory of the process.
    """
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        job()
        return torch.cuda.max_memory_allocated() - before
    _give_back_memory()
    try:
        Path('/proc/self/clear_refs').write_text('5')  # resets the peak
        before = _status('VmRSS')
        job()
        return max(_status('VmHWM') - before, 0)
    except OSError:
        job()
        return None


def _give_back_memory() -> None:
    """Return freed memory to the system: it would otherwise hide the next peak."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # only GNU's C library has it
        ctypes.CDLL(None).malloc_trim(0)


def _status(key: str) -> int:
    for line in Path('/proc/self/status').read_text().splitlines():
        if line.startswith(f'{key}:'):
            return 1024 * int(line.split()[1])
    raise OSError(f'no {key}')


def machine() -> dict[str, Any]:
    """Return what the figures depend on: processor, cores, threads, versions.

    It holds no names and no paths.
    """
    info = Path('/proc/cpuinfo')
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(':')[2].strip() for line in lines if line.startswith('model name')]
    versions = {}
    for name in _LIBRARIES:
        for distribution in (f'onedl-{name}', name, *_OTHER_NAMES.get(name, ())):
            try:
                versions[distribution] = metadata.version(distribution)
                break
            except metadata.PackageNotFoundError:
                continue
    gpu = {'gpu': torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    return {
        'processor': models[0] if models else platform.machine(),
        'cores': os.cpu_count(),
        'threads': torch.get_num_threads(),
        **gpu,
        'python': platform.python_version(),
        **versions,
    }


@dataclass
class Row:
    """What was measured of one model."""

    name: str
    parameters: int
    multiplications: int
    batch: int
    forward: dict[str, float]
    forward_memory: int | None
    difference: float | None = None  # of the result from that of the first row of its model
    train: dict[str, float] | None = None
    train_memory: int | None = None


def table(rows: Sequence[Row]) -> str:
    """Format rows as Markdown. Ratios are to the first row; lower is better.

    "CPU" is the processor time of all threads: what is left to compare when other programs run.
    """
    train = any(row.train for row in rows)
    heads = ['model', 'parameters (M)', 'GMAC', 'forward (ms)', 'CPU (ms)', 'images/s', 'ratio']
    heads += ['peak (MiB)']
    heads += ['training step (ms)', 'ratio', 'peak (MiB)'] if train else []
    heads += ['difference'] if any(row.difference is not None for row in rows) else []
    lines = ['| ' + ' | '.join(heads) + ' |', '|---' * len(heads) + '|']
    for row in rows:
        cells = [
            row.name,
            f'{row.parameters / 1e6:.2f}',
            f'{row.multiplications / 1e9:.1f}',
            _milliseconds(row.forward),
            f'{1e3 * row.forward["cpu_median_s"]:.1f}',
            f'{row.batch / row.forward["median_s"]:.2f}',
            f'{row.forward["median_s"] / rows[0].forward["median_s"]:.2f}',
            _mebibytes(row.forward_memory),
        ]
        if train:
            first = rows[0].train
            cells += (
                [
                    _milliseconds(row.train),
                    f'{row.train["median_s"] / first["median_s"]:.2f}' if first else '–',
                    _mebibytes(row.train_memory),
                ]
                if row.train
                else ['–'] * 3
            )
        if 'difference' in heads:
            cells.append('–' if row.difference is None else f'{row.difference:.1e}')
        lines.append('| ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines) + '\n'


def _milliseconds(times: Mapping[str, float]) -> str:
    low, high = 1e3 * times['lower_quartile_s'], 1e3 * times['upper_quartile_s']
    return f'{1e3 * times["median_s"]:.1f} ({low:.1f} to {high:.1f})'


def _mebibytes(count: int | None) -> str:
    return '–' if count is None else f'{count / 2**20:.0f}'


def write_results(
    rows: Sequence[Row],
    about: Mapping[str, Any],
    out: str | Path,
    formats: Sequence[str] = USUAL_FORMATS,
) -> list[Path]:
    """Write benchmark.json, benchmark.md and the plot into a folder."""
    out, formats = Path(out), check_formats(formats)
    out.mkdir(parents=True, exist_ok=True)
    content = {'machine': machine(), **about, 'rows': [asdict(row) for row in rows]}
    files = [out / f'benchmark.{end}' for end in ('json', 'md')]
    write_json(files[0], content)
    write_atomically(files[1], table(rows))
    return files + save_figure(bar_chart(rows), out / 'benchmark', formats, dpi=110)


def bar_chart(rows: Sequence[Row]) -> Figure:
    """Draw one bar per model for each job, with whiskers between quartiles."""
    kinds = [('forward', 'forward')]
    kinds += [('train', 'training step')] if any(row.train for row in rows) else []
    figure = new_figure(4.2 * len(kinds) + 1.8, 0.9 + 0.45 * len(rows))
    axes = figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0]
    for axis, (key, title) in zip(axes, kinds, strict=True):
        for place, row in enumerate(rows):
            times = getattr(row, key)
            if times is None:
                continue
            middle = 1e3 * times['median_s']
            spread = [
                [middle - 1e3 * times['lower_quartile_s']],
                [1e3 * times['upper_quartile_s'] - middle],
            ]
            axis.barh(place, middle, xerr=spread, height=0.65, color='#4878a8', ecolor='#333333')
            axis.text(0, place, f' {middle:.0f}', va='center', color='white', fontsize=8)
        axis.set_yticks(range(len(rows)), [figure_text(row.name) for row in rows], fontsize=8)
        axis.set_xlabel(f'{title}, ms (median, quartiles)', fontsize=8)
        axis.tick_params(axis='x', labelsize=8)
        axis.spines[['top', 'right']].set_visible(False)
    axes[0].invert_yaxis()
    return figure
