"""Whole jobs: training and testing on real images, from disk to checkpoint and table.

UperNet ViT-S on CamVid against mmseg's tools, Mask R-CNN ViT-Ti on a part of COCO against mmdet's.

Three ways do the same on the same data, each in processes of its own, as a user starts them:
  cb_mm                        tools/train.py and tools/test.py, with all guards and replay
  our model in the host's tool the same model, mmengine's own hooks and sampler: what is left of the
                               time without guards and replay
  the host                     mmseg's ViT, MultiLevelNeck and heads, or mmdet with timm's ViT, in
                               the tools of mmseg or mmdet
Steady state is the median time of an iteration without the first two, from mmengine's log, or
between two images that the evaluator gets; everything else is start-up and end. Ways take turns.
A call adds rounds to those in the results file, so that no call has to be long; with another
setting, machine or version, use another --out.

Examples:
  python benchmarks/whole_jobs.py --camvid ../shared/data/camvid
  python benchmarks/whole_jobs.py --workers 0 1 2 --rounds 3
  python benchmarks/whole_jobs.py --task detection --side 320

Writes whole_jobs_TASK.json and .md.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from parts.options import BESIDE

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parent / 'tools'
SKIPPED = 2  # iterations that fill caches
JOBS = ('train', 'test')
HOSTS = {'segmentation': 'mmseg', 'detection': 'mmdet'}
# mmdet's tools import mmdet before their config, which does not work without mmcv's compiled ops
# or cb_mm's stand-in for them.
WITH_OPS = """
import runpy, sys
import cb_mm
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name='__main__')
"""


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument('--camvid', type=Path, default=BESIDE / 'data/camvid', metavar='DIR')
    parser.add_argument('--coco', type=Path, default=BESIDE / 'data/coco_mini', metavar='DIR')
    parser.add_argument('--task', choices=HOSTS, default='segmentation')
    parser.add_argument('--rounds', type=int, default=1, metavar='N', help='rounds to add (1)')
    parser.add_argument(
        '--side', type=int, default=256, metavar='N',
        help='of the crops of CamVid; short side of the images of COCO (256)',
    )  # fmt: skip
    parser.add_argument(
        '--iterations', type=int, default=8, metavar='N', help='iterations of training (8)'
    )
    parser.add_argument('--images', type=int, default=10, metavar='N', help='images tested (10)')
    parser.add_argument(
        '--workers', type=int, nargs='+', default=[0], metavar='N', help='loading processes (0)'
    )
    parser.add_argument(
        '--out', default=str(HERE / 'results'), metavar='DIR', help='folder of the results'
    )
    args = parser.parse_args(argv)
    if min(args.rounds, args.images - SKIPPED, args.iterations - SKIPPED) < 1:
        parser.error(f'--iterations and --images must be above {SKIPPED}, --rounds above 0')
    return args


def measure(command: list[str], folder: Path, kind: str) -> dict[str, float]:
    """Run a tool; return its wall and processor seconds, and those of one iteration."""
    path = os.pathsep.join([str(HERE), *os.environ.get('PYTHONPATH', '').split(os.pathsep)])
    env = {**os.environ, 'OMP_NUM_THREADS': '1', 'PYTHONPATH': path}
    log = folder / f'{kind}.log'
    start = time.perf_counter()
    with log.open('wb') as stream:
        child = subprocess.Popen(command, env=env, cwd=folder, stdout=stream, stderr=stream)
        _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - start
    text = log.read_text(errors='replace')
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f'{command[1:]} failed: {text[-2000:]}')
    steps = step_times(text, folder, kind)
    return {
        'wall_s': wall,
        'cpu_s': usage.ru_utime + usage.ru_stime,
        'step_s': statistics.median(steps[SKIPPED:]),
        'steps': len(steps),
    }


def step_times(log: str, folder: Path, kind: str) -> list[float]:
    """Return the seconds of every iteration: of mmengine's log, or between evaluated images."""
    if kind == 'train':
        return [float(seconds) for seconds in re.findall(r'\(train\).*? time: ([\d.]+)', log)]
    stamps = [float(line) for line in (folder / 'test_times.txt').read_text().split()]
    return [after - before for before, after in itertools.pairwise(stamps)]


def one_round(args: argparse.Namespace, turn: int) -> list[dict[str, Any]]:
    """Run every job of every way once; return one record for each."""
    from parts.whole_job_configs import BARE, OURS, PEER, write_config, write_detection_config

    detection = args.task == 'detection'
    write, data = (write_detection_config, args.coco) if detection else (write_config, args.camvid)
    host = importlib.util.find_spec(HOSTS[args.task])
    upstream = Path(host.origin).parent / '.mim' / 'tools'
    arms = [OURS, BARE, PEER]
    arms = arms[turn % 3 :] + arms[: turn % 3]
    records = []
    for workers in args.workers:
        loader = dict(num_workers=workers, persistent_workers=workers > 0)
        words = ['--cfg-options', *(
            f'{part}_dataloader.{key}={value}' for part in JOBS for key, value in loader.items()
        )]  # fmt: skip
        for arm in arms:
            tools = TOOLS if arm == OURS else upstream
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                config = write(
                    arm, folder / 'config.py', data, args.side, args.iterations, args.images
                )
                out = '--out' if arm == OURS else '--work-dir'
                checkpoint = folder / 'run' / f'iter_{args.iterations}.pth'
                commands = {
                    'train': [tools / 'train.py', config, '--work-dir', folder / 'run'],
                    'test': [tools / 'test.py', config, checkpoint, out, folder / 'test'],
                }
                for job in JOBS:  # testing needs the checkpoint
                    start = ['-c', WITH_OPS] if detection and arm != OURS else []
                    command = [sys.executable, *start, *map(str, commands[job]), *words]
                    times = measure(command, folder, job)
                    records.append({'arm': arm, 'job': job, 'workers': workers, **times})
                    print(json.dumps(records[-1]), flush=True)
    return records


def report(records: list[dict[str, Any]], args: argparse.Namespace) -> str:
    """Return the table: medians over rounds, and ratios to the host's."""
    from parts.markdown import table
    from parts.whole_job_configs import BARE, OURS, PEER

    units = {'train': 2, 'test': 1}  # images in an iteration

    def median(key: str, **which: Any) -> float:
        chosen = [r for r in records if all(r[k] == v for k, v in which.items())]
        return statistics.median(r[key] for r in chosen)

    rows = []
    for job in JOBS:
        for workers in sorted({r['workers'] for r in records if r['job'] == job}):
            for arm in (OURS, BARE, PEER):
                here = dict(job=job, workers=workers, arm=arm)
                there = {**here, 'arm': PEER}
                step, count = median('step_s', **here), median('steps', **here)
                rows.append([
                    job, workers, arm, f'{units[job] / step:.2f}',
                    f'{step / median("step_s", **there):.2f}',
                    f'{median("wall_s", **here) - step * count:.1f}',
                    f'{median("wall_s", **here):.1f}',
                    f'{median("cpu_s", **here):.1f}',
                    f'{median("cpu_s", **here) / median("cpu_s", **there):.2f}',
                ])  # fmt: skip
    head = ['job', 'workers', 'way', 'images/s', 'step / host', 'start and end, s', 'wall s',
            'CPU s', 'CPU / host']  # fmt: skip
    return table(head, [[str(cell) for cell in row] for row in rows])


def run(args: argparse.Namespace) -> None:
    """Measure, print, write."""
    from parts.about import machine

    from cb_mm.errors import UserError
    from cb_mm.fileio.atomic import write_atomically

    file = Path(args.out) / f'whole_jobs_{args.task}.json'
    settings = {key: getattr(args, key) for key in ('side', 'iterations', 'images')}
    rounds: list[list[dict[str, Any]]] = []
    if file.is_file():
        before = json.loads(file.read_text())
        for key, now in (('settings', settings), ('machine', machine())):
            if before[key] != now:
                raise UserError(f'{file} was measured with {before[key]}. Pass another --out.')
        rounds = before['rounds']
    for _ in range(args.rounds):
        rounds.append(one_round(args, len(rounds)))
        whole = {'machine': machine(), 'settings': settings, 'rounds': rounds}
        write_atomically(file, json.dumps(whole, indent=1) + '\n')
        text = report([record for one in rounds for record in one], args)
        write_atomically(file.with_suffix('.md'), f'Rounds: {len(rounds)}.\n\n{text}\n')
        print(text)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 0 on success, 2 on a user error."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args))


if __name__ == '__main__':
    sys.exit(main())
