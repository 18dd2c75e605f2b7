"""--safe-config under attack, in a process of its own: nothing runs, is deleted, hangs or dies."""

from __future__ import annotations

import json
from pathlib import Path

import forked
import hostile_configs
import pytest

pytestmark = pytest.mark.slow
JOB = 'import hostile_config_job; hostile_config_job.main()'
GENERATED = hostile_configs.generated(seed=20, number=200)
CASES = {
    **hostile_configs.KNOWN, **hostile_configs.BOMBS, **hostile_configs.OPTIONS, **GENERATED,
    **hostile_configs.ENDLESS,
}  # fmt: skip
#: Reading goes on to a file that is then refused, or the text is empty and harmless.
NOT_AT_ONCE = {
    **dict.fromkeys(
        (
            'images of the whole machine',
            'annotations at an address',
            'classes at an address',
            'annotations in a bucket',
            'pickles at an address',
        ),
        'refused later',
    ),
    'proposals': 'refused later',
    'config of a teacher': 'refused later',
    'compiler in a schedule': 'refused later',
    'form feeds': 'used',
}


def run(cases: dict[str, str], folder: Path, *options: str) -> dict[str, dict]:
    """Give configs to one child process; return what came of each, by name."""
    (folder / 'cases.json').write_text(json.dumps(cases))
    files = [folder / 'cases.json', folder / 'work', folder / 'results.jsonl']
    done = forked.run('-c', JOB, *files, *options, cwd=folder, seconds=590)
    lines = files[2].read_text().splitlines() if files[2].exists() else []
    results = {result['name']: result for result in map(json.loads, lines)}
    missing = [name for name in cases if name not in results]
    assert done.code == 0, (done.code, missing[:1], done.err[-1000:])
    assert not missing
    return results


@pytest.fixture(scope='module')
def results(tmp_path_factory):
    return run(CASES, tmp_path_factory.mktemp('hostile'), '--safe')


def test_the_known_attacks_work_without_the_option(tmp_path):
    """Otherwise the tests below would show nothing."""
    found = run(hostile_configs.KNOWN, tmp_path)
    assert [name for name, result in found.items() if not result['pwned']] == []


def test_none_of_them_runs_or_deletes(results):
    assert len(CASES) - len(hostile_configs.KNOWN) >= 300
    assert [name for name, result in results.items() if result['pwned']] == []
    assert [name for name, result in results.items() if result['deleted']] == []


def test_each_is_refused_with_one_message(results):
    other = {n: r['outcome'] for n, r in results.items() if r['outcome'] != 'refused'}
    assert other == NOT_AT_ONCE


def test_none_takes_a_gibibyte(results):
    """More than what importing mmseg and mmdet takes; none has met the alarm of 20 seconds."""
    assert max(result['gib'] for result in results.values()) < 1
