"""A signal is a request: the flag, the handlers from before, the children."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from tool import REPO

from cb_mm.engine.hooks import StopOnSignalHook
from cb_mm.engine.signals import SIGNALS, Stopped, leave_signals_to_parent, stop_on_signals


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in SIGNALS]


@pytest.fixture(autouse=True)
def handlers_are_restored():
    before = handlers()
    yield
    assert handlers() == before


@pytest.mark.parametrize('name', ['SIGTERM', 'SIGINT', 'SIGUSR1', 'SIGHUP'])
def test_a_signal_sets_the_flag_and_nothing_else(name):
    number = getattr(signal, name)
    with stop_on_signals() as stop:
        assert stop.requested is None
        signal.raise_signal(number)
        assert stop.requested == name
        signal.raise_signal(signal.SIGINT)  # a second one, of any kind, does not interrupt either
        assert stop.number == number


def test_exit_codes_are_the_shells():
    assert [Stopped(number).code for number in (15, 2, 10, 1)] == [143, 130, 138, 129]


def test_earlier_handlers_are_called_and_restored():
    heard = []

    def mine(number: int, _: object) -> None:
        heard.append(number)

    before = signal.signal(signal.SIGUSR1, mine)
    try:
        with stop_on_signals() as outer:
            with contextlib.suppress(ZeroDivisionError), stop_on_signals() as inner:
                signal.raise_signal(signal.SIGUSR1)
                raise ZeroDivisionError
            assert outer.requested == inner.requested == 'SIGUSR1'
        assert heard == [signal.SIGUSR1]
        assert signal.getsignal(signal.SIGUSR1) is mine
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_blocks_may_end_in_any_order():
    """A run that failed keeps its block open until its memory is freed, maybe in another run."""
    first, second = stop_on_signals(), stop_on_signals()
    before = handlers()
    failed, request = first.__enter__(), second.__enter__()
    first.__exit__(None, None, None)
    signal.raise_signal(signal.SIGTERM)
    assert request.requested == 'SIGTERM'
    assert failed.requested is None
    second.__exit__(None, None, None)
    assert handlers() == before


def test_an_ignored_signal_stays_ignored():
    """What `nohup` does."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert stop.requested is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_outside_the_main_thread_nothing_changes():
    before, seen = handlers(), []

    def job() -> None:
        with stop_on_signals() as stop:
            seen.append((stop.requested, handlers()))

    thread = threading.Thread(target=job)
    thread.start()
    thread.join(120)
    assert seen == [(None, before)]


def wait_until_ended(process, seconds: float = 120) -> int | None:
    process.join(seconds)
    return process.exitcode


@pytest.fixture
def fork():
    """Start a process that is a copy of this one; what is left of it is ended after the test."""
    started = []

    def start(*call) -> multiprocessing.Process:
        process = multiprocessing.get_context('fork').Process(target=call[0], args=call[1:])
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()  # Python would wait for it at its own end, for ever
        assert wait_until_ended(process) is not None


def test_children_ignore_requests_but_their_parent_can_end_them(fork):
    with stop_on_signals() as stop:
        child = fork(time.sleep, 600)
        for number in SIGNALS:
            if number != signal.SIGTERM:
                os.kill(child.pid, number)
        time.sleep(0.3)
        assert child.is_alive()
        child.terminate()
        assert wait_until_ended(child) == -signal.SIGTERM
        assert stop.requested is None


def test_a_child_that_was_only_just_started_can_be_ended(fork):
    """Python forgets the signals that come before it is ready to handle them."""
    with stop_on_signals():
        for _ in range(10):
            child = fork(time.sleep, 600)
            child.terminate()
            assert wait_until_ended(child) == -signal.SIGTERM


def _serve(connection) -> None:
    leave_signals_to_parent()
    connection.send('ready')
    while True:
        connection.send(connection.recv())


@pytest.mark.parametrize('handlers_of_parent', [stop_on_signals, contextlib.nullcontext])
def test_a_worker_outlives_a_signal_to_the_whole_job(handlers_of_parent, fork):
    """All signals from elsewhere, as a scheduler sends them; then the parent's own."""
    here, there = multiprocessing.Pipe()
    with handlers_of_parent():
        worker = fork(_serve, there)
    assert here.poll(120)
    assert here.recv() == 'ready'
    for number in SIGNALS:
        subprocess.run(['kill', f'-{number.value}', str(worker.pid)], check=True, timeout=60)
    here.send('alive')
    assert here.poll(120)
    assert here.recv() == 'alive'
    worker.terminate()
    assert wait_until_ended(worker) == 0


def test_a_worker_that_cannot_hand_over_its_batch_ends_after_a_kill_of_its_parent():
    """Its end closes its standard output, which this waits for."""
    program = (
        'import os, signal, time\n'
        'from cb_mm.engine.signals import leave_signals_to_parent\n'
        'if os.fork():\n'
        '    time.sleep(1)\n'
        '    os.kill(os.getpid(), signal.SIGKILL)\n'
        'leave_signals_to_parent()\n'
        'time.sleep(900)\n'
    )
    command = [sys.executable, '-W', 'ignore', '-c', program]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=300)
    assert done.returncode == -signal.SIGKILL


def test_importing_it_takes_nothing_but_the_standard_library():
    code = (
        'import sys, types; sys.modules["cb_mm"] = package = types.ModuleType("cb_mm");'
        f'package.__path__ = [{str(REPO / "cb_mm")!r}]; import cb_mm.engine.signals;'
        'assert "torch" not in sys.modules'
    )
    subprocess.run([sys.executable, '-c', code], check=True, timeout=300)


def test_while_the_model_is_compiled_a_signal_ends_the_run_at_once():
    """The first iteration takes minutes then, and has nothing to save."""
    hook = StopOnSignalHook(compiled=True)
    with stop_on_signals() as hook.request:
        hook.before_train_iter(None, 0)
        with pytest.raises(Stopped) as stopped:
            signal.raise_signal(signal.SIGUSR1)
        assert stopped.value.code == 138
        with pytest.raises(Stopped):  # one that came just before it
            hook.before_train_iter(None, 0)
    with stop_on_signals() as request:
        signal.raise_signal(signal.SIGUSR1)
        assert request.requested == 'SIGUSR1'


def test_one_of_several_that_leaves_keeps_its_exit_code():
    """A launcher ends the others when the first has ended, while they may still be ending."""
    before = handlers()
    try:
        with contextlib.suppress(Stopped), stop_on_signals() as request:
            request.leaving = True
            raise Stopped(signal.SIGUSR1)
        signal.raise_signal(signal.SIGTERM)
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)
