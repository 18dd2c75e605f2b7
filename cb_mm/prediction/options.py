"""The options of a prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mmengine.config import Config
from torch import nn

from ..errors import UserError
from .drawing import OPACITY, SCORE


@dataclass
class PredictionOptions:
    """The options of a prediction; `cb_mm.apis.predict` says what each one means."""

    source: str | Path | Config | nn.Module
    checkpoint: str | Path | None
    inputs: Sequence[str | Path | int]
    out: Path
    config: str | Path | Config | None = None
    cfg_options: Sequence[str] = ()
    corruptions: Sequence[str] = ()
    severity: int | None = None
    seed: int = 0
    opacity: float = OPACITY
    score: float = SCORE
    side_by_side: bool = False
    batch_size: int = 1
    limit: int | None = None
    resume: bool = False
    overwrite: bool = False
    device: str | None = None
    normalization: str | None = None
    trust: bool = False
    allow_mismatch: bool = False

    def check(self) -> None:
        """Refuse what cannot be, before anything is built."""
        for name, value in (('opacity', self.opacity), ('score', self.score)):
            if not 0 <= value <= 1:
                raise UserError(f'`{name}` {value:g} is not between 0 and 1.')
        for name, number in (('batch_size', self.batch_size), ('limit', self.limit)):
            if number is not None and number < 1:
                raise UserError(f'`{name}` {number}: at least 1 is needed.')
