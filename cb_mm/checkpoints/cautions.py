"""Cautions: what users should know about weights that are used all the same."""

from __future__ import annotations

import logging

from mmengine.logging import MMLogger

from ..errors import in_users_words

_MARK = 'cb_mm_caution'


def caution(text: str) -> None:
    """Log a warning; tools that send mmengine's log to a file also show it on the console."""
    logger = MMLogger.get_current_instance()
    logger.log(logging.WARNING, in_users_words(text), extra={_MARK: True})


def is_caution(record: logging.LogRecord) -> bool:
    """Return whether a record of a log is one."""
    return hasattr(record, _MARK)
