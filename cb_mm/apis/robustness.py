"""Tests under corruption from Python."""

from __future__ import annotations

import csv
import io
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mmengine.config import Config
from torch import nn
from torch.utils.data import DataLoader

from ..config.loading import load_config
from ..errors import UserError
from ..fileio.result_files import read_json
from ..robustness.extra_metrics import split_names
from ..robustness.given import config_of, describe_data, describe_metrics
from ..robustness.sweep import SweepOptions, sweep
from .calls import api, files_in, options_from, save_files


@dataclass(frozen=True)
class RobustnessCell:
    """One row of the table: a corruption at a level.

    Attributes:
        key: 'clean', 'gaussian_noise=5', 'fog=3' ...
        title: As shown in tables.
        corruption: Its name.
        level: In its own unit; None for clean images.
        severity: From 1 to 5, if it was requested by severity.
        n: Passes.
        metrics: Name -> ``mean``, ``std``, ``low`` and ``high`` (95 % interval), ``values``.
        retention: Headline metric -> share of the clean score.
    """

    key: str
    title: str
    corruption: str
    level: float | None
    severity: int | None
    n: int
    metrics: dict[str, dict[str, Any]]
    retention: dict[str, float | None]


@dataclass
class RobustnessReport:
    """What a model scores on clean and corrupted images.

    Attributes:
        results: The content of ``results.json``.
        files: Everything that the tool writes, by path.
        folder: Where they are; None for a test without ``out``.
    """

    results: dict[str, Any] = field(repr=False)
    files: dict[str, bytes] = field(repr=False)
    folder: Path | None

    @cached_property
    def cells(self) -> list[RobustnessCell]:
        """The rows of the table, clean images first."""
        names = RobustnessCell.__dataclass_fields__
        return [
            RobustnessCell(**{name: cell[name] for name in names}) for cell in self.results['cells']
        ]

    @property
    def summary(self) -> dict[str, Any]:
        """Mean performance under corruption of each headline metric, where there are severities."""
        return self.results['summary']

    @property
    def worst_case(self) -> dict[str, Any]:
        """The corruption that costs each headline metric most."""
        return self.results['worst']

    @property
    def mce(self) -> dict[str, Any] | None:
        """Errors relative to those of ``reference``; None without one."""
        return self.results.get('mce')

    @property
    def comparison(self) -> dict[str, Any] | None:
        """Differences to the model of ``compare``, their intervals and p-values; None without."""
        return self.results.get('comparison')

    @cached_property
    def per_image(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """Pass -> image -> metric -> score in per cent; None where an image has none."""
        found = {}
        for name, content in self.files.items():
            if name.startswith('scores/') and name.endswith('.csv'):
                rows = csv.DictReader(io.StringIO(content.decode()))
                found[Path(name).name.removesuffix('.csv')] = {
                    row.pop('image'): {key: _number(value) for key, value in row.items()}
                    for row in rows
                }
        return found

    def table(self) -> str:
        """Return the tables as Markdown."""
        return self.files['results.md'].decode().rstrip('\n')

    def save(self, folder: str | Path) -> list[Path]:
        """Write the files of the tool: tables, figures, scores image by image."""
        return save_files(self.files, folder)


def _number(text: str) -> float | None:
    return float(text) if text else None


@api
def evaluate_robustness(
    model_or_config: nn.Module | Config | str | Path,
    checkpoint: str | Path | None = None,
    *,
    suite: str | None = None,
    corruptions: Sequence[str] = (),
    severity: int | None = None,
    fgsm: Sequence[float] = (),
    attacks: Sequence[str] = (),
    attack_steps: int | None = None,
    attack_step_size: float | None = None,
    attack_restarts: int | None = None,
    random_start: bool = True,
    repeats: int = SweepOptions.repeats,
    seed: int = 0,
    limit: int | None = None,
    frost_pictures: str | Path | None = None,
    data_loader: DataLoader | Mapping[str, Any] | None = None,
    metrics: Any = None,
    out: str | Path | None = None,
    compare: str | Path | None = None,
    reference: str | Path | None = None,
    detect: float = SweepOptions.detect,
    data_root: str | Path | None = None,
    work_dir: str | Path | None = None,
    test_set: str | None = None,
    save_corrupted: str | Path | None = None,
    show_dir: str | Path | None = None,
    html: bool = False,
    formats: Sequence[str] = SweepOptions.formats,
    cache_mb: int = SweepOptions.cache_mb,
    cfg_options: Sequence[str] = (),
    precision: str | None = None,
    amp: bool = False,
    channels_last: bool = False,
    compile: bool = False,
    normalization: str | None = None,
    launcher: str = SweepOptions.launcher,
    trust_checkpoint: bool = False,
    allow_mismatch: bool = False,
    safe_config: bool = False,
    verbose: bool = False,
) -> RobustnessReport | None:
    """Test a model on clean and corrupted images.

    Args:
        model_or_config: Path of a config, a ``Config``, or a built model of mmseg, mmdet or
            mmpretrain with its weights. Neither is changed.
        checkpoint: Weights of exactly this model; none for a built one.
        suite: A named set of corruptions: 'table9', 'imagenet-c', 'cityscapes-c', 'coco-c' or
            'clean'.
        corruptions: Names with levels in their own unit ('gaussian_noise=5,10'), or without.
        severity: From 1 to 5, for corruptions without a level; all five by default.
        fgsm: Attack each image by one step of this many grey levels along the gradient of the loss.
        attacks: Attacks of many steps with their strengths ε in grey levels: 'pgd=2,4', 'bim=4',
            'pgd_l2=128'; 'segpgd=4' and 'cospgd=4' for segmentation.
        attack_steps: How many steps they take; 20 by default.
        attack_step_size: Length of a step as a share of ε; by default 2.5 / steps, at most 1.
        attack_restarts: Random starts of each image, of which the one with the highest loss counts.
        random_start: Whether PGD, SegPGD and CosPGD begin at random; otherwise at the image itself,
            in a single pass.
        repeats: Passes of a random corruption, or of an attack with a random start.
        seed: Of the noise.
        limit: Test only on the first images.
        frost_pictures: Folder with photographs of frost, such as those of ImageNet-C, which are not
            in this package. By default the ice of frost is drawn.
        data_loader: What to test on in place of the config's: a DataLoader that mmengine has
            built, the config of one, or the config of a data set. A built model needs it, unless
            it carries its config in ``model.cfg``.
        metrics: In place of the config's ``test_evaluator``: configs, or built metrics. A name adds
            a metric to the others: 'calibration' (segmentation, classification), 'boundary'
            (boundary IoU of a segmentation).
        out: Folder for the results; the same call resumes there. 'auto' is a separate folder in
            ``work_dir`` for each test. By default results are only in memory.
        compare: ``results.json`` of another model, for a table of both.
        reference: ``results.json`` of the model that mCE, the mean corruption error, refers to.
        detect: A difference in points: with ``compare``, the report says how many repeats and
            images would find it.
        data_root: Folder of the data set, in place of the config's.
        work_dir: For ``out='auto'``; by default ``work_dirs/CONFIG_SCHEDULE``.
        test_set: Another test set of the config: 'imagenet-v2', 'imagenet-real', 'imagenet-a',
            'imagenet-c'; 'acdc', 'acdc-night', ..., 'dark-zurich'.
        save_corrupted: Folder for the corrupted images.
        show_dir: Folder for predictions drawn over the images.
        html: Also write ``report.html``, one page with tables, curves and the worst images.
        formats: Of the figure: 'png', 'svg', 'pdf'.
        cache_mb: Maximum memory for decoded images, in MiB per process.
        cfg_options: Changes to the config, such as 'test_dataloader.batch_size=4'.
        precision: 'fp32', 'tf32', 'bf16' or 'fp16'; by default torch's settings, as upstream tests.
        amp: Half precision: 'fp16' on GPU, 'bf16' on CPU.
        channels_last: The memory format that most convolutions prefer.
        compile: torch.compile for backbone, neck and heads.
        normalization: Mean and std of the images: 'imagenet', 'half', 'clip' or 'weights'.
        launcher: How the processes were started: 'none', 'pytorch', 'slurm' or 'mpi'.
        trust_checkpoint: Open a checkpoint with more than weights inside, which can run any code.
        allow_mismatch: Take weights that say that they were trained with something else.
        safe_config: Refuse a config that holds more than data.
        verbose: Print the plan, every finished pass and the table.

    Returns:
        The report; None on processes other than the first.

    Raises:
        UserError: Something that the caller can fix; it names the parameter or the file.
        Stopped: A signal asked for the end. What is finished is in ``out``.
    """
    names, metrics = split_names(metrics)
    options = options_from(
        SweepOptions,
        locals(),
        config='',
        corruption=corruptions,
        data_loader=None,
        metrics=None,
        extra_metrics=names,
        out=None if out == 'auto' else out,
    )
    _take(options, model_or_config, data_loader, metrics)
    console = sys.stdout if verbose else None
    if out is not None:
        folder = sweep(options, console)
        return None if folder is None else _report(folder, folder)
    with tempfile.TemporaryDirectory(prefix='cb_mm_') as temporary:
        options.out = Path(temporary)
        folder = sweep(options, console)
        return None if folder is None else _report(folder, None)


def _take(options: SweepOptions, source: Any, data_loader: Any, metrics: Any) -> None:
    """Fill in what is tested, on what and how: as a config, and as objects if already built."""
    if isinstance(source, nn.Module):
        for name in ('checkpoint', 'normalization'):
            if getattr(options, name) is not None:
                raise UserError(f'`{name}`: the model is built, and keeps what it has.')
        options.model, config = source, config_of(source)
    elif options.checkpoint is None:
        raise UserError('`checkpoint` is missing: a config has no weights.')
    elif data_loader is None and metrics is None:
        options.config = source
        return
    else:
        config = load_config(source)
    describe_data(config, data_loader)
    options.data_loader = data_loader if isinstance(data_loader, DataLoader) else None
    options.metrics = describe_metrics(config, metrics)
    for key, name in (('test_dataloader', 'data_loader'), ('test_evaluator', 'metrics')):
        if not config.get(key):
            raise UserError(f'`{name}` is missing: a built model does not say what to test it on.')
    options.config = config


def _report(folder: Path, kept: Path | None) -> RobustnessReport:
    results = read_json(folder / 'results.json')
    return RobustnessReport(results, files_in(folder), kept)
