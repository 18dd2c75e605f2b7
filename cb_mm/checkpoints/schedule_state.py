"""The schedule and the settings of the optimizer in a checkpoint, beside those of a config.

A resumed run continues with what its checkpoint has: mmengine overwrites end, warm-up and learning
rate of the config silently, and mixes two schedules of different kinds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from ..errors import UserError
from .training_state import alike

#: Where a schedule stands, in contrast to what it is; what follows from the optimizer and the end.
_PROGRESS = {
    'last_step', 'base_values', 'verbose', 'best', 'num_bad_epochs', 'cooldown_counter',
    'total_iters',
}  # fmt: skip
#: One number for each group of the optimizer.
_OF_GROUPS = ('base_values', '_last_value')


def require_schedule_fit(schedulers: Any, saved: Any, file: str | Path) -> None:
    """Refuse the state of another number of schedules, or of schedules of other kinds."""
    states = [one.state_dict() for one in _flat(schedulers)]
    own = [_settings(one) for one in states]
    theirs = [_settings(one) for one in _flat(saved)]
    if list(map(sorted, own)) == list(map(sorted, theirs)):
        for state, other in zip(states, _flat(saved), strict=True):
            odd = [key for key in state if key in other and not _fits(key, state[key], other[key])]
            if odd or state.get('param_name') != other.get('param_name'):
                name = odd[0] if odd else 'param_name'
                raise UserError(
                    f'checkpoint {file}: the {name} of its schedule (param_scheduler) is not like '
                    'that of the config. Resume with the config of the checkpoint or, for its '
                    f'weights only, pass `init` {file}.'
                )
        return
    different = f'has {len(theirs)} parts, that of the config {len(own)}'
    if len(own) == len(theirs):
        different = 'is of other types than that of the config'
    raise UserError(
        f'checkpoint {file}: its schedule (param_scheduler) {different}. Resume with the config of '
        f'the checkpoint or, for its weights only, pass `init` {file}.'
    )


def _fits(key: str, own: Any, saved: Any) -> bool:
    if isinstance(own, (list, tuple)) and key not in _OF_GROUPS:  # periods may be more or fewer
        return isinstance(saved, (list, tuple))
    return alike(own, saved)


def kept_settings(
    optimizer: Optimizer, schedulers: Any, content: Mapping[str, Any]
) -> tuple[list[str], list[str]]:
    """Return what a resumed run takes from its checkpoint although its config says otherwise.

    Args:
        optimizer: Of the config, before the state of the checkpoint is in it.
        schedulers: The same.
        content: Of the checkpoint, which fits them.

    Returns:
        Differences of the schedule, and of the optimizer, each as 'end 6 (8 in the config)'.
    """
    schedule: list[str] = []
    for one, other in zip(_flat(schedulers), _flat(content.get('param_schedulers')), strict=False):
        schedule += _differences(_settings(one.state_dict()), _settings(other))
    groups: list[str] = []
    saved = (content.get('optimizer') or {}).get('param_groups') or []
    for own, theirs in zip(optimizer.param_groups, saved, strict=False):
        groups += _differences(_of_group(own), _of_group(theirs))
    return list(dict.fromkeys(schedule)), list(dict.fromkeys(groups))


def _flat(schedulers: Any) -> list[Any]:
    """Return the schedules of one optimizer or of several by name; there may be none."""
    if isinstance(schedulers, Mapping):
        return [one for part in schedulers.values() for one in part]
    return list(schedulers or ())


def _settings(state: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in state.items()
        if not key.startswith('_') and key not in _PROGRESS
    }


def _of_group(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a group of parameters; the lr is the one that the schedule scales."""
    lr = group.get('initial_lr', group.get('lr'))
    names = ('weight_decay', 'momentum', 'betas', 'eps')
    return {'lr': lr} | {name: group[name] for name in names if name in group}


def _differences(own: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[str]:
    for name, value in own.items():
        there = theirs.get(name, value)
        if not _same(value, there):
            yield f'{name} {_text(there)} ({_text(value)} in the config)'


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-9)
    if isinstance(one, Sequence) and isinstance(other, Sequence) and not isinstance(one, str):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


def _text(value: Any) -> str:
    if isinstance(value, Mapping):  # milestones and how often each occurs
        return ', '.join(map(str, value))
    return f'{value:g}' if isinstance(value, float) else str(value)
