"""What a launcher sets for a run of one process, which is then wrapped as for several."""

from __future__ import annotations

import os

from tool import free_port


def as_launched() -> None:
    """Set the environment of this process as torchrun does."""
    os.environ |= {'RANK': '0', 'WORLD_SIZE': '1', 'LOCAL_RANK': '0', 'LOCAL_WORLD_SIZE': '1',
                   'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(free_port())}  # fmt: skip
