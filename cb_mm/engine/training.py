"""From a config and the options of a tool to mmengine's Runner, the same way for both tasks."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.dist import is_main_process
from mmengine.runner import Runner
from torch import nn

from ..checkpoints import read as checkpoint
from ..checkpoints.backbone_weights import WEIGHTS_LINE
from ..checkpoints.mmengine_files import safe_files
from ..checkpoints.normalization import WEIGHTS, set_normalization
from ..checkpoints.sources import read_once
from ..config.class_count import follow_class_count
from ..config.explain import explaining_build_errors, require_keys
from ..config.loading import (
    config_name,
    dataset_configs,
    load_config,
    replace_sync_bn,
    set_data_root,
)
from ..datasets.checks.registry import check_configured
from ..errors import UserError
from ..fileio.folder_lock import FolderLock
from .acceleration import compile_parts
from .batch import accumulated, batch_size
from .failures import explained
from .head_width import follow_uniform_head
from .hooks import (
    CheckpointMatchHook,
    FiniteLossHook,
    SampleGuardHook,
    SaveEveryHook,
    StartReportHook,
    StopOnSignalHook,
)
from .hooks.checkpoint import use_safe_checkpoints
from .hooks.provenance import record_provenance
from .hooks.save_every import duration
from .optim.precision import describe_precision, training_precision
from .own_runner import runner_type
from .processes import GatherInMemory, failing_together, joined_processes, refuse_strategies
from .resume import chosen_start
from .signals import stop_on_signals

LOGGERS = {'tensorboard': 'TensorboardVisBackend', 'wandb': 'WandbVisBackend'}


@dataclass
class RunOptions:
    """What training and testing have in common; `cb_mm.apis` says what each one means."""

    config: str | Path | Config
    work_dir: str | None = None
    data_root: str | None = None
    seed: int | None = None
    launcher: str = 'none'
    cfg_options: Sequence[str] = ()
    trust_checkpoint: bool = False
    precision: str | None = None
    amp: bool = False
    channels_last: bool = False
    compile: bool = False
    normalization: str | None = None
    allow_mismatch: bool = False
    model: nn.Module | None = None  # built already

    @property
    def name(self) -> str:
        """What the config is called."""
        return config_name(self.config)


@dataclass
class TrainOptions(RunOptions):
    """The options of a training run."""

    schedule: str | None = None
    iters: int | None = None
    epochs: int | None = None
    init: str | None = None
    resume: str | None = None  # 'auto' or a file
    auto_scale_lr: bool = False
    logger: str | None = None
    skip_broken: bool = False
    skip_nan: bool = False
    save_every: str | float | None = None  # such as '30min'


def prepare_config(
    options: RunOptions,
    schedule: str | None = None,
    test_set: str | None = None,
    length: tuple[int | None, int | None] = (None, None),
) -> Config:
    """Return the config with the options applied that every tool has."""
    config = load_config(options.config, options.cfg_options, test_set, schedule, length)
    if options.model is not None and not config.get('model'):
        config.model = dict(type=type(options.model).__name__)
    require_keys(config, 'model')
    follow_class_count(config)
    follow_uniform_head(config)
    set_data_root(config, options.data_root)
    stem = Path(options.name).stem
    if config.get('schedule'):
        stem = f'{stem}_{config.schedule}'
    config.work_dir = options.work_dir or config.get('work_dir') or str(Path('work_dirs') / stem)
    config.launcher = options.launcher
    if options.seed is not None:
        config.merge_from_dict({'randomness.seed': options.seed})
    cuda = torch.cuda.is_available()
    if cuda:
        for loader in ('train_dataloader', 'val_dataloader', 'test_dataloader'):
            if isinstance(config.get(loader), dict):  # copies to the GPU are then faster
                config[loader].setdefault('pin_memory', True)
    if not cuda:
        config.merge_from_dict({'env_cfg.dist_cfg.backend': 'gloo'})
        if options.launcher != 'none':  # by default mmengine names a GPU for every process
            config.model_wrapper_cfg = dict(
                type='MMDistributedDataParallel',
                device_ids=None,
                broadcast_buffers=False,
                find_unused_parameters=config.get('find_unused_parameters', False),
            )
    if options.launcher == 'none' or not cuda:
        replace_sync_bn(config)
    return config


def check_data(config: Config, splits: Sequence[str]) -> None:
    """Check the data sets quickly before anything else starts; raise a UserError.

    A data set whose files are not in the folders of its release is not checked.
    """
    check_configured(list(dataset_configs(config, splits)), config.get('model') or {})


def train(options: TrainOptions) -> Runner:
    """Train, and return the runner when training has ended."""
    with safe_files(), read_once():
        return _train(options)


def _train(options: TrainOptions) -> Runner:
    with explaining_build_errors(options.name):
        config = _training_config(options)
    with (
        joined_processes(config),
        _the_only_run(config),
        chosen_start(config, options.resume),
    ):
        source = config.load_from if config.get('resume') else options.init
        if options.normalization is not None:
            # Without the weights where a name is enough: the start report compares the two.
            follows = source if options.normalization == WEIGHTS else None
            set_normalization(config, options.normalization, follows, options.trust_checkpoint)
        precision = training_precision(config, options.precision, options.amp)
        words = describe_precision(precision, config)
        report = StartReportHook(options.name, options.init, options.model is not None, words)
        with precision.products(), explained(config, lambda: report.done), _quiet_upstream():
            runner = _build_quietly(config, options.model, options.channels_last)
            record_provenance(runner, options.allow_mismatch)
            if options.compile:
                compile_parts(runner.model)
            stop = StopOnSignalHook(options.compile)
            for hook in (
                SampleGuardHook(options.skip_broken),
                stop,
                FiniteLossHook(options.skip_nan),
                CheckpointMatchHook(),
                GatherInMemory(),
                report,
                *([] if options.save_every is None else [SaveEveryHook(options.save_every)]),
            ):
                runner.register_hook(hook)
            _check_epoch(runner)
            with stop_on_signals() as stop.request:
                runner.train()
    return runner


def _training_config(options: TrainOptions) -> Config:
    """Return the config with all options of training applied."""
    config = prepare_config(options, options.schedule, length=(options.iters, options.epochs))
    require_keys(config, 'train_dataloader', 'train_cfg', 'optim_wrapper')
    refuse_strategies(config)
    if options.seed is not None and not 0 <= options.seed < 2**32:
        raise UserError(f'`seed` {options.seed} is not between 0 and 2**32 - 1.')
    use_safe_checkpoints(config)
    if options.save_every is not None:
        duration(options.save_every)
    if options.trust_checkpoint:
        for file in (options.init, options.resume):
            if file and file != 'auto':
                checkpoint.trust(file)
    if options.init and options.model is not None:
        raise UserError('`init`: the model is built, and keeps the weights that it has.')
    if options.init:
        config.model.backbone.init_cfg = dict(type='Pretrained', checkpoint=options.init)
        if options.allow_mismatch:
            config.model.backbone.init_cfg.allow_broadcast_mismatch = True
    if options.auto_scale_lr:
        if 'auto_scale_lr' not in config:
            raise UserError('`auto_scale_lr`: the config does not say its base batch size.')
        config.auto_scale_lr.enable = True
        # mmengine compares with one step's samples; those of an accumulated batch count too.
        config.auto_scale_lr.base_batch_size /= accumulated(config)
    if options.logger:
        _add_logger(config, options.logger)
    return config


@contextlib.contextmanager
def _the_only_run(config: Config) -> Iterator[None]:
    """Check the data and hold the work directory, from the first process of a run."""
    with contextlib.ExitStack() as held:
        with failing_together():
            with explaining_build_errors(config):
                check_data(config, ('train', 'val'))
            if is_main_process():
                held.enter_context(FolderLock(config.work_dir, 'work_dir'))
        yield


def _check_epoch(runner: Runner) -> None:
    """Refuse fewer images than a batch: with ``drop_last`` they make no batch at all."""
    if len(runner.train_dataloader) == 0:
        raise UserError(
            f'the training set has {len(runner.train_dataloader.dataset)} images, fewer than a '
            f'batch of {batch_size(runner)}. Pass `cfg_options` train_dataloader.batch_size=N'
        )


@contextlib.contextmanager
def _quiet_upstream() -> Iterator[None]:
    """Leave out what mmseg, mmdet, mmcv and mmengine warn of, within the block."""
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', category=UserWarning, module=r'mm(seg|det|cv|engine)')
        yield


def _build_quietly(config: Config, model: nn.Module | None, channels_last: bool) -> Runner:
    """Build a runner without printing the environment, the config and every parameter.

    All of it is in the log file in the work directory.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        runner = runner_type(model, channels_last).from_cfg(config)
        runner.optim_wrapper = runner.build_optim_wrapper(runner.optim_wrapper)
    for handler in runner.logger.handlers:
        if type(handler) is logging.StreamHandler:
            handler.setStream(sys.stdout)
            # The log file has the line about the weights; the start report shows it to the user.
            handler.addFilter(lambda record: not record.getMessage().startswith(WEIGHTS_LINE))
    return runner


def _add_logger(config: Config, name: str) -> None:
    if name not in LOGGERS:
        raise UserError(f'`logger` {name} is not one of {", ".join(LOGGERS)}.')
    if importlib.util.find_spec(name) is None:
        raise UserError(f'`logger` {name}: the package is not installed. Run: pip install {name}')
    if 'visualizer' not in config:
        config.visualizer = dict(type='Visualizer', name='visualizer')
    backends = config.visualizer.get('vis_backends') or [dict(type='LocalVisBackend')]
    config.visualizer.vis_backends = [*backends, dict(type=LOGGERS[name])]
