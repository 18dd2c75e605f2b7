"""The training state in a checkpoint beside its weights: whether a run can resume from it.

mmengine and torch accept most of it unchecked, and fail many steps later.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer

from ..errors import UserError

#: States of torch's optimizers that have one number for each of a parameter.
_PER_WEIGHT = (
    'exp_avg', 'exp_avg_sq', 'max_exp_avg_sq', 'exp_inf', 'momentum_buffer', 'square_avg',
    'acc_delta', 'grad_avg', 'sum',
)  # fmt: skip


#: Settings of torch's optimizers without which they stop in the first step.
_SETTINGS = ('lr', 'betas', 'eps', 'momentum', 'weight_decay')
_NUMBERS = (int, float, np.number)


def require_resumable(content: Mapping[str, Any], file: str | Path) -> None:
    """Refuse a checkpoint without the state of a run, or with one that cannot be of a run."""
    lacking = [key for key in ('meta', 'state_dict', 'message_hub') if key not in content]
    if lacking:
        raise UserError(
            f'`resume` {file}: it is not a checkpoint of a training run (it has no '
            f'{", ".join(lacking)}). For weights to start from, pass `init` {file}.'
        )
    meta, hub = content['meta'], content['message_hub']
    schedulers = content.get('param_schedulers')
    schedulers = [] if schedulers is None else schedulers
    sound = {
        'state_dict': isinstance(content['state_dict'], dict),
        'meta': isinstance(meta, dict)
        and all(_is_count(meta.get(key)) for key in ('epoch', 'iter'))
        and (meta.get('seed') is None or _is_count(meta['seed'], 2**32)),
        'message_hub': isinstance(hub, dict)
        and all(
            isinstance(hub.get(key), dict) and all(isinstance(name, str) for name in hub[key])
            for key in ('log_scalars', 'runtime_info', 'resumed_keys')
        )
        and all(isinstance(known, bool) for known in hub['resumed_keys'].values()),
        'optimizer': isinstance(content.get('optimizer', {}), dict),
        'param_schedulers': _are_schedulers(schedulers)
        or (isinstance(schedulers, dict) and all(map(_are_schedulers, schedulers.values()))),
    }
    broken = [key for key, good in sound.items() if not good]
    if broken:
        raise UserError(
            f'`resume` {file}: its {", ".join(broken)} cannot be of a training run. Take another '
            f'checkpoint or, for its weights only, pass `init` {file}.'
        )


def _is_count(value: Any, most: int = 2**62) -> bool:
    return isinstance(value, (int, np.integer)) and 0 <= int(value) < most


def _are_schedulers(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(
        isinstance(state, dict)
        and 'optimizer' not in state
        # A scheduler that has not begun, behind a warm-up, is at step -1.
        and (_is_count(step := state.get('last_step')) or (type(step) is int and step == -1))
        for state in value
    )


def require_optimizer_fit(optimizer: Optimizer, saved: Any, file: str | Path) -> None:
    """Refuse the state of another optimizer, or of one for other parameters.

    torch compares only the number of parameters. Their sizes matter in the first step.
    """
    groups, states = (saved.get(key) for key in ('param_groups', 'state'))
    own = optimizer.param_groups
    if not isinstance(groups, list) or not isinstance(states, dict):
        raise UserError(f'checkpoint {file}: its optimizer has no parameters.')
    sizes = [len(_members(group)) for group in groups]
    if sizes != [len(group['params']) for group in own]:
        raise UserError(
            f'checkpoint {file}: its optimizer has {sum(sizes)} parameters in {len(sizes)} groups, '
            f'that of the config {sum(len(group["params"]) for group in own)} in {len(own)}. '
            'Resume with the config of the checkpoint.'
        )
    for group, theirs in zip(own, groups, strict=True):
        odd = [
            key
            for key, value in group.items()
            if key != 'params' and key in theirs and not alike(value, theirs[key])
        ]
        lacking = [key for key in _SETTINGS if key in group and key not in theirs]
        if odd or lacking:
            name = (odd or lacking)[0]
            raise UserError(
                f'checkpoint {file}: the {name} of its optimizer cannot be of this one.'
            )
        for parameter, index in zip(group['params'], theirs['params'], strict=True):
            state = states.get(index, {})
            _require_state(parameter, state, file)
            if state and isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW)):
                moments = ('step', 'exp_avg', 'exp_avg_sq')
                more = ('max_exp_avg_sq',) if theirs.get('amsgrad') else ()
                for key in (*moments, *more):
                    if state.get(key) is None:
                        raise UserError(f'checkpoint {file}: its optimizer has no {key}.')


def _members(group: Any) -> list[Any]:
    members = group.get('params') if isinstance(group, dict) else None
    if isinstance(members, list) and all(isinstance(index, int) for index in members):
        return members
    return []


def alike(own: Any, saved: Any) -> bool:
    """Return whether a saved setting can stand in the place of our own: a number for a number."""
    if isinstance(own, (tuple, list)):
        return (
            isinstance(saved, (tuple, list))
            and len(saved) == len(own)
            and all(map(alike, own, saved))
        )
    if own is None or isinstance(own, bool):
        return saved is None or isinstance(saved, (bool, int, float))
    for kinds in (_NUMBERS, (str,)):
        if isinstance(own, kinds):
            return isinstance(saved, kinds)
    return True


def _require_state(parameter: torch.Tensor, state: Any, file: str | Path) -> None:
    if not isinstance(state, dict):
        raise UserError(f'checkpoint {file}: the state of its optimizer is damaged.')
    step = state.get('step', 0)
    is_number = isinstance(step, _NUMBERS) or (
        isinstance(step, torch.Tensor) and step.numel() == 1 and not step.is_complex()
    )
    if not is_number or not step >= 0:
        raise UserError(f'checkpoint {file}: the step of its optimizer is not a number.')
    for key in _PER_WEIGHT:
        value = state.get(key)
        if value is None:
            continue
        if not isinstance(value, torch.Tensor) or value.shape != parameter.shape:
            there = list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            raise UserError(
                f'checkpoint {file}: the {key} of its optimizer is {there} for a parameter that is '
                f'{list(parameter.shape)}. Resume with the config of the checkpoint or, for its '
                f'weights only, pass `init` {file}.'
            )
