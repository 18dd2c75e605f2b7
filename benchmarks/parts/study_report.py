"""Tables of the study, from the finished runs: the registered comparisons, then descriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cb_mm.fileio.atomic import write_atomically
from cb_mm.robustness.significance import LEVEL
from cb_mm.robustness.statistics import summarize

from .markdown import table
from .options import BENCHMARKS
from .study_comparisons import (
    FAMILIES,
    Judged,
    Measure,
    Runs,
    clean,
    corrupted,
    judge,
    mean,
    upper_entropy,
)
from .study_plan import QUESTIONS, Run, registered

PAGE = BENCHMARKS.parent / 'docs' / 'study.md'
BEGIN, END = '<!-- written by benchmarks/study.py -->', '<!-- end -->'
_SEVERITIES = range(1, 6)

#: question -> the columns of its table: title, measure, digits
_COLUMNS: dict[str, list[tuple[str, Measure, int]]] = {
    'cifar': [
        ('top-1', clean, 2),
        ('loss', lambda s: s['loss'], 3),
        ('centre hidden', lambda s: s['occlusion=0.5'], 2),
        *((f'FGSM ε={e}', lambda s, e=e: s['fgsm'][f'fgsm={e}'], 2) for e in (1, 2, 4)),
        ('Table 9', corrupted, 2),
        ('entropy', lambda s: mean(s['entropy']), 3),
        ('of the upper half', upper_entropy, 3),
    ],
    'dense': [
        ('mIoU in windows', lambda s: s['windows'], 2),
        ('whole images', clean, 2),
        ('Table 9', corrupted, 2),
    ],
    'weights': [('mIoU', clean, 2)],
    'sparse': [('top-1', clean, 2), ('loss', lambda s: s['loss'], 3)],
}
_COLUMNS['heads'] = _COLUMNS['cifar']


def list_runs(runs: Sequence[Run], done: Runs) -> str:
    """Return one line per run."""
    lines = [
        f'{run.key:32} ' + (f'done, {done[run.key]["minutes"]} min' if run.key in done else '-')
        for run in runs
    ]
    return '\n'.join([*lines, f'{sum(run.key in done for run in runs)} of {len(runs)} done'])


def write_report(runs: Runs, out: Path) -> str:
    """Write study.md, and its text into the page; return it."""
    text = report(runs)
    write_atomically(out / 'study.md', text)
    if out.resolve() == BENCHMARKS / 'results':
        before, _, rest = PAGE.read_text().partition(BEGIN)
        after = rest.partition(END)[2]
        write_atomically(PAGE, f'{before}{BEGIN}\n\n{text}\n{END}{after}')
    return text


def report(runs: Runs) -> str:
    """Return the tables of all questions; what is not finished says so."""
    parts = []
    for name, question in QUESTIONS.items():
        wanted = [run for run in registered() if run.question == name]
        done = [run for run in wanted if run.key in runs]
        state = 'finished' if len(done) == len(wanted) else 'not finished' if done else 'not begun'
        minutes = sum(runs[run.key]['minutes'] for run in done)
        parts += [
            f'### {question.title}: `{name}`',
            f'{state.capitalize()}: {len(done)} of {len(wanted)} runs, {minutes / 60:.1f} hours.',
        ]
        if done:
            parts += [f'```bash\npython benchmarks/study.py {name} --shared DIR\n```']
            parts += _baseline(runs) if name == 'baseline' else _question(name, runs)
    return '\n\n'.join(parts) + '\n'


def _question(name: str, runs: Runs) -> list[str]:
    parts = []
    for family in FAMILIES:
        if family.question == name:
            rows = [_judged_row(row) for row in judge(family, runs)]
            head = ['compared', 'measure', 'seeds', 'difference', '95 % interval', 'p']
            head += ['p (Holm)', f'at {LEVEL}']
            parts += [f'**Registered comparisons, {family.title}**', table(head, rows)]
    columns = _COLUMNS[name]
    rows = []
    for arm, its in QUESTIONS[name].arms.items():
        scores = _scores(runs, f'{name}/{arm}')
        cells = [_spread([measure(s) for s in scores], digits) for _, measure, digits in columns]
        rows.append([its.title, str(len(scores)), *(cells if scores else ['–'] * len(columns))])
    head = ['arm', 'seeds', *(title for title, _, _ in columns)]
    parts += ['**All arms**: mean over seeds (standard deviation)', table(head, rows)]
    if name in ('cifar', 'heads'):
        parts += _by_depth(name, runs)
    return parts


def _judged_row(row: Judged) -> list[str]:
    comparison, found = row.comparison, row.found
    digits = 3 if 'nats' in comparison.what else 2
    start = [comparison.title, comparison.what]
    if found is None:
        return [*start, f'0 of {comparison.seeds}', '–', '–', '–', '–', row.verdict]
    ends = (
        '–'
        if found.low is None or found.high is None
        else f'{found.low:+.{digits}f} to {found.high:+.{digits}f}'
    )
    return [
        *start,
        f'{found.n} of {comparison.seeds}',
        f'{found.mean:+.{digits}f}',
        ends,
        *('–' if p is None else f'{p:.3f}' for p in (row.p, row.adjusted)),
        row.verdict,
    ]


def _scores(runs: Runs, arm: str) -> list[Mapping[str, Any]]:
    """Return the scores of all seeds of an arm."""
    return [record['scores'] for key, record in runs.items() if key.rpartition('/')[0] == arm]


def _spread(values: Sequence[float], digits: int) -> str:
    if not values:
        return '–'
    value = summarize(values)
    return f'{value.mean:.{digits}f}' + (f' ({value.std:.{digits}f})' if value.std else '')


def _by_depth(name: str, runs: Runs) -> list[str]:
    parts = []
    for measure, unit, digits in (
        ('entropy', 'nats', 2),
        ('distance', "the paper's relative distance", 4),
    ):
        rows = []
        for arm, its in QUESTIONS[name].arms.items():
            layers = [scores[measure] for scores in _scores(runs, f'{name}/{arm}')]
            if layers:
                by_layer = zip(*layers, strict=True)
                rows.append([its.title, *(f'{mean(each):.{digits}f}' for each in by_layer)])
        head = ['layer', *(str(i) for i in range(len(rows[0]) - 1))]
        title = measure.capitalize()
        parts += [f'**{title} of the attention by depth** ({unit}), mean over seeds',
                  table(head, rows)]  # fmt: skip
    return parts


def _baseline(runs: Runs) -> list[str]:
    scores = runs['baseline/deit_ti/0']['scores']

    def cell(values: Sequence[float]) -> str:
        score, low, high = values
        return f'{score:.1f} ({low:.1f} to {high:.1f})'

    titles: dict[str, Callable[[], str]] = {
        'top-1': lambda: cell(scores['top1']['clean']),
        'top-5': lambda: cell(scores['top5']['clean']),
        'top-1, ReaL labels': lambda: cell(scores['real']),
    }
    rows = [[title, text()] for title, text in titles.items()]
    rows += [[f'top-1, {key}', cell(v)] for key, v in scores['top1'].items() if key != 'clean']
    family: dict[str, dict[int, Sequence[float]]] = {}
    for key, values in scores['imagenet_c'].items():
        corruption, _, severity = key.partition('@')
        if severity:
            family.setdefault(corruption, {})[int(severity)] = values
    grid = [
        [name.replace('_', ' '), *(cell(row[i]) if i in row else '–' for i in _SEVERITIES),
         f'{mean([values[0] for values in row.values()]):.1f}']
        for name, row in family.items()
    ]  # fmt: skip
    return [
        'DeiT-Ti on 1,000 validation images, in per cent, with 95 % intervals over images. **The '
        'LayerNorm weights and biases of this file are coarsely quantised** (steps of 1/128 to '
        '1/32).',
        table(['measure', 'per cent'], rows),
        "ImageNet-C's corruptions at the five severities: top-1, one pass each",
        table(['corruption', *map(str, _SEVERITIES), 'mean'], grid),
    ]
