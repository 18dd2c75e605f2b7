"""What measuring and showing attention have in common: which models, on which images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mmengine.config import Config
from torch import nn

from ..errors import UserError
from ..fileio.figures import USUAL_FORMATS
from .subject import Subject, load_subject


@dataclass
class ModelChoice:
    """A model, as `load_subject` takes it."""

    source: str | Path | Config | nn.Module
    checkpoint: str | Path | None = None
    name: str | None = None


@dataclass
class AttentionOptions:
    """Models and images, and where the results go.

    Attributes:
        models: One model, or several to compare.
        images: Files and folders.
        out: Folder for the results.
        size: Height and width to which every image is resized; None leaves its own.
        formats: Of the figures.
        device: Where to run.
        normalization: Name of a mean and std, as in `load_subject`.
        trust_checkpoint: Unpickle checkpoints without limits.
        allow_mismatch: Take checkpoints of another broadcast or of other settings.
    """

    models: Sequence[ModelChoice]
    images: Sequence[str | Path]
    out: Path
    size: tuple[int, int] | None = None
    formats: Sequence[str] = USUAL_FORMATS
    device: str | None = None
    normalization: str | None = None
    trust_checkpoint: bool = False
    allow_mismatch: bool = False

    def __post_init__(self) -> None:
        if self.size is not None and min(self.size) < 1:
            raise UserError(f'`size` {self.size}: at least 1 is needed.')

    def load_models(self, whole: bool = False) -> list[Subject]:
        """Load every model; no two have the same name. ``whole`` as in `load_subject`."""
        subjects: list[Subject] = []
        for choice in self.models:
            subject = load_subject(
                choice.source,
                choice.checkpoint,
                choice.name,
                self.device,
                self.trust_checkpoint,
                self.normalization,
                self.allow_mismatch,
                whole,
            )
            if choice.checkpoint and any(subject.name == other.name for other in subjects):
                subject.name = f'{subject.name} ({Path(choice.checkpoint).stem})'
            if any(subject.name == other.name for other in subjects):
                subject.name = f'{subject.name} {len(subjects) + 1}'
            subjects.append(subject)
        return subjects
