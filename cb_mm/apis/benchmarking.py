"""Measurement of models side by side from Python."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from mmengine.config import Config
from torch import nn

from ..config.loading import config_name, load_config
from ..engine.optim.precision import PRECISIONS
from ..errors import UserError
from ..fileio.figures import USUAL_FORMATS
from .benchmark_models import VARIANTS, Subject, build_subject, compare, subject_of
from .benchmark_report import Row, table, write_results
from .calls import api

Source: TypeAlias = nn.Module | Config | str | Path


@dataclass
class BenchmarkReport:
    """What was measured.

    Attributes:
        rows: One for each model, and for each way to run it.
        about: Image size, batch and turns.
    """

    rows: list[Row]
    about: dict[str, Any]

    def table(self) -> str:
        """Return the rows as Markdown; ratios are to the first."""
        return table(self.rows)

    def save(self, folder: str | Path, formats: Sequence[str] = USUAL_FORMATS) -> list[Path]:
        """Write benchmark.json, benchmark.md and the plot in these formats."""
        return write_results(self.rows, self.about, folder, formats)


@api
def benchmark(
    models_or_configs: Source | Sequence[Source],
    *,
    size: tuple[int, int] = (512, 512),
    batch: int = 1,
    repeats: int = 7,
    train: bool = False,
    channels_last: bool = False,
    precision: Sequence[str] = (),
    bf16: bool = False,
    compile: bool = False,
    threads: int | None = None,
    cfg_options: Sequence[str] = (),
    safe_config: bool = False,
    verbose: bool = False,
) -> BenchmarkReport:
    """Measure parameters, multiplications, latency, memory and training step of models, in turns.

    Args:
        models_or_configs: One or several: paths of configs, ``Config`` objects, or built segmentors
            and detectors. None is changed; weights of configs are random.
        size: Height and width of the made-up images.
        batch: Images at once.
        repeats: Turns.
        train: Also measure a training step.
        channels_last: Also measure every model in the channels-last memory format.
        precision: Also in each of these: 'fp32', 'tf32', 'bf16', 'fp16'.
        bf16: Short for ``precision=['bf16']``.
        compile: Also under torch.compile.
        threads: Of torch; torch's default if not given.
        cfg_options: Changes to all configs.
        safe_config: Refuse a config that holds more than data.
        verbose: Let mmengine print what it prints.

    Returns:
        The report; ratios are to the first model.

    Raises:
        UserError: Something that the caller can fix; it names the parameter or the file.
    """
    if isinstance(models_or_configs, (str, Path, Config, nn.Module)):
        models_or_configs = [models_or_configs]
    if not models_or_configs:
        raise UserError('`models_or_configs` names no model.')
    least = {'size': min(size), 'batch': batch, 'repeats': repeats}
    if threads is not None:
        least['threads'] = threads
    for name, value in least.items():
        if value < 1:
            raise UserError(f'`{name}` {value}: at least 1 is needed.')
    if threads:
        torch.set_num_threads(threads)
    sources = [
        one if isinstance(one, nn.Module) else load_config(one, cfg_options)
        for one in models_or_configs
    ]
    for name in precision:
        if name not in PRECISIONS:
            raise UserError(f'`precision` {name} is not one of {", ".join(PRECISIONS)}.')
    switches = {'channels_last': channels_last, 'bf16': bf16, 'compile': compile}
    variants = [None, *(key for key in VARIANTS if key in precision or switches.get(key))]
    names = _names(sources)
    subjects = [
        _subject(source, name, (size[0], size[1]), batch, variant)
        for source, name in zip(sources, names, strict=True)
        for variant in variants
    ]
    about = {'size': list(size), 'batch': batch, 'repeats': repeats}
    return BenchmarkReport(compare(subjects, repeats, train), about)


def _names(sources: Sequence[nn.Module | Config]) -> list[str]:
    """Return unique names for the models."""
    names: list[str] = []
    for source in sources:
        built = isinstance(source, nn.Module)
        name = type(source).__name__ if built else Path(config_name(source)).stem
        if name in names and not built and config_name(source).endswith('.py'):
            raise UserError(f'two configs are named {name}.py; rename one of them.')
        names.append(f'{name} {len(names) + 1}' if name in names else name)
    return names


def _subject(
    source: nn.Module | Config, name: str, size: tuple[int, int], batch: int, variant: str | None
) -> Subject:
    if not isinstance(source, nn.Module):
        return build_subject(source, name, size, batch, variant)
    if not hasattr(source, 'extract_feat'):
        raise UserError(f'{type(source).__name__} is not an mmseg segmentor or mmdet detector.')
    # A copy: a training step moves batch norms, and a variant changes the model.
    return subject_of(copy.deepcopy(source), name, size, batch, variant)
