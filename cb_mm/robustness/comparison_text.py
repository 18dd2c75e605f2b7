"""The part of ``results.md`` that compares two models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..fileio.safe_text import markdown_text
from .jobs import count
from .significance import WHAT_HOLM_MEANS
from .table_text import figure_of, table, title_of


def comparison_text(comparison: Mapping[str, Any]) -> str:
    """Return heading, table and what is needed to find a difference."""
    rows = comparison['rows']
    first, second = (markdown_text(comparison[side]) for side in ('this', 'other'))
    parts = [f'### {first} minus {second}', _table(comparison)]
    if comparison['not_in_other']:
        missing = '; '.join(map(markdown_text, comparison['not_in_other']))
        parts.append(f'Not measured for {second}: {missing}.')
    parts.append(_needed_text(rows, comparison['detect']))
    return '\n\n'.join(part for part in parts if part)


def comparison_notes(comparison: Mapping[str, Any]) -> list[str]:
    """Return what the columns of the table mean."""
    notes = [
        'paired: both models saw the same noise, repeat by repeat; Welch: independent noise. '
        'Without an interval, at least one side is a single measurement.'
    ]
    if any(row['p'] is not None for row in comparison['rows']):
        notes.append(WHAT_HOLM_MEANS)
    return notes


def _table(comparison: Mapping[str, Any]) -> str:
    rows = comparison['rows']
    several = len({row['metric'] for row in rows}) > 1
    images = any(row.get('over_images') for row in rows)
    judged = any(row['p'] is not None for row in rows)
    head = ['corruption', *(['metric'] if several else []), comparison['this'],
            comparison['other'], 'difference', '95 % interval', 'by']  # fmt: skip
    head += ['95 % over images'] if images else []
    head += ['p', 'p (Holm)'] if judged else []
    body = []
    for row in rows:
        gap = row['difference']
        n = gap['n'][0] if gap['n'][0] == gap['n'][1] else f'{gap["n"][0]} and {gap["n"][1]}'
        how = '' if gap['method'] == 'single' else f'{gap["method"]}, n = {n}'
        figures = [figure_of(row['this']), figure_of(row['other']), f'{gap["mean"]:+.2f}']
        metric = [title_of(row['metric'])] if several else []
        more = [_ends(row.get('over_images'))] if images else []
        mark = ' ✓' if row['significant'] else ''
        more += [_p(row['p']), _p(row['p_holm']) + mark] if judged else []
        body.append([row['title'], *metric, *figures, _ends(gap), how, *more])
    return table(head, body)


def _ends(interval: Mapping[str, Any] | None) -> str:
    if not interval or interval['low'] is None:
        return ''
    return f'{interval["low"]:+.2f} to {interval["high"]:+.2f}'


def _p(value: float | None) -> str:
    if value is None:
        return ''
    return 'below 0.001' if value < 0.001 else f'{value:.3f}'


def _needed_text(rows: Sequence[Mapping[str, Any]], detect: float) -> str:
    """Say how many repeats and images find a difference of ``detect`` in the noisiest row."""
    found = []
    for metric in dict.fromkeys(row['metric'] for row in rows):
        parts = []
        for kind, noun in (('repeats', 'repeat'), ('images', 'image')):
            known = [row['needed'][kind] for row in rows if row['metric'] == metric]
            known = [number for number in known if number is not None]
            parts += [count(max(known), noun)] if known else []
        if parts:
            found.append(f'{markdown_text(title_of(metric))} {" and ".join(parts)}')
    if not found:
        return ''
    points = count(1, 'point') if detect == 1 else f'{detect:g} points'
    return (
        f'To find a difference of {points} (80 % power at the 5 % level, paired), the row that '
        f'varies most needs: {"; ".join(found)}. Those of each row are in comparison.csv.'
    )
