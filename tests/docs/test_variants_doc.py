"""docs/variants.md: its examples run, its table is the measured one, the patterns are drawn."""

from __future__ import annotations

import json
import re
import runpy

import cv2
import pytest
import torch
from mmengine.registry import MODELS, DefaultScope
from tool import REPO, main_of

from cb_mm.config.loading import load_config, replace_sync_bn
from cb_mm.models import TimmCB

PAGE = (REPO / 'docs' / 'variants.md').read_text()
EXAMPLES = re.findall(r'```python\n(.*?)```', PAGE, re.S)


def test_config_example_builds(tmp_path):
    file = tmp_path / 'mixer.py'
    file.write_text(EXAMPLES[0].replace("'../configs", f"'{REPO / 'configs'}"))
    config = load_config(file)
    replace_sync_bn(config)
    with DefaultScope.overwrite_default_scope('mmseg'):
        model = MODELS.build(config.model)
    assert isinstance(model.backbone, TimmCB)
    assert list(model.backbone.out_channels) == config.model.decode_head.in_channels
    assert model.backbone.fixed_size == tuple(config.model.test_cfg.crop_size) == (512, 512)


@pytest.mark.parametrize('number', [1, 2, 3])
def test_python_examples_run(number):
    if 'transformers' in EXAMPLES[number]:
        pytest.importorskip('transformers')
    names: dict = {}
    exec(compile(EXAMPLES[number], 'docs/variants.md', 'exec'), names)
    if 'answer' in names:
        assert names['answer'].shape == (1, 3129)
        assert len(names['added'].names) == 4
    if 'pvt_small' in names:
        assert names['pvt_small'](torch.randn(1, 3, 64, 64))[3].shape == (1, 512, 2, 2)


def test_table_is_that_of_the_benchmark():
    results = REPO / 'benchmarks' / 'results'
    assert (results / 'variants.md').read_text() in PAGE
    rows = json.loads((results / 'variants.json').read_text())['rows']
    assert len(rows) == 20
    for row in rows:
        if row['paper_parameters_m'] is not None:
            digits = 1 if isinstance(row['paper_parameters_m'], float) else 0
            assert round(row['parameters'] / 1e6, digits) == row['paper_parameters_m']
        if row['paper_gflops'] is not None:
            assert row['multiplications'] / 1e9 == pytest.approx(row['paper_gflops'], abs=0.05)


def test_strides_and_channels_of_the_page():
    pit = TimmCB('pit_b_224')
    cells = (', '.join(map(str, numbers)) for numbers in (pit.out_channels, pit.out_strides))
    assert f'| PiT-B | {" | ".join(cells)} |' in PAGE


def test_growth_benchmark_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(REPO / 'benchmarks')
    main = runpy.run_path(str(REPO / 'benchmarks' / 'sparse_attention.py'))['main']
    words = ['--sides', '6', '12', '--repeats', '1', '--fit-from', '1', '--out', str(tmp_path)]
    assert main(words) == 0
    content = json.loads((tmp_path / 'sparse_attention.json').read_text())
    assert {'dense, fused', 'dense, plain', 'sparse W', 'sparse R+W+G'} == set(content['forward'])
    slopes = content['forward']['dense, plain']['exponent']
    assert slopes['multiplications'] == pytest.approx(2, abs=0.05)
    assert '| tokens | 37 | 145 | exponent |' in capsys.readouterr().out
    assert cv2.imread(str(tmp_path / 'sparse_attention.png')) is not None


def test_draws_patterns(tmp_path):
    out = tmp_path / 'p.png'
    words = ['R', 'W+G', '--grid', '9', '13', '--block', '3', '--seed', '2', '--out', str(out)]
    assert main_of('draw_patterns.py')(words) == 0
    picture = cv2.imread(str(out))
    assert picture is not None
    colours = {tuple(int(c) for c in colour) for colour in picture.reshape(-1, 3)}
    assert {(178, 114, 0), (0, 94, 213)} <= colours  # blue and orange, in OpenCV's order


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        (['X'], "attention='X' is not one of"),
        (['W', '--window', '4'], 'window=4 is not odd'),
        (['--out', 'p.gif'], '--out must end with'),
        (['--grid', '0', '3'], '--grid is at least'),
    ],
)
def test_wrong_options_of_the_tool(words, message, capsys):
    try:
        code = main_of('draw_patterns.py')(words)
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert message in capsys.readouterr().err
