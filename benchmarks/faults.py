"""Inject faults, many of each kind, and count how many a run survives.

Survived means: after a kill, the same command with --resume (for a sweep, unchanged) ends with
every weight, optimizer state, score and file as in an undisturbed run; after any other fault, there
is one message, exit code 2, earlier results are intact, and nothing runs that was not asked for.

Examples:
  python benchmarks/faults.py                       # about a quarter of an hour on one core
  python benchmarks/faults.py --only sweep          # repeat those of sweeps
  python benchmarks/faults.py --scale 0.1 --out /tmp

Writes faults.json and faults.md. --seed determines the moments of the kills.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPO = HERE.parent
sys.path[:0] = [str(REPO), str(REPO / 'tests')]

#: Checkpoint and validation after every second step, the last and the best kept.
OFTEN = (
    'default_hooks.checkpoint.max_keep_ckpts=1', 'default_hooks.checkpoint.save_best=mIoU',
    'train_cfg.val_interval=2', 'val_dataloader.dataset.indices=2',
)  # fmt: skip


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument('--only', default='', metavar='TEXT', help='only faults whose function '
        'name has this in it; the others keep their rows')  # fmt: skip
    parser.add_argument('--scale', type=float, default=1.0, help='share of the tries (1)')
    parser.add_argument('--seed', type=int, default=0, metavar='N', help='of the kill moments (0)')
    parser.add_argument('--out', default=str(HERE / 'results'), metavar='DIR', help='for results')
    return parser.parse_args(argv)


class Bench:
    """A folder for the runs, and the results of undisturbed ones."""

    def __init__(self, root: Path, seed: int, scale: float) -> None:
        import fault_cases

        from cb_mm.datasets import write_scenes

        self.root, self.random, self.scale = root, random.Random(seed), scale
        write_scenes(root / 'data', train=8, val=4, size=(64, 96))
        self.trained = fault_cases.train_both(root / 'trained', root / 'data')
        self.numbers = 0

    def folder(self) -> Path:
        """Make a new folder with configs, data and checkpoints."""
        import fault_cases

        self.numbers += 1
        return fault_cases.prepare(self.root / str(self.numbers), self.root / 'data', self.trained)

    def tries(self, number: int) -> int:
        """Scale a number of tries."""
        return max(1, round(number * self.scale))

    def spread(self, total: int, most: int) -> list[int]:
        """Pick at most ``most`` of the numbers 1 to total, evenly spread."""
        count = min(total, self.tries(most))
        return sorted({1 + i * (total - 1) // max(count - 1, 1) for i in range(count)})


# Kills.


def job(work: Path, *words: str, before: Callable | None = None) -> Any:
    """Run the small training of the tests."""
    import forked

    script = REPO / 'tests' / 'checkpoint_job.py'
    return forked.run(str(script), work, *words, cwd=work.parent, before=before)


@functools.cache
def job_end(root: Path) -> tuple[dict, list[str]]:
    """Run it undisturbed; return its end state and its file operations."""
    import forked
    from test_safe_checkpoints import end_of

    work, log = root / 'job' / 'work', root / 'job' / 'events'
    work.parent.mkdir()
    assert job(work, before=forked.KillAtEvent(work, 0, log)).code == 0
    return end_of(work), log.read_text().splitlines()


def killed_job(bench: Bench, fault: Callable[[Path], Any]) -> bool:
    """Kill it, resume it, and compare."""
    from test_safe_checkpoints import end_of

    work = bench.folder() / 'work'
    if job(work, before=fault(work)).code != -9:
        raise RuntimeError('it was not killed')
    whole = all_readable(work)
    done = job(work, 'resume')
    return whole and done.code == 0 and end_of(work) == job_end(bench.root)[0]


def all_readable(work: Path) -> bool:
    """Return whether every file that looks like a checkpoint is complete."""
    from cb_mm.checkpoints.read import read_checkpoint
    from cb_mm.errors import UserError

    try:
        for file in work.glob('*.pth'):
            read_checkpoint(file)
    except UserError:
        return False
    return True


def kills_at_file_operations(bench: Bench) -> Iterator[bool]:
    """Kill -9 before each file operation of a training run."""
    import forked

    for number in bench.spread(len(job_end(bench.root)[1]), 999):
        yield killed_job(bench, lambda work, n=number: forked.KillAtEvent(work, n))


def kills_within_writes(bench: Bench) -> Iterator[bool]:
    """Kill -9 in the middle of writing a checkpoint."""
    import forked

    events = job_end(bench.root)[1]
    writes = len([event for event in events if event.startswith('open .')]) - 1
    for number in bench.spread(writes, 999):
        for share in (0.001, 0.5, 0.999):
            yield killed_job(bench, lambda _, n=number, s=share: forked.KillWhileWriting(n, s))


def kills_in_training(bench: Bench) -> Iterator[bool]:
    """Kill -9 at random moments of training UperNet, with two loading processes."""
    from fault_cases import ADE

    options = (*OFTEN, 'train_dataloader.num_workers=2', 'val_dataloader.num_workers=0',
               'val_dataloader.persistent_workers=False')  # fmt: skip
    yield from random_kills(bench, 'train.py', (*ADE, '--cfg-options', *options), bench.tries(16))


def kills_in_detector_training(bench: Bench) -> Iterator[bool]:
    """Kill -9 at random moments of training Mask R-CNN."""
    from fault_cases import ALONE, COCO

    yield from random_kills(
        bench, 'train.py', (*COCO, '--cfg-options', *ALONE, 'train_cfg.max_epochs=3'),
        bench.tries(8),
    )  # fmt: skip


def kills_in_sweeps(bench: Bench) -> Iterator[bool]:
    """Kill -9 at random moments of a sweep over corruptions."""
    yield from random_kills(bench, 'test.py', sweep_words(), bench.tries(16))


def kills_at_sweep_operations(bench: Bench) -> Iterator[bool]:
    """Kill -9 before file operations of a sweep."""
    import forked

    folder = bench.folder()
    events = folder / 'events'
    listen = forked.KillAtEvent(folder / 'out', 0, events)
    done = forked.run('test.py', *sweep_words(folder), cwd=folder, before=listen)
    assert done.code == 0, done.err
    expected = end(folder)
    assert expected
    for number in bench.spread(len(events.read_text().splitlines()), 20):
        folder = bench.folder()
        kill = forked.KillAtEvent(folder / 'out', number)
        first = forked.run('test.py', *sweep_words(folder), cwd=folder, before=kill)
        again = forked.run('test.py', *sweep_words(folder), cwd=folder)
        yield first.code == -9 and again.code == 0 and end(folder) == expected


def sweep_words(folder: Path | None = None) -> tuple:
    """Return the arguments of a sweep of eight passes."""
    # The absolute path, where file operations below it are watched.
    out = folder / 'out' if folder else 'out'
    return ('small.py', 'segmentor.pth', '--data-root', 'data/ade20k', '--out', out, '--corruption',
            'gaussian_noise=5,20', 'gaussian_blur=2', '--repeats', '3', '--cfg-options',
            'test_dataloader.num_workers=0')  # fmt: skip


def random_kills(bench: Bench, tool: str, words: tuple, count: int) -> Iterator[bool]:
    """Kill a tool at a random moment of its run, resume it, and compare."""
    import forked

    folder = bench.folder()
    started = time.monotonic()
    done = forked.run(tool, *words, cwd=folder)
    seconds = time.monotonic() - started
    assert done.code == 0, done.err
    expected = end(folder)
    assert expected
    again = (words[0], '--resume', *words[1:]) if tool == 'train.py' else words
    tries = 0
    while tries < count:
        folder = bench.folder()
        run = forked.Forked(tool, *words, cwd=folder)
        time.sleep(bench.random.uniform(0.05, 0.95) * seconds)
        killed = not run.ended()
        run.kill()
        run.wait()
        if killed:
            tries += 1
            whole = all_readable(folder / 'work')
            done = forked.run(tool, *again, cwd=folder)
            yield whole and done.code == 0 and end(folder) == expected
        else:
            seconds *= 0.9  # the machine is faster now than it was
        shutil.rmtree(folder)


def end(folder: Path) -> dict:
    """Return everything that a run leaves and that must not depend on interruptions."""
    from test_safe_checkpoints import end_of

    found: dict = {}
    if (folder / 'work').is_dir():
        found['work'] = {
            name: content for name, content in end_of(folder / 'work').items() if name != '.lock'
        }
    out = folder / 'out'
    if out.is_dir():
        lines = (out / 'results.jsonl').read_text().splitlines()
        cells = [json.loads(line) for line in lines[1:]]
        found['cells'] = {c['key']: (c['metrics'], c['per_class']) for c in cells}
        for file in (*out.glob('scores/*'), out / 'results.csv', out / 'per_class.csv'):
            found[file.name] = file.read_text()
        found['files'] = sorted(file.name for file in out.iterdir())
    return found


# Disks.


def full_disk(bench: Bench) -> Iterator[bool]:
    """Fill the disk (limit file sizes) at each file that training writes, then free it."""
    import forked
    from test_safe_checkpoints import end_of

    events = job_end(bench.root)[1]
    writes = [event for event in events if event.startswith('open .')][1:]
    big = [number for number, event in enumerate(writes, 1) if '.pth' in event]
    for number in big[: bench.tries(len(big))]:
        work = bench.folder() / 'work'
        done = job(work, before=forked.FillDiskAt(number))
        told = done.code == 2 and 'cannot write' in done.err and 'Traceback' not in done.err
        whole = all_readable(work)
        yield (
            told
            and whole
            and job(work, 'resume').code == 0
            and (end_of(work) == job_end(bench.root)[0])
        )


@contextlib.contextmanager
def small_disk(folder: Path, options: str) -> Iterator[Path]:
    """Mount a small file system; raise PermissionError if that is not allowed."""
    folder.mkdir()
    done = subprocess.run(
        ['mount', '-t', 'tmpfs', '-o', options, 'none', str(folder)], capture_output=True
    )
    if done.returncode:
        raise PermissionError('mounting is not allowed here')
    try:
        yield folder
    finally:
        subprocess.run(['umount', '-l', str(folder)], check=False)


def full_file_system(bench: Bench) -> Iterator[bool]:
    """Use a file system of a few megabytes, in training and in a sweep."""
    import forked
    from fault_cases import ADE, ALONE

    for size in (1, 3, 5)[: bench.tries(3)]:
        folder = bench.folder()
        with small_disk(folder / 'disk', f'size={size}m') as disk:
            words = (*ADE[:-1], disk / 'work', '--cfg-options', *ALONE)
            done = forked.run('train.py', *words, cwd=folder)
            told = done.code == 2 and 'No space left on device' in done.err
            yield told and 'Traceback' not in done.err and all_readable(disk / 'work')
    for size in (12, 16, 24)[: bench.tries(3)]:
        folder = bench.folder()
        with small_disk(folder / 'out', f'size={size}k') as disk:
            done = forked.run('test.py', *sweep_words(), cwd=folder)
            yield done.code == 2 and 'No space left' in done.err and 'Traceback' not in done.err


def read_only(bench: Bench) -> Iterator[bool]:
    """Use a read-only folder, for training, a sweep and attention."""
    import forked
    from fault_cases import ADE, ALONE

    image = 'data/ade20k/images/validation/ADE_val_00000001.jpg'
    folder = bench.folder()
    with small_disk(folder / 'disk', 'ro') as disk:
        for tool, words in {
            'train.py': (*ADE[:-1], disk / 'work', '--cfg-options', *ALONE),
            'test.py': (*sweep_words()[:5], disk / 'out', *sweep_words()[6:]),
            'analyze_attention.py': ('small.py', 'segmentor.pth', image, '--out', disk / 'x'),
            'visualize_attention.py': ('small.py', 'segmentor.pth', image, '--out', disk / 'x'),
            'make_scenes.py': (disk / 'scenes',),
        }.items():
            done = forked.run(tool, *words, cwd=folder)
            told = done.code == 2 and 'cannot write' in done.err
            yield told and 'Traceback' not in done.err


# Files.


def messages(bench: Bench, group: str) -> Iterator[bool]:
    """Run the cases of docs/messages.md."""
    import fault_cases

    for case in fault_cases.CASES[group]:
        folder = bench.folder()
        done = fault_cases.run(case, folder)
        told = done.code == 2 and 'Traceback' not in done.err
        yield told and not (folder / 'PWNED').exists()


def broken_data(bench: Bench) -> Iterator[bool]:
    """Break images, labels, annotations and a loading process, in training and testing."""
    yield from messages(bench, 'Data')


def broken_losses(bench: Bench) -> Iterator[bool]:
    """Make the loss NaN or infinite."""
    yield from messages(bench, 'Loss')


def broken_checkpoints(bench: Bench) -> Iterator[bool]:
    """Load truncated, empty, foreign, non-finite or hostile checkpoints; use occupied folders."""
    yield from messages(bench, 'Checkpoints')


def broken_configs(bench: Bench) -> Iterator[bool]:
    """Load wrong configs, and programs under --safe-config."""
    yield from messages(bench, 'Configs')
    yield from messages(bench, '--safe-config')


def checked_data(bench: Bench) -> Iterator[bool]:
    """Damage ADE20K and COCO data; tools/check_data.py must find and name the fault."""
    import test_check_data as cases

    from cb_mm.datasets import check_ade20k, check_coco

    for name, faults, check in (
        ('ade20k', cases.ADE_FAULTS, check_ade20k),
        ('coco', cases.COCO_FAULTS, check_coco),
    ):
        for spoil, kind, *_ in faults.values():
            folder = bench.root / f'checked_{name}'
            shutil.copytree(bench.root / 'data' / name, folder)
            spoil(folder)
            yield kind in {problem.kind for problem in check(folder).problems}
            shutil.rmtree(folder)


def flipped(bench: Bench) -> Iterator[bool]:
    """Flip bits in a checkpoint: an error or the same weights, in bounded memory and time."""
    from test_checkpoint_damage import FLIPS

    count = bench.tries(10_000)
    words = [sys.executable, '-c', FLIPS, str(bench.root / 'flip.pth'), 'zip', str(count)]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, 'PYTHONPATH':
                          str(REPO)})  # fmt: skip
    tally = ast.literal_eval(done.stdout.strip().splitlines()[-1]) if done.returncode == 0 else {}
    for outcome in tally:
        for _ in range(tally[outcome]):
            yield outcome != 'other'
    for _ in range(count - sum(tally.values())):
        yield False


def gadgets(bench: Bench) -> Iterator[bool]:
    """Load pickles that would run code."""
    import torch
    from test_checkpoint_damage import GADGETS

    from cb_mm.checkpoints.read import read_checkpoint
    from cb_mm.errors import UserError

    for content in GADGETS.values():
        for archive in (True, False):
            file = bench.root / 'gadget.pth'
            torch.save({'x': content}, file, _use_new_zipfile_serialization=archive)
            try:
                read_checkpoint(file)
                yield False
            except UserError:
                yield not (bench.root / 'PWNED').exists()


FAULTS = [
    kills_at_file_operations, kills_within_writes, kills_in_training, kills_in_detector_training,
    kills_in_sweeps, kills_at_sweep_operations, full_disk, full_file_system, read_only, broken_data,
    broken_losses, broken_checkpoints, broken_configs, checked_data, flipped, gadgets,
]  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Inject the faults, print and write the table; return 1 if one was not survived."""
    args = parse(argv)
    from parts.about import machine

    from cb_mm.fileio.atomic import write_atomically

    rows = []
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        bench = Bench(Path(name), args.seed, args.scale)
        for fault in FAULTS:
            if args.only and args.only not in fault.__name__:
                continue
            started = time.monotonic()
            try:
                outcomes = list(fault(bench))
            except PermissionError as error:
                print(f'left out: {fault.__doc__} ({error})', flush=True)
                continue
            row = {
                'fault': fault.__doc__.rstrip('.'),
                'tries': len(outcomes),
                'survived': sum(outcomes),
                'seconds': round(time.monotonic() - started, 1),
            }
            rows.append(row)
            print(f'{row["survived"]:>6,} of {row["tries"]:>6,}  {row["fault"]}', flush=True)
    file = Path(args.out) / 'faults.json'
    if args.only and file.exists():  # the rows of all others stay
        new = {row['fault']: row for row in rows}
        rows = [new.pop(row['fault'], row) for row in json.loads(file.read_text())['rows']]
        rows += new.values()
    table = ['| fault | tries | survived |', '|---|---:|---:|']
    table += [f'| {r["fault"]} | {r["tries"]:,} | {r["survived"]:,} |' for r in rows]
    tries, survived = (sum(row[key] for row in rows) for key in ('tries', 'survived'))
    table.append(f'| **all** | {tries:,} | {survived:,} |')
    print('\n'.join(table))
    about = {'seed': args.seed, 'scale': args.scale, 'machine': machine(), 'rows': rows}
    write_atomically(file, json.dumps(about, indent=2) + '\n')
    write_atomically(file.with_suffix('.md'), '\n'.join(table) + '\n')
    return 0 if survived == tries else 1


if __name__ == '__main__':
    sys.exit(main())
