"""Measuring attention on many images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeVar

import numpy as np
from tqdm import tqdm

from .. import _old_names
from ..engine.signals import Stopped, stop_on_signals
from ..errors import UserError
from ..fileio.figures import check_formats
from ..fileio.images import find_images, read_image, require_all_read
from ..fileio.result_files import plain, write_csv, write_json
from ..fileio.safe_text import one_line
from .capture import LayerAttention
from .figures import (
    class_and_distance_figure,
    entropy_figure,
    save,
    scales_figure,
    sink_figure,
    sparsity_figure,
)
from .layer_statistics import MEANINGS, LayerMeasure, measure, percentile_name, scale_statistics
from .notes import Notes
from .options import AttentionOptions
from .records import ImageRecords, file_name, identity_of
from .subject import Subject
from .summary import COLUMNS, DIGITS, ModelSummary, record_of

T = TypeVar('T')

__getattr__ = _old_names.renamed(__name__, {'ModelChoice': 'cb_mm.attention.options.ModelChoice'})


@dataclass
class AnalysisOptions(AttentionOptions):
    """What to measure.

    Attributes:
        limit: Number of images at most.
        percentiles: Of the rows' entropies; the first is drawn.
        references: External values to draw in the entropy figure, with their labels.
        overwrite: Replace other records in ``out``.
    """

    limit: int | None = None
    percentiles: Sequence[float] = (15, 85)
    references: Sequence[tuple[float, str]] = ()
    overwrite: bool = False


def progress(items: Sequence[T], console: TextIO | None) -> Iterable[T]:
    """Return the items, with a progress bar if the console is a terminal."""
    silent = None if console is not None else True
    return tqdm(items, desc='images', unit='image', disable=silent, file=console)


def analyze(
    options: AnalysisOptions, console: TextIO | None = None, notes: Notes | None = None
) -> list[ModelSummary]:
    """Measure, write, draw. After a signal, finish the image and write what there is.

    Called again, it resumes.

    Args:
        options: What to measure.
        console: Where to say how far it is; None for nowhere.
        notes: Takes the warnings.

    Returns:
        The summary of each model.

    Raises:
        UserError: Also when some images could not be read; the others are measured before that.
        Stopped: A signal asked for the end.
    """
    for percent in options.percentiles:
        if not 0 <= percent <= 100:
            raise UserError(f'`percentiles` {percent:g} is not between 0 and 100.')
    check_formats(options.formats)
    files = find_images(options.images, options.limit)
    notes = Notes(console) if notes is None else notes
    return _measure_all(options, files, options.load_models(), console, notes)


def _measure_all(
    options: AnalysisOptions,
    files: Sequence[Path],
    subjects: Sequence[Subject],
    console: TextIO | None,
    notes: Notes,
) -> list[ModelSummary]:
    out = Path(options.out)
    summaries = {
        subject.name: ModelSummary(subject.name, scale_statistics(subject.model))
        for subject in subjects
    }
    sources = [choice.source for choice in options.models]
    identity = identity_of(sources, subjects, options.size, options.percentiles)
    unread: list[str] = []
    with (
        ImageRecords(
            out / 'images.jsonl', identity, summaries, files, options.overwrite
        ) as records,
        stop_on_signals() as stop,
    ):
        if records.dropped and console is not None:
            tqdm.write(records.dropped, file=console)
        for file in progress(files, console):
            name = file_name(file)
            todo = [subject for subject in subjects if (name, subject.name) not in records]
            try:
                for record in _measure(file, todo, options):
                    record = {'image': name, 'content': records.content(name), **record}
                    summaries[record['model']].add(records.append(record))
            except Unreadable as error:
                unread.append(str(error))
            if stop.number:
                break
        results = list(summaries.values())
        if all(summary.images for summary in results):
            for subject in subjects:
                notes.add(subject.grid_warning(summaries[subject.name].grids))
            _write(out, results, options, unread, notes)
        if stop.number:
            raise Stopped(stop.number)
    require_all_read(unread, 'all other images were measured')
    return results


class Unreadable(Exception):
    """An image that cannot be read."""


def _measure(
    file: Path, subjects: Sequence[Subject], options: AnalysisOptions
) -> Iterator[dict[str, Any]]:
    """Return one record per model."""
    if not subjects:
        return
    try:
        image = read_image(file)
    except UserError as error:
        raise Unreadable(str(error)) from error
    for subject in subjects:
        layers: list[LayerMeasure] = []

        def keep(layer: LayerAttention, found: list[LayerMeasure] = layers) -> None:
            found.append(measure(layer, options.percentiles))

        subject.run(subject.fit(image, options.size), keep)
        # As it would be read from the file, so that a run in two parts gives the same summary.
        yield plain({'model': subject.name, **record_of(layers)}, DIGITS)


def _write(
    out: Path,
    models: Sequence[ModelSummary],
    options: AnalysisOptions,
    unread: list[str],
    notes: Notes,
) -> None:
    percentiles = {
        percentile_name(percent): f'{percent:g}th percentile of the entropy of the rows'
        for percent in options.percentiles
    }
    write_json(
        out / 'summary.json',
        {
            'measures': {**MEANINGS, **percentiles},
            'interval': 'half the width of the 95 % t-interval of the mean over images',
            'size': options.size,
            'models': [model.as_dict() for model in models],
            'unread': unread,
            'warnings': list(notes),
        },
        DIGITS,
    )
    rows = (row for model in models for row in model.rows())
    write_csv(out / 'summary.csv', COLUMNS, rows, DIGITS)
    percent = options.percentiles[0] if options.percentiles else 15
    figures = {
        'entropy_by_depth': entropy_figure(models, percent, options.references),
        'class_entropy_and_distance': class_and_distance_figure(models),
        'sparsity_and_prefix_mass': sparsity_figure(models),
        'sinks_and_broadcast': sink_figure(models),
        'scales_by_depth': scales_figure(models),
    }
    for name, figure in figures.items():
        if figure is not None:
            save(figure, out / name, options.formats)


def table(models: Sequence[ModelSummary]) -> str:
    """Return entropy, distance and sparsity by layer, as text for a terminal."""
    lines = []
    for model in models:
        images = f'{model.images} image{"" if model.images == 1 else "s"}'
        bound = float(model.bound.mean)
        lines.append(f'{one_line(model.name)}: {images}, bound {bound:.2f} nats')
        lines.append('  layer  entropy           class  distance  90 % of mass  prefix')
        columns = ('entropy', 'class_entropy', 'distance', 'sparsity', 'prefix_mass')
        values = [model.by_depth(name) for name in columns]
        for place, layer in enumerate(sorted(model.layers)):
            (entropy, half), *rest = [(mean[place], width[place]) for mean, width in values]
            class_entropy, distance, sparsity, prefix = (mean for mean, _ in rest)
            # One image has no interval, and some models have no class token.
            interval = f' ± {half:5.3f}' if np.isfinite(half) else ''
            own = f'{class_entropy:.2f}' if np.isfinite(class_entropy) else '–'
            lines.append(
                f'  {layer:5d}  {entropy:5.2f}{interval:8}  {own:>12}'
                f'  {distance:8.5f}  {sparsity:10.1%}  {prefix:8.1%}'
            )
        mean = float(model.by_depth('entropy')[0].mean())
        lines.append(f'  mean over layers: {mean:.2f} nats')
    return '\n'.join(lines)
