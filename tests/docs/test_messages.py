"""Every message about a fault, from a run that meets it: as the docs show it, and no traceback."""

from __future__ import annotations

import importlib.util
import re

import fault_cases
import pytest
from tool import REPO

pytestmark = pytest.mark.slow  # some fifty runs of the tools
CASES = [
    pytest.param(case, id=f'{group}: {case.title}')
    for group, cases in fault_cases.CASES.items()
    for case in cases
]
#: Other families and libraries put some reasons in other words.
LOOSE = re.compile(r'\(.*?\)|it has \d+ tensors|archive/data/\d+')


@pytest.fixture(scope='module')
def trained(tmp_path_factory, scenes):
    return fault_cases.train_both(tmp_path_factory.mktemp('trained') / 'x', scenes.ade20k.parent)


@pytest.fixture(scope='module')
def page() -> str:
    return LOOSE.sub('', (REPO / 'docs' / 'messages.md').read_text())


@pytest.mark.parametrize('case', CASES)
def test_message(case, trained, scenes, page, tmp_path):
    folder = fault_cases.prepare(tmp_path / 'run', scenes.ade20k.parent, trained)
    done = fault_cases.run(case, folder)
    assert done.code == 2, done.err
    assert 'Traceback' not in done.err
    assert not (folder / 'PWNED').exists()
    spec = importlib.util.spec_from_file_location('messages', REPO / 'benchmarks' / 'messages.py')
    messages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(messages)
    shown = LOOSE.sub('', messages.entry(case, fault_cases.message(done, folder)))
    assert shown in page, f'docs/messages.md is out of date: run benchmarks/messages.py\n{shown}'
