"""The tables of ``results.md``, to paste into an issue, a paper or a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..corruption.registry import words
from ..fileio.safe_text import markdown_code, markdown_text
from .attack_report import attack_rows
from .jobs import count
from .metrics import HEADLINES
from .units import PERCENT

#: What else is shown beside a headline, where there is room: metric -> column.
_BESIDE = {
    'mIoU': {'aAcc': 'aAcc', 'mAcc': 'mAcc'},
    'bbox_mAP': {'bbox_mAP_50': 'box AP50', 'bbox_mAP_75': 'box AP75'},
    'top1': {'top5': 'top-5'},
    'segm_mAP': {'segm_mAP_50': 'mask AP50', 'segm_mAP_75': 'mask AP75'},
}


def markdown(results: Mapping[str, Any]) -> str:
    """Return the whole text of ``results.md``."""
    about, identity = results['about'], results['identity']
    corrupted = len(results['cells']) > 1
    model = markdown_text(results['model'])
    parts = [
        f'## {model} under corruption' if corrupted else f'## {model}',
        f'{_weights(about)}, {identity["images"]} images of '
        f'{markdown_text(about.get("dataset"))}, seed {identity["seed"]}. '
        f'{units_line(results["units"], results["headline"])}',
    ]
    level_cells = [cell for cell in results['cells'] if cell['severity'] is None]
    severity_cells = [cell for cell in results['cells'] if cell['severity'] is not None]
    if len(level_cells) > 1 or not severity_cells:
        parts.append(_levels_table(level_cells, results))
    if severity_cells:
        clean = [cell for cell in level_cells if cell['corruption'] == 'clean']
        for name in results['headline']:
            parts.append(_severities_table(severity_cells, clean, name))
            parts.append(_overall_line(results['summary'].get(name), name))
    if any(cell.get('attack') for cell in results['cells']):
        parts.append(_table(*attack_rows(results)))
    if results.get('comparison'):
        parts.append(_comparison_table(results['comparison'], results['headline']))
    parts.append(_notes(results))
    return '\n\n'.join(part for part in parts if part)


def units_line(units: Mapping[str, str | None], headline: Sequence[str]) -> str:
    """Return the unit of the figures in the tables."""
    if all(units[name] == PERCENT for name in headline):
        return 'All figures in per cent.'
    unknown = ', '.join(markdown_text(name) for name in headline if units[name] != PERCENT)
    return f'Figures of {unknown} as the metric gives them, in its own unit.'


def _levels_table(cells: Sequence[Mapping], results: Mapping[str, Any]) -> str:
    paper = results['paper'] if 'mIoU' in results['headline'] else {}
    corrupted = len(cells) > 1
    head, rows = ['corruption', 'n'] if corrupted else ['images'], []
    for name in results['headline']:
        head.append(_title(name))
        head += ['over images'] if _has_image_interval(name, cells) else []
        head += ['retained'] if corrupted else []
        head += [column for key, column in _beside(name, cells).items()]
    if paper:
        head.append("mIoU, the paper's")
    for cell in cells:
        row = [cell['title'], str(cell['n'])]
        row = row if corrupted else [str(results['identity']['images'])]
        for name in results['headline']:
            row.append(_figure(cell['metrics'][name]))
            if _has_image_interval(name, cells):
                ends = cell['metrics'][name].get('over_images')
                row.append(f'{ends["low"]:.2f} to {ends["high"]:.2f}' if ends else '')
            if corrupted:
                kept = cell['retention'].get(name)
                clean = cell['corruption'] == 'clean'
                row.append('' if clean or kept is None else f'{100 * kept:.1f} %')
            row += [_figure(cell['metrics'].get(key)) for key in _beside(name, cells)]
        if paper:
            row.append(paper.get(cell['key'], ''))
        rows.append(row)
    return _table(head, rows)


def _has_image_interval(name: str, cells: Sequence[Mapping]) -> bool:
    return any(cell['metrics'][name].get('over_images') for cell in cells)


def _weights(about: Mapping[str, Any]) -> str:
    file = about.get('checkpoint')
    return 'A built model' if file is None else f'Checkpoint {markdown_code(file)}'


def _beside(name: str, cells: Sequence[Mapping]) -> dict[str, str]:
    known = cells[0]['metrics'] if cells else {}
    return {key: column for key, column in _BESIDE.get(name, {}).items() if key in known}


def _severities_table(cells: Sequence[Mapping], clean: Sequence[Mapping], name: str) -> str:
    severities = sorted({cell['severity'] for cell in cells})
    rows: dict[str, dict[int, Mapping]] = {}
    for cell in cells:
        rows.setdefault(cell['corruption'], {})[cell['severity']] = cell['metrics'][name]
    head = [f'{_title(name)} at severity', *map(str, severities), 'mean']
    body = []
    for corruption, row in rows.items():
        means = [value['mean'] for value in row.values() if value['mean'] is not None]
        figures = [_figure(row.get(severity)) for severity in severities]
        mean = f'{sum(means) / len(means):.2f}' if means else ''
        body.append([words(corruption), *figures, mean])
    if clean:
        figure = _figure(clean[0]['metrics'][name])
        body.insert(0, ['clean', *[''] * len(severities), figure])
    return _table(head, body)


def _overall_line(overall: Mapping[str, Any] | None, name: str) -> str:
    if not overall:
        return ''
    severities = ', '.join(map(str, overall['severities']))
    what = 'severities 1 to 5' if overall['complete'] else f'the measured severities ({severities})'
    relative = '' if overall['rpc'] is None else f', rPC {100 * overall["rpc"]:.2f} %'
    return (
        f'mPC {overall["mpc"]:.2f}{relative}: {markdown_text(_title(name))} averaged over {what} '
        f'and {count(overall["corruptions"], "corruption")}, and its ratio to clean images.'
    )


def _comparison_table(comparison: Mapping[str, Any], headline: Sequence[str]) -> str:
    several = len(headline) > 1
    head = ['corruption', *(['metric'] if several else []), comparison['this'],
            comparison['other'], 'difference', '95 % interval', 'by']  # fmt: skip
    images = any(row.get('over_images') for row in comparison['rows'])
    head += ['95 % over images'] if images else []
    rows = []
    for row in comparison['rows']:
        gap = row['difference']
        interval, over_images = _ends(gap), _ends(row.get('over_images'))
        n = gap['n'][0] if gap['n'][0] == gap['n'][1] else f'{gap["n"][0]} and {gap["n"][1]}'
        how = '' if gap['method'] == 'single' else f'{gap["method"]}, n = {n}'
        figures = [_figure(row['this']), _figure(row['other']), f'{gap["mean"]:+.2f}']
        metric = [_title(row['metric'])] if several else []
        more = [over_images] if images else []
        rows.append([row['title'], *metric, *figures, interval, how, *more])
    first, second = (markdown_text(comparison[side]) for side in ('this', 'other'))
    parts = [f'### {first} minus {second}', _table(head, rows)]
    if comparison['not_in_other']:
        missing = '; '.join(map(markdown_text, comparison['not_in_other']))
        parts.append(f'Not measured for {second}: {missing}.')
    return '\n\n'.join(parts)


def _ends(interval: Mapping[str, Any] | None) -> str:
    if not interval or interval['low'] is None:
        return ''
    return f'{interval["low"]:+.2f} to {interval["high"]:+.2f}'


def _notes(results: Mapping[str, Any]) -> str:
    repeated = sorted({cell['n'] for cell in results['cells'] if cell['n'] > 1})
    notes = []
    if repeated:
        counts = ' or '.join(map(str, repeated))
        notes.append(
            f"± is half of the 95 % confidence interval of the mean, by Student's t over n = "
            f'{counts} repeats. Figures without ± are single measurements and have no interval '
            'over repeats.'
        )
    notes += results['notes']
    if results.get('comparison'):
        notes.append(
            'paired: both models saw the same noise, repeat by repeat; Welch: independent noise. '
            'Without an interval, at least one side is a single measurement.'
        )
    if results['paper']:
        notes.append(
            "The paper's: Table 9, ViT-S, 160K iterations, on the 2,000 validation images of "
            'ADE20K; five repeats. It does not give the level of shot noise: 255 counts at white '
            'is our reading.'
        )
    return '\n'.join(f'- {note}' for note in notes)


def _title(name: str) -> str:
    return HEADLINES.get(name, name)


def _figure(values: Mapping[str, Any] | None) -> str:
    """Format the mean, with half of the interval if there is one."""
    if not values or values.get('mean') is None:
        return '–'
    if values.get('high') is None:
        return f'{values["mean"]:.2f}'
    return f'{values["mean"]:.2f} ± {(values["high"] - values["low"]) / 2:.2f}'


def _table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    cells = [[markdown_text(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        '| ' + ' | '.join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + ' |'
        for row in cells
    ]
    return '\n'.join([lines[0], '|' + '|'.join('-' * (w + 2) for w in widths) + '|', *lines[1:]])
