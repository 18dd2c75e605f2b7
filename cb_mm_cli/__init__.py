"""The command line of cb_mm: ``cb-mm COMMAND``, and ``tools/*.py`` for a checkout.

It stands beside the package, not within: importing ``cb_mm`` loads torch and registers everything,
and neither ``--help`` nor a typo should wait for that. Each module parses its options with nothing
but the standard library, makes one library call and prints the result.
"""

from __future__ import annotations

import sys
from types import TracebackType


def _say(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Say of Ctrl-C that it came; most tools are interrupted while they import, which takes long.

    Python then ends with that signal: a shell sees 130.
    """
    if issubclass(kind, KeyboardInterrupt):
        print('stopped.', file=sys.stderr)
    else:
        _before(kind, error, trace)


_before, sys.excepthook = sys.excepthook, _say
