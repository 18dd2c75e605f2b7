"""Two models, cell by cell: differences, their intervals, and how far they can be trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..checkpoints.label_set import LabelSet
from ..errors import UserError
from .attack_report import check_same_attacks
from .significance import LEVEL, deviation_per_image, holm, needed_number
from .statistics import difference

#: What is compared beside the headline, where both tests measured it.
_ALSO = ('ECE', 'Brier')


def check_comparable(
    identity: Mapping[str, Any],
    metainfo: Mapping[str, Any],
    other: Mapping[str, Any],
    option: str = 'compare',
) -> None:
    """Refuse to compare two models on different images, or with classes in a different order."""
    there = other['identity']
    if (there['data'], there['annotations']) != (identity['data'], identity['annotations']):
        raise UserError(
            f'`{option}`: {other["model"]} was tested on different images ({there["images"]}, here '
            f'{identity["images"]}). Test both on the same data, with the same `limit`.'
        )
    check_same_attacks(identity, other, option)
    _check_same_ice(identity, other, option)
    moved = LabelSet.of_metainfo(other['about']).moved(LabelSet.of_metainfo(metainfo))
    if moved:
        name, there, here = moved
        raise UserError(
            f'`{option}`: {other["model"]} was tested with its classes in a different order: '
            f'{name!r} is number {there} there and {here} here. Test both with the same '
            'classes (metainfo).'
        )


def _check_same_ice(identity: Mapping[str, Any], other: Mapping[str, Any], option: str) -> None:
    """Refuse to compare scores under frost whose ice is drawn in one test and photographed in one.

    Photographs of another content are another frost, too.
    """
    shared = {*identity['cells']} & {cell['key'] for cell in other['cells']}
    if not any(key.startswith('frost=') for key in shared):
        return
    here, there = (one.get('frost_pictures') for one in (identity, other['identity']))
    if here != there:
        ice = 'drawn' if there is None else 'photographed'
        raise UserError(
            f'`{option}`: frost of {other["model"]} has other ice, {ice}. Test both with the same '
            '`frost_pictures`, or without frost.'
        )


def compare(results: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Compare two models cell by cell: this one, the other one, and their difference.

    What it says of p and of needed numbers is by the repeats; `judge` it again with intervals over
    images.
    """
    theirs = {cell['key']: cell for cell in other['cells']}
    same_seed = results['identity']['seed'] == other['identity']['seed']
    names = _compared(results, other)
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
    comparison = {'this': first, 'other': second, 'rows': rows, 'not_in_other': left}
    judge(comparison, results['identity']['images'])
    return comparison


def _compared(results: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the metrics that both have, in the same unit."""
    wanted = [name for name in results['headline'] if name in other['headline']]
    both = [set(one['cells'][0]['metrics']) if one['cells'] else set() for one in (results, other)]
    wanted += [name for name in _ALSO if name in both[0] and name in both[1]]
    return [name for name in wanted if results['units'][name] == other['units'].get(name, '')]


def judge(comparison: dict[str, Any], images: int, detect: float = 1.0) -> None:
    """Add p-values, adjusted for the number of rows, and how much measuring would be enough.

    Args:
        comparison: With intervals over images where there are any.
        images: How many were tested.
        detect: The difference, in points, that the needed numbers are for.
    """
    rows = comparison['rows']
    for row in rows:
        gap, over_images = row['difference'], row.get('over_images') or {}
        known = [p for p in (gap['p'], over_images.get('p')) if p is not None]
        row['p'] = max(known) if known else None
        error = over_images.get('error')
        row['needed'] = {
            'repeats': None if gap['std'] is None else needed_number(gap['std'], detect),
            'images': None
            if error is None
            else needed_number(deviation_per_image(error, images), detect),
        }
    for metric in {row['metric'] for row in rows}:
        _adjust([row for row in rows if row['metric'] == metric])
    for row in rows:
        _adjust([*(row.get('per_class') or {}).values()])
    comparison['detect'] = detect


def _adjust(rows: Sequence[dict[str, Any]]) -> None:
    for row, adjusted in zip(rows, holm([row['p'] for row in rows]), strict=True):
        row['p_holm'] = adjusted
        row['significant'] = None if adjusted is None else adjusted < LEVEL


_JUDGED = ('p', 'p_holm', 'significant')


def comparison_table(comparison: Mapping[str, Any]) -> tuple[list[str], list[list]]:
    """Return the header and the rows of ``comparison.csv``."""
    names = comparison['this'], comparison['other']
    header = ['cell', 'metric', *names, 'difference', 'low', 'high', 'method']
    header += ['images_low', 'images_high', *_JUDGED, 'needed_repeats', 'needed_images']
    rows = []
    for row in comparison['rows']:
        gap, images = row['difference'], row.get('over_images') or {}
        means = row['this']['mean'], row['other']['mean'], gap['mean']
        interval = gap['low'], gap['high'], gap['method']
        needed = row['needed']['repeats'], row['needed']['images']
        judged = [row[name] for name in _JUDGED]
        ends = images.get('low'), images.get('high')
        rows.append([row['key'], row['metric'], *means, *interval, *ends, *judged, *needed])
    return header, rows


def per_class_table(comparison: Mapping[str, Any]) -> tuple[list[str], list[list]]:
    """Return the header and the rows of ``comparison_per_class.csv``; no rows without areas."""
    columns = ('this', 'other', 'difference', 'low', 'high', *_JUDGED)
    header = ['cell', 'metric', 'class', comparison['this'], comparison['other'], 'difference']
    header += ['images_low', 'images_high', *_JUDGED]
    rows = [
        [row['key'], 'IoU', name, *(one[column] for column in columns)]
        for row in comparison['rows']
        for name, one in (row.get('per_class') or {}).items()
    ]
    return header, rows
