"""Measuring attention on many images: everything that ``tools/analyze_attention.py`` does."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..errors import UserError
from ..lock import FolderLock
from .figures import (
    check_formats,
    class_and_distance_figure,
    entropy_figure,
    save,
    scales_figure,
    sparsity_figure,
)
from .pictures import find_images, read_image
from .results import Records, plain, write_csv, write_json
from .statistics import MEANINGS, LayerMeasure, measure, percentile_name, scale_statistics
from .subject import Subject, load_subject
from .summary import COLUMNS, ModelSummary, record_of


@dataclass
class ModelChoice:
    """A model as the command line names it."""

    config: str
    checkpoint: str
    name: str | None = None


@dataclass
class AnalysisOptions:
    """The options of ``tools/analyze_attention.py``.

    Attributes:
        models: One model, or several to compare.
        images: Files and folders.
        out: Folder for the results.
        size: Height and width to which every image is resized; None leaves its own.
        limit: Number of images at most.
        percentiles: Of the rows' entropies; the first is drawn.
        references: Values from elsewhere to draw in the entropy figure, with what they are.
        formats: Of the figures.
        device: Where to run.
        overwrite: Replace other records in ``out``.
        trust: Unpickle checkpoints without limits.
        normalization: Name of a mean and std, as in `load_subject`.
        allow_mismatch: Take checkpoints of another broadcast or of other settings.
    """

    models: Sequence[ModelChoice]
    images: Sequence[str]
    out: Path
    size: tuple[int, int] | None = None
    limit: int | None = None
    percentiles: Sequence[float] = (15, 85)
    references: Sequence[tuple[float, str]] = ()
    formats: Sequence[str] = ('png', 'svg')
    device: str | None = None
    overwrite: bool = False
    trust: bool = False
    normalization: str | None = None
    allow_mismatch: bool = False


def load_models(
    models: Sequence[ModelChoice],
    device: str | None,
    trust: bool = False,
    normalization: str | None = None,
    allow_mismatch: bool = False,
) -> list[Subject]:
    """Load every model; no two have the same name."""
    subjects: list[Subject] = []
    for choice in models:
        subject = load_subject(
            choice.config,
            choice.checkpoint,
            choice.name,
            device,
            trust,
            normalization,
            allow_mismatch,
        )
        if any(subject.name == other.name for other in subjects):
            subject.name = f'{subject.name} ({Path(choice.checkpoint).stem})'
        if any(subject.name == other.name for other in subjects):
            subject.name = f'{subject.name} {len(subjects) + 1}'
        subjects.append(subject)
    return subjects


def analyze(options: AnalysisOptions) -> list[ModelSummary]:
    """Measure, write, draw. Interrupted, it writes what it has; called again, it goes on.

    Returns:
        The summary of each model.

    Raises:
        UserError: Also when some images could not be read; the others are measured before that.
    """
    for percent in options.percentiles:
        if not 0 <= percent <= 100:
            raise UserError(f'--percentiles {percent:g} is not between 0 and 100.')
    check_formats(options.formats)
    files = find_images(options.images, options.limit)
    subjects = load_models(
        options.models,
        options.device,
        options.trust,
        options.normalization,
        options.allow_mismatch,
    )
    with FolderLock(options.out, '--out'):
        return _measure_all(options, files, subjects)


def _measure_all(
    options: AnalysisOptions, files: Sequence[Path], subjects: Sequence[Subject]
) -> list[ModelSummary]:
    out = Path(options.out)
    records = Records(out / 'images.jsonl', _content(options, subjects), options.overwrite)
    summaries = {
        subject.name: ModelSummary(subject.name, scale_statistics(subject.model))
        for subject in subjects
    }
    wanted = {str(file) for file in files}
    done: set[tuple[str, str]] = set()
    for record in records:
        if record['image'] in wanted:
            done.add((record['image'], record['model']))
            summaries[record['model']].add(record)
    unread: list[str] = []
    try:
        for file in tqdm(files, desc='images', unit='image', disable=None, file=sys.stderr):
            todo = [subject for subject in subjects if (str(file), subject.name) not in done]
            try:
                for record in _measure(file, todo, options):
                    summaries[record['model']].add(record)
                    records.add(record)
            except _Unreadable as error:
                unread.append(str(error))
    finally:
        # Also when interrupted: what is measured is not lost.
        results = list(summaries.values())
        if all(summary.images for summary in results):
            _write(out, results, options, unread)
    if unread:
        more = f' and {len(unread) - 1} more' if len(unread) > 1 else ''
        raise UserError(f'{unread[0]}{more} (all other images were measured)')
    return results


class _Unreadable(Exception):
    """An image that cannot be read."""


def _measure(
    file: Path, subjects: Sequence[Subject], options: AnalysisOptions
) -> Iterator[dict[str, Any]]:
    """One record for each model."""
    if not subjects:
        return
    try:
        image = read_image(file)
    except UserError as error:
        raise _Unreadable(str(error)) from error
    for subject in subjects:
        layers: list[LayerMeasure] = []
        subject.run(
            subject.fit(image, options.size),
            lambda layer, found=layers: found.append(measure(layer, options.percentiles)),
        )
        # As it is read again from the file, so that a run in two parts gives the same summary.
        yield plain({'image': str(file), 'model': subject.name, **record_of(layers)})


def _content(options: AnalysisOptions, subjects: Sequence[Subject]) -> dict[str, Any]:
    """What the records are of; a changed checkpoint makes them others."""
    models = []
    for choice, subject in zip(options.models, subjects, strict=True):
        file = Path(choice.checkpoint)
        stamp = [file.stat().st_size, file.stat().st_mtime_ns] if file.is_file() else None
        models.append([subject.name, choice.config, choice.checkpoint, stamp])
    content = {
        'models': models,
        'size': options.size,
        'percentiles': [float(percent) for percent in options.percentiles],
    }
    if options.normalization is not None:  # without it the same as ever: old records go on
        content['normalization'] = [[*subject.mean, *subject.std] for subject in subjects]
    return content


def _write(
    out: Path, models: Sequence[ModelSummary], options: AnalysisOptions, unread: list[str]
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
        },
    )
    write_csv(out / 'summary.csv', COLUMNS, (row for model in models for row in model.rows()))
    percent = options.percentiles[0] if options.percentiles else 15
    figures = {
        'entropy_by_depth': entropy_figure(models, percent, options.references),
        'class_entropy_and_distance': class_and_distance_figure(models),
        'sparsity_and_prefix_mass': sparsity_figure(models),
        'scales_by_depth': scales_figure(models),
    }
    for name, figure in figures.items():
        if figure is not None:
            save(figure, out / name, options.formats)


def table(models: Sequence[ModelSummary]) -> str:
    """Entropy, distance and sparsity by layer, as text for a terminal."""
    lines = []
    for model in models:
        lines.append(
            f'{model.name}: {model.images} images, bound {float(model.bound.mean):.2f} nats'
        )
        lines.append('  layer  entropy           class  distance  90 % of mass  prefix')
        columns = ('entropy', 'class_entropy', 'distance', 'sparsity', 'prefix_mass')
        values = [model.by_depth(name) for name in columns]
        for place, layer in enumerate(sorted(model.layers)):
            (entropy, half), *rest = [(mean[place], width[place]) for mean, width in values]
            class_entropy, distance, sparsity, prefix = (mean for mean, _ in rest)
            lines.append(
                f'  {layer:5d}  {entropy:5.2f} ± {half:5.3f}  {class_entropy:12.2f}'
                f'  {distance:8.5f}  {sparsity:10.1%}  {prefix:8.1%}'
            )
        mean = float(model.by_depth('entropy')[0].mean())
        lines.append(f'  mean over layers: {mean:.2f} nats')
    return '\n'.join(lines)
