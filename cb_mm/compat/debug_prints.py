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

_MODULES = (mmengine, mmengine.logging, mmengine.logging.logger)
_original = mmengine.logging.logger.print_log


@functools.wraps(_original)
def _print_log(msg: Any, logger: Any = None, level: int = logging.INFO) -> None:
    if logger is not None or level > logging.DEBUG:
        _original(msg, logger, level)


def install() -> None:
    """Let `print_log` without a logger print no message of level DEBUG."""
    for module in _MODULES:
        module.print_log = _print_log


def uninstall() -> None:
    """Let `print_log` print everything again."""
    for module in _MODULES:
        module.print_log = _original
