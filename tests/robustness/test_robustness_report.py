"""Reports from records written by hand, where every figure is known."""

from __future__ import annotations

import csv
import io
import json
import re

import cv2
import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer
from written_records import record, table9

from cb_mm.errors import UserError
from cb_mm.fileio.figures import figure_bytes
from cb_mm.fileio.result_files import plain
from cb_mm.robustness import SweepOptions, sweep
from cb_mm.robustness.comparison import check_comparable, compare
from cb_mm.robustness.paper import TABLE_9, paper_figures
from cb_mm.robustness.plots import robustness_figure
from cb_mm.robustness.report import summarize_records, write_report
from cb_mm.robustness.results_file import read_compared, read_results
from cb_mm.robustness.tables import markdown


def severities(models=1):
    cells = ['clean', *(f'fog={s}' for s in (1.5, 2, 2.5, 3, 3.5)), 'snow=1']
    identity = {
        'data': 'd',
        'annotations': 'a',
        'images': 10,
        'seed': 0,
        'repeats': 1,
        'cells': cells,
    }
    rows = [record('clean', miou=50.0)]
    levels = (1.5, 2.0, 2.5, 3.0, 3.5)
    rows += [record('fog', level, s, miou=50.0 - 5 * s) for s, level in enumerate(levels, 1)]
    rows += [record('snow', 1.0, 1, miou=20.0)]
    about = {'config': 'mine.py', 'checkpoint': None, 'classes': ['road', 'sky']}
    return {'identity': identity, 'about': about}, rows


def test_json_holds_the_statistics(tmp_path):
    write_report(tmp_path, *table9())
    results = read_results(tmp_path)
    cells = {cell['key']: cell for cell in results['cells']}
    noise = cells['gaussian_noise=10']['metrics']['mIoU']
    assert (noise['n'], noise['mean']) == (5, pytest.approx(40.0))
    assert noise['std'] == pytest.approx(0.1 * 2.5**0.5)
    assert noise['high'] - noise['mean'] == pytest.approx(2.7764451 * 0.1 * 2.5**0.5 / 5**0.5)
    assert cells['gaussian_noise=10']['retention']['mIoU'] == pytest.approx(40 / 44)
    assert cells['clean']['metrics']['mIoU']['low'] is None
    assert cells['gaussian_blur=1']['per_class']['IoU'] == {'road': 51, 'sky': 31, 'never': None}
    assert results['headline'] == ['mIoU']


def test_markdown_has_the_rows_of_table_9(tmp_path):
    text = write_report(tmp_path, *table9())
    assert (tmp_path / 'results.md').read_text() == text + '\n'
    rows = [
        [c.strip() for c in line.strip('|').split('|')] for line in text.splitlines() if '|' in line
    ]
    assert [row[0] for row in rows[2:]] == [
        'clean', 'shot noise, 255 counts at white', 'Gaussian noise σ=5', 'Gaussian noise σ=10',
        'Gaussian blur σ=1', 'Gaussian blur σ=2',
    ]  # fmt: skip
    assert rows[0][:4] == ['corruption', 'n', 'mIoU', 'retained']
    assert rows[2][1:4] == ['1', '44.00', '']
    assert rows[5][1:4] == ['5', '40.00 ± 0.20', '90.9 %']
    assert rows[6][1:4] == ['1', '41.00', '93.2 %']
    assert len({len(row) for row in rows}) == 1, 'a whole table'
    assert 'n = 5' in text
    assert 'single measurements and have no interval' in text
    assert 'not of training' in text
    assert "the paper's" not in text.lower()


def test_csv_is_for_programs(tmp_path):
    write_report(tmp_path, *table9())
    rows = list(csv.DictReader(io.StringIO((tmp_path / 'results.csv').read_text())))
    assert len(rows) == 6 * 3
    row = next(r for r in rows if r['corruption'] == 'gaussian_noise' and r['level'] == '10.0')
    assert row['metric'] == 'aAcc'
    one = next(r for r in rows if r['corruption'] == 'clean' and r['metric'] == 'mIoU')
    assert (one['n'], one['mean'], one['std'], one['low']) == ('1', '44.0', '', '')
    classes = list(csv.DictReader(io.StringIO((tmp_path / 'per_class.csv').read_text())))
    assert [row['class'] for row in classes] == ['road', 'sky', 'never']
    assert classes[2]['clean'] == ''
    assert float(classes[0]['gaussian_noise=5']) == pytest.approx(52.5)


ADE = dict(schedule='160k', dataset='ADE20KDataset', classes=['x'] * 150)


def test_the_papers_figures_stand_beside_the_papers_config_alone(tmp_path):
    for config in TABLE_9:
        text = write_report(tmp_path, *table9(config=f'configs/{config}.py', **ADE))
        assert "mIoU, the paper's" in text
        for figure in TABLE_9[config].values():
            assert f'| {figure} ' in text
        assert 'is our reading' in text
    for change in (
        dict(config='configs/upernet_vit_s.py', **{**ADE, 'schedule': '40k'}),
        dict(config='configs/upernet_vit_s.py', **{**ADE, 'dataset': 'BaseSegDataset'}),
        dict(config='configs/upernet_vit_s.py', **{**ADE, 'classes': ['x'] * 16}),
        dict(config='configs/upernet_vit_b.py', **ADE),
        dict(config='configs/upernet_vit_s_cb_s.py', **ADE),
    ):
        assert "the paper's" not in write_report(tmp_path, *table9(**change)).lower()


def test_all_figures_of_the_paper():
    cells = ['clean', 'shot_noise=255', 'gaussian_noise=5', 'gaussian_noise=10',
             'gaussian_blur=1', 'gaussian_blur=2']  # fmt: skip
    plain = ['43.3', '40.22 ± 0.15', '42.55 ± 0.08', '40.22 ± 0.07', '42.29', '40.83']
    broadcast = ['43.9', '41.09 ± 0.09', '43.44 ± 0.08', '41.07 ± 0.06', '43.26', '41.44']
    assert {
        'upernet_vit_s': dict(zip(cells, plain, strict=True)),
        'upernet_vit_s_cb': dict(zip(cells, broadcast, strict=True)),
    } == TABLE_9


def test_the_papers_figures_are_those_of_the_paper():
    assert paper_figures({'config': 'upernet_vit_s_cb.py', **ADE})['gaussian_noise=10'] == (
        '41.07 ± 0.06'
    )
    assert TABLE_9['upernet_vit_s']['clean'] == '43.3'


def test_severities_have_a_matrix_and_mpc(tmp_path):
    text = write_report(tmp_path, *severities())
    rows = [re.sub(r' +', ' ', line) for line in text.splitlines()]
    assert '| fog | 45.00 | 40.00 | 35.00 | 30.00 | 25.00 | 35.00 |' in rows
    assert '| snow | 20.00 | – | – | – | – | 20.00 |' in rows
    assert '| clean | | | | | | 50.00 |' in rows
    overall = read_results(tmp_path)['summary']['mIoU']
    assert overall['mpc'] == pytest.approx((35 + 20) / 2)
    assert overall['rpc'] == pytest.approx(27.5 / 50)
    assert overall['complete'] is False
    assert 'those of severities 1 to 5 that each corruption has in the table and 2 corru' in text


def test_comparison_is_paired_where_the_noise_is_the_same(tmp_path):
    ours, theirs = (summarize_records(*table9(shift)) for shift in (1.0, 0.0))
    rows = {row['key']: row['difference'] for row in compare(ours, theirs)['rows']}
    paired = rows['gaussian_noise=5']
    assert (paired['method'], paired['n']) == ('paired', (5, 5))
    assert paired['mean'] == pytest.approx(1)
    assert paired['high'] - paired['low'] == pytest.approx(0, abs=1e-9), 'the noise cancels'
    assert rows['clean'] == {
        'mean': 1.0, 'low': None, 'high': None, 'n': (1, 1), 'method': 'single', 'clear': None,
        'p': None, 'std': None
    }  # fmt: skip
    apart = summarize_records(*table9(0.0, seed=7))
    rows = {row['key']: row['difference'] for row in compare(ours, apart)['rows']}
    assert rows['gaussian_noise=5']['method'] == 'Welch'
    assert rows['gaussian_noise=5']['high'] - rows['gaussian_noise=5']['low'] > 0.1


def test_comparison_in_the_files(tmp_path):
    write_report(tmp_path / 'other', *table9(0.0, config='plain.py'))
    other = read_results(tmp_path / 'other' / 'results.json')
    header, rows = table9(1.0, config='cb.py')
    header['identity']['cells'].append('fog=2')
    rows.append(record('fog', 2.0, miou=30.0))
    text = write_report(tmp_path / 'this', header, rows, other)
    assert '### cb minus plain' in text
    assert '| +1.00 ' in text
    assert 'Not measured for plain: fog, severity 2' in text
    lines = (tmp_path / 'this' / 'comparison.csv').read_text().splitlines()
    head = 'cell,metric,cb,plain,difference,low,high,method,images_low,images_high'
    judged = ',p,p_holm,significant,needed_repeats,needed_images'
    assert lines[0] == head + judged
    assert len(lines) == 7
    assert json.loads((tmp_path / 'this' / 'results.json').read_text())['comparison']['rows']


def picture(content: bytes) -> np.ndarray:
    return cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)


@pytest.mark.parametrize('case', ['bars', 'bars of two', 'curves', 'both', 'clean'])
def test_pictures_are_drawn(case):
    header, rows = severities() if case in ('curves', 'both') else table9()
    if case == 'both':
        header['identity']['cells'].append('gaussian_blur=2')
        rows.append(record('gaussian_blur', 2.0, miou=30.0))
    if case == 'clean':
        header['identity']['cells'], rows = ['clean'], rows[:1]
    results = summarize_records(header, rows)
    other = summarize_records(*table9(1.0)) if case == 'bars of two' else None
    image = picture(figure_bytes(robustness_figure(results, other), dpi=130))
    assert min(image.shape[:2]) > 150
    colours = {tuple(c) for c in image.reshape(-1, 3).tolist()}
    assert (178, 114, 0) in colours, 'blue, in BGR'
    assert ((0, 159, 230) in colours) == (case == 'bars of two'), 'orange, for the other model'


def test_a_comparison_in_every_format(tmp_path):
    """Files for print: whole, the same each time, and with text that stays text."""
    write_report(tmp_path / 'other', *table9(1.0, config='plain.py'))
    other = read_compared(tmp_path / 'other' / 'results.json')
    assert (tmp_path / 'other' / 'robustness.svg').is_file(), 'SVG is written unless asked'
    for turn in 'ab':
        write_report(tmp_path / turn, *table9(), other, ['svg', 'pdf'])
        assert not (tmp_path / turn / 'robustness.png').exists()
    for kind in ('svg', 'pdf'):
        first, second = ((tmp_path / turn / f'robustness.{kind}').read_bytes() for turn in 'ab')
        assert first == second, kind
    vector = (tmp_path / 'a' / 'robustness.svg').read_text()
    assert all(f'>{text}<' in vector for text in ('plain', '44.00', 'Gaussian noise σ=10'))
    assert (tmp_path / 'a' / 'robustness.pdf').read_bytes().startswith(b'%PDF')


def test_an_unknown_format_is_refused_before_the_test(tmp_path):
    with pytest.raises(UserError, match='`formats` jpg is not one of png, svg, pdf'):
        sweep(SweepOptions('seg.py', checkpoint='seg.pth', formats=['jpg'], out=tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('what', [table9, severities])
def test_long_names_stay_within_the_figure(what):
    results, other = (summarize_records(*what()) for _ in range(2))
    results['model'] = 'cityscapes_upernet_vit_s_cb (160k), iter_160000.pth of the second run'
    other['model'] = 'a_long_name_' * 20
    figure = robustness_figure(results, other)
    figure.canvas.draw()
    words = [figure._suptitle, *(text for part in figure.subfigs for legend in part.legends
                                 for text in legend.get_texts())]  # fmt: skip
    assert len(words) == 3
    for text in words:
        box = text.get_window_extent()
        assert box.x0 >= 0, text
        assert box.x1 <= figure.bbox.x1, text


def test_bars_are_the_means():
    results = summarize_records(*table9())
    figure = robustness_figure(results, summarize_records(*table9(1.0)))
    assert figure.get_size_inches().tolist() == pytest.approx([7.5, 1.1 + 0.26 * 12 + 0.7])
    assert len(figure.axes) == len(results['headline'])
    (legend,) = (part.legends[0] for part in figure.subfigs)
    assert [text.get_text() for text in legend.get_texts()] == [results['model']] * 2
    axis = figure.axes[0]
    means = [44, 40.2, 42.5, 40, 41, 40]
    bars = [patch for patch in axis.patches if patch.get_width()]
    assert [bar.get_width() for bar in bars] == pytest.approx([*means, *(m + 1 for m in means)])
    middles = [bar.get_y() + bar.get_height() / 2 for bar in bars]
    assert middles == pytest.approx([*(k - 0.2 for k in range(6)), *(k + 0.2 for k in range(6))])
    assert [label.get_size() for label in axis.get_xticklabels()] == [8] * len(axis.get_xticks())
    whiskers = [bar for bar in axis.containers if isinstance(bar, ErrorbarContainer)]
    assert len(whiskers) == 2 * 3  # of what was repeated
    _, caps, (line,) = whiskers[0]
    half = results['cells'][1]['metrics'][results['headline'][0]]['high'] - 40.2
    assert line.get_segments()[0][:, 0] == pytest.approx([40.2 - half, 40.2 + half])
    assert [cap.get_markersize() for cap in caps] == [5, 5]
    assert line.get_zorder() > bars[0].get_zorder()
    texts = [note.get_text() for note in axis.texts]
    assert (texts[0], texts[1][:7]) == ('44.00', '40.20 ±')
    assert axis.get_xlim() == pytest.approx((0, 1.28 * 45))


def test_curves_are_the_means():
    names = ['fog', 'snow', 'frost', 'contrast', 'pixelate', 'brightness']
    header, rows = severities()
    rows = [rows[0]] + [record(name, 1.0, 1, miou=10.0 + k) for k, name in enumerate(names)]
    header['identity']['cells'] = ['clean', *(f'{name}=1' for name in names)]
    figure = robustness_figure(summarize_records(header, rows))
    assert figure.get_size_inches().tolist() == pytest.approx([2.1 * 5 + 0.8, 2 * 2.1 + 0.7])
    assert len(figure.axes) == 10
    shown = [axis for axis in figure.axes if axis.axison]
    assert [axis.get_title() for axis in shown] == names
    assert {axis.title.get_size() for axis in shown} == {8}  # five beside each other
    for k, axis in enumerate(shown):
        assert axis.lines[0].get_xydata().tolist() == [[0, 50], [1, 10 + k]]


def test_an_axis_names_the_unit_where_it_is_known():
    percent, unknown = summarize_records(*table9()), summarize_records(*table9())
    unknown['units'] = {**unknown['units'], 'mIoU': ''}
    titles = [robustness_figure(one).axes[0].get_xlabel() for one in (percent, unknown)]
    assert titles == ['mIoU (%)', 'mIoU']


@pytest.mark.parametrize(
    ('metrics', 'columns'),
    [
        ({'mIoU': 1.0, 'aAcc': 2.0, 'mAcc': 3.0}, 'mIoU | aAcc | mAcc'),
        ({'top1': 1.0, 'top5': 2.0}, 'top-1 | top-5'),
        (
            {f'{kind}_mAP{part}': value for kind, values in
             (('bbox', (1.0, 2.0, 3.0)), ('segm', (4.0, 5.0, 6.0)))
             for part, value in zip(('', '_50', '_75'), values, strict=True)},
            'box AP | box AP50 | box AP75 | mask AP | mask AP50 | mask AP75',
        ),
    ],
)  # fmt: skip
def test_columns_beside_the_headline(metrics, columns, tmp_path):
    header, rows = table9()
    header['identity']['cells'] = ['clean']
    row = {**rows[0], 'metrics': metrics, 'units': dict.fromkeys(metrics, '%'), 'per_class': {}}
    row['upstream'] = {}
    lines = [re.sub(' +', ' ', line) for line in write_report(tmp_path, header, [row]).splitlines()]
    (head,) = (k for k, line in enumerate(lines) if columns in line)
    figures = ' | '.join(f'{value:.2f}' for value in metrics.values())
    assert figures in lines[head + 2]


def test_names_are_written_as_they_are(tmp_path):
    write_report(tmp_path, *table9(config='modèle.py'))
    for name in ('results.json', 'results.md'):
        assert 'modèle' in (tmp_path / name).read_text(encoding='utf-8'), name


def test_one_finished_pass_is_enough_for_a_report(tmp_path):
    """A sweep that was stopped early has a report too."""
    header, rows = table9()
    text = write_report(tmp_path, header, rows[:3])
    assert '| shot noise, 255 counts at white | 2 |' in text


def test_missing_values_are_no_figures(tmp_path):
    header, rows = table9()
    for row in rows:
        row['metrics']['mAcc'] = None
    assert '| –' in write_report(tmp_path, header, rows)
    json.loads((tmp_path / 'results.json').read_text(), parse_constant=pytest.fail)


def places(node, path=()):
    """The path of every key and every item in a JSON value."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, (dict, list)):
            yield from places(value, (*path, key))


def changed(node, path, value):
    """A copy with one value replaced, or left out where the new one is ``None``."""
    copy = dict(node) if isinstance(node, dict) else list(node)
    if len(path) > 1:
        copy[path[0]] = changed(node[path[0]], path[1:], value)
    elif value is GONE:
        del copy[path[0]]
    else:
        copy[path[0]] = value
    return copy


GONE = object()
REPLACEMENTS = (GONE, None, True, 0, 2.5, 1e300, 10**400, '$x', [], {}, [None], {'x': None})


def test_any_value_missing_or_of_another_kind_in_another_results_file(tmp_path):
    """One message, or a comparison that can be written: never a traceback."""
    header, rows = severities()
    header['identity']['cells'] += ['gaussian_noise=5']
    rows = [rows[0], rows[1], *table9()[1][6:8]]  # clean, one severity, two repeats of a noise
    for row in rows:
        row['metrics'], row['units'] = {'mIoU': row['metrics']['mIoU']}, {'mIoU': '%'}
    write_report(tmp_path / 'good', header, rows)
    file = tmp_path / 'results.json'
    good = json.loads((tmp_path / 'good' / 'results.json').read_text())
    ours = summarize_records(header, rows)
    messages, accepted, drawn, pictures = [], 0, set(), set()
    for path in places(good):
        for value in REPLACEMENTS:
            try:
                file.write_text(json.dumps(changed(good, path, value)))
                other = read_compared(file)
                check_comparable(header['identity'], {'classes': ['road', 'sky']}, other)
            except UserError as error:
                messages.append(str(error))
                continue
            accepted += 1
            if (content := json.dumps(other)) not in drawn:
                drawn.add(content)
                results = plain({**ours, 'comparison': compare(ours, other)})
                assert markdown(results).count('\n') > 10
                if path[-1] not in pictures:  # drawing takes the longest
                    pictures.add(path[-1])
                    assert figure_bytes(robustness_figure(results, other), dpi=60).startswith(
                        b'\x89PNG'
                    )
    assert all(text.startswith('`compare`') and '\n' not in text for text in messages)
    assert (len(messages) > 500, accepted > 200, len(drawn) > 20, len(pictures) > 5) == (True,) * 4


def test_results_of_another_kind_are_refused(tmp_path):
    with pytest.raises(UserError, match='does not exist'):
        read_results(tmp_path / 'x.json')
    (tmp_path / 'results.json').write_text('{"format": "cb_mm robustness results", "version": 9}')
    with pytest.raises(UserError, match='version 9'):
        read_results(tmp_path)


def test_classes_in_another_order_are_not_compared(tmp_path):
    """As they come from the file of the other test; an old file does not say its classes."""
    header, rows = severities()
    write_report(tmp_path, header, rows)
    other = read_compared(tmp_path)
    check_comparable(header['identity'], {'classes': ('road', 'sky')}, other)
    with pytest.raises(UserError, match=r"'road' is number 0 there and 1 here"):
        check_comparable(header['identity'], {'classes': ('sky', 'road')}, other)
    del header['about']['classes']
    write_report(tmp_path, header, rows)
    check_comparable(header['identity'], {'classes': ('sky', 'road')}, read_compared(tmp_path))


def test_a_damaged_interval_over_images_is_named(tmp_path):
    """A comparison does not read it; the card of a shared model does."""
    write_report(tmp_path, *severities())
    good = json.loads((tmp_path / 'results.json').read_text())
    for value in ({'low': 1.0}, {'low': 'x', 'high': 2}, [1, 2], 3):
        good['cells'][0]['metrics']['mIoU']['over_images'] = value
        (tmp_path / 'results.json').write_text(json.dumps(good))
        with pytest.raises(UserError, match=r'is damaged: cells\[0\].metrics.mIoU: over_images'):
            read_results(tmp_path)


def test_long_titles_leave_room_for_the_bars():
    header, rows = table9()
    header['identity']['cells'].append('elastic_displacement=12.5')
    rows.append(record('elastic_displacement', 12.5, miou=30.0))
    axis = robustness_figure(summarize_records(header, rows)).axes[0]
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert max(len(line) for label in labels for line in label.splitlines()) <= 36
    assert '\n' in labels[-1]
