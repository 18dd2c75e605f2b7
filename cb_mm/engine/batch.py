"""How many samples make one step of a run, and how many processes share them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmengine.config import Config
from mmengine.dist import get_world_size
from mmengine.runner import Runner

#: In a checkpoint's meta: what `run_scale` returns.
SCALE = 'cb_mm_scale'


def accumulated(config: Config) -> int:
    """Return the number of steps whose gradients make one update."""
    return int((config.get('optim_wrapper') or {}).get('accumulative_counts', 1))


def batch_size(runner: Runner) -> int:
    """Return the images per step and process."""
    loader: Any = runner.train_dataloader
    return int(loader.batch_size or loader.batch_sampler.batch_size)


def run_scale(runner: Runner) -> dict[str, int]:
    """Return the number of processes, and of samples in one update of all of them."""
    processes = get_world_size()
    return {
        'processes': processes,
        'batch': batch_size(runner) * processes * accumulated(runner.cfg),
    }


def changed_scale(checkpoint: Mapping[str, Any], runner: Runner) -> str | None:
    """Return what a resumed run says if its checkpoint is of other processes or another batch."""
    then, now = checkpoint.get('meta', {}).get(SCALE), run_scale(runner)
    if not isinstance(then, Mapping) or not all(isinstance(then.get(key), int) for key in now):
        return None  # an older one
    if then == now:
        return None
    text = f'{_counted(then["processes"], "process")} and a batch of {then["batch"]}'
    if then['batch'] == now['batch']:
        return f'the checkpoint is of {text}: the same batch, shared among {now["processes"]} now'
    return (
        f'the checkpoint is of {text}, this run of {_counted(now["processes"], "process")} and '
        f'{now["batch"]}: its lr is for the former, and its iterations have other images'
    )


def _counted(count: int, what: str) -> str:
    return f'{count} {what}' + ('es' if count > 1 else '')
