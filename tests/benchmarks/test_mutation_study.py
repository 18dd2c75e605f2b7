"""benchmarks/mutation.py: the faults it plants, and the tests it chooses against them."""

from __future__ import annotations

import json
import sys

import pytest
from tool import REPO

sys.path.insert(0, str(REPO / 'benchmarks'))
import mutation
from parts import mutants
from parts.forked_pytest import Test as Known

SOURCE = '''"""Text."""
__all__ = ['f']
LIMIT = 3


def f(a: int = 1, b=None):
    """More text."""
    if a == LIMIT and not b:
        raise ValueError(f'{a + 1}')
    b += a[1:]
    g(a, b, key=2.0, encoding='é')
    return {'x': a + 2, 'y': True}
'''


def test_every_kind_of_fault_is_found_and_nothing_that_is_only_read():
    found = mutants.find_mutants('m.py', SOURCE)
    changes = {(one.operator, one.before, one.after) for one in found}
    assert {
        ('constant', '3', '4'),
        ('constant', '1', '2'),
        ('constant', '2.0', repr(2.0 * 1.1)),
        ('constant', 'True', 'False'),
        ('comparison', 'a == LIMIT', '(a != LIMIT)'),
        ('and/or', 'a == LIMIT and not b', '(a == LIMIT or not b)'),
        ('negation', 'not b', '(b)'),
        ('dropped statement', "raise ValueError(f'{a + 1}')", 'pass'),
        ('dropped statement', 'b += a[1:]', 'pass'),
        ('slice', '1:', '1 + 1:'),
        ('swapped arguments', "g(a, b, key=2.0, encoding='é')", "(g(b, a, key=2.0, encoding='é'))"),
        ('dropped keyword', "g(a, b, key=2.0, encoding='é')", "(g(a, b, encoding='é'))"),
        ('arithmetic', 'a + 2', '(a - 2)'),
        ('dropped key', "{'x': a + 2, 'y': True}", "({'y': True})"),
        ('return None', "return {'x': a + 2, 'y': True}", 'return None'),
    } <= {
        (kind, before, after.replace('2.2000000000000002', '2.2'))
        for kind, before, after in changes
    }
    assert not any('text' in one.before.lower() and one.line in (1, 7) for one in found)
    assert {one.function for one in found} == {'', 'f'}
    for one in found:
        changed = one.apply(SOURCE.encode()).decode()
        assert changed != SOURCE
        assert mutants.compiles(one, SOURCE.encode())
        assert changed.count('\n') + one.before.count('\n') == SOURCE.count('\n') + one.after.count(
            '\n'
        )


def test_a_fault_is_refused_by_another_file():
    with pytest.raises(ValueError, match='not the file'):
        mutants.find_mutants('m.py', SOURCE)[0].apply(b'x' * 500)


def test_a_seed_draws_the_same_faults_and_one_for_a_line():
    found = mutants.find_mutants('m.py', SOURCE)
    drawn = mutants.sample(found, 6, '0 area')
    assert drawn == mutants.sample(found[::-1], 6, '0 area')
    assert drawn != mutants.sample(found, 6, '1 area')
    everything = mutants.sample(found, 1000, '0 area')
    assert len({one.line for one in everything}) == len(everything)


def test_near_and_cheap_tests_come_first_and_the_limit_holds():
    mutant = mutants.Mutant('cb_mm/m.py', 'f', 'constant', 0, '1', '2', 1)

    def known(name: str, cpu: float, entered: dict, slow: bool = False, outcome='passed') -> Known:
        return Known(name, outcome, slow, cpu, cpu, entered)

    near, far = {'cb_mm/m.py': ['f']}, {'cb_mm/m.py': ['g']}
    tests = [
        known('a.py::far', 1, far),
        known('a.py::slow', 12, near, slow=True),
        known('a.py::near', 3, near),
        known('b.py::near', 2, near),
        known('b.py::failing', 0, near, outcome='failed'),
        known('b.py::skipped', 0, near, outcome='skipped'),
        known('c.py::elsewhere', 0, {'cb_mm/n.py': ['f']}),
    ]
    chosen = [test.id for test in mutation.choose_tests(tests, mutant, 100)]
    assert chosen == ['b.py::near', 'a.py::near', 'a.py::slow', 'a.py::far']
    assert [test.id for test in mutation.choose_tests(tests, mutant, 5.5)] == chosen[:2]
    outside = mutants.Mutant('cb_mm/m.py', '', 'constant', 0, '1', '2', 1)
    assert [test.id for test in mutation.choose_tests(tests, outside, 100)] == [
        'b.py::near', 'a.py::far', 'a.py::near', 'a.py::slow',
    ]  # fmt: skip


def test_every_area_has_faults_that_compile():
    for area in mutation.AREAS:
        found = mutation.find_mutants(area)
        drawn = mutants.sample(found, 2, '0', mutation._compiles)
        assert len(found) > 30, area
        assert len(drawn) == 2
        half = set(found[::2])
        assert set(mutants.sample(found, 9, '0', half.__contains__)) <= half


def test_report_counts_and_keeps_the_reasons(tmp_path):
    rows = [
        {'key': f'k{number}', 'area': area, 'seed': 0, 'file': 'cb_mm/m.py', 'line': number,
         'operator': 'constant', 'before': '1', 'after': '2', 'verdict': verdict, 'by': ''}
        for number, (area, verdict) in enumerate(
            [('models', 'killed'), ('models', 'survived'), ('replay', 'killed')])
    ]  # fmt: skip
    (tmp_path / 'verdicts.jsonl').write_text('\n'.join(map(json.dumps, [rows[0], *rows])))
    words = ['report', '--work', str(tmp_path), '--out', str(tmp_path)]
    assert mutation.main(words) == 0
    content = json.loads((tmp_path / 'mutation.json').read_text())
    content['reasons']['k1'] = 'nothing depends on it'
    content['notes']['0'] = 'The first draw.'
    content['mutants'].append({**rows[0], 'key': 'k9', 'seed': 1})  # of another work folder
    (tmp_path / 'mutation.json').write_text(json.dumps(content))
    assert mutation.main(words) == 0
    text = (tmp_path / 'mutation.md').read_text()
    for line in (
        '| models | 2 | 1 | 1 | 50.0 % |',
        '| replay | 1 | 1 | 0 | 0.0 % |',
        '| all | 3 | 2 | 1 | 33.3 % |',
        '| `cb_mm/m.py:1` | constant | `1` → `2` | nothing depends on it |',
    ):
        assert line in text
    first, second = text.split('## Seed 0\n\nThe first draw.\n\n')[1].split('## Seed 1\n\n')
    assert '| all | 3 | 2 | 1 | 33.3 % |' in first
    assert '| all | 1 | 1 | 0 | 0.0 % |' in second
    assert 'why it survives' not in second
