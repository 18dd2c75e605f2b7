"""Errors that are for people, and how a command line shows them."""

from __future__ import annotations

import sys
from collections.abc import Callable


class UserError(Exception):
    """Something the user can mend: the message names the file, what is wrong and what to do.

    The library raises it; a tool prints the message alone, without a traceback, and exits with 2.
    """


def exit_code(job: Callable[[], object]) -> int:
    """Run ``job`` as a command line does: 0 when it returns, 2 with one message on a UserError."""
    try:
        job()
    except UserError as error:
        print(f'error: {error}', file=sys.stderr)
        return 2
    return 0
