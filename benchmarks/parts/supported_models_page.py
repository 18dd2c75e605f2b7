"""The page of supported models, from the results of the runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .markdown import table
from .upstream_models import MODELS, Model

TITLES = {'mmseg': 'mmsegmentation', 'mmdet': 'mmdetection'}
STAGES = ('test', 'train', 'cuda')
HEAD = """# Supported models

cb_mm tests any model of mmsegmentation and mmdetection under corruption, and its tools train them.
These are configs that the two libraries ship, each marked from a run without mmcv's compiled
extension: [stand-ins](installation.md#ops-without-a-compiler) take its place, but for one op.

- **test**: `cb_mm.apis.evaluate_robustness` on one image, clean and with Gaussian noise, on CPU;
  seven of the first rows were run on two images, and the results do not say which;
- **train**: one step of `cb_mm.apis.train` on two images with the config's losses and optimizer,
  on CPU, without a validation;
- **CUDA**: the raw outputs of the network on CUDA tensors that have a shape, a type and a device,
  but no data. A missing op or a constant on the wrong device fails here as on a GPU; nothing was
  computed on one. *Partly*: it is right up to the function in the notes, where the program depends
  on values, such as how many boxes are left.

Each run starts from random weights, on small images of the embedded scenes
(`tools/make_scenes.py`). Where a config has another data set than ADE20K or COCO, the number of
classes is set to theirs. Everything else is the config's, but mixed precision is off. On CUDA
tensors Python runs without assertions, because one of mmcv's reads values. The scores mean nothing,
and no run says how well a model trains.
"""
TAIL = """## How to run it

```bash
python benchmarks/supported_models.py                      # rows without a result
python benchmarks/supported_models.py --again --only dino  # again, where one did not work
```

Each row runs in a process of its own, and a stopped run resumes. The results are in
[supported_models.json](../benchmarks/results/supported_models.json). For models that are not in
the table, see [robustness](robustness.md).
"""


def write_page(runs: Mapping[str, Mapping[str, Any]], software: Mapping[str, str]) -> str:
    """Return the page in Markdown."""
    versions = ', '.join(f'{name} {version}' for name, version in software.items())
    parts = [HEAD]
    for library, title in TITLES.items():
        models = [model for model in MODELS if model.library == library and model.key in runs]
        parts.append(f'## {title}\n\n{_counts(models, runs)}\n\n{_table(models, runs)}\n')
    parts += [f'Software: {versions}.\n', TAIL]
    return '\n'.join(parts)


def _counts(models: list[Model], runs: Mapping[str, Mapping[str, Any]]) -> str:
    works = {
        stage: sum(runs[model.key].get(stage, {}).get('works', False) for model in models)
        for stage in STAGES
    }
    return (
        f'Of {len(models)} configs, {works["test"]} can be tested, {works["train"]} can be trained '
        f'and {works["cuda"]} run on CUDA tensors to the end.'
    )


def _table(models: list[Model], runs: Mapping[str, Mapping[str, Any]]) -> str:
    rows = []
    for model in models:
        results = runs[model.key]
        marks = [_mark(results.get(stage)) for stage in STAGES]
        rows.append([model.family, f'`{model.config}`', *marks, '; '.join(_notes(model, results))])
    return table(['family', 'config', 'test', 'train', 'CUDA', 'notes'], rows)


def _mark(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return 'not run'
    if result['works']:
        return 'yes'
    return 'partly' if result.get('partial') else '**no**'


def _notes(model: Model, results: Mapping[str, Any]) -> list[str]:
    """Return why a stage does not work, and what is not as in the config."""
    notes = [f'run with {model.width[1]} channels, not {model.width[0]}'] if model.width else []
    if model.note:
        notes.append(model.note)
    failed: dict[str, list[str]] = {}
    for stage in STAGES:
        result = results.get(stage, {'works': True})
        if not result['works']:
            failed.setdefault(_for_a_cell(result['reason']), []).append(
                stage.replace('cuda', 'CUDA')
            )
    return notes + [f'{", ".join(stages)}: {reason}' for reason, stages in failed.items()]


def _for_a_cell(text: str) -> str:
    """Return what is wrong, without the advice that follows it in a message."""
    return re.split(r'\. (?=[A-Z])', text)[0].replace('|', '\\|')
