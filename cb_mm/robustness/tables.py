"""The tables of ``results.md``, to paste into an issue, a paper or a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..corruption.registry import words
from ..fileio.safe_text import markdown_code, markdown_text
from .attack_report import attack_rows
from .comparison_text import comparison_notes, comparison_text
from .jobs import CLEAN, count
from .reliability import CALIBRATION, accuracy_of, has_calibration
from .table_text import figure_of, table, title_of
from .units import PERCENT

#: What else is shown beside a headline, where there is room: metric -> column.
_BESIDE = {
    'mIoU': {'aAcc': 'aAcc', 'mAcc': 'mAcc'},
    'bbox_mAP': {'bbox_mAP_50': 'box AP50', 'bbox_mAP_75': 'box AP75'},
    'top1': {'top5': 'top-5'},
    'PQ': {'SQ': 'SQ', 'RQ': 'RQ', 'PQ_th': 'PQ things', 'PQ_st': 'PQ stuff'},
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
        clean = [cell for cell in level_cells if cell['corruption'] == CLEAN]
        for name in results['headline']:
            parts.append(_severities_table(severity_cells, clean, name))
            parts.append(_overall_line(results['summary'].get(name), name))
    parts += [_worst_line(results['worst'].get(name), name) for name in results['headline']]
    parts.append(_error_lines(results.get('mce')))
    if has_calibration(results):
        parts.append(_calibration_tables(level_cells, severity_cells))
    if any(cell.get('attack') for cell in results['cells']):
        parts.append(table(*attack_rows(results)))
    if results.get('comparison'):
        parts.append(comparison_text(results['comparison']))
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
        head.append(title_of(name))
        head += ['over images'] if _has_image_interval(name, cells) else []
        head += ['retained'] if corrupted else []
        head += [column for key, column in _beside(name, cells).items()]
    if paper:
        head.append("mIoU, the paper's")
    for cell in cells:
        row = [cell['title'], str(cell['n'])]
        row = row if corrupted else [str(results['identity']['images'])]
        for name in results['headline']:
            row.append(figure_of(cell['metrics'][name]))
            if _has_image_interval(name, cells):
                ends = cell['metrics'][name].get('over_images')
                row.append(f'{ends["low"]:.2f} to {ends["high"]:.2f}' if ends else '')
            if corrupted:
                kept = cell['retention'].get(name)
                clean = cell['corruption'] == 'clean'
                row.append('' if clean or kept is None else f'{100 * kept:.1f} %')
            row += [figure_of(cell['metrics'].get(key)) for key in _beside(name, cells)]
        if paper:
            row.append(paper.get(cell['key'], ''))
        rows.append(row)
    return table(head, rows)


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
    head = [f'{title_of(name)} at severity', *map(str, severities), 'mean']
    body = []
    for corruption, row in rows.items():
        means = [value['mean'] for value in row.values() if value['mean'] is not None]
        figures = [figure_of(row.get(severity)) for severity in severities]
        mean = f'{sum(means) / len(means):.2f}' if means else ''
        body.append([words(corruption), *figures, mean])
    if clean:
        figure = figure_of(clean[0]['metrics'][name])
        body.insert(0, ['clean', *[''] * len(severities), figure])
    return table(head, body)


def _overall_line(overall: Mapping[str, Any] | None, name: str) -> str:
    if not overall:
        return ''
    severities = ', '.join(map(str, overall['severities']))
    what = 'severities 1 to 5' if overall['complete'] else f'the measured severities ({severities})'
    if not overall['complete'] and list(overall['severities']) == [1, 2, 3, 4, 5]:
        what = 'those of severities 1 to 5 that each corruption has in the table'
    relative, ratio = '', ''
    if overall['rpc'] is not None:  # without a score on clean images, or with one of 0
        relative = f', rPC {100 * overall["rpc"]:.2f} %'
        ratio = ', and its ratio to clean images'
    return (
        f'mPC {overall["mpc"]:.2f}{relative}: {markdown_text(title_of(name))} averaged over {what} '
        f'and {count(overall["corruptions"], "corruption")}{ratio}.'
    )


def _worst_line(worst: Mapping[str, Any] | None, name: str) -> str:
    if not worst:
        return ''
    kept = worst['retention']
    share = '' if kept is None else f', {100 * kept:.1f} % of clean images'
    title = markdown_text(worst['title'])
    return f'Worst case of {markdown_text(title_of(name))}: {worst["mean"]:.2f}{share}, by {title}.'


def _error_lines(errors: Mapping[str, Any] | None) -> str:
    if not errors:
        return ''
    reference = markdown_text(errors['reference'])
    if not errors['metrics']:
        return f'No mCE: {reference} has none of these corruptions.'
    lines = []
    for name, one in errors['metrics'].items():
        relative = one['relative_mce']
        more = 'none' if relative is None else f'{relative:.2f} %'
        lines.append(
            f'mCE of {markdown_text(title_of(name))} {one["mce"]:.2f} %, relative mCE {more}: '
            f'errors (100 - score) over {count(len(one["by_corruption"]), "corruption")} and '
            f'{count(one["levels"], "level")}, divided by those of {reference}; below 100 % is '
            'better.'
        )
    return '\n\n'.join(lines)


def _calibration_tables(levels: Sequence[Mapping], severities: Sequence[Mapping]) -> str:
    parts = ['### Calibration']
    if len(levels) > 1 or not severities:
        head = ['corruption', *CALIBRATION.values(), 'accuracy']
        rows = []
        for cell in levels:
            figures = [figure_of(cell['metrics'].get(name)) for name in CALIBRATION]
            rows.append([cell['title'], *figures, figure_of({'mean': accuracy_of(cell)})])
        parts.append(table(head, rows))
    if severities:
        clean = [cell for cell in levels if cell['corruption'] == CLEAN]
        parts += [_severities_table(severities, clean, name) for name in ('ECE', 'Brier')]
    return '\n\n'.join(parts)


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
        notes += comparison_notes(results['comparison'])
    if results['paper']:
        notes.append(
            "The paper's: Table 9, ViT-S, 160K iterations, on the 2,000 validation images of "
            'ADE20K; five repeats. It does not give the level of shot noise: 255 counts at white '
            'is our reading.'
        )
    return '\n'.join(f'- {note}' for note in notes)
