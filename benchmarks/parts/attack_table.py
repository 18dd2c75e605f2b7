"""One model under all attacks, and the table of what came out."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .attack_models import Subject
from .markdown import table
from .tool_call import call_tool

#: In grey levels. An L2 distance of 400 is about one for every value of 224 × 224 pixels.
_EVERYWHERE = ('bim=4', 'pgd=4', 'pgd_l2=400')
_PIXELS = ('segpgd=4', 'cospgd=4')
#: For the times; FGSM and the others take turns.
_TIMED_IMAGES = 3


def attack_subject(
    task: str, subject: Subject, folder: Path, images: int, steps: int, repeats: int
) -> dict[str, Any]:
    """Attack a model, and return its rows."""
    attacks = [*_EVERYWHERE, *(_PIXELS if task == 'segmentation' else ())]
    workers = ['test_dataloader.num_workers=0', 'test_dataloader.persistent_workers=False']
    call_tool(
        'test.py', subject.config, subject.checkpoint, '--data-root', subject.data.resolve(),
        '--fgsm', 4, '--attack', *attacks, '--attack-steps', steps, '--repeats', repeats,
        '--limit', images, '--out', folder, '--cfg-options', *workers, log=folder / 'log.txt',
    )  # fmt: skip
    results = json.loads((folder / 'results.json').read_text())
    rows = [_row(cell, subject.metric) for cell in results['cells']]
    seconds = _cpu_seconds(subject, attacks, steps)
    for row in rows:
        if row['attack']:
            row['cpu_ratio'] = seconds[row['name']] / seconds['fgsm']
    return {'metric': subject.metric, 'images': images, 'rows': rows}


def _row(cell: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """Return the score of a cell, and what its attack did."""
    values = cell['metrics'][metric]
    return {
        'key': cell['key'],
        'name': cell['corruption'],
        'title': cell['title'],
        'n': cell['n'],
        'score': values['mean'],
        'half': None if values['high'] is None else (values['high'] - values['low']) / 2,
        'retained': cell['retention'].get(metric),
        'attack': cell.get('attack'),
    }


def _cpu_seconds(subject: Subject, attacks: list[str], steps: int) -> dict[str, float]:
    """Return the CPU time of each attack per image: the median of a few images."""
    import numpy as np

    import cb_mm.safe_io  # noqa: F401  (as in every tool)
    from cb_mm.checkpoints.normalization import set_normalization
    from cb_mm.config.loading import replace_sync_bn
    from cb_mm.engine.training import RunOptions, prepare_config
    from cb_mm.robustness.attacks.catalogue import FGSM, AttackSettings
    from cb_mm.robustness.attacks.fgsm import fgsm
    from cb_mm.robustness.attacks.pgd import pgd
    from cb_mm.robustness.console_log import quiet_console
    from cb_mm.robustness.jobs import AttackCell, Job
    from cb_mm.robustness.tester import ModelUnderTest

    with quiet_console():
        config = prepare_config(
            RunOptions(str(subject.config), data_root=str(subject.data.resolve()))
        )
        set_normalization(config, None, str(subject.checkpoint), False)
        replace_sync_bn(config)
        tester = ModelUnderTest(config, subject.checkpoint, attacks=True, limit=_TIMED_IMAGES)
    names = [text.partition('=')[0] for text in attacks]
    settings = AttackSettings(attack_steps=steps)
    found: dict[str, list[float]] = {}
    for number in range(_TIMED_IMAGES):
        sample = tester.dataset[number, Job(AttackCell(FGSM, 4.0))]
        assert isinstance(sample, dict)
        image, truth = sample['inputs'], sample['truth']
        for name in (FGSM, *names):
            started = time.process_time()
            if name == FGSM:
                fgsm(tester.model, image, truth, 4.0)
            else:
                pgd(tester.model, image, truth, 4.0, settings.of(name))
            found.setdefault(name, []).append(time.process_time() - started)
    return {name: float(np.median(values)) for name, values in found.items()}


_TITLES = {
    'segmentation': 'Segmentation: UperNet with ViT-Ti on CamVid (val), 320 × 240',
    'detection': 'Detection: Mask R-CNN with ViT-Ti on COCO, tested on its training images',
    'classification': 'Classification: DeiT-Ti on ImageNet (val)',
}
_SCORES = {'mIoU': 'mIoU', 'bbox_mAP': 'box AP', 'top1': 'top-1'}


def tables(runs: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Any]) -> str:
    """Return the text of attacks.md."""
    parts = []
    for task in (one for one in _TITLES if one in runs):
        run = runs[task]
        head = ['attack', 'n', _SCORES[run['metric']], 'retained', 'loss, start', 'loss, attacked',
                'L∞, largest', 'L2, largest', 'CPU time / FGSM']  # fmt: skip
        rows = [_cells(row) for row in run['rows']]
        parts += [f'**{_TITLES[task]}**, {run["images"]} images', table(head, rows)]
    steps, repeats = settings['steps'], settings['repeats']
    passes = 'one pass' if repeats == 1 else f'{repeats} passes, ± half of the 95 % interval'
    parts.append(
        f'{steps} steps of {min(2.5 / steps, 1):g} ε; PGD, SegPGD and CosPGD from a random start, '
        f'{passes}. Scores and retained in per cent; distances in grey levels.'
    )
    return '\n\n'.join(parts) + '\n'


def _cells(row: Mapping[str, Any]) -> list[str]:
    score = f'{row["score"]:.2f}' + ('' if row['half'] is None else f' ± {row["half"]:.2f}')
    attack = row['attack']
    if not attack:
        return [row['title'], str(row['n']), score, *[''] * 6]
    return [
        row['title'], str(row['n']), score, f'{100 * row["retained"]:.1f}',
        f'{attack["loss"][0]:.3f}', f'{attack["kept_loss"]:.3f}', f'{attack["linf"]:.3f}',
        f'{attack["l2"]:.1f}', f'{row["cpu_ratio"]:.1f}',
    ]  # fmt: skip
