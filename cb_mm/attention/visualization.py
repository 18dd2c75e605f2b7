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
from ..fileio.figures import check_formats
from ..fileio.images import find_images, read_image, require_all_read
from ..fileio.result_files import write_csv, write_json
from .analysis import progress
from .capture import choose
from .explorer import Plan, write_explorer
from .figures import save
from .map_figures import grid_figure, heads_figure
from .maps import LayerMaps, Query, parse_query, read_maps
from .notes import Notes
from .options import AttentionOptions
from .overlay import Look, encode, ordinal, overlay
from .relevance_figures import draw_classes, draw_rollout
from .subject import Subject
from .summary import DIGITS


@dataclass
class VisualizationOptions(AttentionOptions):
    """What to draw.

    Attributes:
        layers: Which layers; the grid and the explorer show all by default, the other figures the
            last one.
        heads: Which heads; all by default.
        query: 'cls', 'mean' or 'X,Y'.
        threshold: As in `Look`; so are the next three.
        opacity: Of the strongest colour.
        clip: Percentile that is drawn as 1.
        blend: 'value' or 'flat'.
        rollout: Also draw attention rollout, over all layers.
        classes: Segmentation classes, by name or number, whose relevance is drawn.
        html: Whether to write the explorer.
    """

    layers: Sequence[int] | None = None
    heads: Sequence[int] | None = None
    query: str = 'cls'
    threshold: float = Look.threshold
    opacity: float = Look.opacity
    clip: float = Look.clip
    blend: str = Look.blend
    rollout: bool = False
    classes: Sequence[str | int] = ()
    html: bool = False

    @property
    def look(self) -> Look:
        """How maps are drawn."""
        return Look(self.threshold, self.opacity, self.clip, self.blend)


def visualize(
    options: VisualizationOptions, console: TextIO | None = None, notes: Notes | None = None
) -> list[Path]:
    """Draw and write everything for every image.

    Args:
        options: What to draw.
        console: Where to say how far it is, and what does not fit; None for nowhere.
        notes: Takes the warnings.

    Returns:
        The files.

    Raises:
        UserError: Also when some images could not be read; the others are drawn before that.
    """
    options.look.check()
    check_formats(options.formats)
    query = parse_query(options.query)
    files = find_images(options.images)
    subjects = options.load_models(whole=bool(options.classes))
    notes = Notes(console) if notes is None else notes
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
            written += _visualize_image(file, stem, image, subjects, query, options, console, notes)
    require_all_read(unread, 'all other images were drawn')
    return written


def _visualize_image(
    file: Path,
    stem: str,
    image: np.ndarray,
    subjects: Sequence[Subject],
    query: Query,
    options: VisualizationOptions,
    console: TextIO | None,
    notes: Notes,
) -> list[Path]:
    out = Path(options.out)
    fitted = [subject.fit(image, options.size) for subject in subjects]
    found = [
        read_maps(subject, its_image, query, image.shape[:2], options.layers, options.heads)
        for subject, its_image in zip(subjects, fitted, strict=True)
    ]
    for subject, layers in zip(subjects, found, strict=True):
        notes.add(subject.grid_warning([layers[0].tokens.grid]))
    written = []
    # Without `layers` only the last: the one before the neck, as in the paper's Figure 10.
    places = range(len(options.layers)) if options.layers is not None else [-1]
    for place in places:
        row = [(s.name, maps[place]) for s, maps in zip(subjects, found, strict=True)]
        figure = heads_figure(image, row, query, options.look)
        name = f'{stem}_heads_layer{row[0][1].index}'
        written += save(figure, out / name, options.formats)
        for (_, maps), tag in zip(row, _tags(subjects), strict=True):
            mean = maps.maps.mean(0)
            picture = overlay(image, mean, maps.tokens, options.look)
            path = out / f'{stem}_overlay{tag}_layer{maps.index}.png'
            written.append(write_atomically(path, encode(picture)))
    for subject, layers, tag in zip(subjects, found, _tags(subjects), strict=True):
        figure = grid_figure(subject.name, layers, query, options.look, image)
        written += save(figure, out / f'{stem}_grid{tag}', options.formats)
    seen = list(zip(subjects, fitted, strict=True))
    if options.rollout:
        written += draw_rollout(out, stem, image, seen, query, options.look, options.formats)
    if options.classes:
        paths, absent = draw_classes(
            out, stem, image, seen, options.classes, options.look, options.formats
        )
        written += paths
        for note in absent:
            notes.add(note)
    written += _write_numbers(out, stem, file, subjects, found, query, options.look)
    if options.html:
        path = out / f'{stem}.html'
        plans = write_explorer(
            path, file.name, image, seen,
            query, options.layers, options.heads, options.look,
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
            notes.append(f'every {ordinal(plan.stride)} patch in both directions as query')
        if notes:
            yield (
                f'{path.name} holds {" and ".join(notes)} of {subject.name}, to stay small; '
                'choose with `layers`, `heads` and `size`.'
            )


def _write_numbers(
    out: Path,
    stem: str,
    file: Path,
    subjects: Sequence[Subject],
    found: Sequence[list[LayerMaps]],
    query: Query,
    look: Look,
) -> list[Path]:
    """Write the maps as JSON, and one line per layer and head as CSV."""
    content = {
        'image': str(file),
        'query': str(query),
        'drawn': look.words,
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
        write_json(out / f'{stem}.json', content, DIGITS),
        write_csv(out / f'{stem}.csv', header, rows, DIGITS),
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
