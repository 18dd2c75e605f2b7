"""The loss of the whole batch in the log, not only that of the first process."""

from __future__ import annotations

from typing import Any

import torch
from mmengine.dist import all_reduce, get_world_size
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner


@HOOKS.register_module()
class MeanLossHook(Hook):
    """Average what the model logs (losses, accuracies) over the processes.

    mmengine logs the main process's own share, so that the curve would depend on how many
    processes a batch is spread over.
    """

    priority = 'HIGHEST'  # before mmengine's own hook records the values

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: dict | None = None
    ) -> None:
        """Replace each logged tensor by its mean over all processes, in one exchange."""
        if get_world_size() == 1 or not outputs:
            return
        names = sorted(name for name, value in outputs.items() if isinstance(value, torch.Tensor))
        values = torch.stack([outputs[name].detach().float().mean() for name in names])
        all_reduce(values, op='mean')
        outputs.update(zip(names, values, strict=True))
