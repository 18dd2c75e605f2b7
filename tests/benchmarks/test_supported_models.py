"""benchmarks/supported_models.py: page and results agree, and two of the rows still work."""

from __future__ import annotations

import json
import runpy
import sys

import pytest
from tool import REPO

sys.path.insert(0, str(REPO / 'benchmarks'))
from parts.supported_models_page import write_page
from parts.upstream_models import MODELS
from parts.upstream_run import run_stages

RESULTS = json.loads((REPO / 'benchmarks' / 'results' / 'supported_models.json').read_text())


def test_the_page_is_that_of_the_results():
    page = (REPO / 'docs' / 'supported_models.md').read_text()
    assert page == write_page(RESULTS['runs'], RESULTS['settings']['software'])


@pytest.mark.parametrize('library', ['mmseg', 'mmdet'])
def test_enough_families_are_tested_and_trained(library):
    runs = [RESULTS['runs'].get(m.key, {}) for m in MODELS if m.library == library]
    assert sum(all(run.get(s, {}).get('works') for s in ('test', 'train')) for run in runs) >= 12


def test_every_row_without_a_mark_has_a_reason():
    for run in RESULTS['runs'].values():
        for result in run.values():
            assert result['works'] or len(result['reason']) > 10


def test_the_page_says_what_was_run():
    """No cell is empty, and each test was on the one image that the page speaks of."""
    for key, results in RESULTS['runs'].items():
        assert set(results) == {'test', 'train', 'cuda'}, key
        assert results['test'].get('images', 1) == 1, key


@pytest.mark.parametrize('name', ['mmseg/segformer/', 'mmdet/retinanet/'])
def test_a_row_still_works(name, scenes):
    (model,) = (model for model in MODELS if name in model.key)
    *_, found = run_stages(model, scenes.ade20k.parent, ('test', 'train', 'cuda'))
    assert {stage: result['works'] for stage, result in found.items()} == dict.fromkeys(
        ('test', 'train', 'cuda'), True
    ), found
    assert found['test']['cells'][0] == 'clean'
    assert len(found['test']['cells']) == 2
    assert found['test']['images'] == 1


def test_a_row_that_does_not_work_says_why(tmp_path, monkeypatch):
    import parts.upstream_run as module

    def fail(model, scenes):
        raise ValueError(f'{model.path} is strange\nmore about it')

    monkeypatch.setitem(module.STAGES, 'test', fail)
    (found,) = run_stages(MODELS[0], tmp_path, ['test'])
    why = f'ValueError: {MODELS[0].path.name} is strange'
    assert found == {'test': {'works': False, 'reason': why}}


def test_an_unknown_row_is_refused(tmp_path, capsys):
    main = runpy.run_path(str(REPO / 'benchmarks' / 'supported_models.py'))['main']
    assert main(['--only', 'no_such_model', '--out', str(tmp_path), '--work', str(tmp_path)]) == 2
    assert 'no config has this in its path' in capsys.readouterr().err
