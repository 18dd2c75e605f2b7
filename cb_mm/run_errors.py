"""What can go wrong in a run that is nobody's bug: one message each, in place of a traceback."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterator

import torch
from mmengine.config import Config

from .building import explain
from .errors import UserError, cannot_write
from .safe_checkpoints import last_good


@contextlib.contextmanager
def explained(config: Config, started: Callable[[], bool]) -> Iterator[None]:
    """Errors within the block as UserErrors, where they are the machine's or the config's.

    Args:
        config: Names its file and the work directory.
        started: Whether everything has been built; until then, any error is one of the config.
    """
    # A log file on a full disk would fill the screen with tracebacks; the checkpoint says it.
    before, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        message = _of_the_machine(error, config)
        if message is None and not started():
            message = f'config {config.filename}: {explain(error)}'
        if message is None:
            raise
        raise UserError(message) from error
    finally:
        logging.raiseExceptions = before


def _of_the_machine(error: Exception, config: Config) -> str | None:
    work = config.work_dir
    if isinstance(error, OSError):
        message = cannot_write(error, work)
        return f'{message} {last_good(work)}' if message else None
    text = str(error)
    worker = re.search(r'DataLoader worker \(pid\(?s?\)? ([\d, ]+)\)([^.\n]*)', text)
    if worker:
        return (
            f'a process that loads data (process {worker[1]}){worker[2]}; most often the memory '
            'ran out. Take fewer of them, such as --cfg-options train_dataloader.num_workers=1. '
            f'{last_good(work)}'
        )
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in text
    ):
        return (
            'the memory does not suffice. Take a smaller batch, such as --cfg-options '
            'train_dataloader.batch_size=1 optim_wrapper.accumulative_counts=2, or --amp. '
            f'{last_good(work)}'
        )
    return None
