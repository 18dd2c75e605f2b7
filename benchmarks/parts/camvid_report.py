"""Tables and a figure of the CamVid study, from the finished runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cb_mm.errors import UserError
from cb_mm.fileio.atomic import write_atomically
from cb_mm.robustness.statistics import Summary, summarize

from .camvid_figure import draw
from .camvid_models import MODELS, STARTS
from .markdown import interval, table, with_spread
from .records import Records
from .seed_by_seed import Measure, Models, by_start, gap, score

CLEAN = 'clean'


def write_report(records: Records, out: Path) -> str:
    """Write camvid_study.md and .png; return the text."""
    starts = by_start(records.runs)
    if not starts:
        raise UserError('nothing to report yet: no run is finished.')
    parts = []
    for start, models in starts.items():
        iterations = records.settings[start]
        parts += [f'### {STARTS[start].title}, {iterations:,} iterations', *_tables(models)]
    text = '\n\n'.join(parts) + '\n'
    write_atomically(out / 'camvid_study.md', text)
    write_atomically(out / 'camvid_study.png', draw(starts))
    return text


def mean_of(name: str, layers: slice = slice(None)) -> Measure:
    """Return a measure that averages an attention measure over layers."""
    return lambda record: sum(record[name][layers]) / len(record[name][layers])


def verdict(value: Summary | None) -> str:
    """Say what an interval shows."""
    if value is None or value.low is None:
        return 'one seed says nothing'
    if value.n < 3:  # two differences can be close by chance, which makes the interval narrow
        return 'two seeds are too few'
    if value.low <= 0 <= value.high:
        return 'no difference shown'
    return 'better' if value.low > 0 else 'worse'


def _tables(models: Models) -> list[str]:
    first = next(iter(next(iter(models.values())).values()))
    others = [model for model in models if model != 'none']
    return [
        '**Clean images** (mIoU, per cent)',
        _clean(models, score(CLEAN)),
        *_windows(models),
        '**Under corruption**: mIoU of none, and minus none with its 95 % interval',
        table(
            ['corruption', 'none', *(MODELS[model].title for model in others)],
            [
                [cell['title'], _mean(models, 'none', score(key)),
                 *(_gap_text(gap(models, model, score(key))) for model in others)]
                for key, cell in first['cells'].items()
            ],
        ),
        '**What corruption costs**: points lost against clean images, mean of the five corruptions,'
        ' and minus none',
        table(
            ['model', 'points lost', 'minus none', '95 % interval'],
            [_loss_row(models, model) for model in models],
        ),
        '**While training**: mIoU on every third image, mean over seeds',
        table(
            ['iteration', *(MODELS[model].title for model in models)],
            [
                [step, *(_mean(models, model, lambda r, s=step: r['curve'][s]) for model in models)]
                for step in first['curve']
            ],
        ),
        '**Attention**: entropy (nats) and reach (mean attention distance of a token, in image '
        'sides), mean over layers and images, and minus none',
        table(
            ['model', 'entropy', 'minus none', 'entropy of the upper half', 'minus none', 'reach',
             'minus none'],
            [_attention_row(models, model) for model in models],
        ),
    ]  # fmt: skip


def _mean(models: Models, model: str, measure: Measure) -> str:
    values = [measure(record) for record in models.get(model, {}).values()]
    return f'{summarize(values).mean:.2f}' if values else '–'


def _windows(models: Models) -> list[str]:
    """Return a table of the runs that were also tested in windows."""
    tested = {
        model: {seed: record for seed, record in seeds.items() if 'windows' in record}
        for model, seeds in models.items()
    }
    tested = {model: seeds for model, seeds in tested.items() if seeds}
    if not tested:
        return []
    title = '**Clean images in windows of the training size** (mIoU, per cent)'
    return [title, _clean(tested, lambda record: record['windows'])]


def _clean(models: Models, measure: Measure) -> str:
    return table(
        ['model', 'seeds', 'mIoU', 'minus none, seed by seed', '95 % interval', ''],
        [_clean_row(models, model, measure) for model in models],
    )


def _clean_row(models: Models, model: str, measure: Measure) -> list[str]:
    values = summarize([measure(record) for record in models[model].values()])
    row = [MODELS[model].title, str(values.n), with_spread(values)]
    if model == 'none':
        return [*row, '', '', '']
    value = gap(models, model, measure)
    if value is None:
        return [*row, '–', '–', '']
    return [*row, f'{value.mean:+.2f}', interval((value.low, value.high)), verdict(value)]


def lost(record: Mapping[str, Any]) -> float:
    """Return the mIoU points that corruption costs, mean over the corruptions."""
    cells = [cell['mIoU'] for key, cell in record['cells'].items() if key != CLEAN]
    return record['cells'][CLEAN]['mIoU'] - sum(cells) / len(cells)


def _loss_row(models: Models, model: str) -> list[str]:
    value = gap(models, model, lost)
    row = [MODELS[model].title, _mean(models, model, lost)]
    if model == 'none' or value is None:
        return [*row, '', '']
    return [*row, f'{value.mean:+.2f}', interval((value.low, value.high))]


def _attention_row(models: Models, model: str) -> list[str]:
    row = [MODELS[model].title]
    upper = slice(6, None)
    for measure in (mean_of('entropy'), mean_of('entropy', upper), mean_of('reach')):
        row += [
            f'{summarize([measure(record) for record in models[model].values()]).mean:.3f}',
            '' if model == 'none' else _gap_text(gap(models, model, measure), digits=3),
        ]
    return row


def _gap_text(value: Summary | None, digits: int = 2) -> str:
    if value is None:
        return '–'
    if value.low is None:
        return f'{value.mean:+.{digits}f}'
    return f'{value.mean:+.{digits}f} ({value.low:+.{digits}f} to {value.high:+.{digits}f})'
