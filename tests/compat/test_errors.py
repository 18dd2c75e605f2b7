"""How a command line ends: exit codes, one message, and the traceback for those who ask for it."""

from __future__ import annotations

import errno

import pytest

from cb_mm.errors import SHOW_TRACEBACK, UserError, exit_code


def fail_deep_inside() -> None:
    try:
        raise KeyError('the cause')
    except KeyError as error:
        raise UserError('config x.py: it lacks y.') from error


def test_a_user_error_is_one_line(capsys, monkeypatch):
    monkeypatch.delenv(SHOW_TRACEBACK, raising=False)
    assert exit_code(fail_deep_inside) == 2
    assert capsys.readouterr().err == 'error: config x.py: it lacks y.\n'


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
