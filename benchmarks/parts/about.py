"""What the figures of a benchmark come from: the machine, the versions and the commit."""

from __future__ import annotations

import subprocess
from typing import Any

from cb_mm.version import __version__

from .options import BENCHMARKS


def code_version() -> str:
    """Return the version and, in a checkout, the commit; results do not make it dirty."""
    commit = _git('describe', '--always', '--exclude=*')
    changed = commit and _git('status', '--porcelain', '--', ':/', ':!/benchmarks/results')
    return f'{__version__} {commit}{"-dirty" if changed else ""}'.strip()


def _git(*words: str) -> str:
    found = subprocess.run(['git', '-C', str(BENCHMARKS), *words], capture_output=True, text=True)
    return found.stdout.strip()


def machine() -> dict[str, Any]:
    """Return processor, cores, threads, versions, and the commit that was measured."""
    from cb_mm.apis.benchmark_report import machine

    return {**machine(), 'code': code_version()}
