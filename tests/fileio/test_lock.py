"""One run per folder, across processes; the dead hold nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
from forked import exit_code
from tool import REPO

from cb_mm.errors import UserError
from cb_mm.fileio import folder_lock as lock
from cb_mm.fileio.folder_lock import FolderLock

HOLD = """
import os, signal, sys, time, types
signal.alarm(180)  # whoever waits for its lines does not wait for ever
sys.modules['cb_mm'] = types.ModuleType('cb_mm')  # without torch and all that
sys.modules['cb_mm'].__path__ = [sys.argv[2]]
from cb_mm.fileio.folder_lock import FolderLock
held = FolderLock(sys.argv[1], 'out')
child = os.fork()
os.write(1, f'{child}\\n'.encode())
time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the folder; with a child, as a run that loads data has."""
    words = [sys.executable, '-c', HOLD, str(tmp_path), str(REPO / 'cb_mm')]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    children = [int(process.stdout.readline()) for _ in range(2)]
    yield process
    for pid in (process.pid, max(children)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(60)


def test_the_second_is_told_who_the_first_is(holder, tmp_path):
    with pytest.raises(UserError, match=rf'process {holder.pid} on {socket.gethostname()}.*`out`'):
        FolderLock(tmp_path, 'out')


def test_a_kill_frees_the_folder_though_children_live_on(holder, tmp_path):
    holder.kill()
    holder.wait(60)
    assert json.loads((tmp_path / lock.NAME).read_text())['pid'] == holder.pid
    with FolderLock(tmp_path, 'out'):
        assert json.loads((tmp_path / lock.NAME).read_text())['pid'] == os.getpid()


def test_the_same_process_is_refused_too(tmp_path):
    with FolderLock(tmp_path, 'out'), pytest.raises(UserError, match=f'process {os.getpid()}'):
        FolderLock(tmp_path, 'out')
    FolderLock(tmp_path, 'out').release()
    assert not list(tmp_path.iterdir())


def try_elsewhere(folder) -> str:
    """What another process is told that asks for the folder."""
    code = HOLD.split('child')[0].replace('held = ', "print('got it');")
    words = [sys.executable, '-c', code, str(folder), str(REPO / 'cb_mm')]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    return done.stderr.strip().splitlines()[-1] if done.returncode else 'got it'


def test_a_refused_second_lock_does_not_end_the_first(tmp_path):
    """In the same process: from the same thread, from another, and after someone read the file."""
    with FolderLock(tmp_path, 'out') as first:
        refused = []

        def ask() -> None:
            try:
                FolderLock(tmp_path, 'out')
            except UserError:
                refused.append(True)

        ask()
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(60)
        assert len(refused) == 2
        (tmp_path / lock.NAME).read_bytes()
        assert f'process {os.getpid()} ' in try_elsewhere(tmp_path)
        first.release()
        first.release()  # once is enough
        assert try_elsewhere(tmp_path) == 'got it'


def test_a_forked_process_neither_keeps_nor_frees_it(tmp_path):
    with FolderLock(tmp_path, 'out') as held:
        child = os.fork()
        if child == 0:
            held.release()
            os._exit(int((tmp_path / lock.NAME).exists()))
        assert exit_code(child) == 1
        assert f'process {os.getpid()} ' in try_elsewhere(tmp_path)


@pytest.mark.parametrize('content', ['', '{', '[]', '{"pid": -1}', '{"pid": "x"}', '\0' * 50])
def test_whatever_a_stale_file_holds(tmp_path, content):
    (tmp_path / lock.NAME).write_text(content)
    FolderLock(tmp_path, 'out').release()


def test_without_locks_the_named_process_is_looked_up(tmp_path, monkeypatch):
    """Windows, and file systems that know no locks."""
    monkeypatch.setattr(lock, 'fcntl', None)
    dead = subprocess.Popen([sys.executable, '-c', ''])
    dead.wait(60)
    file = tmp_path / lock.NAME
    file.write_text(json.dumps({'pid': dead.pid, 'host': socket.gethostname()}))
    FolderLock(tmp_path, 'out').release()
    for owner in ({'pid': os.getppid(), 'host': socket.gethostname()}, {'pid': 7, 'host': 'far'}):
        file.write_text(json.dumps(owner))
        with pytest.raises(UserError, match=f'process {owner["pid"]}.* delete {file}'):
            FolderLock(tmp_path, 'out')


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / 'file').write_text('')
    with pytest.raises(UserError, match='cannot write'):
        FolderLock(tmp_path / 'file' / 'x', 'out')
