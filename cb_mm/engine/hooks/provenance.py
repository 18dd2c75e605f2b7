"""A record of what a model is trained with, in its checkpoints, and its comparison."""

from __future__ import annotations

from typing import Any

from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import BaseLoop, Runner

from ...checkpoints.label_set import KEY, LabelSet
from ...checkpoints.provenance import Provenance, check_exact


@HOOKS.register_module()
class ProvenanceHook(Hook):
    """Write the record into every checkpoint, and compare when a run is resumed.

    Args:
        allow_mismatch: Resume a checkpoint of another broadcast, of other settings or classes.
    """

    def __init__(self, allow_mismatch: bool = False) -> None:
        self.allow_mismatch = allow_mismatch
        self._record: dict[str, Any] | None = None

    def before_run(self, runner: Runner) -> None:
        """Read the settings before training, during which modules may keep notes."""
        self._record = Provenance.of_model(runner.model).to_meta()

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Add the record to ``meta``."""
        record = self._record or Provenance.of_model(runner.model).to_meta()
        labels = LabelSet.of_metainfo(checkpoint.get('meta', {}).get('dataset_meta'))
        checkpoint.setdefault('meta', {})[KEY] = {**record, **labels.to_meta()}

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Refuse a checkpoint of another model."""
        file = str(runner.cfg.get('load_from') or 'the checkpoint')
        loops = (runner._train_loop, runner._val_loop, runner._test_loop)
        loop = next((loop for loop in loops if isinstance(loop, BaseLoop)), None)
        if loop is runner._train_loop and not runner._resume:  # other data, and often other heads
            check_exact(file, checkpoint, runner.model, self.allow_mismatch, fine_tuned=True)
            return
        dataset = getattr(getattr(loop, 'dataloader', None), 'dataset', None)
        labels = LabelSet.of_metainfo(getattr(dataset, 'metainfo', None))
        check_exact(file, checkpoint, runner.model, self.allow_mismatch, labels)


def record_provenance(runner: Runner, allow_mismatch: bool) -> None:
    """Give a runner the hook, or tell the one that its config has what is allowed."""
    hooks = [hook for hook in runner.hooks if isinstance(hook, ProvenanceHook)]
    if not hooks:
        runner.register_hook(ProvenanceHook(allow_mismatch))
    for hook in hooks:
        hook.allow_mismatch = hook.allow_mismatch or allow_mismatch
