"""Checkpoints that survive a kill, a power cut or a full disk.

mmengine removes the old checkpoint before it writes the new one, and writes it in place. Here the
new one is written beside it, synced to disk and renamed; only then is the old one removed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dist import is_main_process
from mmengine.fileio import LocalBackend, get_file_backend, register_backend
from mmengine.hooks import CheckpointHook
from mmengine.registry import HOOKS
from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop, Runner

from ...compat.wrappers import unwrap
from ...errors import UserError
from ...fileio.atomic import remove_drafts, write_atomically
from ...fileio.backend import AtomicBackend
from ..batch import SCALE, run_scale

#: Names in mmengine's message hub, which is saved with every checkpoint.
_OUTDATED, _VALIDATED = 'outdated_checkpoints', 'done_validation'
_NAMES_A_FILE = re.compile(r'last_ckpt|best_ckpt(_.*)?')
#: The checkpoints that a run writes, and may remove.
_OWN_FILE = re.compile(r'(iter|epoch)_\d+\.pth|best_[^/\\]+\.pth')
_PLAIN = ('CheckpointHook', 'mmengine.CheckpointHook')
#: The checkpoints of a run that was asked to stop, and of one that saves by the clock. There is one
#: of them, until the next periodic one.
STOPPED, TIMED = 'stopped.pth', 'timed.pth'
#: The backend that writes them: registered under its own name, so that only this hook uses it.
_ATOMIC = 'cb_mm.atomic'


class _RemovesLater:
    """A file backend whose removals are deferred until requested."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.waiting: dict[str, Callable] = {}

    def remove(self, path: str) -> None:
        self.waiting[str(path)] = self.backend.remove

    def rmtree(self, path: str) -> None:
        self.waiting[str(path)] = self.backend.rmtree

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)


@HOOKS.register_module()
class SafeCheckpointHook(CheckpointHook):
    """mmengine's hook, with the same options, that never has fewer complete checkpoints.

    It also repeats the validation that a kill cut short: mmengine resumes after it, and its score,
    or a best checkpoint, would be lost.
    """

    saved_iteration: int | None = None
    file_backend: Any
    backend_args: dict | None
    last_ckpt: str | None

    def before_train(self, runner: Runner) -> None:
        """Tidy up after a killed run, and finish its validation."""
        info = runner.message_hub.runtime_info
        _keep_own_names(info)
        super().before_train(runner)
        if type(self.file_backend) is LocalBackend and not (
            self.backend_args or self.file_client_args
        ):
            register_backend(_ATOMIC, AtomicBackend, force=True)
            self.backend_args = dict(backend=_ATOMIC)
            self.file_backend = get_file_backend(self.out_dir, backend_args=self.backend_args)
        for key in [key for key in info if _NAMES_A_FILE.fullmatch(key)]:
            info[key] = self.file_backend.join_path(self.out_dir, info[key])
        if getattr(self, 'best_ckpt_path', None):
            self.best_ckpt_path = info['best_ckpt']
        for key, name in getattr(self, 'best_ckpt_path_dict', {}).items():
            self.best_ckpt_path_dict[key] = name and info[f'best_ckpt_{key}']
        if is_main_process():
            for folder in {str(self.out_dir), str(runner.work_dir)}:
                remove_drafts(folder)
            for name in info.get(_OUTDATED) or ():
                path = self.file_backend.join_path(self.out_dir, name)
                if self.file_backend.isfile(path):
                    self.file_backend.remove(path)
        if _validation_is_due(runner):
            runner.logger.info('The validation after this checkpoint was cut short: repeating it.')
            if self.last_ckpt is None:
                self.last_ckpt = runner.message_hub.runtime_info.get('last_ckpt')
            runner.val_loop.run()

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Save the best; its checkpoint records that this validation is done."""
        runner.message_hub.update_info(_VALIDATED, runner.iter)
        super().after_val_epoch(runner, metrics or {})

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Record how many processes make a step, and of how many samples."""
        checkpoint.setdefault('meta', {})[SCALE] = run_scale(runner)

    def save_between(self, runner: Runner, iteration: int, name: str) -> str:
        """Save a run between its periodic checkpoints, unless that was just done.

        Args:
            runner: Of all processes, or of the first one alone.
            iteration: How many are done.
            name: `STOPPED` or `TIMED`; the other one is removed.

        Returns:
            The file.
        """
        if self.saved_iteration == iteration:
            return str(self.last_ckpt)
        _require_finite(runner)
        with self._removing_last(runner):
            self._outdate(TIMED if name == STOPPED else STOPPED)
            return self._save_between(runner, iteration, name)

    def _save_between(self, runner: Runner, iteration: int, name: str) -> str:
        runner.save_checkpoint(
            self.out_dir,
            name,
            self.file_client_args,
            meta=dict(epoch=runner.epoch, iter=iteration),
            by_epoch=False,
            backend_args=self.backend_args,
            **self.args,
        )
        file = str(self.file_backend.join_path(self.out_dir, name))
        if is_main_process():
            write_atomically(Path(runner.work_dir) / 'last_checkpoint', file)
        return file

    def _save_checkpoint_with_step(self, runner: Runner, step: int, meta: dict) -> None:
        _require_finite(runner)
        with self._removing_last(runner):
            self._outdate(STOPPED)
            self._outdate(TIMED)
            # mmengine's method, except for the file that names the last checkpoint.
            if self.max_keep_ckpts > 0 and [*self.keep_ckpt_ids][-1:] != [step]:
                if len(self.keep_ckpt_ids) == self.max_keep_ckpts:
                    self._outdate(self.filename_tmpl.format(self.keep_ckpt_ids.popleft()))
                self.keep_ckpt_ids.append(step)
                runner.message_hub.update_info('keep_ckpt_ids', list(self.keep_ckpt_ids))
            name = self.filename_tmpl.format(step)
            self.last_ckpt = self.file_backend.join_path(self.out_dir, name)
            runner.message_hub.update_info('last_ckpt', self.last_ckpt)
            runner.message_hub.update_info(_OUTDATED, list(self.file_backend.waiting))
            runner.save_checkpoint(
                self.out_dir,
                name,
                self.file_client_args,
                save_optimizer=self.save_optimizer,
                save_param_scheduler=self.save_param_scheduler,
                meta=meta,
                by_epoch=self.by_epoch,
                backend_args=self.backend_args,
                **self.args,
            )
            if is_main_process():
                write_atomically(Path(runner.work_dir) / 'last_checkpoint', self.last_ckpt)
        self.saved_iteration = meta['iter']

    def _save_best_checkpoint(self, runner: Runner, metrics: dict[str, float]) -> None:
        with self._removing_last(runner):
            super()._save_best_checkpoint(runner, metrics)

    def _outdate(self, name: str) -> None:
        path = self.file_backend.join_path(self.out_dir, name)
        if self.file_backend.isfile(path):
            self.file_backend.remove(path)
        elif self.file_backend.isdir(path):  # DeepSpeed's are folders
            self.file_backend.rmtree(path)

    @contextlib.contextmanager
    def _removing_last(self, runner: Runner) -> Iterator[None]:
        """Defer removals to the end of the block, and do them only if all went well."""
        if isinstance(self.file_backend, _RemovesLater):  # saving the best saves the last as well
            yield
            return
        backend = self.file_backend
        self.file_backend = later = _RemovesLater(backend)
        try:
            yield
        except UserError as error:
            raise UserError(f'{error} {last_good(self.out_dir)}') from error
        finally:
            self.file_backend = backend
        if is_main_process():
            current = {str(self.last_ckpt), str(getattr(self, 'best_ckpt_path', None))}
            current |= {str(path) for path in getattr(self, 'best_ckpt_path_dict', {}).values()}
            for path, remove in later.waiting.items():
                if path not in current:  # after resuming, a name can come a second time
                    remove(path)


def _keep_own_names(info: dict[str, Any]) -> None:
    """Reduce what a resumed checkpoint says about files to names of checkpoints.

    They are removed, in time, only from the folder of this run. A checkpoint from someone else
    could name any file; one of a run whose folder was moved names the old place.
    """
    for key, value in [*info.items()]:
        listed = value if isinstance(value, (list, tuple)) else ()
        if key == _OUTDATED:
            info[key] = [name for name in map(_own_name, listed) if name]
        elif key == 'keep_ckpt_ids':
            info[key] = [step for step in listed if type(step) is int and step >= 0]
        elif _NAMES_A_FILE.fullmatch(key) and _own_name(value):
            info[key] = _own_name(value)
        elif _NAMES_A_FILE.fullmatch(key) or (
            (key.startswith('best_score') or key == _VALIDATED)
            and not isinstance(value, (int, float, np.number))
        ):
            del info[key]


def _own_name(path: Any) -> str | None:
    """Return the name of a checkpoint that this hook can have written, without its folder."""
    name = re.split(r'[/\\]', path)[-1] if isinstance(path, str) else ''
    return name if _OWN_FILE.fullmatch(name) else None


def _validation_is_due(runner: Runner) -> bool:
    """Return whether the resumed checkpoint was written before a validation not recorded in it."""
    loop = runner.train_loop
    if not getattr(runner, '_resume', False) or runner.val_loop is None:
        return False
    if isinstance(loop, IterBasedTrainLoop):
        done, last = loop.iter, loop.max_iters
    elif isinstance(loop, EpochBasedTrainLoop):
        done, last = loop.epoch, loop.max_epochs
    else:
        return False
    loop._decide_current_val_interval()
    due = done > 0 and done >= loop.val_begin and (done % loop.val_interval == 0 or done == last)
    return due and runner.message_hub.runtime_info.get(_VALIDATED) != runner.iter


def _require_finite(runner: Runner) -> None:
    model = unwrap(runner.model)
    if not finite(model):
        raise UserError(
            f'at iteration {runner.iter + 1} the weights are not finite (NaN or infinity): no '
            'checkpoint of them is written.'
        )


def finite(model: torch.nn.Module) -> bool:
    """Return whether all weights and buffers of a model are finite numbers."""
    return all(
        bool(torch.isfinite(tensor).all())
        for tensor in model.state_dict().values()
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point()
    )


def last_good(folder: str | Path) -> str:
    """Return a sentence that names the checkpoint to resume from."""
    found = checkpoints_in(folder)
    if not found:
        return f'There is no checkpoint in {folder} yet.'
    return f'The last good checkpoint is {found[0]}; pass `resume` to resume from it.'


def checkpoints_in(folder: str | Path) -> list[Path]:
    """Return the checkpoints to resume from, newest first: those in between, and periodic ones."""
    between = [file for file in (Path(folder) / STOPPED, Path(folder) / TIMED) if file.is_file()]
    # Both are there only after a kill between writing one and removing the other.
    between.sort(key=lambda file: file.stat().st_mtime_ns, reverse=True)
    numbered = []
    for file in Path(folder).glob('*.pth'):
        found = re.fullmatch(r'(?:iter|epoch)_(\d+)\.pth', file.name)
        if found:
            numbered.append((int(found[1]), file))
    return between + [file for _, file in sorted(numbered, reverse=True)]


def use_safe_checkpoints(config: Config) -> None:
    """Put `SafeCheckpointHook` where a config has mmengine's own, or none."""
    if not config.get('default_hooks'):
        config.default_hooks = dict()
    if 'checkpoint' not in config.default_hooks:
        config.default_hooks.checkpoint = dict(interval=1)  # mmengine's default
    for hook in [config.default_hooks.checkpoint, *(config.get('custom_hooks') or ())]:
        if isinstance(hook, dict) and hook.get('type', 'CheckpointHook') in _PLAIN:
            hook['type'] = 'SafeCheckpointHook'
