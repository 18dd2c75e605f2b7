"""The check of a GPU machine: runs its parts one after another, and writes one page."""

from __future__ import annotations

import tempfile
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ...compat import families as family
from ...errors import UserError
from ...fileio.atomic import write_atomically
from ..calls import api
from .parts import PARTS, Plan


@dataclass
class GpuReport:
    """What was found.

    Attributes:
        text: The page, in Markdown.
        failed: Parts that did not run to their end.
    """

    text: str
    failed: list[str]

    def save(self, folder: str | Path, name: str = 'gpu_check.md') -> list[Path]:
        """Write the page."""
        return [write_atomically(Path(folder) / name, self.text)]


@api
def check_gpu(
    *, parts: Sequence[str] = tuple(PARTS), small: bool | None = None, verbose: bool = False
) -> GpuReport:
    """Check that this machine trains as the CPU does, and how fast.

    Args:
        parts: 'steps' (a training step of each recipe in each precision against the CPU),
            'resume' (equal to the last bit), 'gpus' (two processes against one) and 'throughput'
            (against mmseg's heads, beside the estimate).
        small: One small recipe on small images; by default where there is no GPU.
        verbose: Print progress.

    Returns:
        The report. A part that fails is in it with its error, and the others still run.

    Raises:
        UserError: There is no such part.
    """
    for name in parts:
        if name not in PARTS:
            raise UserError(f'`parts` {name}: there are {", ".join(PARTS)}.')
    lines, failed = ['# GPU check', '', *_machine(), ''], []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter('ignore', UserWarning)  # of mmseg, about its options

        def say(line: str) -> None:
            if verbose:
                print(f'  {line} …', flush=True)

        plan = Plan(Path(folder), not torch.cuda.is_available() if small is None else small, say)
        for number, name in enumerate(parts, 1):
            title, run = PARTS[name]
            if verbose:
                print(f'[{number}/{len(parts)}] {title}', flush=True)
            start = time.monotonic()
            try:
                found = run(plan)
            except Exception as error:  # the next parts can still tell something
                failed.append(name)
                told = ''.join(traceback.format_exception(error)).rstrip().splitlines()[-12:]
                found = ['**Failed.**', '', *(f'    {line}' for line in told)]
            took = time.monotonic() - start
            lines += [f'## {title}', '', *found, '', f'({took:.0f} s)', '']
    return GpuReport('\n'.join(lines), failed)


def _machine() -> list[str]:
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    versions = ', '.join(f'{key} {value}' for key, value in family.software_versions().items())
    return [
        f'- device: {", ".join(names) or "CPU only: small sizes, times that mean nothing"}',
        f'- torch {torch.__version__}, CUDA {torch.version.cuda}',
        f'- {versions}',
    ]
