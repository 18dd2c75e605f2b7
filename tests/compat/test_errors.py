"""How a command line ends: exit codes, one message, and the traceback for those who ask for it."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest
from mmcv.transforms import LoadImageFromFile

from cb_mm.checkpoints.read import read_checkpoint
from cb_mm.config import load_config, restricted
from cb_mm.datasets.checks.files import data_root
from cb_mm.datasets.checks.samples import SampleRules
from cb_mm.engine.hooks.sample_guard import GuardedLoader
from cb_mm.errors import SHOW_TRACEBACK, UserError, exit_code
from cb_mm.prediction.inputs import find_inputs


def fail_deep_inside() -> None:
    try:
        raise KeyError('the cause')
    except KeyError as error:
        raise UserError('config x.py: it lacks y.') from error


def test_a_user_error_is_one_line(capsys, monkeypatch):
    monkeypatch.delenv(SHOW_TRACEBACK, raising=False)
    assert exit_code(fail_deep_inside) == 2
    assert capsys.readouterr().err == 'error: config x.py: it lacks y.\n'


def test_a_name_in_a_file_does_not_reach_the_terminal_as_a_command(capsys):
    def job():
        raise UserError('the weights a\x1b[2J\x07\x9b1mb are unknown.\nTake others: grün.')

    assert exit_code(job) == 2
    assert capsys.readouterr().err == (
        'error: the weights a?[2J??1mb are unknown.\nTake others: grün.\n'
    )


def test_a_traceback_on_request_names_the_place_and_the_cause(capsys, monkeypatch):
    monkeypatch.setenv(SHOW_TRACEBACK, '1')
    assert exit_code(fail_deep_inside) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == 'Traceback (most recent call last):'
    assert "KeyError: 'the cause'" in lines
    assert any('in fail_deep_inside' in line for line in lines)
    assert lines[-1] == 'error: config x.py: it lacks y.'


def test_errors_of_the_system(capsys):
    def fail(*words: object) -> None:
        raise OSError(*words)

    assert exit_code(lambda: fail(errno.ENOSPC, 'No space left')) == 2
    assert capsys.readouterr().err == 'error: cannot write: No space left.\n'
    assert exit_code(lambda: fail(errno.ELOOP, 'Too many links', 'a')) == 2
    assert capsys.readouterr().err == 'error: a: Too many links.\n'
    with pytest.raises(OSError, match='odd'):
        exit_code(lambda: fail(errno.ECHILD, 'odd'))


def place_of_nothing(folder: Path, safe: bool = False) -> None:
    (folder / 'mine.py').write_text("_base_ = ['nothing.py']\n")
    with restricted.only_data(safe):
        load_config(folder / 'mine.py')


@pytest.mark.parametrize(
    'look',
    [
        lambda folder: load_config(folder / 'nothing.py'),
        place_of_nothing,
        lambda folder: place_of_nothing(folder, safe=True),
        lambda folder: find_inputs([folder / 'nothing.png']),
        lambda folder: find_inputs([folder / '*.png']),
        lambda folder: data_root(folder / 'nothing'),
        lambda folder: read_checkpoint(folder / 'nothing.pth'),
        lambda folder: GuardedLoader(LoadImageFromFile(), SampleRules())(
            {'img_path': str(folder / 'nothing.png')}
        ),
    ],
    ids=['config', 'base', 'safe base', 'image', 'pattern', 'data', 'checkpoint', 'sample'],
)
def test_what_is_not_there_is_a_missing_file_for_python_too(look, tmp_path):
    """Our users see one message; a program around us may catch Python's own error."""
    with pytest.raises(FileNotFoundError, match=r'nothing|\*\.png') as found:
        look(tmp_path)
    assert isinstance(found.value, UserError)


def test_a_reader_that_has_gone_is_no_error(monkeypatch, capsys):
    """As after ``| head``; the last words are still in the buffer when the job is done."""
    for words in ('a\n', 'a\n' * 100_000):
        reading, writing = os.pipe()
        with open(writing, 'w') as output:
            monkeypatch.setattr(sys, 'stdout', output)
            os.close(reading)
            assert exit_code(lambda said=words: print(said)) == 128 + 13
        monkeypatch.undo()
    assert not capsys.readouterr().err
