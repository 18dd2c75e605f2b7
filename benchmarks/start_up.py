"""Start-up time of every tool's --help, `import cb_mm`, and mmseg's own test.py.

Each command runs in a separate process, all in turns. Reports the CPU time of the process and the
wall time, which means something only on an idle machine.

Examples:
  python benchmarks/start_up.py
  python benchmarks/start_up.py --repeats 9 --out /tmp

Writes start_up.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parent / 'tools'


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument('--repeats', type=int, default=5, metavar='N', help='turns each (5)')
    parser.add_argument(
        '--out', default=str(HERE / 'results'), metavar='DIR', help='folder of the results'
    )
    args = parser.parse_args(argv)
    if args.repeats < 1:
        parser.error('--repeats must be at least 1')
    return args


def run_once(command: list[str]) -> tuple[float, float]:
    """Return wall and CPU seconds of a command that must succeed."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    errors = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f'{command[1:]} failed: {errors.decode()[-300:]}')
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime


def run(args: argparse.Namespace) -> None:
    """Measure, print, write."""
    import mmseg
    from parts.about import machine

    from cb_mm.apis.benchmark_report import Times
    from cb_mm.fileio.atomic import write_atomically

    peer = Path(mmseg.__file__).parent / '.mim' / 'tools' / 'test.py'
    commands = {f'tools/{file.name} --help': [str(file), '--help'] for file in TOOLS.glob('*.py')}
    commands = dict(sorted(commands.items()))
    commands['import torch'] = ['-c', 'import torch']
    commands['import cb_mm'] = ['-c', 'import cb_mm']
    commands['import mmseg.models'] = ['-c', 'import cb_mm, mmseg.models']
    if peer.is_file():
        commands["mmseg's tools/test.py --help"] = [str(peer), '--help']
    times = {name: Times() for name in commands}
    for turn in range(-1, args.repeats):
        for name, words in commands.items():
            wall, cpu = run_once([sys.executable, *words])
            if turn >= 0:
                times[name].wall.append(wall)
                times[name].cpu.append(cpu)
    rows = {name: found.summary() for name, found in times.items()}
    print('| command | CPU s, median | wall s, median | fastest |\n|---|---|---|---|')
    for name, row in rows.items():
        print(
            f'| {name} | {row["cpu_median_s"]:.2f} | {row["median_s"]:.2f} '
            f'| {row["fastest_s"]:.2f} |'
        )
    report = {'machine': machine(), 'repeats': args.repeats, 'rows': rows}
    write_atomically(Path(args.out) / 'start_up.json', json.dumps(report, indent=1) + '\n')


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 0 on success, 2 on a user error."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args))


if __name__ == '__main__':
    sys.exit(main())
