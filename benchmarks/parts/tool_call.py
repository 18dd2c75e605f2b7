"""Run a tool of the package in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cb_mm.errors import UserError

TOOLS = Path(__file__).resolve().parent.parent.parent / 'tools'


def call_tool(tool: str, *words: object, log: Path, threads: int = 1) -> None:
    """Run it to its end; what it prints is added to the log.

    Raises:
        UserError: It failed; the last line of the log is part of the message.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, 'OMP_NUM_THREADS': str(threads)}
    command = [sys.executable, str(TOOLS / tool), *map(str, words)]
    with log.open('a') as stream:
        done = subprocess.run(command, env=env, cwd=log.parent, stdout=stream, stderr=stream)
    if done.returncode:
        last = (log.read_text(errors='replace').strip().splitlines() or [''])[-1]
        raise UserError(f'{tool} failed; see the end of {log}: {last}')
