"""What a launcher sets for a run of one process, which is then wrapped as for several."""

from __future__ import annotations

import os
import socket


def as_launched() -> None:
    """Set the environment of this process as torchrun does."""
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    os.environ |= {'RANK': '0', 'WORLD_SIZE': '1', 'LOCAL_RANK': '0', 'LOCAL_WORLD_SIZE': '1',
                   'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(port)}  # fmt: skip
