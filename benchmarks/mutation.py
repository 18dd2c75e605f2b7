"""Plant small faults in cb_mm, one at a time, and see whether the tests notice.

A fault (a mutant) is killed when a test fails, or never ends, with it; one that survives shows a
test that is missing, or changes nothing. Faults are drawn from --seed, the same number for each
area of the package, and put into a copy of the repository.

Examples:
  python benchmarks/mutation.py survey              # which test enters which function: once
  python benchmarks/mutation.py run --count 25      # faults per area; resumes where it stopped
  python benchmarks/mutation.py run --again         # those that survived, with the tests of now
  python benchmarks/mutation.py check               # do the tests that killed pass without?
  python benchmarks/mutation.py report              # mutation.json, mutation.md

The tests that enter the function with the fault run first, cheapest first, then the others of
their files, until their expected time exceeds --limit.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from pathlib import Path

from parts import forked_pytest, mutants
from parts.forked_pytest import Test

HERE = Path(__file__).resolve().parent
REPO = HERE.parent

#: The files of each area, as patterns below cb_mm.
AREAS = {
    'models': ('models/**/*.py',),
    'corruption': ('corruption/**/*.py',),
    'robustness': ('robustness/**/*.py',),
    'checkpoint': (
        'checkpoints/**/*.py', 'engine/hooks/checkpoint.py', 'engine/hooks/provenance.py',
        'engine/resume.py', 'fileio/atomic.py', 'fileio/folder_lock.py',
    ),
    'replay': ('**/replay*.py',),
    'attention': ('attention/**/*.py',),
}  # fmt: skip
_ENDLESS = 'never ends'
#: What a copy of the repository does without.
LEFT_OUT = ('.git', '.venv*', '__pycache__', 'work_dirs', '*.egg-info', '.ruff_cache')


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument('job', choices=('survey', 'run', 'check', 'report'))
    add = parser.add_argument
    add('--work', type=Path, default=Path('work_dirs/mutation'), metavar='DIR',
        help='the survey, the verdicts, the copies')  # fmt: skip
    add('--tests', nargs='*', default=[], metavar='FILE', help='survey only these test files')
    add('--quick', action='store_true', help='survey without the tests that are marked slow')
    add('--areas', nargs='*', choices=list(AREAS), default=list(AREAS), metavar='AREA',
        help=f'of {", ".join(AREAS)} (all)')  # fmt: skip
    add('--files', default='', metavar='TEXT', help='only files with this in their path')
    add('--count', type=int, default=25, metavar='N', help='mutants per area (25)')
    add('--seed', type=int, default=0, metavar='N', help='of the sampler (0)')
    add('--jobs', type=int, default=1, metavar='N', help='mutants at a time (1)')
    add('--limit', type=float, default=240, metavar='S', help='CPU seconds of tests (240)')
    add('--again', action='store_true', help='only those that survived so far')
    add('--out', type=Path, default=HERE / 'results', metavar='DIR', help='of the report')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run one of the jobs."""
    args = parse(argv)
    args.work = args.work.resolve()
    args.work.mkdir(parents=True, exist_ok=True)
    {'survey': survey, 'run': run, 'check': check, 'report': report}[args.job](args)
    return 0


def copy_tree(work: Path, number: int) -> Path:
    """Make a new copy of the repository, with the folder of real images beside it."""
    place = work / f'copy{number}'
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(REPO, place / 'tree', ignore=shutil.ignore_patterns(*LEFT_OUT))
    beside = REPO.parent / 'shared'
    if beside.is_dir():
        (place / 'shared').symlink_to(beside.resolve())
    return place / 'tree'


# ----- which test enters what


def survey(args: argparse.Namespace) -> None:
    """Run every test file once, unchanged; files that are in the survey already are left out."""
    out = args.work / 'survey.jsonl'
    known = {test.file for test in read_survey(args.work)}
    files = sorted((REPO / 'tests').rglob('test_*.py'))
    names = args.tests or [file.relative_to(REPO).as_posix() for file in files]
    todo = [name for name in names if args.tests or name not in known]
    tree = copy_tree(args.work, 0)
    forked_pytest.warm_up(tree)
    for name in todo:
        part = args.work / 'part.jsonl'
        part.unlink(missing_ok=True)
        log = args.work / 'survey.log'
        words = ['-m', 'not slow'] if args.quick else []
        plugin = forked_pytest.Survey(tree, part)
        code = forked_pytest.run(tree, [name], log, plugin, 3600, words)
        print(name, 'exit code', code, flush=True)
        if part.exists():
            others = [t for t in _lines(out) if not t['id'].startswith(f'{name}::')]
            text = '\n'.join(map(json.dumps, [*others, *_lines(part)])) + '\n'
            out.write_text(text)


def read_survey(work: Path) -> list[Test]:
    """Every test that is known and still there."""
    tests = [Test(**line) for line in _lines(work / 'survey.jsonl')]
    there = {name for name in {test.file for test in tests} if (REPO / name).exists()}
    return [test for test in tests if test.file in there]


def _lines(file: Path) -> list[dict]:
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines() if line]


def choose_tests(tests: list[Test], mutant: mutants.Mutant, limit: float) -> list[Test]:
    """Return the tests to run against a mutant, file by file, cheapest test first."""
    passed = [test for test in tests if test.outcome == 'passed']
    near = [test for test in passed if mutant.function in test.entered.get(mutant.file, ())]
    if not near:
        near = [test for test in passed if mutant.file in test.entered]
    files = {test.file for test in passed if mutant.file in test.entered}
    ids = {test.id for test in near}
    rest = [test for test in passed if test.file in files and test.id not in ids]
    chosen, total = [], 0.0
    for group in ([t for t in near if not t.slow], [t for t in near if t.slow], rest):
        kept = []
        for test in sorted(group, key=lambda one: one.cpu):
            if total + test.cpu <= limit:
                kept.append(test)
                total += test.cpu
        cost: dict[str, float] = {}
        for test in kept:
            cost[test.file] = cost.get(test.file, 0) + test.cpu
        chosen += sorted(kept, key=lambda one: (cost[one.file], one.file, one.cpu))
    return chosen


# ----- verdicts


def find_mutants(area: str, only: str = '') -> list[mutants.Mutant]:
    """Every mutant of an area."""
    found = {
        file.relative_to(REPO).as_posix(): file
        for pattern in AREAS[area]
        for file in (REPO / 'cb_mm').glob(pattern)
    }
    return [
        mutant
        for name, file in sorted(found.items())
        if only in name and file.name != '__init__.py'
        for mutant in _mutants_of(name)
    ]


def _mutants_of(name: str) -> list[mutants.Mutant]:
    file = REPO / name
    return mutants.find_mutants(name, file.read_text(encoding='utf-8')) if file.exists() else []


def run(args: argparse.Namespace) -> None:
    """Draw mutants and judge those that have no verdict yet."""
    verdicts = read_verdicts(args.work)
    todo = []
    if args.again:
        left = {key: row for key, row in verdicts.items() if row['verdict'] == 'survived'}
        files = sorted({row['file'] for row in left.values() if row['area'] in args.areas})
        found = {mutant.key: mutant for name in files for mutant in _mutants_of(name)}
        todo = [(left[key]['area'], mutant) for key, mutant in found.items() if key in left]
    for area in [] if args.again else args.areas:
        found = find_mutants(area, args.files)
        drawn = mutants.sample(found, args.count, f'{args.seed} {area}', _compiles)
        todo += [(area, mutant) for mutant in drawn if mutant.key not in verdicts]
    print(f'{len(todo)} mutants', flush=True)
    trees = [copy_tree(args.work, number) for number in range(1, args.jobs + 1)]
    tests = read_survey(args.work)
    forked_pytest.warm_up(trees[0])
    free, running = list(trees), {}
    while todo or running:
        if todo and free:
            (area, mutant), tree = todo.pop(0), free.pop()
            child = os.fork()
            if child == 0:
                _judge_and_exit(args, area, mutant, tree, tests)
            running[child] = tree
        else:
            child, _ = os.wait()
            free.append(running.pop(child))


def _compiles(mutant: mutants.Mutant) -> bool:
    return mutants.compiles(mutant, (REPO / mutant.file).read_bytes())


def _judge_and_exit(
    args: argparse.Namespace, area: str, mutant: mutants.Mutant, tree: Path, tests: list[Test]
) -> None:
    try:
        row = judge(mutant, tree, choose_tests(tests, mutant, args.limit))
        row = {'key': mutant.key, 'area': area, 'seed': args.seed, **vars(mutant), **row}
        with (args.work / 'verdicts.jsonl').open('a') as stream:
            stream.write(json.dumps(row) + '\n')
        print(f'{row["verdict"]:8} {row["seconds"]:6.1f} s  {mutant.key}  {row["by"]}', flush=True)
    finally:
        os._exit(0)


def judge(mutant: mutants.Mutant, tree: Path, tests: list[Test]) -> dict:
    """Put the fault into the tree, run the tests until one fails, and take it out again."""
    file, note = tree / mutant.file, tree.parent / 'failed.txt'
    source = file.read_bytes()
    note.unlink(missing_ok=True)
    begin = time.monotonic()
    names = list(dict.fromkeys(test.file for test in tests))
    expected = sum(test.wall for test in tests)
    try:
        file.write_bytes(mutant.apply(source))
        plugin = forked_pytest.Chosen(tree, [test.id for test in tests], note)
        log = tree.parent / 'pytest.log'
        # Twice as long as ever, and a busy machine's share: what ends no sooner hangs.
        code = forked_pytest.run(tree, names, log, plugin, 4 * expected + 120) if tests else 5
    finally:
        file.write_bytes(source)
    by = (
        note.read_text().splitlines()[0]
        if note.exists()
        else {-9: _ENDLESS, 5: 'no test'}.get(code, '')
    )
    verdict = 'survived' if code in (0, 5) else 'killed'
    if verdict == 'killed' and not by:
        by = f'exit code {code}'
    seconds = round(time.monotonic() - begin, 1)
    return {'verdict': verdict, 'by': by, 'tests': len(tests), 'seconds': seconds}


def check(args: argparse.Namespace) -> None:
    """Run every test that killed a mutant without one: where it fails, it proves nothing.

    Such a test is left out from then on, and its mutants count as survivors until --again. So does
    one that "never ends": a busy machine may only have been slow.
    """
    tree, note = copy_tree(args.work, 0), args.work / 'failed.txt'
    verdicts = read_verdicts(args.work)
    killers = sorted({row['by'] for row in verdicts.values() if '::' in row['by']})
    files = sorted({name.partition('::')[0] for name in killers})
    files = [name for name in files if (tree / name).exists()]
    note.unlink(missing_ok=True)
    forked_pytest.warm_up(tree)
    plugin = forked_pytest.Chosen(tree, killers, note, stop=False)
    code = forked_pytest.run(tree, files, args.work / 'check.log', plugin, 3600)
    failed = set(note.read_text().splitlines()) if note.exists() else set()
    print(f'{len(killers)} tests killed; without a mutant {len(failed)} fail (exit code {code})')
    lines = _lines(args.work / 'survey.jsonl')
    for line in lines:
        if line['id'] in failed:
            line['outcome'] = 'failed'
    (args.work / 'survey.jsonl').write_text('\n'.join(map(json.dumps, lines)) + '\n')
    with (args.work / 'verdicts.jsonl').open('a') as stream:
        for row in verdicts.values():
            if row['by'] in failed or row['by'].startswith(('exit code', _ENDLESS)):
                row = {**row, 'verdict': 'survived', 'by': 'to be judged again'}
                stream.write(json.dumps(row) + '\n')


def read_verdicts(work: Path) -> dict[str, dict]:
    """Return the last verdict of every mutant."""
    return {row['key']: row for row in _lines(work / 'verdicts.jsonl')}


# ----- report


def report(args: argparse.Namespace) -> None:
    """Write mutation.json and mutation.md, one table per seed.

    Notes (by seed) and reasons in the JSON file are kept from before, and so are other seeds.
    """
    out = args.out / 'mutation.json'
    known = json.loads(out.read_text()) if out.exists() else {}
    new = read_verdicts(args.work).values()
    drawn = {row['seed'] for row in new}
    rows = [row for row in known.get('mutants', []) if row['seed'] not in drawn] + list(new)
    rows.sort(key=lambda row: (row['seed'], row['area'], row['key']))
    notes = known.get('notes', {})
    reasons = {
        row['key']: known.get('reasons', {}).get(row['key'], '')
        for row in rows
        if row['verdict'] == 'survived'
    }
    content = {'notes': notes, 'reasons': reasons, 'mutants': rows}
    args.out.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(content, indent=1, ensure_ascii=False) + '\n')
    parts = [
        '# Mutants\n\nSmall faults planted one at a time by `benchmarks/mutation.py`; killed means '
        'that a test fails with it.'
    ]
    for seed in sorted({row['seed'] for row in rows}):
        parts.append(f'## Seed {seed}')
        parts += [notes[str(seed)]] if str(seed) in notes else []
        parts += _tables([row for row in rows if row['seed'] == seed], reasons)
    (args.out / 'mutation.md').write_text('\n\n'.join(parts) + '\n')


def _tables(rows: list[dict], reasons: dict[str, str]) -> list[str]:
    """Return the counts by area, and the survivors with their reasons."""
    from parts.markdown import table

    counts = []
    for area in (*dict.fromkeys(row['area'] for row in rows), 'all'):
        mine = [row for row in rows if area in (row['area'], 'all')]
        lost = sum(row['verdict'] == 'survived' for row in mine)
        share = f'{100 * lost / max(len(mine), 1):.1f} %'
        counts.append([area, str(len(mine)), str(len(mine) - lost), str(lost), share])
    survivors = [
        [f'`{row["file"]}:{row["line"]}`', row['operator'], _code(row), reasons[row['key']]]
        for row in rows
        if row['verdict'] == 'survived'
    ]
    found = [table(['area', 'mutants', 'killed', 'survived', 'share'], counts)]
    if survivors:
        found.append(table(['survivor', 'kind', 'fault', 'why it survives'], survivors))
    return found


def _code(row: dict) -> str:
    before, after = (' '.join(row[side].split())[:80] for side in ('before', 'after'))
    return f'`{before}` → `{after}`'.replace('|', '\\|')


if __name__ == '__main__':
    raise SystemExit(main())
