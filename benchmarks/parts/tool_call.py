"""Run one of the package's tools in a separate process."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

from cb_mm.errors import UserError

#: glibc returns large blocks to the system and requests them again, page by page, in every
#: training step. If it keeps them, a step of the CamVid study takes 0.9 of the time. Other
#: systems ignore this setting.
KEEP_MEMORY = ':'.join(
    f'glibc.malloc.{name}={value}'
    for name, value in dict(hugetlb=1, mmap_max=0, trim_threshold=2**35, top_pad=2**28).items()
)
TOOLS = Path(__file__).resolve().parent.parent.parent / 'tools'


_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """Ask Linux for a SIGTERM when the study dies, if by kill -9: the tool then saves and ends."""
    if sys.platform == 'linux':
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def call_tool(tool: str, *words: object, log: Path, threads: int = 1) -> None:
    """Run it to its end; append its output to the log.

    Raises:
        UserError: It failed; the message contains the last line of the log.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    env = {'GLIBC_TUNABLES': KEEP_MEMORY, **os.environ, 'OMP_NUM_THREADS': str(threads)}
    command = [sys.executable, str(TOOLS / tool), *map(str, words)]
    with log.open('a') as stream:
        done = subprocess.run(
            command, env=env, cwd=log.parent, stdout=stream, stderr=stream,
            preexec_fn=_end_with_parent,
        )  # fmt: skip
    if done.returncode:
        last = (log.read_text(errors='replace').strip().splitlines() or [''])[-1]
        raise UserError(f'{tool} failed; see the end of {log}: {last}')
