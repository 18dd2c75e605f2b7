"""Attention, measured and drawn, from Python."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from mmengine.config import Config
from torch import nn
from torch.utils.data import DataLoader

from ..attention.analysis import AnalysisOptions, analyze, table
from ..attention.notes import Notes
from ..attention.options import AttentionOptions, ModelChoice
from ..attention.summary import ModelSummary
from ..attention.visualization import VisualizationOptions, visualize
from ..errors import UserError
from .calls import api, files_in, loaded_files, options_from, save_files

Source: TypeAlias = nn.Module | Config | str | Path
Images = str | Path | Sequence[str | Path]
Options = TypeVar('Options', bound=AttentionOptions)


@dataclass
class AttentionSummary:
    """Attention statistics of one or several models, by layer and head.

    Attributes:
        models: One summary each; ``by_depth('entropy')`` gives means and intervals.
        files: Everything that the tool writes, by path.
        warnings: What to know before believing it, such as a grid far from the pre-training's.
    """

    models: list[ModelSummary]
    files: dict[str, bytes] = field(repr=False)
    warnings: list[str] = field(default_factory=list)

    def table(self) -> str:
        """Return entropy, distance and sparsity by layer, as text."""
        return table(self.models)

    def save(self, folder: str | Path) -> list[Path]:
        """Write summary.json, summary.csv, images.jsonl and the figures."""
        return save_files(self.files, folder)


@dataclass
class AttentionPictures:
    """Figures, overlays and numbers of every image.

    Attributes:
        files: Everything that the tool writes, by path.
        paths: Where the files are; empty for a call without ``out``.
        warnings: As in `AttentionSummary`; also classes that a model does not predict.
    """

    files: dict[str, bytes] = field(repr=False)
    paths: list[Path]
    warnings: list[str] = field(default_factory=list)

    def save(self, folder: str | Path) -> list[Path]:
        """Write the figures, the numbers, and the pages to explore."""
        return save_files(self.files, folder)


@api
def attention_statistics(
    model_or_config: Source,
    checkpoint: str | Path | None = None,
    images: Images = (),
    *,
    compare: Source | tuple[Source, str | Path] | None = None,
    names: Sequence[str] | None = None,
    size: tuple[int, int] | None = None,
    limit: int | None = None,
    percentiles: Sequence[float] = AnalysisOptions.percentiles,
    references: Sequence[tuple[float, str]] = AnalysisOptions.references,
    out: str | Path | None = None,
    overwrite: bool = False,
    formats: Sequence[str] = AnalysisOptions.formats,
    data_loader: DataLoader | None = None,
    device: str | None = None,
    normalization: str | None = None,
    trust_checkpoint: bool = False,
    allow_mismatch: bool = False,
    safe_config: bool = False,
    verbose: bool = False,
) -> AttentionSummary:
    """Measure the attention of a model on images: entropy, distance, sparsity, by layer and head.

    Args:
        model_or_config: Path of a config, a ``Config``, the name of a timm ViT, or a built model
            with its weights: a segmentor, a detector, a backbone, a timm ViT. None is changed.
        checkpoint: Its weights; none for a built model.
        images: Files and folders.
        compare: A second model: a built one, or a pair of config and checkpoint.
        names: What to call the models.
        size: Height and width to which every image is resized.
        limit: Take only the first images.
        percentiles: Of the entropy of the rows; the first is drawn.
        references: External values to draw in the entropy figure, with their labels.
        out: Folder for the results; the same call resumes there. By default they are in memory.
        overwrite: Replace other records in ``out``.
        formats: Of the figures: 'png', 'svg', 'pdf'.
        data_loader: A loader or data set of mmengine; its images take the place of ``images``.
        device: Where to run; by default a GPU if there is one, or where a built model is.
        normalization: Mean and std of the images: 'imagenet', 'half', 'clip' or 'weights'.
        trust_checkpoint: Open a checkpoint with more than weights inside, which can run any code.
        allow_mismatch: Take weights that say that they were trained with something else.
        safe_config: Refuse a config that holds more than data.
        verbose: Show a progress bar, and what mmengine logs.

    Raises:
        UserError: Something that the caller can fix; also an image that cannot be read, after all
            others are measured.
    """
    with _options(AnalysisOptions, locals()) as options:
        console = sys.stderr if verbose else None
        notes = Notes(console)
        models = analyze(options, console, notes)
        return AttentionSummary(models, files_in(options.out), list(notes))


@api
def visualize_attention(
    model_or_config: Source,
    checkpoint: str | Path | None = None,
    images: Images = (),
    *,
    compare: Source | tuple[Source, str | Path] | None = None,
    names: Sequence[str] | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    query: str = VisualizationOptions.query,
    threshold: float = VisualizationOptions.threshold,
    opacity: float = VisualizationOptions.opacity,
    clip: float = VisualizationOptions.clip,
    blend: str = VisualizationOptions.blend,
    rollout: bool = VisualizationOptions.rollout,
    classes: Sequence[str | int] = VisualizationOptions.classes,
    html: bool = VisualizationOptions.html,
    size: tuple[int, int] | None = None,
    out: str | Path | None = None,
    formats: Sequence[str] = VisualizationOptions.formats,
    data_loader: DataLoader | None = None,
    device: str | None = None,
    normalization: str | None = None,
    trust_checkpoint: bool = False,
    allow_mismatch: bool = False,
    safe_config: bool = False,
    verbose: bool = False,
) -> AttentionPictures:
    """Draw the attention of a model over images, and write pages to explore it interactively.

    Args:
        model_or_config: As in `attention_statistics`; so are those that are not explained here.
        checkpoint: Its weights; none for a built model.
        images: Files and folders.
        compare: A second model, drawn beside the first.
        names: What to call the models.
        layers: From 0, -1 is the last; the grid and the page show all by default, others the last.
        heads: From 0; all by default.
        query: Whose attention: 'cls', 'mean' of all patches, or the patch at a pixel, 'X,Y'.
        threshold: Do not draw what is below it; every map goes from 0 to 1.
        opacity: Of the strongest colour over the image.
        clip: Percentile of a map that is drawn as 1; 100 is its largest value.
        blend: 'value': the opacity follows the value; 'flat': the same everywhere.
        rollout: Also draw attention rollout through all layers.
        classes: Segmentation classes, by name or number, whose relevance is drawn.
        html: Also write a page to explore.
        size: Height and width to which every image is resized.
        out: Folder for the results; by default they are in memory.
        formats: Of the figures: 'png', 'svg', 'pdf'.
        data_loader: A loader or data set of mmengine; its images take the place of ``images``.
        device: Where to run.
        normalization: Mean and std of the images.
        trust_checkpoint: Open a checkpoint with more than weights inside, which can run any code.
        allow_mismatch: Take weights that say that they were trained with something else.
        safe_config: Refuse a config that holds more than data.
        verbose: Show a progress bar, and what mmengine logs.

    Raises:
        UserError: Something that the caller can fix; also an image that cannot be read, after all
            others are drawn.
    """
    with _options(VisualizationOptions, locals()) as options:
        console = sys.stderr if verbose else None
        notes = Notes(console)
        paths = visualize(options, console, notes)
        files = {str(path.relative_to(options.out)): path.read_bytes() for path in paths}
        return AttentionPictures(files, [] if out is None else paths, list(notes))


@contextlib.contextmanager
def _options(kind: Callable[..., Options], given: Mapping[str, Any]) -> Iterator[Options]:
    """Yield the options of a call; a folder that it does not name is there for the block alone."""
    models = _choices(
        *(given[key] for key in ('model_or_config', 'checkpoint', 'compare', 'names'))
    )
    images = _images(loaded_files(given['images'], 'images', given['data_loader']))
    with contextlib.ExitStack() as stack:
        out = given['out']
        if out is None:
            out = stack.enter_context(tempfile.TemporaryDirectory(prefix='cb_mm_'))
        yield options_from(kind, given, models=models, images=images, out=Path(out))


def _choices(
    source: Source, checkpoint: str | Path | None, compare: Any, names: Sequence[str] | None
) -> list[ModelChoice]:
    pairs = [(source, checkpoint)]
    if isinstance(compare, (tuple, list)):
        if len(compare) != 2:
            raise UserError('`compare`: give a config and its checkpoint, or a built model.')
        pairs.append((compare[0], compare[1]))
    elif compare is not None:
        pairs.append((compare, None))
    if names is not None and len(names) != len(pairs):
        raise UserError(f'`names`: give {len(pairs)}, one for each model.')
    called: Sequence[str | None] = names or [None] * len(pairs)
    return [ModelChoice(*pair, name) for pair, name in zip(pairs, called, strict=True)]


def _images(images: Images) -> list[str | Path]:
    found = [images] if isinstance(images, (str, Path)) else list(images)
    if not found:
        raise UserError('`images`: give files or folders.')
    return found
