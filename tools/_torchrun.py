"""torchrun for dist_train.sh and dist_test.sh: what a tool says when it ends stays the last line.

torchrun adds pages of its own to every signal and to every exit code but 0.
"""

import logging
import signal
import sys

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main


def run() -> int:
    """Start the processes; return the exit code of the first one that failed."""
    logging.disable(logging.ERROR)  # in this process alone: the tools write their own logs
    try:
        main()
    except SignalException as stop:  # the tools have stopped by now, and said how to resume
        return 128 + stop.sigval
    except ChildFailedError as failed:
        rank, failure = failed.get_first_failure()
        if failure.exitcode >= 0:
            return failure.exitcode
        name = signal.Signals(-failure.exitcode).name
        print(f'error: process {rank} was ended by {name}.', file=sys.stderr)
        return 128 - failure.exitcode
    return 0


if __name__ == '__main__':
    sys.exit(run())
