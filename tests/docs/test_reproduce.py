"""docs/reproduce.md: a row for everything in the papers, and commands whose models build."""

from __future__ import annotations

import functools
import importlib.util
import json
import re

import pages
import pytest
from tool import REPO

PAGE = REPO / 'docs' / 'reproduce.md'
TEXT = PAGE.read_text()
SPEC = importlib.util.spec_from_file_location('counts', REPO / 'benchmarks/parameter_counts.py')
counts = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(counts)

ITEMS = [
    *(f'Table {n}' for n in range(1, 12)),
    *(f'Table S{n}' for n in range(12, 18)),
    *(f'Figure {n}' for n in range(1, 11)),
    *('Figure S11', 'Figure S12', 'Sparse Table 1', 'Sparse Table 2', 'Sparse Table 3'),
    'Sparse Figure 1',
]
#: Drawings, and pictures of other papers.
WITHOUT = {'Figure 1', 'Figure 2', 'Figure 6', 'Figure S12'}
COMMANDS = [command.words for command in pages.block_commands(PAGE)]
CONFIGS = sorted({word for words in COMMANDS for word in words if word.startswith('configs/')})
#: One step of these; the larger ones differ from them in width alone.
STEPS = [
    name for name in CONFIGS if re.search(r'/(imagenet_vit|distilled_vit)_ti|tiny(_\w)*\.py', name)
]


def section(item: str) -> str:
    found = re.search(rf'^## {re.escape(item)}\n(.*?)(?=^## |\Z)', TEXT, re.M | re.S)
    return found[1] if found else ''


def test_everything_has_one_row():
    rows = re.findall(
        r'^\| ((?:Sparse )?(?:Table|Figure) S?\d+) \| .* \| (.*?) \| .* \| .* \|$',
        TEXT.partition('## Parameters')[0],
        re.M,
    )
    assert [item for item, _ in rows] == ITEMS
    for item, link in rows:
        if item in WITHOUT:
            assert link == 'none: a picture'
        else:
            assert link == f'[commands](#{item.lower().replace(" ", "-")})'
            assert re.search(r'^python ', section(item), re.M), item
    assert len(COMMANDS) > 80


@pytest.mark.parametrize('config', CONFIGS)
def test_configs_build(config):
    """Without memory for their weights."""
    if 'vqa' in config:
        pytest.importorskip('transformers')
    elif 'upernet' not in config and 'mask_rcnn' not in config:
        pytest.importorskip('mmpretrain')
    assert parameters(config) > 1e6


@functools.cache
def parameters(config: str) -> int:
    # mmdet's PVT computes with its weights while it is built.
    return counts.count(config, device='cpu' if 'pvt_s' in config else 'meta')


def test_parameter_counts_are_stored_and_shown():
    records = json.loads((counts.RESULTS / 'parameter_counts.json').read_text())
    stored = [
        (r['table'], r['model'], r['paper'], r['config'], tuple(r['options'])) for r in records
    ]
    assert stored == counts.rows()
    assert counts.table(records) == (counts.RESULTS / 'parameter_counts.md').read_text()
    assert counts.table(records) in TEXT
    for record in records:
        if 'tiny' not in record['config']:  # whose image size is open
            assert record['parameters'] / 1e6 == pytest.approx(record['paper'], rel=0.04)
    again = [r for r in records if r['config'].endswith(('vit_ti_cb_s.py', 'bbvit_tiny.py'))]
    assert len(again) == 4
    for record in again:
        assert parameters(record['config']) == record['parameters']


def test_steps_are_found():
    assert len(STEPS) > 10


@pytest.mark.slow
@pytest.mark.parametrize('config', [name for name in STEPS if 'distill' not in name])
def test_classifiers_make_a_step(config):
    """Those that are distilled are trained in test_distillation.py."""
    pytest.importorskip('mmpretrain')
    from one_step import one_step

    size = 80 if 'imagenette' in config else 32
    _, loss = one_step(REPO / config, [f'model.backbone.img_size={size}'], size)
    assert 0 < loss < 100
