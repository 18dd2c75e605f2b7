"""Report files from the records of a sweep, for readers and for other programs.

``results.json`` holds everything, ``results.csv`` one line per cell and metric, ``per_class.csv``
one line per class, ``results.md`` tables to paste, ``robustness.png`` and ``.svg`` the picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..checkpoints.label_set import LabelSet
from ..errors import UserError
from ..fileio.atomic import write_atomically
from ..fileio.figures import USUAL_FORMATS, save_figure
from ..fileio.result_files import plain, write_csv, write_json
from .attack_report import attack_notes, check_same_attacks, write_attack_files
from .attacks.traces import merge_summaries
from .image_intervals import add_image_intervals, add_paired_intervals
from .jobs import CLEAN, title
from .metrics import HEADLINES
from .paper import paper_figures
from .plots import robustness_figure
from .results_file import FORMAT, VERSION
from .statistics import WHAT_REPEATS_MEASURE, difference, mean_performance, retention, summarize
from .tables import markdown


def write_report(
    folder: str | Path,
    header: Mapping[str, Any],
    records: Sequence[Mapping[str, Any]],
    other: Mapping[str, Any] | None = None,
    formats: Sequence[str] = USUAL_FORMATS,
) -> str:
    """Write all files of a sweep into its folder.

    Args:
        folder: where to.
        header: first record of ``results.jsonl``.
        records: the finished passes.
        other: results of another model (see ``read_compared``) to compare with.
        formats: of the figure.

    Returns:
        The text of ``results.md``.
    """
    folder = Path(folder)
    results = summarize_records(header, records)
    add_image_intervals(results, folder)
    if other is not None:
        results['comparison'] = compare(results, other)
        add_paired_intervals(results['comparison'], results, other, folder)
        write_csv(folder / 'comparison.csv', *_comparison_table(results['comparison']))
    results = plain(results)
    text = markdown(results)
    write_json(folder / 'results.json', results)
    write_csv(folder / 'results.csv', *_results_table(results))
    write_csv(folder / 'per_class.csv', *_per_class_table(results))
    write_atomically(folder / 'results.md', text + '\n')
    save_figure(robustness_figure(results, other), folder / 'robustness', formats, dpi=130)
    write_attack_files(folder, results, formats)
    return text


def summarize_records(
    header: Mapping[str, Any], records: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the content of ``results.json``, from the records."""
    about, identity = header['about'], header['identity']
    cells: dict[str, dict[str, Any]] = {}
    for key in identity['cells']:
        same = [record for record in records if _cell_key(record) == key]
        if same:
            cells[key] = _summarize_cell(key, same)
    metrics = next(iter(cells.values()))['metrics'] if cells else {}
    shown = [name for name in HEADLINES if name in metrics] or list(metrics)[:1]
    clean = cells.get(CLEAN)
    for cell in cells.values():
        cell['retention'] = {
            name: _retention(cell, clean, name) for name in shown if clean is not None
        }
    summary = {name: _overall(cells.values(), clean, name) for name in shown}
    notes = [WHAT_REPEATS_MEASURE] if any(cell['n'] > 1 for cell in cells.values()) else []
    notes += attack_notes(identity)
    return {
        'format': FORMAT,
        'version': VERSION,
        'model': model_name(about),
        'about': about,
        'identity': identity,
        'headline': shown,
        'units': next(iter(cells.values()))['units'] if cells else {},
        'cells': list(cells.values()),
        'summary': {name: value for name, value in summary.items() if value},
        'paper': paper_figures(about),
        'notes': notes,
    }


def _cell_key(record: Mapping[str, Any]) -> str:
    level = record['level']
    return record['corruption'] if level is None else f'{record["corruption"]}={level:g}'


def _summarize_cell(key: str, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    records = sorted(records, key=lambda record: record['repeat'])
    first = records[0]
    metrics: dict[str, dict[str, Any]] = {}
    for name in first['metrics']:
        values = [record['metrics'].get(name) for record in records]
        if any(value is None for value in values):  # no object of this size, no such class
            metrics[name] = {'n': len(values), 'mean': None, 'std': None, 'low': None, 'high': None}
        else:
            metrics[name] = asdict(summarize(values))
        metrics[name]['values'] = values
    attacks = [record['attack'] for record in records if record.get('attack')]
    return {
        'key': key,
        'title': title(first['corruption'], first['level'], first['severity']),
        **{name: first[name] for name in ('corruption', 'level', 'severity', 'random', 'seed')},
        'n': len(records),
        'repeats': [record['repeat'] for record in records],
        'seconds': sum(record['seconds'] for record in records),
        'metrics': metrics,
        'units': first['units'],
        'per_class': {
            name: {label: _mean([r['per_class'][name][label] for r in records]) for label in row}
            for name, row in first['per_class'].items()
        },
        'upstream': first['upstream'],
    } | ({'attack': merge_summaries(attacks)} if len(attacks) == len(records) else {})


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _retention(cell: Mapping, clean: Mapping, name: str) -> float | None:
    values = (cell['metrics'][name]['mean'], clean['metrics'][name]['mean'])
    return None if None in values else retention(*values)


def _overall(cells: Any, clean: Mapping | None, name: str) -> dict[str, Any] | None:
    """Return mPC and rPC, if there are severities."""
    scores = {
        (cell['corruption'], cell['severity']): cell['metrics'][name]['mean']
        for cell in cells
        if cell['severity'] is not None and cell['metrics'][name]['mean'] is not None
    }
    base = clean['metrics'][name]['mean'] if clean else None
    return asdict(mean_performance(scores, base)) if scores else None


def model_name(about: Mapping[str, Any]) -> str:
    """Return what a model is called in tables: its config, and its schedule if there is one."""
    stem, schedule = Path(str(about.get('config'))).stem, about.get('schedule')
    return f'{stem} ({schedule})' if schedule else stem


def check_comparable(
    identity: Mapping[str, Any], metainfo: Mapping[str, Any], other: Mapping[str, Any]
) -> None:
    """Refuse to compare two models on different images, or with classes in a different order."""
    there = other['identity']
    if (there['data'], there['annotations']) != (identity['data'], identity['annotations']):
        raise UserError(
            f'`compare`: {other["model"]} was tested on different images ({there["images"]}, here '
            f'{identity["images"]}). Test both on the same data, with the same `limit`.'
        )
    check_same_attacks(identity, other)
    moved = LabelSet.of_metainfo(other['about']).moved(LabelSet.of_metainfo(metainfo))
    if moved:
        name, there, here = moved
        raise UserError(
            f'`compare`: {other["model"]} was tested with its classes in a different order: '
            f'{name!r} is number {there} there and {here} here. Test both with the same '
            'classes (metainfo).'
        )


def compare(results: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Compare two models cell by cell: this one, the other one, and their difference."""
    names = [
        name
        for name in results['headline']
        if name in other['headline'] and results['units'][name] == other['units'][name]
    ]
    theirs = {cell['key']: cell for cell in other['cells']}
    same_seed = results['identity']['seed'] == other['identity']['seed']
    rows = []
    for cell in results['cells']:
        if cell['key'] not in theirs:
            continue
        twin = theirs[cell['key']]
        for name in names:
            ours, their = ({**one['metrics'][name]} for one in (cell, twin))
            if ours['mean'] is None or their['mean'] is None:
                continue
            this, that = (
                dict(zip(one['repeats'], one['metrics'][name]['values'], strict=True))
                for one in (cell, twin)
            )
            gap = difference(this, that, same_noise=cell['random'] and same_seed)
            rows.append(
                {
                    'key': cell['key'],
                    'title': cell['title'],
                    'metric': name,
                    'this': ours,
                    'other': their,
                    'difference': {**asdict(gap), 'clear': gap.clear},
                }
            )
    left = [c['title'] for c in results['cells'] if c['key'] not in theirs]
    first, second = results['model'], other['model']
    if first == second:
        first, second = (
            f'{one["model"]}, {Path(str(one["about"].get("checkpoint"))).name}'
            for one in (results, other)
        )
    return {'this': first, 'other': second, 'rows': rows, 'not_in_other': left}


_SUMMARY_COLUMNS = ('n', 'mean', 'std', 'low', 'high')
#: The header and the rows of a CSV file.
_Table = tuple[list[str], list[list]]


def _results_table(results: Mapping[str, Any]) -> _Table:
    header = ['corruption', 'level', 'severity', 'metric', *_SUMMARY_COLUMNS, 'retention']
    header += ['images_low', 'images_high']
    rows = []
    for cell in results['cells']:
        for name, values in cell['metrics'].items():
            rows.append(
                [
                    *(cell[key] for key in ('corruption', 'level', 'severity')),
                    name,
                    *(values.get(key) for key in _SUMMARY_COLUMNS),
                    cell['retention'].get(name),
                    *_ends(values),
                ]
            )
    return header, rows


def _per_class_table(results: Mapping[str, Any]) -> _Table:
    cells = results['cells']
    header, rows = ['metric', 'class', *(cell['key'] for cell in cells)], []
    for name, row in (cells[0]['per_class'] if cells else {}).items():
        for label in row:
            rows.append([name, label, *(c['per_class'].get(name, {}).get(label) for c in cells)])
    return header, rows


def _comparison_table(comparison: Mapping[str, Any]) -> _Table:
    names = comparison['this'], comparison['other']
    header = ['cell', 'metric', *names, 'difference', 'low', 'high', 'method']
    header += ['images_low', 'images_high']
    rows = []
    for row in comparison['rows']:
        gap = row['difference']
        means = row['this']['mean'], row['other']['mean'], gap['mean']
        interval = gap['low'], gap['high'], gap['method']
        rows.append([row['key'], row['metric'], *means, *interval, *_ends(row)])
    return header, rows


def _ends(figure: Mapping[str, Any]) -> list[float | None]:
    """Return both ends of the interval over images."""
    interval = figure.get('over_images') or {}
    return [interval.get('low'), interval.get('high')]
