"""Names from files and configs stand as they are in tables, figures and spreadsheets."""

from __future__ import annotations

import csv
import io
import re

import numpy as np
import pytest
from written_records import table9

from cb_mm.attention.figures import entropy_figure, save
from cb_mm.attention.map_figures import grid_figure, heads_figure
from cb_mm.attention.maps import LayerMaps, parse_query
from cb_mm.attention.summary import ModelSummary
from cb_mm.attention.tokens import Tokens
from cb_mm.fileio.safe_text import (
    csv_text,
    figure_text,
    markdown_code,
    markdown_text,
    one_line,
    readable,
)
from cb_mm.robustness.report import write_report
from cb_mm.robustness.results_file import read_compared

#: What a file, and so a model, may be called.
NAMES = ['$x^$', '$\\frac$', 'a$b', '\\$', '_hidden', 'a|b', '`code`', '**bold**', '<b>', '=1+1',
         '@SUM(A1)', '-2+3', 'two\nlines', 'tab\t', 'caf\udce9', 'x' * 200, '[a](b)', '&lt;',
         '{{data}}', '\x1b[31m']  # fmt: skip


def test_markdown_cells():
    assert markdown_text('a|b') == 'a\\|b'
    assert markdown_text('`a`\n| --- |') == '\\`a\\` \\| --- \\|'
    assert markdown_text('<img src=x>&') == '&lt;img src=x>&amp;'
    assert markdown_text('-1.50 ± 0.20') == '-1.50 ± 0.20'
    assert markdown_text('upernet_vit_s (160k), a_0.pth') == 'upernet_vit_s (160k), a_0.pth'
    assert markdown_text('_a_ __b c__d $x$ ~~e~~') == (r'\_a\_ \_\_b c__d \$x\$ \~\~e\~\~')
    assert markdown_code('a`b') == '``a`b``'
    assert markdown_code('`') == '`` ` ``'
    assert markdown_code('plain.pth') == '`plain.pth`'


def test_csv_formulas():
    cells = ['=1+1', '+1+1', '-1-1', '@A1', '\t=1', ' =1', '＝1', '-', '-1.5', '+2', '-1e-05', -1.5,
             None, 'a=b', 'plain, "quoted"', 'caf\udce9']  # fmt: skip
    (row,) = csv.reader(io.StringIO(csv_text([cells]), newline=''))
    assert row == ["'=1+1", "'+1+1", "'-1-1", "'@A1", "'\t=1", "' =1", "'＝1", "'-", '-1.5', '+2',
                   '-1e-05', '-1.5', '', 'a=b', 'plain, "quoted"', 'caf\\udce9']  # fmt: skip


def test_readable_text_can_be_written_and_is_told_apart():
    assert readable('naïve ✓') == 'naïve ✓'
    assert len({readable(name) for name in NAMES}) == len(NAMES)
    for name in NAMES:
        readable(name).encode()
        assert one_line(name).isprintable()


@pytest.mark.parametrize('name', NAMES, ids=ascii)
def test_reports_of_models_of_any_name(name, tmp_path):
    """Markdown stays a table, CSV has no formula, and the picture can be drawn."""
    header, rows = table9()
    cells = {'clean': rows[0], 'gaussian_blur=1': rows[-2]}
    header['identity']['cells'] = list(cells)
    header['about'] = {'config': f'{name}.py', 'checkpoint': f'{name}.pth', 'dataset': name}
    for row in cells.values():
        row['per_class'] = {'IoU': {name: 1.0}}
    other = tmp_path / 'other'
    write_report(other, header, list(cells.values()))
    compared = read_compared(other)
    compared['model'] = f'{name} 2'
    text = write_report(tmp_path / 'out', header, list(cells.values()), compared)
    tables = [line for line in text.splitlines() if line.startswith('|')]
    widths = {len(re.findall(r'(?<!\\)(?:\\\\)*\|', line)) for line in tables}
    assert widths == {7}, 'one row per line, and no column more'
    assert '<b>' not in re.sub('`[^`]*`', '', text), 'as code it is harmless'
    for file in ('results.csv', 'per_class.csv', 'comparison.csv'):
        with (tmp_path / 'out' / file).open(newline='', encoding='utf-8') as stream:
            cells_read = [cell for line in csv.reader(stream) for cell in line]
        assert not any(re.match(r'[=@\t\r]|[+-](?![\d.]+$)', cell) for cell in cells_read)
    assert (tmp_path / 'out' / 'robustness.png').stat().st_size > 1000


def test_attention_figures_of_models_of_any_name(tmp_path):
    tokens = Tokens(('cls',), (2, 2), (32, 32), (16, 16))
    maps = LayerMaps(0, 'blocks.0.attn', tokens, [0], np.full((1, 2, 2), 0.2), np.array([[0.2]]),
                     np.array([1.6]))  # fmt: skip
    measures = {'entropy': 1.0}
    layer = {'index': 0, 'name': 'a', 'whole': measures, 'heads': {'entropy': [1.0]}}
    found = {'bound': 1.6, 'grid': [2, 2], 'prefix': ['cls'], 'layers': [layer]}
    query, image = parse_query('cls'), np.zeros((32, 32, 3), np.uint8)
    for number, name in enumerate(NAMES):
        model = ModelSummary(name)
        model.add(found)
        figures = [entropy_figure([model], references=[(1.2, name)])]
        figures += [heads_figure(image, [(name, maps)], query), grid_figure(name, [maps], query)]
        for place, figure in enumerate(figures):
            (file,) = save(figure, tmp_path / f'{number}_{place}', ['svg'])
            if name == '$x^$':
                assert '$x^$' in file.read_text(), 'it stands there as it is'


def test_a_label_is_neither_mathematics_nor_hidden():
    from matplotlib import cbook

    assert not any(cbook.is_math_text(figure_text(name)) for name in NAMES)
    assert not any(figure_text(name).startswith('_') for name in NAMES)
    assert max(len(figure_text(name)) for name in NAMES) <= 82
