"""What a training run prints before its first iteration: one block about what really runs."""

from __future__ import annotations

from typing import Any

from mmengine.dist import get_world_size, is_main_process
from mmengine.hooks import Hook
from mmengine.optim import OptimWrapperDict
from mmengine.registry import HOOKS
from mmengine.runner import IterBasedTrainLoop, Runner
from torch.optim import Optimizer

from ...checkpoints.normalization import normalization_caution
from ...checkpoints.schedule_state import kept_settings
from ...compat import families as family
from ...compat.wrappers import unwrap
from ...errors import in_users_words
from ..batch import accumulated, batch_size, changed_scale


@HOOKS.register_module()
class StartReportHook(Hook):
    """Print one block when everything is in place and training is about to start.

    Args:
        config: The name of the config, as the user gave it; by default the runner's own.
        init: The weights that the backbone starts from, if they were given beside the config.
        built: Whether the model was given already built, with weights of its own.
        precision: What numbers are kept as, in words.
    """

    priority = 'VERY_LOW'

    def __init__(
        self,
        config: str | None = None,
        init: str | None = None,
        built: bool = False,
        precision: str | None = None,
    ) -> None:
        self.config, self.init, self.built, self.precision = config, init, built, precision
        self.done = False
        self.change: str | None = None
        self.kept: tuple[list[str], list[str]] = [], []

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Compare the processes, the batch and the optimizer of a resumed checkpoint."""
        if runner._resume:
            self.change = changed_scale(checkpoint, runner)
            optimizer = getattr(runner.optim_wrapper, 'optimizer', None)
            if isinstance(optimizer, Optimizer):
                self.kept = kept_settings(optimizer, runner.param_schedulers, checkpoint)

    def before_train(self, runner: Runner) -> None:
        """Print it, only from the main process."""
        if is_main_process():
            print('\n'.join(self._lines(runner)), flush=True)
        self.done = True

    def _lines(self, runner: Runner) -> list[str]:
        config = runner.cfg
        model = unwrap(runner.model)
        processes = get_world_size()
        per_process = batch_size(runner)
        steps = accumulated(config)
        batch = per_process * processes * steps
        rate = max(group.get('initial_lr', group['lr']) for group in _groups(runner))
        parameters = sum(p.numel() for p in model.parameters()) / 1e6
        weights = getattr(getattr(model, 'backbone', None), 'weights_report', None)
        unknown = 'those of the given model' if self.built else 'random: no weights given (`init`)'
        length = _length(runner)
        if self.kept[0]:
            length = f"{_total(runner)}; the lr follows the checkpoint's schedule"
        rows = {
            'config': f'{self.config or config.filename or "without a file"} ({length})',
            'family': family.current_family(),
            'device': f'{next(model.parameters()).device.type} × {processes}'
            + (f', {self.precision}' if self.precision else ''),
            'model': f'{type(model).__name__}, {parameters:.2f} M parameters',
            'batch': f'{batch} = {per_process} × {processes} processes'
            + (f' × {steps} accumulated' if steps > 1 else ''),
            'lr': f'{rate:g}',
            'weights': str(weights or unknown),
            'results': runner.work_dir,
        }
        if runner._load_from:
            rows['weights'] = str(runner._load_from)  # whatever the backbone started from
        if runner._resume:
            rows['weights'] = "the checkpoint's"
            rows['resumed'] = f'{runner._load_from or runner.work_dir} at iteration {runner.iter}'
        if any(self.kept):
            rows['kept'] = f"the checkpoint's {', '.join(self.kept[0] + self.kept[1])}"
        if self.change:
            rows['change'] = self.change
        scaling = config.get('auto_scale_lr') or {}
        scaled = scaling.get('enable', False)
        wanted = int(scaling.get('base_batch_size', batch) * (steps if scaled else 1))
        if scaled and runner._resume:
            rows['note'] = (
                "lr and its schedule are the checkpoint's: `auto_scale_lr` scales only a new run"
            )
        elif wanted != batch:
            rows['note'] = (
                f'lr was scaled to this batch from {wanted}'
                if scaled
                else f"the recipe's batch is {wanted}; `auto_scale_lr` scales the lr to yours, "
                'optim_wrapper.accumulative_counts enlarges the batch'
            )
        caution = normalization_caution(model, self.init)
        if caution:
            rows['caution'] = caution
        width = max(map(len, rows))
        rule = '-' * 72
        lines = [f'{name:<{width}}  {in_users_words(value)}' for name, value in rows.items()]
        return [rule, *lines, rule]


def _groups(runner: Runner) -> list[dict[str, Any]]:
    wrapper = runner.optim_wrapper
    wrappers = wrapper.values() if isinstance(wrapper, OptimWrapperDict) else [wrapper]
    return [group for one in wrappers for group in one.optimizer.param_groups]


def _total(runner: Runner) -> str:
    endless = isinstance(runner.train_loop, IterBasedTrainLoop)
    total, unit = (runner.max_iters, 'iteration') if endless else (runner.max_epochs, 'epoch')
    return f'{total} {unit}' if total == 1 else f'{total} {unit}s'


def _length(runner: Runner) -> str:
    """Return what runs: a schedule as it is, or with another length."""
    endless = isinstance(runner.train_loop, IterBasedTrainLoop)
    total = runner.max_iters if endless else runner.max_epochs
    run = _total(runner)
    schedule = f'{runner.cfg.get("schedule", "own")} schedule'
    steps = runner.cfg.get('param_scheduler') or []
    ends = [
        step['end']
        for step in (steps if isinstance(steps, (list, tuple)) else [steps])
        if isinstance(step.get('end'), int) and step.get('by_epoch', True) != endless
    ]
    if runner.cfg.get('schedule') == f'{total}_{"iters" if endless else "epochs"}':
        return _scaled(runner, run)
    if ends and max(ends) != total:
        return f'{run}; the lr follows the {schedule} of {max(ends)}'
    return f'{schedule}, {run}'


def _scaled(runner: Runner, total: str) -> str:
    """Return what a schedule that was scaled to another length really does."""
    config = runner.cfg
    steps = config.get('param_scheduler') or []
    warm = next((f'warm-up until {step["end"]}' for step in steps if 'Linear' in step['type']), '')
    saved = ((config.get('default_hooks') or {}).get('checkpoint') or {}).get('interval')
    parts = [
        f'the {config.scaled_from} schedule scaled' if config.get('scaled_from') else 'scaled',
        warm,
        f'validation every {config.train_cfg.get("val_interval", 1)}',
        f'checkpoint every {saved}' if saved else '',
    ]
    return f'{total}: {", ".join(filter(None, parts))}'
