"""Curves from the logs of runs: what is read, what is drawn, and what is refused."""

from __future__ import annotations

import json

import cv2
import pytest
from tool import main_of

from cb_mm.apis.curves import draw_curves, plot_curves, read_curves
from cb_mm.errors import UserError


def write_run(folder, losses, scores, started='20260101_000000', first=1, by_epoch=True):
    """Two iterations an epoch, and a validation after each."""
    file = folder / started / 'vis_data' / 'scalars.json'
    file.parent.mkdir(parents=True)
    lines = []
    for epoch, (loss, score) in enumerate(zip(losses, scores, strict=True), start=first):
        for part in (0, 1):
            number = 2 * epoch - 1 + part
            line = {'lr': 0.1, 'loss': loss + part, 'time': 1.0, 'iter': number, 'step': number}
            lines.append({**line, 'epoch': epoch} if by_epoch else line)
        step = epoch if by_epoch else 2 * epoch
        lines.append({'accuracy/top1': score, 'validation/cross_entropy': 1 / score, 'step': step})
    file.write_text('\n'.join(json.dumps(line) for line in lines) + '\n{"lr": 0.1, "lo')
    return folder


def test_reads_epochs_iterations_and_resumed_runs(tmp_path):
    run = write_run(tmp_path / 'a', [3, 2, 9], [10, 20, 1])
    write_run(run, [1, 0.5], [40, 50], started='20260102_000000', first=3)
    found = read_curves(run)
    assert (found.name, found.unit) == ('a', 'epoch')
    assert found.values['loss'] == {1: 3.5, 2: 2.5, 3: 1.5, 4: 1.0}  # the later log counts
    assert found.values['accuracy/top1'] == {1: 10, 2: 20, 3: 40, 4: 50}
    assert set(found.values) == {'loss', 'accuracy/top1', 'validation/cross_entropy'}
    # Started anew, and stopped earlier: the end of the first log is another run's.
    run = write_run(tmp_path / 'c', [3, 2, 9], [10, 20, 30])
    write_run(run, [5, 4], [11, 21], started='20260102_000000')
    found = read_curves(run).values
    assert (found['loss'], found['accuracy/top1']) == ({1: 5.5, 2: 4.5}, {1: 11, 2: 21})
    iterations = read_curves(write_run(tmp_path / 'b', [3, 2], [10, 20], by_epoch=False), 'B')
    assert (iterations.name, iterations.unit) == ('B', 'iteration')
    assert iterations.values['loss'] == {1: 3, 2: 4, 3: 2, 4: 3}
    assert iterations.values['accuracy/top1'] == {2: 10, 4: 20}


def test_draws_a_panel_for_each_quantity_and_a_curve_for_each_run(tmp_path):
    runs = [read_curves(write_run(tmp_path / name, [3, 2], [10, 20])) for name in 'ab']
    figure = draw_curves(runs)
    assert [axes.get_title() for axes in figure.axes] == [
        'training loss', 'evaluation loss', 'top-1 accuracy, %',
    ]  # fmt: skip
    for axes in figure.axes:
        assert len(axes.lines) == 2
    assert list(figure.axes[2].lines[1].get_ydata()) == [10, 20]
    assert len(draw_curves(runs, ['loss']).axes) == 1


def test_panels_share_their_steps(tmp_path):
    """A single validation would otherwise stand at iteration 1.98 to 2.02."""
    run = read_curves(write_run(tmp_path / 'run', [3], [10]))
    panels = draw_curves([run]).axes
    assert len({axes.get_xlim() for axes in panels}) == 1
    for axes in panels:
        assert all(float(tick).is_integer() for tick in axes.get_xticks())


def test_tool(tmp_path, capsys):
    runs = [str(write_run(tmp_path / name, [3, 2], [10, 20])) for name in 'ab']
    out = tmp_path / 'curves'
    words = [*runs, '--names', 'ViT-S', 'CB', '--out', str(out), '--format', 'png', 'svg', 'pdf']
    assert main_of('plot_curves.py')(words) == 0
    assert cv2.imread(f'{out}.png') is not None
    assert 'ViT-S' in (tmp_path / 'curves.svg').read_text()
    assert (tmp_path / 'curves.pdf').read_bytes().startswith(b'%PDF')
    (tmp_path / 'two').mkdir()
    assert main_of('plot_curves.py')([*runs, '--out', f'{tmp_path}/two/curves.png']) == 0
    assert [file.name for file in (tmp_path / 'two').iterdir()] == ['curves.png']
    assert main_of('plot_curves.py')([str(tmp_path / 'none')]) == 2
    assert 'there is no log' in capsys.readouterr().err


def test_from_python_nothing_is_written_unless_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = write_run(tmp_path / 'run', [3, 2], [10, 20])
    plot = plot_curves([run], formats=['png'])
    assert [curves.values['loss'] for curves in plot.curves] == [{1: 3.5, 2: 2.5}]
    assert [file.name for file in tmp_path.iterdir()] == ['run']
    (file,) = plot.save(tmp_path / 'out')
    assert file == tmp_path / 'out' / 'curves.png'
    assert cv2.imread(str(file)) is not None


def test_refuses_what_it_cannot_draw(tmp_path):
    runs = [write_run(tmp_path / name, [3], [10], by_epoch=by) for name, by in (('a', 1), ('b', 0))]
    with pytest.raises(UserError, match='some count epochs'):
        plot_curves(runs, tmp_path / 'x')
    with pytest.raises(UserError, match='`metrics` mIoU is in none'):
        plot_curves(runs[:1], tmp_path / 'x', metrics=['mIoU'])


def test_names_are_written_as_they_are(tmp_path):
    """Dollars are no mathematics, and an underscore hides nothing from the legend."""
    runs = [write_run(tmp_path / name, [3], [10]) for name in ('$x_{$', '_a')]
    figure = draw_curves([read_curves(run) for run in runs])
    assert len(figure.axes[0].get_legend().get_texts()) == 2
    assert plot_curves(runs, formats=['png']).files['curves.png'].startswith(b'\x89PNG')


@pytest.mark.parametrize(
    'line',
    [b'[]', b'7', b'{"lr":', b'\xff\xfe', b'[' * 9999, b'{"lr": 1, "iter": "x", "loss": 1}',
     b'{"lr": 1, "iter": 1, "epoch": 1, "loss": "?"}', b'{"step": [1]}'],
)  # fmt: skip
def test_a_damaged_line_is_named_unless_the_log_ends_there(tmp_path, line):
    (file,) = write_run(tmp_path / 'a', [3], [10]).rglob('scalars.json')
    lines = file.read_bytes().splitlines()[:-1]
    file.write_bytes(b'\n'.join([*lines, line]))
    assert read_curves(file).values['loss'] == {1: 3.5}
    file.write_bytes(b'\n'.join([lines[0], line, *lines[1:]]))
    with pytest.raises(UserError, match=r'scalars\.json, line 2: this is not a line of a log'):
        read_curves(file)
