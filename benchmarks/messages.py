"""Write docs/messages.md: every message about a fault, from a run that hit it.

python benchmarks/messages.py
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO), str(REPO / 'tests')]
PAGE = REPO / 'docs' / 'messages.md'
START = """# Messages

What cb_mm prints when something is wrong. Every message below was printed by a run that hit the
fault; the test suite repeats the faults and compares. The exit code is 2, and nothing is lost:
complete checkpoints and results stay complete. With `CB_MM_TRACEBACK=1` in the environment, a tool
also prints where in the program the error occurred.

Written by `python benchmarks/messages.py`. [Benchmarks](benchmarks.md#faults) shows how often each
kind of fault was survived.
"""


def main() -> int:
    """Run all cases and write the page."""
    import fault_cases

    from cb_mm.datasets import write_scenes
    from cb_mm.fileio.atomic import write_atomically

    lines = [START]
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_scenes(root / 'data', train=8, val=4, size=(64, 96))
        trained = fault_cases.train_both(root / 'trained', root / 'data')
        for group, cases in fault_cases.CASES.items():
            lines.append(f'## {group}\n')
            for number, case in enumerate(cases):
                folder = fault_cases.prepare(root / f'{group} {number}', root / 'data', trained)
                done = fault_cases.run(case, folder)
                print(f'{done.code}  {case.title}: {fault_cases.message(done, folder)}', flush=True)
                lines.append(entry(case, fault_cases.message(done, folder)))
    write_atomically(PAGE, '\n'.join(lines))
    return 0


def entry(case: object, message: str) -> str:
    """Return the entry for one message."""
    command = shlex.join(['python', f'tools/{case.tool}', *case.words])
    return f'### {case.title}\n\n```console\n$ {command}\n{message}\n```\n'


if __name__ == '__main__':
    sys.exit(main())
