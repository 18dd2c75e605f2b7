"""The documentation: links resolve, and the complete examples run."""

from __future__ import annotations

import re
import textwrap

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from tool import REPO

PAGES = sorted([*REPO.glob('*.md'), *(REPO / 'docs').glob('*.md')])


def test_pages_are_found():
    assert {'README.md', 'training.md', 'backbone.md'} <= {page.name for page in PAGES}


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_links_and_pictures_resolve(page):
    text = page.read_text()
    links = re.findall(r'\]\(([^)#]+)(?:#[^)]*)?\)', text) + re.findall(r'src="([^"]+)"', text)
    for link in links:
        if not link.startswith(('http://', 'https://')):
            assert (page.parent / link).exists(), link


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_named_files_exist(page):
    """Every tool, config and benchmark that a page names in a command."""
    for name in re.findall(r'(?:tools|benchmarks|configs)/\w+\.(?:py|sh)\b', page.read_text()):
        assert (REPO / name).exists(), name


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf'```{language}\n(.*?)```', (REPO / page).read_text(), re.S)


@pytest.mark.parametrize(('number', 'scope'), [(0, 'mmseg'), (1, 'mmdet')])
def test_example_configs_build(number, scope, tmp_path):
    file = tmp_path / 'config.py'
    file.write_text(blocks('docs/backbone.md', 'python')[number])
    config = Config.fromfile(file)
    init_default_scope(scope)
    model = MODELS.build(config.model)
    maps = model.backbone(torch.randn(1, 3, 64, 64))
    assert [tuple(m.shape[-2:]) for m in maps] == [(16, 16), (8, 8), (4, 4), (2, 2)]


def test_plain_python_example_runs():
    code = blocks('docs/backbone.md', 'python')[2]
    names: dict = {}
    exec(compile(textwrap.dedent(code), 'docs/backbone.md', 'exec'), names)
    assert [tuple(m.shape) for m in names['maps']] == [(1, 384, 16, 23)] * 2


def test_the_table_of_faults_is_the_stored_one():
    stored = (REPO / 'benchmarks' / 'results' / 'faults.md').read_text()
    assert stored in (REPO / 'docs' / 'benchmarks.md').read_text()
    assert '| **all** | ' in stored
