"""The notebook runs from top to bottom; the Dockerfile installs as the Makefile does."""

from __future__ import annotations

import json
import re

import pytest
from tool import REPO

NOTEBOOK = REPO / 'examples' / 'tour.ipynb'
DOCKERFILE = (REPO / 'Dockerfile').read_text()


def test_the_notebook_has_no_outputs():
    for cell in json.loads(NOTEBOOK.read_text())['cells']:
        if cell['cell_type'] == 'code':
            assert (cell['outputs'], cell['execution_count']) == ([], None)


@pytest.mark.slow
def test_the_notebook_runs(tmp_path, monkeypatch, capsys):
    import matplotlib

    matplotlib.use('Agg')
    monkeypatch.chdir(tmp_path)
    names: dict = {'__name__': '__main__'}
    cells = json.loads(NOTEBOOK.read_text())['cells']
    code = [''.join(cell['source']) for cell in cells if cell['cell_type'] == 'code']
    small = {'pictures, size = 24': 'pictures, size = 4', 'iterations = 20': 'iterations = 2'}
    for text in code:
        for before, after in small.items():
            text = text.replace(before, after)
        exec(compile(text, NOTEBOOK.name, 'exec'), names)
    printed = capsys.readouterr().out
    assert 'iter_2.pth' in printed
    assert '| Gaussian noise σ=10' in printed
    assert '| training data | drawn scenes |' in printed
    assert (tmp_path / 'tour' / 'test' / 'report.html').is_file()
    assert len(list((tmp_path / 'tour' / 'predictions' / 'overlays').glob('*.png'))) == 2
    assert names['iterations'] == 2, 'the notebook was made small'
    assert names['pictures'] == 4


def installs(text: str) -> list[tuple[str, ...]]:
    """The words of every pip install that matter: without the interpreter and the extras."""
    text = text.replace('\\\n', ' ')
    found = re.findall(r'-m pip install (.*?)(?:&&|\n|$)', text)
    return [
        tuple(re.sub(r'\.\[.*\]', '.', word.strip('"')) for word in line.split()) for line in found
    ]


def test_the_container_installs_as_the_makefile_does():
    makefile = [words for words in installs((REPO / 'Makefile').read_text()) if 'pip' not in words]
    assert len(makefile) == 2
    assert installs(DOCKERFILE) == makefile
    for file in re.findall(r'--constraint (\S+)', DOCKERFILE):
        assert (REPO / file).is_file()
    extras = re.search(r'"\.\[([\w,]+)\]"', DOCKERFILE)[1].split(',')
    project = (REPO / 'pyproject.toml').read_text()
    assert all(re.search(rf'^{extra} = \[', project, re.M) for extra in extras)
    assert 'MMCV_WITH_OPS=0' in DOCKERFILE
    page = (REPO / 'docs' / 'sharing.md').read_text()
    for command in re.findall(r'^#   (docker .*)$', DOCKERFILE, re.M):
        assert f'    {command}\n' in page


def test_the_container_runs_a_command_that_exists():
    from cb_mm_cli.command import usage

    words = json.loads(re.search(r'^CMD (\[.*\])$', DOCKERFILE, re.M)[1])
    assert words == ['cb-mm', '--help']
    assert usage().startswith('usage: cb-mm')
    assert 'cb-mm = ' in (REPO / 'pyproject.toml').read_text()
