"""Signals as requests: a run finishes what it is doing, saves, and then ends.

Schedulers announce the end of a job with SIGTERM or SIGUSR1, a closed terminal with SIGHUP, people
with Ctrl-C (SIGINT). This module imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

#: Windows has neither SIGUSR1 nor SIGHUP.
SIGNALS = tuple(
    getattr(signal, name)
    for name in ('SIGTERM', 'SIGINT', 'SIGUSR1', 'SIGHUP')
    if hasattr(signal, name)
)


class StopRequest:
    """Whether a signal has asked this process to stop.

    Attributes:
        number: The first signal that came; 0 before one has.
        end_now: Whether a signal ends the process at once, by raising `Stopped`: while it is in
            work that takes minutes, such as compiling, and there is nothing yet to save.
        leaving: Whether the process is about to end, with its work saved, as one of several. A
            launcher ends all that are left as soon as one has ended: that must not change their
            exit codes, so signals are ignored from then on.
    """

    def __init__(self) -> None:
        self.number = 0
        self.end_now = False
        self.leaving = False

    @property
    def requested(self) -> str | None:
        """The name of the signal, such as 'SIGTERM'; None before one has come."""
        return signal_name(self.number) if self.number else None


class Stopped(SystemExit):
    """The end of a run that a signal asked for, after its work was saved.

    Where nobody catches it, Python ends without a traceback, with the shell's exit code for that
    signal: 143 for SIGTERM, 130 for Ctrl-C.
    """

    code: int

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)


def signal_name(number: int) -> str:
    """Return 'SIGTERM' for 15."""
    return signal.Signals(number).name


class _Handler:
    """Notes a signal for one block of `stop_on_signals`, and calls the previous handler.

    Blocks need not end in the reverse order: one whose run failed may stay open until its memory is
    freed. So a closed handler that another one took for its previous one only passes signals on.
    """

    def __init__(self) -> None:
        self.request, self.owner = StopRequest(), os.getpid()
        self.earlier: dict[int, Any] = {}
        self.closed = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self.owner:  # the request is for the parent of this process
            return
        if not self.closed:
            self.request.number = self.request.number or number
        before = self.earlier.get(number)
        # Python's own handler of Ctrl-C raises KeyboardInterrupt, which this replaces.
        if callable(before) and before is not signal.default_int_handler:
            before(number, frame)
        if self.request.end_now and not self.closed:
            raise Stopped(number)

    def install(self) -> None:
        """Handle the signals from now on."""
        for number in SIGNALS:
            before = signal.getsignal(number)
            # None: a handler that is not Python's, so that it could not be restored.
            if before is not None and before != signal.SIG_IGN:
                self.earlier[number] = before
                signal.signal(number, self)

    def close(self) -> None:
        """Restore the previous handlers, where no later one would be lost by that."""
        self.closed = True
        for number, before in self.earlier.items():
            while isinstance(before, _Handler) and before.closed:
                before = before.earlier[number]
            if self.request.leaving:
                signal.signal(number, signal.SIG_IGN)
            elif signal.getsignal(number) is self:
                signal.signal(number, before)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Let signals only set a flag within the block, however often they come.

    The previous handlers are called too and restored at the end. A signal that was ignored
    (`nohup`) stays ignored. Outside the main thread, where Python allows no handlers, nothing
    changes and nothing is ever requested.
    """
    handler = _Handler()
    _let_parents_end_children()
    try:
        if threading.current_thread() is threading.main_thread():
            handler.install()
        yield handler.request
    finally:
        handler.close()


@functools.cache
def _let_parents_end_children() -> None:
    """Let SIGTERM end a forked process at once: that is how a parent ends its children.

    Python forgets the signals that come to a new process before it can handle any, and handles none
    in a process that waits inside a C function. Either way `multiprocessing.Pool` would wait for
    that process for ever. So the signal is held back during the fork, and then as it is by default.
    """
    if not hasattr(os, 'register_at_fork'):  # Windows
        return
    held = threading.local()

    def before_fork() -> None:
        held.back = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def after_fork() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, held.back)

    def in_child() -> None:
        if isinstance(signal.getsignal(signal.SIGTERM), _Handler):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        after_fork()

    os.register_at_fork(before=before_fork, after_in_parent=after_fork, after_in_child=in_child)


def leave_signals_to_parent(*_: object) -> None:
    """Let this process, which works for a parent, end only when the parent ends or asks.

    For the processes that load data, as their ``worker_init_fn``: a scheduler, `timeout` and a
    terminal signal every process of a job, and the parent needs its workers until it has saved.
    """
    for number in SIGNALS:
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, 'sigwaitinfo'):
        # Blocked, so that a thread can take it and see who sent it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()


def _end_with_parent(parent: int) -> None:
    # After a kill -9 of its parent it could wait for ever to hand over its batch, and keep the
    # connections open by which the other processes of the run would notice.
    while os.getppid() == parent:
        came = signal.sigtimedwait({signal.SIGTERM}, 2)
        if came is not None and came.si_pid == parent:
            break
    os._exit(0)  # as torch's own handler in its workers does
