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


def require_resumable(content: Mapping[str, Any], file: str | Path) -> None:
    """Refuse a checkpoint without the state of a run, or with one that cannot be of a run."""
    lacking = [key for key in ('meta', 'state_dict', 'message_hub') if key not in content]
    if lacking:
        raise UserError(
            f'`resume` {file}: it is not a checkpoint of a training run (it has no '
            f'{", ".join(lacking)}). For weights to start from, pass `init` {file}.'
        )
    meta, hub = content['meta'], content['message_hub']
    schedulers = content.get('param_schedulers') or []
    sound = {
        'state_dict': isinstance(content['state_dict'], dict),
        'meta': isinstance(meta, dict)
        and all(_is_count(meta.get(key)) for key in ('epoch', 'iter'))
        and (meta.get('seed') is None or _is_count(meta['seed'], 2**32)),
        'message_hub': isinstance(hub, dict)
        and all(
            isinstance(hub.get(key), dict) and all(isinstance(name, str) for name in hub[key])
            for key in ('log_scalars', 'runtime_info', 'resumed_keys')
        ),
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
        and (state.get('last_step') == -1 or _is_count(state.get('last_step')))
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
            if key != 'params' and key in theirs and not _alike(value, theirs[key])
        ]
        if odd or 'lr' not in theirs:
            name = odd[0] if odd else 'lr'
            raise UserError(f'checkpoint {file}: the {name} of its optimizer is not a number.')
        for parameter, index in zip(group['params'], theirs['params'], strict=True):
            _require_state(parameter, states.get(index, {}), file)


def _members(group: Any) -> list[Any]:
    members = group.get('params') if isinstance(group, dict) else None
    if isinstance(members, list) and all(isinstance(index, int) for index in members):
        return members
    return []


def _alike(own: Any, saved: Any) -> bool:
    if isinstance(own, (tuple, list)):
        return (
            isinstance(saved, (tuple, list))
            and len(saved) == len(own)
            and all(map(_alike, own, saved))
        )
    numbers = (int, float, np.number)
    return not isinstance(own, numbers) or isinstance(own, bool) or isinstance(saved, numbers)


def _require_state(parameter: torch.Tensor, state: Any, file: str | Path) -> None:
    if not isinstance(state, dict):
        raise UserError(f'checkpoint {file}: the state of its optimizer is damaged.')
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
