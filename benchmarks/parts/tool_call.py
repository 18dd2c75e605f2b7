"""Run a tool of the package in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cb_mm.errors import UserError

#: glibc gives large blocks back to the system and gets them anew, page by page, in every
#: training step. Told to keep them, a step of the CamVid study takes 0.9 of the time. Other
#: systems ignore it.
KEEP_MEMORY = ':'.join(
    f'glibc.malloc.{name}={value}'
    for name, value in dict(hugetlb=1, mmap_max=0, trim_threshold=2**35, top_pad=2**28).items()
)
TOOLS = Path(__file__).resolve().parent.parent.parent / 'tools'


def call_tool(tool: str, *words: object, log: Path, threads: int = 1) -> None:
    """Run it to its end; what it prints is added to the log.

    Raises:
        UserError: It failed; the last line of the log is part of the message.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    env = {'GLIBC_TUNABLES': KEEP_MEMORY, **os.environ, 'OMP_NUM_THREADS': str(threads)}
    command = [sys.executable, str(TOOLS / tool), *map(str, words)]
    with log.open('a') as stream:
        done = subprocess.run(command, env=env, cwd=log.parent, stdout=stream, stderr=stream)
    if done.returncode:
        last = (log.read_text(errors='replace').strip().splitlines() or [''])[-1]
        raise UserError(f'{tool} failed; see the end of {log}: {last}')
