"""Checkpoints by the clock: a kill without warning then costs minutes, not hours."""

from __future__ import annotations

import math
import re
import time
from typing import Any

from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

from ...errors import UserError
from .checkpoint import TIMED, SafeCheckpointHook
from .stop_on_signal import forget_place, note_place, updated

_SECONDS = {'s': 1, 'sec': 1, 'm': 60, 'min': 60, 'h': 3600, 'd': 86400}
_PART = rf'(\d+(?:\.\d+)?)({"|".join(_SECONDS)})'


def duration(text: str | float, option: str = '`save_every`') -> float:
    """Return the seconds of '90s', '30min', '2h' or '1h30min'; a plain number is seconds."""
    written = str(text).strip().lower().replace(' ', '')
    if re.fullmatch(r'\d+(\.\d+)?', written):
        seconds = float(written)
    elif re.fullmatch(f'({_PART})+', written):
        seconds = sum(float(n) * _SECONDS[unit] for n, unit in re.findall(_PART, written))
    else:
        raise UserError(f'{option} {text}: it is not a time such as 90s, 30min, 2h or 1h30min.')
    if not 0 < seconds < math.inf:
        raise UserError(f'{option} {text}: it must be longer than 0 seconds.')
    return seconds


@HOOKS.register_module()
class SaveEveryHook(Hook):
    """Save the run as `timed.pth` when this much time has passed since its last checkpoint.

    Each one replaces the one before. It needs a `SafeCheckpointHook`. The first process looks at
    its clock and saves; the others wait for it in the next step.

    Args:
        time: Such as '30min', '2h' or '90s'.
    """

    priority = 'VERY_LOW'  # after the schedulers and the periodic checkpoint

    def __init__(self, time: str | float) -> None:
        self.seconds = duration(time, 'SaveEveryHook time =')
        self.last = 0.0
        self.saved: int | None = None
        self.hook: SafeCheckpointHook

    def before_train(self, runner: Runner) -> None:
        """Start the clock."""
        found = [hook for hook in runner.hooks if isinstance(hook, SafeCheckpointHook)]
        if not found:
            raise UserError(
                'SaveEveryHook saves through a SafeCheckpointHook, and the config has none. Set '
                "default_hooks = dict(checkpoint=dict(type='SafeCheckpointHook')) with the options "
                'of your CheckpointHook.'
            )
        self.hook, self.last = found[0], time.monotonic()

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None
    ) -> None:
        """Save if it is time, and no gradients are being accumulated."""
        hook = self.hook
        if not is_main_process():
            return
        if hook.saved_iteration != self.saved:  # a periodic one was just written
            self.saved, self.last = hook.saved_iteration, time.monotonic()
        if time.monotonic() - self.last >= self.seconds and updated(runner.optim_wrapper):
            note_place(runner, batch_idx)
            hook.save_between(runner, runner.iter + 1, TIMED)
            forget_place(runner)
            self.last = time.monotonic()
