"""A loss that is not a finite number: the end of the run, or of that step only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from mmengine.dist import all_gather_object, all_reduce, get_world_size, is_main_process
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

from ...compat.wrappers import unwrap
from ...errors import UserError
from .checkpoint import last_good
from .stop_on_signal import StopOnSignalHook

#: This many steps in a row are not an accident.
_MOST = 100


@HOOKS.register_module()
class FiniteLossHook(Hook):
    """Check the loss before it reaches a gradient.

    All processes decide together: the gradients of one reach the weights of all. Where there is a
    `StopOnSignalHook`, its request to stop is exchanged together with the check.

    Args:
        skip: Skip a step whose loss is not finite, as if its batch had not been drawn.
    """

    def __init__(self, skip: bool = False) -> None:
        self.skip = skip
        self.stop: StopOnSignalHook | None = None
        self.skipped: list[int] = []
        self.batch: Any = None
        self.buffers: dict[str, torch.Tensor] = {}

    def before_train(self, runner: Runner) -> None:
        """Insert the check between the loss and the optimizer.

        A custom optimizer wrapper could do it too, but only if the config names it; a hook has to
        work with all of them, and no hook of mmengine is called in between.
        """
        self.stop = next((h for h in runner.hooks if isinstance(h, StopOnSignalHook)), None)
        wrapper = runner.optim_wrapper
        if not hasattr(wrapper, 'update_params'):
            return
        update: Callable = wrapper.update_params

        def update_if_finite(loss: torch.Tensor, *args: Any, **kwargs: Any) -> None:
            if self._all_finite(loss):
                update(loss, *args, **kwargs)
            else:
                self._handle(runner, loss)

        wrapper.update_params = update_if_finite

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Remember the batch, and what a forward pass changes without an optimizer."""
        self.batch = data_batch
        if self.skip:
            self.buffers = {name: b.clone() for name, b in unwrap(runner.model).named_buffers()}

    def after_train(self, runner: Runner) -> None:
        """Restore the optimizer wrapper, and report what was skipped."""
        vars(runner.optim_wrapper).pop('update_params', None)
        if self.skipped and is_main_process():
            steps = f'{len(self.skipped)} step' + ('s' if self.skipped[1:] else '')
            shown = ', '.join(map(str, self.skipped[:10])) + (', ...' if self.skipped[10:] else '')
            print(f'{steps} skipped, at iteration {shown}: the loss was not finite.', flush=True)

    def _all_finite(self, loss: torch.Tensor) -> bool:
        spoilt = ~torch.isfinite(loss.detach()).all()
        if get_world_size() == 1:
            return not spoilt
        request = self.stop.request if self.stop else None
        asked = request.number if request else 0
        flags = torch.stack([spoilt.int(), torch.full_like(spoilt, asked, dtype=torch.int32)])
        all_reduce(flags, 'max')
        any_spoilt, signal = flags.tolist()
        if self.stop:
            self.stop.settle(signal)
        return not any_spoilt

    def _handle(self, runner: Runner, loss: torch.Tensor) -> None:
        mine = None if torch.isfinite(loss.detach()).all() else _files(self.batch)
        value = 'NaN' if torch.isnan(loss.detach()).any() else 'infinite'
        gathered = all_gather_object((mine, value))
        files = [file for found, _ in gathered for file in found or ()]
        value = next((text for found, text in gathered if found is not None), value)
        batch = f' The batch: {", ".join(files)}.' if files else ''
        step = runner.iter + 1
        if not all(bool(torch.isfinite(p).all()) for p in unwrap(runner.model).parameters()):
            raise UserError(
                f'the weights are not finite (NaN or infinity) since before iteration {step}: '
                f'no step can fix them. {last_good(runner.work_dir)}{batch} Try a lower learning '
                'rate or clip_grad.'
            )
        if not self.skip:
            raise UserError(
                f'the loss is {value} at iteration {step}. {last_good(runner.work_dir)}{batch} '
                'Look at these images, try a lower learning rate or clip_grad, or skip such steps '
                '(`skip_nan`; skip=True of FiniteLossHook).'
            )
        self.skipped.append(step)
        if len(self.skipped) >= _MOST and self.skipped[-1] - self.skipped[-_MOST] < _MOST:
            raise UserError(
                f'the last {_MOST} steps were all skipped, since their loss is not finite. '
                f'{last_good(runner.work_dir)}{batch}'
            )
        for name, buffer in unwrap(runner.model).named_buffers():
            buffer.copy_(self.buffers[name])
        runner.logger.warning(f'iteration {step} is skipped: its loss is {value}.{batch}')


def _files(batch: Any) -> list[str]:
    """Return the images of a batch, from the samples of mmseg, mmdet and mmpretrain alike."""
    samples = batch.get('data_samples') if isinstance(batch, dict) else None
    found = [getattr(sample, 'img_path', None) for sample in samples or ()]
    return [str(file) for file in found if file]
