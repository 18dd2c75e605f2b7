"""Single figures for a whole suite, from the cells of ``results.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..corruption.registry import CORRUPTIONS
from .corruption_error import corruption_error, worst_case
from .jobs import CLEAN
from .statistics import mean_performance
from .units import PERCENT


def mean_over_suite(cells: Sequence[Mapping], name: str) -> dict[str, Any] | None:
    """Return mPC and rPC of a metric, if there are severities."""
    scores = {
        (cell['corruption'], cell['severity']): cell['metrics'][name]['mean']
        for cell in cells
        if cell['severity'] is not None and cell['metrics'][name]['mean'] is not None
    }
    return asdict(mean_performance(scores, _clean(cells, name))) if scores else None


def worst_of_suite(cells: Sequence[Mapping], name: str) -> dict[str, Any] | None:
    """Return the corruption that costs a metric most; attacks do not count."""
    scores = {
        cell['key']: cell['metrics'][name]['mean']
        for cell in cells
        if cell['corruption'] in CORRUPTIONS and cell['metrics'][name]['mean'] is not None
    }
    found = worst_case(scores)
    if found is None:
        return None
    cell = next(one for one in cells if one['key'] == found[0])
    kept = (cell.get('retention') or {}).get(name)
    return {'key': found[0], 'title': cell['title'], 'mean': found[1], 'retention': kept}


def errors_against(results: Mapping[str, Any], reference: Mapping[str, Any]) -> dict[str, Any]:
    """Return mCE and relative mCE of every headline metric that both have in per cent.

    Args:
        results: Content of a ``results.json``.
        reference: That of the reference.
    """
    found = {}
    for name in results['headline']:
        sides = [results, reference]
        if any(one['units'].get(name) != PERCENT for one in sides):
            continue
        rows = [_by_level(one['cells'], name) for one in sides]
        clean = [_clean(one['cells'], name) for one in sides]
        error = corruption_error(rows[0], rows[1], clean[0], clean[1])
        if error is not None:
            found[name] = asdict(error)
    return {'reference': reference['model'], 'metrics': found}


def _by_level(cells: Sequence[Mapping], name: str) -> dict[str, dict[str, float]]:
    """Return corruption -> cell -> mean; only severities where there are any, as for mPC."""
    chosen = [cell for cell in cells if cell['corruption'] in CORRUPTIONS]
    chosen = [cell for cell in chosen if cell['severity'] is not None] or chosen
    found: dict[str, dict[str, float]] = {}
    for cell in chosen:
        mean = (cell['metrics'].get(name) or {}).get('mean')
        if mean is not None:
            found.setdefault(cell['corruption'], {})[cell['key']] = mean
    return found


def _clean(cells: Sequence[Mapping], name: str) -> float | None:
    clean = next((cell for cell in cells if cell['key'] == CLEAN), None)
    return None if clean is None else (clean['metrics'].get(name) or {}).get('mean')
