"""Another length of training: warm-up, decay, validation, logging and checkpoints follow."""

from __future__ import annotations

from typing import Any

from mmengine.config import Config

from ..errors import UserError

#: What a scheduler counts, in iterations or epochs.
_COUNTS = ('begin', 'end', 'T_max', 'total_iters', 'step_size', 'eta_min_begin', 'patience')


def set_length(config: Config, iters: int | None = None, epochs: int | None = None) -> None:
    """Scale a schedule to another number of iterations or epochs.

    Everything that the schedule counts is scaled by the same factor: a run of a tenth of the length
    warms up, decays, validates, logs and saves at the same shares of it.

    Args:
        config: A config with ``train_cfg``; it is changed.
        iters: Iterations, for a config that counts them.
        epochs: Epochs, for a config that counts those.
    """
    if iters is None and epochs is None:
        return
    if iters is not None and epochs is not None:
        raise UserError('`iters` and `epochs`: give one of them.')
    name, unit, wanted = ('iters', 'max_iters', iters) if epochs is None else (
        'epochs', 'max_epochs', epochs)  # fmt: skip
    loop = config.get('train_cfg') or {}
    if loop.get(unit) is None:
        counted, other = ('epochs', 'epochs') if name == 'iters' else ('iterations', 'iters')
        raise UserError(f'`{name}`: the config counts {counted}. Give `{other}` instead.')
    if wanted is None or wanted < 1:
        raise UserError(f'`{name}` {wanted}: at least one is needed.')
    old = int(loop[unit])

    def scaled(value: int) -> int:
        return value if value <= 0 else max(1, round(value * wanted / old))

    loop[unit] = wanted
    _scale(loop, scaled, 'val_interval', 'val_begin')
    hooks = config.get('default_hooks') or {}
    _scale(hooks.get('logger') or {}, scaled, 'interval')
    _scale(hooks.get('checkpoint') or {}, scaled, 'interval', 'save_begin')
    steps = config.get('param_scheduler') or []
    steps = list(steps) if isinstance(steps, (list, tuple)) else [steps]
    for step in steps:
        _scale(step, scaled, *_COUNTS)
        if step.get('milestones'):
            step.milestones = sorted({scaled(stone) for stone in step.milestones})
    config.param_scheduler = [step for step in steps if _takes_effect(step)]
    if 'schedule' in config:
        config.scaled_from = config.schedule
    config.schedule = f'{wanted}_{name}'


def _takes_effect(step: Any) -> bool:
    """Return whether a scheduler still does what it is for at its scaled length.

    A warm-up of a single step sets its factor and never takes it back, so that the whole run would
    train at a millionth of its learning rate. And in a very short run, the warm-up can leave
    nothing to the decay.
    """
    kind = getattr(step.get('type'), '__name__', str(step.get('type')))
    warms_up = kind.startswith(('Linear', 'Constant')) and not step.get('convert_to_iter_based')
    return step.get('end', 10**9) - step.get('begin', 0) > (1 if warms_up else 0)


def _scale(node: Any, scaled: Any, *keys: str) -> None:
    for key in keys:
        if isinstance(node.get(key), int) and not isinstance(node.get(key), bool):
            node[key] = scaled(node[key])
