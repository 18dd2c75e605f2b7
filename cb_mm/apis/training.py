"""Training from Python."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mmengine.config import Config
from mmengine.runner import Runner
from torch import nn

from ..compat.wrappers import unwrap
from ..engine.hooks.checkpoint import checkpoints_in
from ..engine.training import TrainOptions
from ..engine.training import train as run_training
from ..fileio.atomic import draft_of, write_atomically
from .calls import options_from, training_api


@dataclass
class TrainingRun:
    """A finished training run.

    Attributes:
        runner: mmengine's.
        model: Trained, not wrapped, with its config in ``cfg``.
        work_dir: Where checkpoints and logs are.
        checkpoint: The last one; None if none was written.
        metrics: Of the last validation, by name.
    """

    runner: Runner = field(repr=False)
    model: nn.Module = field(repr=False)
    work_dir: Path
    checkpoint: Path | None
    metrics: dict[str, float]

    def save(self, folder: str | Path) -> list[Path]:
        """Copy the last checkpoint into a folder, and write the config beside it."""
        folder = Path(folder)
        name = f'{Path(self.runner.cfg.filename or "config").stem}.py'
        written = [write_atomically(folder / name, self.runner.cfg.pretty_text.encode())]
        if self.checkpoint is not None:
            copy = folder / self.checkpoint.name
            with draft_of(copy) as draft:
                shutil.copyfile(self.checkpoint, draft)
            written.append(copy)
        return written


@training_api
def train(
    config: str | Path | Config,
    *,
    model: nn.Module | None = None,
    init: str | Path | None = None,
    resume: str | Path | None = None,
    schedule: str | None = None,
    iters: int | None = None,
    epochs: int | None = None,
    work_dir: str | Path | None = None,
    data_root: str | Path | None = None,
    seed: int | None = None,
    cfg_options: Sequence[str] = (),
    save_every: str | float | None = None,
    auto_scale_lr: bool = False,
    precision: str | None = None,
    amp: bool = False,
    channels_last: bool = False,
    compile: bool = False,
    normalization: str | None = None,
    skip_broken: bool = False,
    skip_nan: bool = False,
    logger: str | None = None,
    launcher: str = TrainOptions.launcher,
    trust_checkpoint: bool = False,
    allow_mismatch: bool = False,
    safe_config: bool = False,
    verbose: bool = False,
) -> TrainingRun:
    """Train a model.

    Args:
        config: Path of a config, or a ``Config``, which is not changed.
        model: A built model to train in place of the config's; it keeps the weights that it has.
        init: Weights that the backbone starts from: a file of any ViT layout or a timm model name.
        resume: A checkpoint to resume from, or 'auto' for the last complete one in ``work_dir``.
        schedule: One of the config's, such as '40k'.
        iters: Another length of the schedule, in iterations: warm-up, decay, validation, logging
            and checkpoints are scaled with it.
        epochs: The same, for a config that counts epochs.
        work_dir: Where results go; by default ``work_dirs/CONFIG_SCHEDULE``.
        data_root: Folder of the data set, in place of the config's.
        seed: Of everything random, in place of the config's.
        cfg_options: Changes to the config, such as 'train_dataloader.batch_size=4'.
        save_every: Save by the clock too: '30min', '2h', '90s' or seconds.
        auto_scale_lr: Scale the learning rate by batch / recipe's batch.
        precision: 'fp32', 'tf32', 'bf16' or 'fp16'; by default 'tf32' on GPUs that have it, and
            'fp32' elsewhere.
        amp: Mixed precision: 'fp16' on GPU, 'bf16' on CPU.
        channels_last: The memory format that most convolutions prefer.
        compile: torch.compile for backbone, neck and heads.
        normalization: Mean and std of the images: 'imagenet', 'half', 'clip' or 'weights'.
        skip_broken: Train without images and labels that cannot be used.
        skip_nan: Skip steps whose loss is NaN or infinite.
        logger: Log to 'tensorboard' or 'wandb' too.
        launcher: How the processes were started: 'none', 'pytorch', 'slurm' or 'mpi'.
        trust_checkpoint: Open files with more than weights inside, which can run any code.
        allow_mismatch: Take weights that say that they were trained with something else.
        safe_config: Refuse a config that holds more than data.
        verbose: Print what a run prints: the start report and mmengine's log.

    Returns:
        The run, with the trained model.

    Raises:
        UserError: Something that the caller can fix; it names the parameter or the file.

    The generators of the process are seeded, and the Runner stays mmengine's current one.
    """
    runner = run_training(options_from(TrainOptions, locals()))
    trained = unwrap(runner.model)
    # As mmseg's and mmdet's init functions leave them; prediction and mmseg's own read them.
    trained.cfg = runner.cfg
    trained.dataset_meta = getattr(runner.train_dataloader.dataset, 'metainfo', {})
    scalars = runner.message_hub.log_scalars
    metrics = {
        name.removeprefix('val/'): float(history.current())
        for name, history in scalars.items()
        if name.startswith('val/') and name not in ('val/time', 'val/data_time')
    }
    checkpoints = checkpoints_in(runner.work_dir)
    last = Path(checkpoints[0]) if checkpoints else None
    return TrainingRun(runner, trained, Path(runner.work_dir), last, metrics)
