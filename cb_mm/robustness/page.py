"""``report.html``: the whole test in one file that needs nothing else, not even a network."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..corruption.registry import words
from ..fileio.atomic import write_atomically
from ..fileio.result_files import plain
from ..fileio.safe_text import one_line
from .comparison_text import comparison_notes
from .image_scores import read_image_scores
from .jobs import count
from .metrics import HEADLINES
from .overall import mean_over_suite, worst_of_suite
from .reliability import CALIBRATION, accuracy_of, has_calibration, reliability_of
from .units import PERCENT
from .worst_images import image_metric, pass_key, read_worst_images

FILE = 'report.html'
#: Rows of the table of images: those with the lowest scores.
_IMAGES = 500
_TEMPLATE = Path(__file__).with_name('report.html')


def write_page(
    folder: Path,
    results: Mapping[str, Any],
    worst: Sequence[Mapping[str, Any]],
    other: Mapping[str, Any] | None = None,
) -> Path:
    """Write the page.

    Args:
        folder: Of the results; the scores of the images are there.
        results: Content of ``results.json``.
        worst: Images to show, see `draw_worst_images`.
        other: Results of a second model, shown beside the first.
    """
    data = plain(page_data(folder, results, worst, other))
    # In a script element only '<' could end the element or begin a comment.
    text = json.dumps(data, ensure_ascii=False, allow_nan=False).replace('<', '\\u003c')
    page = _TEMPLATE.read_text(encoding='utf-8')
    page = page.replace('{{title}}', html.escape(data['title'])).replace('{{data}}', text)
    return write_atomically(folder / FILE, page)


def page_data(
    folder: Path,
    results: Mapping[str, Any],
    worst: Sequence[Mapping[str, Any]],
    other: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return everything that the page shows, as plain values."""
    comparison = results.get('comparison') or {'this': results['model'], 'rows': []}
    models = [one_line(comparison['this'])]
    if other is not None:
        models.append(one_line(comparison.get('other') or other['model']))
    about, identity = results['about'], results['identity']
    facts = {
        'checkpoint': one_line(about.get('checkpoint') or 'a built model'),
        'data': f'{count(identity["images"], "image")} of {one_line(about.get("dataset"))}',
        'parameters': f'{about["parameters"]:,}' if about.get('parameters') else '',
        'software': f'{about.get("family")}, torch {about.get("torch")}, {about.get("device")}',
        'seed': str(identity['seed']),
    }
    metric = image_metric(results['headline'])
    return {
        'title': ' and '.join(models),
        'models': models,
        'facts': {name: text for name, text in facts.items() if text},
        'metrics': [
            {'name': name, 'title': _titled(name, results['units'].get(name))}
            for name in results['headline']
        ],
        'cells': [_cell(cell, results, other, comparison['rows']) for cell in results['cells']],
        'overall': _overall(results, other),
        'mce': _errors(results.get('mce')),
        'calibration': {**CALIBRATION, 'accuracy': 'accuracy'} if has_calibration(results) else {},
        'classes': _classes(results, other),
        'images': _images(folder, results, other, metric),
        'imageMetric': HEADLINES.get(metric or '', (metric or '').replace('_', ' ')),
        'worst': _with_other(worst, other),
        'notes': _notes(results, other),
    }


def _overall(results: Mapping[str, Any], other: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return mPC and the worst case by model, if they are over the same corruptions."""
    keys = {cell['key'] for cell in results['cells']}
    twins = [cell for cell in (other or {'cells': []})['cells'] if cell['key'] in keys]
    sides = [results['cells'], twins] if len(twins) == len(keys) else [results['cells']]
    return [
        {
            name: {'mean': mean_over_suite(cells, name), 'worst': worst_of_suite(cells, name)}
            for name in results['headline']
            if all(name in cell['metrics'] for cell in cells)
        }
        for cells in sides
    ]


def _errors(mce: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if mce is None else {**mce, 'reference': one_line(mce['reference'])}


def _titled(name: str, unit: str | None) -> str:
    title = HEADLINES.get(name, name)
    return f'{title} (%)' if unit == PERCENT else title


def _cell(
    cell: Mapping[str, Any],
    results: Mapping[str, Any],
    other: Mapping[str, Any] | None,
    rows: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    twin: Mapping[str, Any] = next(
        (one for one in (other or {'cells': []})['cells'] if one['key'] == cell['key']), {}
    )
    figures = {}
    for name in results['headline']:
        gap = next((r for r in rows if (r['key'], r['metric']) == (cell['key'], name)), {})
        figures[name] = {
            'this': _figure(cell['metrics'].get(name)),
            'other': _figure((twin.get('metrics') or {}).get(name)),
            'difference': gap.get('difference'),
            'overImages': gap.get('over_images'),
            'p': gap.get('p'),
            'pHolm': gap.get('p_holm'),
            'significant': gap.get('significant'),
            'retention': (cell.get('retention') or {}).get(name),
        }
    return {
        'key': cell['key'],
        'title': cell['title'],
        'corruption': words(cell['corruption']),
        'severity': cell['severity'],
        'n': cell['n'],
        'figures': figures,
        'calibration': {'this': _calibration(cell), 'other': _calibration(twin)},
    }


def _calibration(cell: Mapping[str, Any]) -> dict[str, Any] | None:
    if 'ECE' not in (cell.get('metrics') or {}):
        return None
    figures = {name: cell['metrics'][name]['mean'] for name in CALIBRATION}
    bins = [one for one in reliability_of(cell) if one['confidence'] is not None]
    return {'figures': {**figures, 'accuracy': accuracy_of(cell)}, 'bins': bins}


def _figure(metric: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not metric or metric.get('mean') is None:
        return None
    images = metric.get('over_images') or {}
    return {
        **{name: metric[name] for name in ('mean', 'low', 'high')},
        'imagesLow': images.get('low'),
        'imagesHigh': images.get('high'),
    }


def _classes(results: Mapping[str, Any], other: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return, for the first metric that has them, the scores of every class in every cell."""
    cells = results['cells']
    if not cells or not cells[0]['per_class']:
        return []
    name = next(iter(cells[0]['per_class']))
    theirs = {
        cell['key']: cell['per_class'].get(name, {}) for cell in (other or {}).get('cells', ())
    }
    rows = []
    for label in cells[0]['per_class'][name]:
        this = {cell['key']: cell['per_class'].get(name, {}).get(label) for cell in cells}
        its = {key: row.get(label) for key, row in theirs.items()}
        gaps = {
            row['key']: row['per_class'][label]
            for row in (results.get('comparison') or {'rows': ()})['rows']
            if name == 'IoU' and label in (row.get('per_class') or {})
        }
        one = {'name': one_line(label), 'metric': name, 'this': this, 'other': its, 'gaps': gaps}
        rows.append(one)
    return rows


def _images(
    folder: Path, results: Mapping[str, Any], other: Mapping[str, Any] | None, metric: str | None
) -> dict[str, Any]:
    """Return the scores of the images with the lowest ones, cell by cell."""
    sides = []
    names: list[str] = []
    for where, cells in ((folder, results['cells']), _side_of(other)):
        columns: dict[str, np.ndarray] = {}
        for cell in cells:
            found = read_image_scores(where, pass_key(cell)) if where else None
            if found is None or metric not in found.metrics:
                continue
            names = names or found.names
            if found.names == names:
                columns[cell['key']] = found.metrics[metric]
        sides.append(columns)
    if not names or not sides[0]:
        return {'rows': [], 'total': 0}
    first = next(iter(sides[0].values()))
    order = np.argsort(np.where(np.isnan(first), np.inf, first), kind='stable')[:_IMAGES]
    rows = [
        {
            'name': one_line(names[number]),
            'this': {key: values[number] for key, values in sides[0].items()},
            'other': {key: values[number] for key, values in sides[1].items()},
        }
        for number in order
    ]
    return {'rows': rows, 'total': len(names)}


def _side_of(other: Mapping[str, Any] | None) -> tuple[str | None, Sequence[Mapping[str, Any]]]:
    return (None, ()) if other is None else (other.get('folder'), other['cells'])


def _with_other(
    worst: Sequence[Mapping[str, Any]], other: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    theirs = read_worst_images(None if other is None else other.get('folder'))
    return [{**one, 'other': theirs.get(str(one['image']))} for one in worst]


def _notes(results: Mapping[str, Any], other: Mapping[str, Any] | None) -> list[str]:
    notes = list(results['notes'])
    if other is not None:
        notes.append(
            'Differences are the first model minus the second; "clear" are those with a p (Holm) '
            'below 0.05. Of a class, p is adjusted for the number of classes.'
        )
        notes += comparison_notes(results['comparison']) if results.get('comparison') else []
    return notes
