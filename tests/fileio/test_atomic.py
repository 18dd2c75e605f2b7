"""Files that are written atomically."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cb_mm.errors import UserError
from cb_mm.fileio.atomic import draft_of, write_atomically


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_folders_are_made_and_nothing_else_is_left(tmp_path):
    path = write_atomically(tmp_path / 'a' / 'b' / 'x.txt', 'grün')
    assert path.read_text(encoding='utf-8') == 'grün'
    write_atomically(path, b'\x00\x01')
    assert path.read_bytes() == b'\x00\x01'
    assert names(path.parent) == ['x.txt']


def test_the_old_file_stays_when_writing_fails(tmp_path):
    path = write_atomically(tmp_path / 'x.txt', 'old')

    def fail() -> None:
        with draft_of(path) as draft:
            draft.write_text('half of the n')
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == 'old'
    assert names(tmp_path) == ['x.txt']


def test_the_message_names_the_file(tmp_path):
    (tmp_path / 'folder').mkdir()
    (tmp_path / 'file').write_text('')
    for path in (tmp_path / 'folder', tmp_path / 'file' / 'below'):
        with pytest.raises(UserError, match='cannot write') as caught:
            write_atomically(path, 'new')
        assert str(path) in str(caught.value)
    assert names(tmp_path) == ['file', 'folder']


@pytest.mark.skipif(os.name != 'posix', reason='kill -9 is of POSIX')
def test_a_kill_leaves_the_old_file(tmp_path):
    path = write_atomically(tmp_path / 'x.txt', 'old')
    script = f"""
import os, signal
from cb_mm.fileio.atomic import draft_of
with draft_of({str(path)!r}) as draft:
    draft.write_text('new')
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, '-c', script], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == 'old'


class Observer:
    """Notes what happens to files, and lets it happen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[str] = []
        fsync, rename = os.fsync, Path.replace

        def seen_fsync(handle) -> None:
            number = handle if isinstance(handle, int) else handle.fileno()
            kind = 'folder' if stat.S_ISDIR(os.fstat(number).st_mode) else 'file'
            size = os.fstat(number).st_size if kind == 'file' else ''
            self.events.append(f'fsync {kind} {size}'.strip())
            fsync(handle)

        def seen_rename(path: Path, target: Path) -> Path:
            self.events.append(f'rename to {Path(target).name}')
            return rename(path, target)

        monkeypatch.setattr(os, 'fsync', seen_fsync)
        monkeypatch.setattr(Path, 'replace', seen_rename)


def test_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """After a power cut no name stands for an empty file: the bytes go to the disk first."""
    seen = Observer(monkeypatch)
    write_atomically(tmp_path / 'x.txt', 'twelve bytes')
    assert seen.events == ['fsync file 12', 'rename to x.txt', 'fsync folder']


def test_records_are_on_the_disk(tmp_path, monkeypatch):
    """A line of results that was reported as done is still there after a power cut."""
    from cb_mm.robustness.records import RecordFile

    with RecordFile(tmp_path / 'results.jsonl', {'model': 'a'}) as records:
        seen = Observer(monkeypatch)
        for number in range(2):
            records.append({'key': str(number)})
            size = (tmp_path / 'results.jsonl').stat().st_size
            assert seen.events[-1] == f'fsync file {size}'
    assert len(seen.events) == 2
