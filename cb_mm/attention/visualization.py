"""Showing a model's attention on images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from tqdm import tqdm

from ..errors import UserError
from ..fileio.atomic import write_atomically
from ..fileio.images import find_images, read_image
from .analysis import ModelChoice, load_models, progress, require_all_read
from .capture import choose
from .explorer import Plan, write_explorer
from .figures import _ordinal, check_formats, save
from .map_figures import grid_figure, heads_figure
from .maps import LayerMaps, Query, parse_query, read_maps
from .overlay import encode, overlay
from .results import write_csv, write_json
from .subject import Subject


@dataclass
class VisualizationOptions:
    """What to draw, and where.

    Attributes:
        models: One model, or two to compare.
        images: Files and folders.
        out: Folder for the results.
        layers: Which layers; the grid and the explorer show all by default, the other figures the
            last one.
        heads: Which heads; all by default.
        query: 'cls', 'mean' or 'X,Y'.
        threshold: From 0 to 1 after normalisation; what is below is not drawn.
        opacity: Of the map over the image.
        html: Whether to write the explorer.
        size: Height and width to which every image is resized; None leaves its own.
        formats: Of the figures.
        device: Where to run.
        trust: Unpickle checkpoints without limits.
        normalization: Name of a mean and std, as in `load_subject`.
        allow_mismatch: Take checkpoints of another broadcast or of other settings.
    """

    models: Sequence[ModelChoice]
    images: Sequence[str | Path]
    out: Path
    layers: Sequence[int] | None = None
    heads: Sequence[int] | None = None
    query: str = 'cls'
    threshold: float = 0.0
    opacity: float = 0.7
    html: bool = False
    size: tuple[int, int] | None = None
    formats: Sequence[str] = ('png', 'svg')
    device: str | None = None
    trust: bool = False
    normalization: str | None = None
    allow_mismatch: bool = False


def visualize(options: VisualizationOptions, console: TextIO | None = None) -> list[Path]:
    """Draw and write everything for every image.

    Args:
        options: What to draw.
        console: Where to say how far it is, and what does not fit; None for nowhere.

    Returns:
        The files.

    Raises:
        UserError: Also when some images could not be read; the others are drawn before that.
    """
    for name, value in (('threshold', options.threshold), ('opacity', options.opacity)):
        if not 0 <= value <= 1:
            raise UserError(f'--{name} {value:g} is not between 0 and 1.')
    check_formats(options.formats)
    query = parse_query(options.query)
    files = find_images(options.images)
    subjects = load_models(
        options.models,
        options.device,
        options.trust,
        options.normalization,
        options.allow_mismatch,
    )
    for subject in subjects:
        choose('layer', options.layers, subject.layers, f'attention layers of {subject.name},')
    written: list[Path] = []
    unread: list[str] = []
    for file, stem in progress(list(zip(files, _stems(files), strict=True)), console):
        try:
            image = read_image(file)
        except UserError as error:
            unread.append(str(error))
        else:
            written += _visualize_image(file, stem, image, subjects, query, options, console)
    require_all_read(unread, 'drawn')
    return written


def _visualize_image(
    file: Path,
    stem: str,
    image: np.ndarray,
    subjects: Sequence[Subject],
    query: Query,
    options: VisualizationOptions,
    console: TextIO | None,
) -> list[Path]:
    out = Path(options.out)
    fitted = [subject.fit(image, options.size) for subject in subjects]
    found = [
        read_maps(subject, its_image, query, image.shape[:2], options.layers, options.heads)
        for subject, its_image in zip(subjects, fitted, strict=True)
    ]
    written = []
    # Without --layers only the last: the one before the neck, as in the paper's Figure 10.
    places = range(len(options.layers)) if options.layers is not None else [-1]
    for place in places:
        row = [(s.name, maps[place]) for s, maps in zip(subjects, found, strict=True)]
        figure = heads_figure(image, row, query, options.threshold, options.opacity)
        name = f'{stem}_heads_layer{row[0][1].index}'
        written += save(figure, out / name, options.formats)
        for (_, maps), tag in zip(row, _tags(subjects), strict=True):
            mean = maps.maps.mean(0)
            picture = overlay(image, mean, maps.tokens, options.threshold, options.opacity)
            path = out / f'{stem}_overlay{tag}_layer{maps.index}.png'
            written.append(write_atomically(path, encode(picture)))
    for subject, layers, tag in zip(subjects, found, _tags(subjects), strict=True):
        figure = grid_figure(subject.name, layers, query, options.threshold)
        written += save(figure, out / f'{stem}_grid{tag}', options.formats)
    written += _write_numbers(out, stem, file, subjects, found, query)
    if options.html:
        path = out / f'{stem}.html'
        plans = write_explorer(
            path, file.name, image, list(zip(subjects, fitted, strict=True)),
            query, options.layers, options.heads, options.threshold,
        )  # fmt: skip
        written.append(path)
        if console is not None:
            for note in _what_fits(path, plans, subjects, options):
                tqdm.write(note, file=console)
    return written


def _what_fits(
    path: Path, plans: Sequence[Plan], subjects: Sequence[Subject], options: VisualizationOptions
) -> Iterator[str]:
    """Yield what was left out of a page, to keep it small."""
    for plan, subject in zip(plans, subjects, strict=True):
        notes = []
        if options.layers is None and len(plan.layers) < subject.layers:
            notes.append(f'the layers {", ".join(map(str, plan.layers))}')
        if plan.stride > 1:
            notes.append(f'every {_ordinal(plan.stride)} patch in both directions as query')
        if notes:
            yield (
                f'{path.name} holds {" and ".join(notes)} of {subject.name}, to stay small; '
                'choose with --layers, --heads and --size.'
            )


def _write_numbers(
    out: Path,
    stem: str,
    file: Path,
    subjects: Sequence[Subject],
    found: Sequence[list[LayerMaps]],
    query: Query,
) -> list[Path]:
    """Write the maps as JSON, and one line per layer and head as CSV."""
    content = {
        'image': str(file),
        'query': str(query),
        'models': [
            {'name': subject.name, 'layers': [_layer(maps) for maps in layers]}
            for subject, layers in zip(subjects, found, strict=True)
        ],
    }
    rows = [
        (
            subject.name,
            maps.index,
            head,
            maps.entropy[place],
            np.log(maps.tokens.count),
            maps.prefix[place].sum(),
            maps.maps[place].max(),
            *reversed(np.unravel_index(maps.maps[place].argmax(), maps.tokens.grid)),
        )
        for subject, layers in zip(subjects, found, strict=True)
        for maps in layers
        for place, head in enumerate(maps.heads)
    ]
    header = (
        *('model', 'layer', 'head', 'entropy', 'bound', 'prefix_mass'),
        *('peak', 'peak_column', 'peak_row'),
    )
    return [
        write_json(out / f'{stem}.json', content),
        write_csv(out / f'{stem}.csv', header, rows),
    ]


def _layer(maps: LayerMaps) -> dict[str, Any]:
    return {
        'index': maps.index,
        'name': maps.name,
        'grid': maps.tokens.grid,
        'prefix_tokens': maps.tokens.prefix,
        'heads': maps.heads,
        'entropy': maps.entropy,
        'on_prefix': maps.prefix,
        'maps': maps.maps,
    }


def _stems(files: Sequence[Path]) -> list[str]:
    """Return a name for each file's results, with its folder if two files have the same name."""
    stems = [file.stem for file in files]
    named = [
        f'{file.parent.name}_{stem}' if stems.count(stem) > 1 else stem
        for file, stem in zip(files, stems, strict=True)
    ]
    return [
        f'{name}_{place}' if named.count(name) > 1 else name for place, name in enumerate(named)
    ]


def _tags(subjects: Sequence[Subject]) -> list[str]:
    """Return what tells the files of two models apart."""
    if len(subjects) == 1:
        return ['']
    return [
        '_' + ''.join(c if c.isalnum() or c in '-_.' else '_' for c in subject.name)
        for subject in subjects
    ]
