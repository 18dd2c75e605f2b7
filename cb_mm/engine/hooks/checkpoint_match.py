"""A check that a resumed checkpoint is of exactly this model; mmengine would take what fits."""

from __future__ import annotations

from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner, find_latest_checkpoint
from torch.optim import Optimizer

from ...checkpoints.match import require_fit, weights_in
from ...checkpoints.schedule_state import require_schedule_fit
from ...checkpoints.training_state import require_optimizer_fit
from ...compat.wrappers import unwrap


@HOOKS.register_module()
class CheckpointMatchHook(Hook):
    """Refuse to resume from a checkpoint of another model, optimizer or schedule."""

    priority = 'HIGH'  # another model: say that before what else differs

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Compare before anything of it is loaded into the model."""
        if not runner._resume:
            return
        file = runner._load_from or find_latest_checkpoint(runner.work_dir)
        model = unwrap(runner.model)
        require_fit(model, weights_in(checkpoint), file)
        optimizer = getattr(runner.optim_wrapper, 'optimizer', None)
        if isinstance(optimizer, Optimizer) and 'optimizer' in checkpoint:
            require_optimizer_fit(optimizer, checkpoint['optimizer'], file)
        require_schedule_fit(runner.param_schedulers, checkpoint.get('param_schedulers'), file)
