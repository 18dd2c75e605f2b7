"""What a run left: its log, and checkpoints that must be equal."""

from __future__ import annotations

import json
from pathlib import Path

import torch


def logged(work: Path, name: str = 'loss') -> dict[int, float]:
    """Iteration -> loss or another number, from the log that mmengine writes."""
    found = {}
    for file in sorted(work.glob('*/vis_data/scalars.json')):
        for line in file.read_text().splitlines():
            record = json.loads(line)
            if name in record:
                found[record['step']] = record[name]
    return found


def assert_same(a: object, b: object, where: str = '') -> None:
    """Equal to the last bit, however deep."""
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b), where
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            assert_same(a[key], b[key], f'{where}.{key}')
    elif isinstance(a, (list, tuple)):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f'{where}[{i}]')
    else:
        assert a == b, where
