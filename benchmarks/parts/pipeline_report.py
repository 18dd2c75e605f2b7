"""Tables and figures of the pipeline, from the finished runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cb_mm.errors import UserError
from cb_mm.fileio.atomic import write_atomically
from cb_mm.fileio.figures import figure_bytes, new_figure
from cb_mm.robustness.statistics import summarize

from .markdown import interval, table, with_spread

TITLES = {'plain': 'plain', 'cb': 'CB', 'shortcut': 'CB from plain weights'}
_BLUE, _ORANGE = '#0072B2', '#E69F00'
_MARKERS = 'os^Dv'

#: variant -> (pre-training seed, fine-tuning seed) -> cell -> mIoU
Runs = dict[str, dict[tuple[int, int], dict[str, float]]]


def write_report(pipeline: Any, out: Path) -> str:
    """Write pipeline.json, .md and .png; return the text of the table."""
    runs, titles = read_runs(pipeline.work / 'finetune')
    if not runs.get('plain') or not runs.get('cb'):
        raise UserError('nothing to report yet: no pair of fine-tuning runs is finished.')
    entropy = read_entropy(pipeline.work)
    results = {
        'settings': pipeline.settings,
        'runs': {
            variant: {f'{p},{f}': values for (p, f), values in sorted(each.items())}
            for variant, each in runs.items()
        },
        'comparisons': {
            f'{one} - {other}': compare(runs[one], runs[other])
            for one, other in (('cb', 'plain'), ('shortcut', 'plain'), ('cb', 'shortcut'))
            if one in runs and other in runs
        },
        'entropy': entropy,
    }
    text = markdown(results, titles, runs)
    write_atomically(out / 'pipeline.json', json.dumps(results, indent=1))
    write_atomically(out / 'pipeline.md', text)
    write_atomically(out / 'pipeline.png', draw(results, titles))
    return text


def read_runs(folder: Path) -> tuple[Runs, dict[str, str]]:
    """Read all finished tests, and the titles of the cells."""
    runs: Runs = {}
    titles: dict[str, str] = {}
    for file in sorted(folder.glob('*/test/results.json')):
        results = json.loads(file.read_text())
        if len(results['cells']) < len(results['identity']['cells']):
            continue  # interrupted
        variant, p, f = file.parent.parent.name.split('_')
        runs.setdefault(variant, {})[int(p), int(f)] = {
            cell['key']: cell['metrics']['mIoU']['mean'] for cell in results['cells']
        }
        titles.update({cell['key']: cell['title'] for cell in results['cells']})
    return runs, titles


def read_entropy(work: Path) -> dict[str, dict[str, list[float]]]:
    """Read the entropy by depth, in nats, by pre-training seed and model."""
    return {
        file.parent.name.rpartition('_')[2]: {
            model['name']: [layer['all_heads']['entropy']['mean'] for layer in model['layers']]
            for model in json.loads(file.read_text())['models']
        }
        for file in sorted(work.glob('entropy_*/summary.json'))
    }


def compare(one: Mapping, other: Mapping) -> dict[str, dict[str, Any]]:
    """Compare pair by pair: the differences of each cell, their mean and its interval."""
    pairs = sorted(one.keys() & other.keys())
    rows = {}
    for cell in one[pairs[0]] if pairs else ():
        gaps = {pair: one[pair][cell] - other[pair][cell] for pair in pairs}
        seeds = sorted({p for p, _ in pairs})
        means = [[gap for (p, _), gap in gaps.items() if p == seed] for seed in seeds]
        whole = summarize(list(gaps.values()))
        between = summarize([sum(each) / len(each) for each in means])
        rows[cell] = {
            'pairs': {f'{p},{f}': gap for (p, f), gap in gaps.items()},
            'mean': whole.mean,
            'interval': [whole.low, whole.high],
            'by_pretraining_seed': dict(zip(map(str, seeds), map(_mean, means), strict=True)),
            'interval_over_pretraining_seeds': [between.low, between.high],
        }
    return rows


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def markdown(results: Mapping[str, Any], titles: Mapping[str, str], runs: Runs) -> str:
    """Return the tables, with what they can and cannot say."""
    settings = results['settings']
    parts = [
        f'ViT-Ti at 128², pre-trained for {settings["pretrain"]} iterations of '
        f'{settings["batch"]} crops on {settings["scenes"]} scenes, fine-tuned for '
        f'{settings["finetune"]} iterations of {settings["batch"]} crops on CamVid; mIoU in per '
        'cent on '
        + (f'{settings["limit"]} of ' if settings['limit'] else '')
        + f"CamVid's validation images, {_passes(settings['repeats'])} of each random noise.",
        _scores_table(titles, runs),
    ]
    for name, rows in results['comparisons'].items():
        one, other = (TITLES[part] for part in name.split(' - '))
        parts += [f'**{one} minus {other}**', _gaps_table(titles, rows)]
    if results['entropy']:
        parts += [
            '**Entropy of the attention by depth** (nats)',
            _entropy_table(results['entropy']),
        ]
    return '\n\n'.join(parts) + '\n'


def _passes(number: int) -> str:
    return 'one pass' if number == 1 else f'{number} passes'


def _scores_table(titles: Mapping[str, str], runs: Runs) -> str:
    head = ['corruption', *(f'{TITLES[name]} (n = {len(each)})' for name, each in runs.items())]
    rows = []
    for cell, title in titles.items():
        values = [summarize([run[cell] for run in each.values()]) for each in runs.values()]
        rows.append([title, *map(with_spread, values)])
    return table(head, rows)


def _gaps_table(titles: Mapping[str, str], rows: Mapping[str, Any]) -> str:
    first = next(iter(rows.values()))
    seeds = list(first['by_pretraining_seed'])
    head = ['corruption', 'mean', f'95 % over {len(first["pairs"])} pairs']
    if len(seeds) > 1:
        head += [f'pre-training seed {seed}' for seed in seeds]
        head += [f'95 % over {len(seeds)} pre-training seeds']
    body = []
    for cell, row in rows.items():
        line = [titles[cell], f'{row["mean"]:+.2f}', interval(row['interval'])]
        if len(seeds) > 1:
            line += [f'{row["by_pretraining_seed"][seed]:+.2f}' for seed in seeds]
            line.append(interval(row['interval_over_pretraining_seeds']))
        body.append(line)
    return table(head, body)


def _entropy_table(entropy: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    rows = [
        [f'{name}, pre-training seed {seed}', *(f'{value:.2f}' for value in values)]
        for seed, models in entropy.items()
        for name, values in models.items()
    ]
    depth = len(rows[0]) - 1
    return table(['layer', *map(str, range(depth))], rows)


def draw(results: Mapping[str, Any], titles: Mapping[str, str]) -> bytes:
    """Draw the differences with their intervals, and entropy by depth."""
    figure = new_figure(10.5, 3.9)
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    rows = results['comparisons']['cb - plain']
    seeds: list[str] = []
    for place, (_cell, row) in enumerate(rows.items()):
        for pair, gap in row['pairs'].items():
            seed = pair.split(',')[0]
            label = f'a pair, pre-training seed {seed}' if seed not in seeds else None
            seeds += [seed] if seed not in seeds else []
            left.plot(
                gap, place + 0.16, _MARKERS[int(seed) % 5], color=_ORANGE, ms=4.5, mec='#7a5300',
                mew=0.5, alpha=0.9, label=label,
            )  # fmt: skip
        low, high = row['interval']
        if low is not None:
            left.plot([low, high], [place - 0.14] * 2, color=_BLUE, lw=2)
        label = f'mean, 95 % over {len(row["pairs"])} pairs' if place == 0 else None
        left.plot(row['mean'], place - 0.14, 'o', color=_BLUE, ms=6, label=label)
    left.axvline(0, color='black', lw=0.8)
    left.set_yticks(range(len(rows)), [titles[cell] for cell in rows], fontsize=8)
    left.invert_yaxis()
    left.set_xlabel('CB minus plain, mIoU in points (CamVid)', fontsize=8.5)
    left.legend(
        fontsize=7.5, frameon=False, loc='upper center', bbox_to_anchor=(0.5, 1.16), ncols=3
    )
    for number, (seed, models) in enumerate(results['entropy'].items()):
        for (name, values), colour in zip(models.items(), (_BLUE, _ORANGE), strict=True):
            right.plot(
                values, marker=_MARKERS[int(seed) % 5], ms=4, color=colour,
                ls='-' if number == 0 else '--', label=f'{name}, pre-training seed {seed}',
            )  # fmt: skip
    right.set_xlabel('layer (CB is in 6 to 11)', fontsize=8.5)
    right.set_ylabel('entropy of the attention (nats)', fontsize=8.5)
    if results['entropy']:
        right.legend(fontsize=7.5, frameon=False)
    for axis in (left, right):
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.25, lw=0.6)
        axis.spines[['top', 'right']].set_visible(False)
    return figure_bytes(figure, dpi=120)
