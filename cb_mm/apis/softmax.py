"""The gradient of softmax on attention rows, from Python."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch.utils.data import DataLoader

from ..attention.analysis import AnalysisOptions
from ..attention.figures import _STYLE
from ..attention.softmax_gradient import GradientSummary, gradient_figure, measure_gradient
from ..fileio.figures import check_formats, figure_bytes
from ..fileio.images import find_images
from .attention import Images, Source, _options
from .calls import api, save_files


@dataclass
class SoftmaxGradient:
    """How steep softmax is on the attention rows of one or several models.

    Iterating gives the models.

    Attributes:
        models: One summary each: ``norm`` and ``distance`` by layer and head, and ``bound``.
        files: Everything that the tool writes, by path.
    """

    models: list[GradientSummary]
    files: dict[str, bytes] = field(repr=False)

    def __iter__(self) -> Iterator[GradientSummary]:
        """Iterate over the models."""
        return iter(self.models)

    def save(self, folder: str | Path) -> list[Path]:
        """Write ``softmax_gradient.json`` and the figure."""
        return save_files(self.files, folder)


@api
def softmax_gradient(
    model_or_config: Source,
    checkpoint: str | Path | None = None,
    images: Images = (),
    *,
    compare: Source | tuple[Source, str | Path] | None = None,
    names: Sequence[str] | None = None,
    size: tuple[int, int] | None = None,
    limit: int | None = None,
    out: str | Path | None = None,
    formats: Sequence[str] = AnalysisOptions.formats,
    data_loader: DataLoader | None = None,
    device: str | None = None,
    normalization: str | None = None,
    trust_checkpoint: bool = False,
    allow_mismatch: bool = False,
    safe_config: bool = False,
    verbose: bool = False,
) -> SoftmaxGradient:
    """Measure how steep softmax is on the attention rows of a model (the paper's Figure 5).

    Args:
        model_or_config: As in `attention_statistics`.
        checkpoint: Its weights; none for a built model.
        images: Files and folders.
        compare: A second model: a built one, or a pair of config and checkpoint.
        names: What to call the models.
        size: Height and width to which every image is resized.
        limit: Take only the first images.
        out: Folder for ``softmax_gradient.json`` and the figure; by default nothing is written.
        formats: Of the figure: 'png', 'svg', 'pdf'.
        data_loader: A loader or data set of mmengine; its images take the place of ``images``.
        device: Where to run; by default a GPU if there is one, or where a built model is.
        normalization: Mean and std of the images: 'imagenet', 'half', 'clip' or 'weights'.
        trust_checkpoint: Open a checkpoint with more than weights inside, which can run any code.
        allow_mismatch: Take weights that say that they were trained with something else.
        safe_config: Refuse a config that holds more than data.
        verbose: Show what mmengine logs.

    Raises:
        UserError: Something that the caller can fix.
    """
    check_formats(formats)
    with _options(AnalysisOptions, locals()) as options:
        models = measure_gradient(options, find_images(options.images, options.limit))
    records = json.dumps([model.record() for model in models], indent=2)
    files = {'softmax_gradient.json': f'{records}\n'.encode()}
    figure = gradient_figure(models)
    for kind in formats:
        files[f'softmax_gradient.{kind}'] = figure_bytes(figure, kind, style=_STYLE)
    result = SoftmaxGradient(models, files)
    if out is not None:
        result.save(out)
    return result
