"""Predictions from Python."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config
from torch import nn
from torch.utils.data import DataLoader

from ..errors import UserError
from ..fileio.atomic import draft_of
from ..fileio.images import read_image
from ..prediction.files import read_label_map
from ..prediction.options import PredictionOptions
from ..prediction.records import read_records, result_from_record
from ..prediction.results import Result
from ..prediction.run import run_prediction
from ..robustness.console_log import quiet_console
from .calls import api, loaded_files


@dataclass(frozen=True)
class Prediction:
    """What was found in one image or frame, under one corruption.

    Attributes:
        source: The file, or the number of the camera.
        name: Of its files in the folder.
        frame: Number of the frame in a video; None for an image.
        corruption: 'clean', 'fog=3' ...
        size: Height and width of the image.
        folder: Where its files are.
    """

    source: str
    name: str
    frame: int | None
    corruption: str
    size: tuple[int, int]
    folder: Path = field(repr=False)
    record: dict[str, Any] = field(repr=False)
    # A temporary folder lives as long as anything that reads from it.
    _temporary: Any = field(default=None, repr=False, compare=False)

    @property
    def pixels(self) -> dict[int, int]:
        """Pixels of each class that occurs; of segmentation only."""
        return {int(number): count for number, count in self.record['pixels'].items()}

    @property
    def result(self) -> Result:
        """A `Segmentation`, `Detections` or `Ranking`, exactly as the model gave it."""
        labels = None
        if self.record['kind'] == 'segmentation':
            if self.frame is not None:
                raise UserError('label maps of video frames are not kept; their areas are.')
            labels = read_label_map((self.folder / 'labels' / f'{self.name}.png').read_bytes())
        return result_from_record(self.record, labels)


@dataclass
class Predictions:
    """Predictions on images and videos, in a folder; iterate to get them one by one.

    Attributes:
        folder: Where the files are: a temporary one, which lives as long as this object and its
            predictions, or ``out``.
        classes: Names, by class number.
    """

    folder: Path
    classes: list[str]
    _temporary: Any = field(default=None, repr=False)

    def __iter__(self) -> Iterator[Prediction]:
        """Read one prediction after another from the folder."""
        for record in read_records(self.folder):
            for about in record['results']:
                several = len(record['results']) > 1
                yield Prediction(
                    record['source'],
                    record['name'],
                    record.get('frame'),
                    about['corruption'],
                    tuple(record['size']),
                    self.folder / about['corruption'] if several else self.folder,
                    about,
                    self._temporary,
                )

    def overlay(self, name: str) -> np.ndarray:
        """Return the picture of an image, RGB."""
        return read_image(self.folder / 'overlays' / f'{name}.png')

    def table(self) -> str:
        """Return the table: areas, counts or the best classes, as CSV."""
        return (self.folder / 'predictions.csv').read_text(encoding='utf-8')

    def save(self, folder: str | Path) -> list[Path]:
        """Copy all files into another folder."""
        written = []
        for file in sorted(self.folder.rglob('*')):
            if file.is_file() and not file.name.startswith('.'):
                target = Path(folder) / file.relative_to(self.folder)
                with draft_of(target) as draft:
                    shutil.copyfile(file, draft)
                written.append(target)
        return written


@api
def predict(
    model_or_config: nn.Module | Config | str | Path,
    checkpoint: str | Path | None = None,
    inputs: str | Path | int | Sequence[str | Path | int] = (),
    *,
    out: str | Path | None = None,
    corruptions: Sequence[str] = (),
    severity: int | None = None,
    seed: int = PredictionOptions.seed,
    opacity: float = PredictionOptions.opacity,
    score: float = PredictionOptions.score,
    side_by_side: bool = PredictionOptions.side_by_side,
    batch_size: int = PredictionOptions.batch_size,
    limit: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    data_loader: DataLoader | None = None,
    config: str | Path | Config | None = None,
    cfg_options: Sequence[str] = (),
    device: str | None = None,
    normalization: str | None = None,
    trust_checkpoint: bool = False,
    allow_mismatch: bool = False,
    safe_config: bool = False,
    verbose: bool = False,
) -> Predictions:
    """Predict on images and videos with a segmentor, a detector or a classifier.

    Args:
        model_or_config: Path of a config, a ``Config``, or a built model of mmseg, mmdet or
            mmpretrain with its weights. None is changed.
        checkpoint: Weights of exactly this model; none for a built one.
        inputs: Image and video files, folders, patterns such as 'frames/*.jpg', or the number of a
            camera, which is read until Ctrl-C or ``limit``.
        out: Folder for the files. By default a temporary one; ``save`` copies it.
        corruptions: Predict on corrupted images as well, such as 'fog=3'; the noise is that of a
            test with the same seed.
        severity: From 1 to 5, for corruptions without a level.
        seed: Of the noise.
        opacity: Of the colours over the image, from 0 to 1.
        score: Minimum score of a detection that is drawn and counted; the COCO file has all.
        side_by_side: Draw image and prediction, clean and corrupted, in one picture.
        batch_size: Consecutive images of one size that go through the model together.
        limit: Only the first images and frames.
        resume: Skip what is finished in ``out``.
        overwrite: Replace what is in ``out``.
        data_loader: A loader or data set of mmengine; its images take the place of ``inputs``.
        config: Of a built model; by default ``model.cfg``.
        cfg_options: Changes to the config.
        device: Where to run; by default a GPU if there is one, or where a built model is.
        normalization: Mean and std of the images: 'imagenet', 'half', 'clip' or 'weights'.
        trust_checkpoint: Open a checkpoint with more than weights inside, which can run any code.
        allow_mismatch: Take weights that say that they were trained with something else.
        safe_config: Refuse a config that holds more than data.
        verbose: Show a progress bar. What mmengine logs is in ``predict.log``.

    Raises:
        UserError: Something that the caller can fix; also an input that cannot be read, after all
            others are finished.
        Stopped: A signal asked for the end. What is finished is in ``out``.
    """
    temporary = tempfile.TemporaryDirectory(prefix='cb_mm_') if out is None else None
    inputs = loaded_files(inputs, 'inputs', data_loader)
    given = [inputs] if isinstance(inputs, (str, Path, int)) else list(inputs)
    options = PredictionOptions(
        model_or_config,
        checkpoint,
        given,
        Path(temporary.name if temporary is not None else str(out)),
        config=config,
        cfg_options=cfg_options,
        corruptions=corruptions,
        severity=severity,
        seed=seed,
        opacity=opacity,
        score=score,
        side_by_side=side_by_side,
        batch_size=batch_size,
        limit=limit,
        resume=resume,
        overwrite=overwrite,
        device=device,
        normalization=normalization,
        trust=trust_checkpoint,
        allow_mismatch=allow_mismatch,
    )
    console = sys.stderr if verbose else None
    with quiet_console(keep=out is not None, console=console) as (log, _):
        try:
            predictor = run_prediction(options, console)
        finally:
            if options.out.is_dir():
                log.open(options.out / 'predict.log')
    return Predictions(options.out, list(predictor.style.names), temporary)
