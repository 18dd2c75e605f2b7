"""Compare models seed by seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cb_mm.robustness.statistics import Summary, summarize

from .camvid_models import MODELS, STARTS

#: model -> seed -> record of the run
Models = dict[str, dict[int, Mapping[str, Any]]]
Measure = Callable[[Mapping[str, Any]], float]


def by_start(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, Models]:
    """Return the runs in the order of the tables: start -> model -> seed -> record."""
    starts: dict[str, Models] = {}
    for start in STARTS:
        for model in MODELS:
            for key, record in runs.items():
                if key.startswith(f'{start}/{model}/'):
                    seeds = starts.setdefault(start, {}).setdefault(model, {})
                    seeds[int(key.rpartition('/')[2])] = record
    return starts


def gap(models: Models, model: str, measure: Measure) -> Summary | None:
    """Return the model minus none, seed by seed; None if no seed has both."""
    both = sorted(models.get(model, {}).keys() & models.get('none', {}).keys())
    gaps = [measure(models[model][seed]) - measure(models['none'][seed]) for seed in both]
    return summarize(gaps) if gaps else None


def score(cell: str) -> Measure:
    """Return a measure: the mIoU under a corruption."""
    return lambda record: record['cells'][cell]['mIoU']
