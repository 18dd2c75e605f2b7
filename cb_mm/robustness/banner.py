"""What a sweep prints before it starts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from mmengine.dist import get_world_size

from ..fileio.safe_text import one_line
from .data import labels_without_image
from .jobs import Job, count
from .records import SweepRecords
from .tester import ModelUnderTest


def start_banner(
    tester: ModelUnderTest,
    jobs: Sequence[Job],
    done: int,
    records: SweepRecords,
    options: Any,
) -> str:
    """Return what is about to be done.

    Args:
        tester: The model and its images.
        jobs: All passes.
        done: How many of them an earlier run finished.
        records: Where they are kept.
        options: The ``SweepOptions``.
    """
    size, batch = len(tester.dataset), len(tester.loader.batches.batches[0])
    device = next(tester.model.parameters()).device.type
    cells = list(dict.fromkeys(job.cell.key for job in jobs))
    shown = ', '.join(cells[:8]) + (f', … {len(cells)} in all' if len(cells) > 8 else '')
    repeats = max(job.repeat for job in jobs) + 1
    rows = {
        'config': options.name,
        'checkpoint': options.checkpoint or 'none: the model was given with its weights',
        'images': f'{size}, {batch} per batch, on {device} × {get_world_size()}',
        'cells': shown,
        'passes': f'{len(jobs)}' + (f' ({repeats} repeats of random cells)' if repeats > 1 else ''),
        'memory': f'decoded images stay in memory, up to {options.cache_mb} MiB per process',
        'results': os.path.join(records.path.parent, ''),
    }
    if done:
        rows['done'] = f'{done} of {len(jobs)} passes, by an earlier run; resuming'
    if records.dropped:
        rows['dropped'] = records.dropped
    lonely = labels_without_image(tester.dataset.dataset)
    if lonely:
        rows['note'] = (
            f'{count(len(lonely), "label map")} without an image, such as {lonely[0]}: not tested'
        )
    width, rule = max(map(len, rows)), '-' * 72
    lines = (f'{name:<{width}}  {one_line(value)}' for name, value in rows.items())
    return '\n'.join([rule, *lines, rule])
