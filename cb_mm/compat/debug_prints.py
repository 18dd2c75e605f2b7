"""Silence for messages that mmengine prints although nobody asked for debugging.

`print_log` without a logger prints at any level. The maintained distributions report this way, four
times in each process, that an optional data source is not installed.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import mmengine
import mmengine.logging.logger


def install() -> None:
    """Let `print_log` without a logger print no message of level DEBUG."""
    original = mmengine.logging.logger.print_log
    if hasattr(original, '__wrapped__'):
        return

    @functools.wraps(original)
    def print_log(msg: Any, logger: Any = None, level: int = logging.INFO) -> None:
        if logger is not None or level > logging.DEBUG:
            original(msg, logger, level)

    for module in (mmengine, mmengine.logging, mmengine.logging.logger):
        module.print_log = print_log
