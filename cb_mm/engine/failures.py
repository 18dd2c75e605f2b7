"""Failures of a run that are nobody's bug: one message each, instead of a traceback."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterator

import torch
from mmengine.config import Config

from ..config.explain import explain
from ..config.parts import part_at_work
from ..errors import UserError, cannot_write
from .hooks.checkpoint import last_good


@contextlib.contextmanager
def explained(
    config: Config,
    started: Callable[[], bool] = lambda: True,
    loader: str = 'train_dataloader',
    after: Callable[[], str] | None = None,
    folder: object = None,
) -> Iterator[None]:
    """Turn errors within the block into UserErrors if they are the machine's or the config's.

    Args:
        config: Names its file and the work directory.
        started: Whether everything has been built; until then, any error is one of the config, and
            afterwards one in which a part of the config was in use.
        loader: The part of the config that loads the data.
        folder: Where results go; by default the work directory.
        after: What there is to resume from, as a sentence; by default the last checkpoint.
    """
    # A log file on a full disk would fill the screen with tracebacks; the checkpoint reports it.
    before, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        message = _of_the_machine(error, folder or config.work_dir, loader)
        if message:
            message += f' {after() if after else last_good(config.work_dir)}'
        if message is None and isinstance(error, OSError) and error.filename:
            raise  # it is about a file, and names it
        if message is None:
            part = part_at_work(error, config)
            if started() and not part:
                raise
            message = f'config {config.filename}: {explain(error, part)}'
        raise UserError(message) from error
    finally:
        logging.raiseExceptions = before


def _of_the_machine(error: Exception, folder: object, loader: str) -> str | None:
    if isinstance(error, OSError):
        return cannot_write(error, folder)
    text = str(error)
    if torch.distributed.is_available() and _lost_process(error):
        return (
            'another process of this run has ended or cannot be reached; its own message says why.'
        )
    worker = re.search(r'DataLoader worker \(pid\(?s?\)? ([\d, ]+)\)', text)
    if worker:
        why = 'the shared memory' if 'shared memory' in text else 'most often the memory'
        return (
            f'a process that loads data (process {worker[1]}) was killed or died; {why} ran out. '
            f'Take fewer of them, such as `cfg_options` {loader}.num_workers=1.'
        )
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in text
    ):
        return f'out of memory. Try `cfg_options` {loader}.batch_size=1.'
    if isinstance(error, ValueError) and text.startswith('Expected more than 1 value per channel'):
        return (
            'a batch norm of this model sees one number per channel, so one image per batch is '
            f'too few. Pass `cfg_options` {loader}.batch_size=2.'
        )
    return None


def _lost_process(error: Exception) -> bool:
    """Return whether an exchange with the other processes failed."""
    if isinstance(error, torch.distributed.DistError):
        return True
    words = (r'Connection (closed|reset) by peer', r'gloo/transport', r'Broken pipe', r'NCCL error')
    return isinstance(error, RuntimeError) and bool(re.search('|'.join(words), str(error)))
