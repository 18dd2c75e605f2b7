"""What attacks did, on disk: ``attacks/PASS.csv`` image by image, and their means in the record.

A row of the file is one restart on one image: the loss at the start and after every step. The row
of the image that was tested also says after which step it was taken, and how far it is from the
original.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...fileio.json_shape import ListOf
from ...fileio.result_files import write_csv
from .pgd import Trace

FOLDER = 'attacks'
_NUMBER = (float, None)
#: Shape of what a record says of an attack.
SUMMARY = {'loss': ListOf(_NUMBER), 'kept_loss': _NUMBER, 'linf': _NUMBER, 'l2': _NUMBER}


def write_traces(folder: Path, key: str, names: Sequence[str], traces: Sequence[Trace]) -> Path:
    """Write the file of one pass; return its path below the folder."""
    path = Path(FOLDER) / f'{key}.csv'
    steps = len(traces[0].losses[0])
    head = ['image', 'restart', 'kept_step', 'linf', 'l2', *(f'loss_{k}' for k in range(steps))]
    rows = []
    for name, trace in zip(names, traces, strict=True):
        for restart, losses in enumerate(trace.losses):
            kept = [trace.step, trace.linf, trace.l2]
            rows.append([name, restart, *(kept if restart == trace.restart else [''] * 3), *losses])
    write_csv(folder / path, head, rows)
    return path


def summarize_traces(traces: Sequence[Trace]) -> dict[str, Any]:
    """Return the mean loss by step and of the tested images, and the largest distances."""
    curves = np.array([curve for trace in traces for curve in trace.losses])
    return {
        'loss': curves.mean(axis=0).tolist(),
        'kept_loss': float(np.mean([trace.loss for trace in traces])),
        'linf': max(trace.linf for trace in traces),
        'l2': max(trace.l2 for trace in traces),
    }


def merge_summaries(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one summary of several repeats: means of losses, largest distances."""
    curves = [one['loss'] for one in summaries]
    return {
        'loss': [_mean(column) for column in zip(*curves, strict=True)],
        'kept_loss': _mean([one['kept_loss'] for one in summaries]),
        **{name: max((one[name] or 0.0) for one in summaries) for name in ('linf', 'l2')},
    }


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean; None if any value is missing, as it is for a loss that is not finite."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None
