"""Drawing rollout and the relevance of classes: one row per model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..errors import UserError
from .figures import save
from .map_figures import Panel, panels_figure
from .maps import Query
from .overlay import Look
from .relevance import class_number, rollout, run_segmentor
from .subject import Subject

_ROLLOUT = (
    'Attention rollout: the mean over heads of every layer, half residual, multiplied over all '
    'layers. Mixing by MLPs and by CB is not part of it.'
)
_RELEVANCE = (
    'Relevance: attention times its gradient, for the sum of the class logits over the pixels '
    'predicted as the class (outlined), passed back through all layers.'
)


def draw_rollout(
    out: Path,
    stem: str,
    image: np.ndarray,
    subjects: Sequence[tuple[Subject, np.ndarray]],
    query: Query,
    look: Look,
    formats: Sequence[str],
) -> list[Path]:
    """Write ``STEM_rollout``; each subject comes with the image at the size for it."""
    rows = []
    for subject, its_image in subjects:
        values, tokens = rollout(subject, its_image, query, image.shape[:2])
        panels = [Panel('input', None, tokens), Panel('rollout', values, tokens)]
        rows.append((subject.name, panels))
    title = f'Attention rollout of the {query.words}'
    figure = panels_figure(image, rows, title, _ROLLOUT, look, query, 'rollout')
    return save(figure, out / f'{stem}_rollout', formats)


def draw_classes(
    out: Path,
    stem: str,
    image: np.ndarray,
    subjects: Sequence[tuple[Subject, np.ndarray]],
    classes: Sequence[str | int],
    look: Look,
    formats: Sequence[str],
) -> tuple[list[Path], list[str]]:
    """Write ``STEM_classes``: the relevance of each class; also return what could not be drawn."""
    rows, notes = [], []
    for subject, its_image in subjects:
        segmentor = subject.segmentor
        if segmentor is None:
            raise UserError(
                f'`classes`: {subject.name} is not a segmentor. Give the config of one, with the '
                'checkpoint of the whole model.'
            )
        run = run_segmentor(subject, segmentor, its_image)
        names = tuple((getattr(segmentor, 'dataset_meta', None) or {}).get('classes') or ())
        panels = []
        for wanted in classes:
            number = class_number(wanted, names, len(run.logits))
            name = names[number] if number < len(names) else f'class {number}'
            found = run.relevance(number)
            if found is None:
                seen = run.prediction.unique().tolist()
                there = ', '.join(names[i] if i < len(names) else str(i) for i in seen)
                notes.append(
                    f'{stem}: {subject.name} predicts no pixel as {name}, so it has no relevance '
                    f'there. It predicts {there}.'
                )
                continue
            panels.append(Panel(name, found.values, found.tokens, found.region))
        if panels:
            rows.append((subject.name, [Panel('input', None, panels[0].tokens), *panels]))
    if not rows:
        return [], notes
    figure = panels_figure(image, rows, 'Relevance of classes', _RELEVANCE, look)
    return save(figure, out / f'{stem}_classes', formats), notes
