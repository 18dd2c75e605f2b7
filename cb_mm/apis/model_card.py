"""The model card: what a shared model is, what it was trained with and on, and what it scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from ..checkpoints.provenance import Provenance, normalization_text
from ..fileio.safe_text import markdown_text, one_line
from ..robustness.metrics import HEADLINES
from ..version import __version__

TASKS = {
    'mmseg': 'image-segmentation',
    'mmdet': 'object-detection',
    'mmpretrain': 'image-classification',
}
_NOT_SAID = 'not stated'


@dataclass
class CardFacts:
    """What a card says.

    Attributes:
        name: Of the model.
        task: One of the Hub's, see `TASKS`.
        made: Broadcast, normalisation and so on.
        data: What it was trained on, in the author's words.
        dataset: Class of the data set in the config.
        classes: Names of the classes.
        steps: Iterations or epochs, as text.
        licence: Of the weights.
        parameters: How many.
        results: Content of a ``results.json``; None without one.
    """

    name: str
    task: str
    made: Provenance
    data: str | None = None
    dataset: str | None = None
    classes: Sequence[str] = ()
    steps: str | None = None
    licence: str | None = None
    parameters: int = 0
    results: Mapping[str, Any] | None = field(default=None, repr=False)


def model_card(facts: CardFacts) -> str:
    """Return the text of ``README.md``, with the header that the Hub reads."""
    head = ModelCardData(
        license=facts.licence,
        library_name='cb_mm',
        tags=['cb_mm', 'vision-transformer', 'context-broadcasting'],
        pipeline_tag=facts.task,
        model_name=facts.name if facts.results else None,
        eval_results=_eval_results(facts) or None,
    ).to_yaml()
    made = facts.made
    rows = [
        ('task', facts.task),
        ('parameters', f'{facts.parameters:,}'),
        ('broadcast', str(made)),
        ('normalisation', normalization_text(made) if made.mean else _NOT_SAID),
        ('channels', made.channel_order or _NOT_SAID),
        ('training data', facts.data or _NOT_SAID),
        ('data set class', facts.dataset or _NOT_SAID),
        ('classes', _classes(facts.classes)),
        ('training', facts.steps or _NOT_SAID),
        ('licence', facts.licence or _NOT_SAID),
    ]
    table = '\n'.join(f'| {name} | {markdown_text(value)} |' for name, value in rows)
    return f"""---
{head}
---

# {markdown_text(facts.name)}

Made with cb_mm {__version__}: Vision Transformers with Context Broadcasting.

| | |
|---|---|
{table}

## Scores

{_scores(facts.results)}

## Use

`config.py` holds only data, and `model.safetensors` only weights. Download both, then:

```bash
cb-mm predict config.py model.safetensors IMAGE --out predictions
```

```python
from cb_mm.apis import load_from_hub, predict

shared = load_from_hub('hf://OWNER/NAME')
predictions = predict(shared.config, shared.checkpoint, 'IMAGE')
```
"""


def _classes(classes: Sequence[str]) -> str:
    if not classes:
        return _NOT_SAID
    shown = ', '.join(one_line(name) for name in classes[:12])
    return f'{len(classes)}: {shown}' + (', …' if len(classes) > 12 else '')


def _scores(results: Mapping[str, Any] | None) -> str:
    if results is None:
        return 'Not measured: no results were given.'
    names = results['headline']
    head = ['images', 'n', *(HEADLINES.get(name, name) for name in names)]
    lines = [head, ['---'] * len(head)]
    for cell in results['cells']:
        figures = [_figure(cell['metrics'][name]) for name in names]
        lines.append([cell['title'], str(cell['n']), *figures])
    table = '\n'.join(
        '| ' + ' | '.join(text if text == '---' else markdown_text(text) for text in line) + ' |'
        for line in lines
    )
    about = (
        f'On {results["identity"]["images"]} images, seed {results["identity"]["seed"]}. '
        '± is half of the 95 % interval over repeats of the noise; "images" is the 95 % interval '
        'over the choice of test images. Neither measures training with other seeds.'
    )
    return f'{table}\n\n{about}'


def _figure(metric: Mapping[str, Any]) -> str:
    if metric.get('mean') is None:
        return '–'
    text = f'{metric["mean"]:.2f}'
    if metric.get('low') is not None:
        text += f' ± {(metric["high"] - metric["low"]) / 2:.2f}'
    images = metric.get('over_images')
    return f'{text} (images {images["low"]:.2f} to {images["high"]:.2f})' if images else text


def _eval_results(facts: CardFacts) -> list[EvalResult]:
    found = []
    for cell in (facts.results or {}).get('cells', ()):
        for name in (facts.results or {})['headline']:
            mean = cell['metrics'][name]['mean']
            if mean is not None:
                found.append(
                    EvalResult(
                        task_type=facts.task,
                        dataset_type=one_line(facts.dataset or 'other'),
                        dataset_name=f'{one_line(facts.dataset or "data")}, {cell["title"]}',
                        metric_type=HEADLINES.get(name, name),
                        metric_value=round(mean, 4),
                    )
                )
    return found
