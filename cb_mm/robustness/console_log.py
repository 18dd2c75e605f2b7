"""Output of mmengine, pycocotools and others, redirected to a file."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from mmengine.logging import MMLogger

from ..checkpoints.cautions import is_caution


class QuietLog(io.TextIOBase):
    """A text stream that buffers what is written until it gets a file.

    Args:
        keep: False on processes that need no log.
    """

    def __init__(self, keep: bool = True) -> None:
        self.keep = keep
        self._early: list[str] = []
        self._file: IO[str] | None = None

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Write to the file at once, so that a kill loses nothing."""
        if self._file is not None:
            self._file.write(text)
            self._file.flush()
        elif self.keep:
            self._early.append(text)
        return len(text)

    def open(self, path: Path) -> None:
        """Append to this file from now on."""
        if self.keep:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open('a', encoding='utf-8', errors='backslashreplace')
            self.write(''.join(self._early))
            self._early.clear()


@contextlib.contextmanager
def quiet_console(
    keep: bool = True, console: IO[str] | None = None
) -> Iterator[tuple[QuietLog, Any]]:
    """Send standard output, mmengine's logger and Python's warnings to a log.

    Args:
        keep: False on processes that need no log.
        console: Where our cautions are shown as well; None for nowhere.

    Yields:
        The log, and the real standard output for what the user should see.
    """
    log, stdout = QuietLog(keep), sys.stdout
    handlers: list[logging.StreamHandler] = [logging.StreamHandler(log)]
    handlers[0].setFormatter(logging.Formatter('%(asctime)s %(levelname)s %(message)s'))
    if console is not None:
        handlers.append(logging.StreamHandler(console))
        handlers[1].setFormatter(logging.Formatter('caution: %(message)s'))
        handlers[1].addFilter(is_caution)
    # Upstream code calls the most recently created logger the current one.
    name = f'cb_mm_{time.monotonic_ns()}'
    own = MMLogger.get_instance(name, logger_name='cb_mm')
    loggers = [own, logging.getLogger('py.warnings')]
    before = [(list(one.handlers), one.propagate) for one in loggers]
    for one in loggers:
        one.handlers, one.propagate = list(handlers), False
    shown = warnings.showwarning
    logging.captureWarnings(True)
    captured = warnings.showwarning is shown  # by the host, before
    try:
        with contextlib.redirect_stdout(log):
            yield log, stdout
    finally:
        logging.captureWarnings(captured)
        MMLogger._instance_dict.pop(name, None)  # or it would stay the current one
        for one, (handlers, propagate) in zip(loggers, before, strict=True):
            one.handlers, one.propagate = handlers, propagate
        if log._file is not None:
            log._file.close()
