"""One run per folder: a second one is refused and told who holds it; a dead one holds no lock."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from datetime import datetime, timezone
from pathlib import Path
from typing import NoReturn

from ..errors import UserError

try:
    import fcntl
except ImportError:  # Windows: the process that the file names is looked up instead
    fcntl = None  # type: ignore[assignment]

NAME = '.lock'
#: The open files that hold a folder for this process.
_held: set[int] = set()


def _let_go() -> None:
    """Close inherited lock files in a forked process: the lock belongs to the parent."""
    for handle in _held:
        os.close(handle)
    _held.clear()


if hasattr(os, 'register_at_fork'):
    os.register_at_fork(after_in_child=_let_go)


class FolderLock:
    """A lock on a folder until `release`, or until the process ends for any reason.

    The lock (`flock`) belongs to the open file, not to the process: a second one is refused within
    the same process too, and reading the file does not end the first, as POSIX's `lockf` would.
    The processes that load data do not keep it, so that after a kill the folder is free at once.

    Args:
        folder: Created if needed.
        parameter: The parameter that names another folder, for the message.

    Raises:
        UserError: Another process holds the folder, or it is not writable.
    """

    def __init__(self, folder: str | Path, parameter: str) -> None:
        self.folder, self.parameter = Path(folder), parameter
        self.path = self.folder / NAME
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            while True:
                self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
                self._lock()
                # The previous holder may have removed the file between our opening and locking it.
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(self._handle), os.stat(self.path)):
                        break
                os.close(self._handle)
            about = {
                'pid': os.getpid(),
                'host': socket.gethostname(),
                'since': datetime.now(timezone.utc).isoformat(timespec='seconds'),
            }
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, json.dumps(about).encode(), 0)
        except OSError as error:
            raise UserError(f'cannot write {self.path}: {error.strerror}.') from error
        _held.add(self._handle)

    def release(self) -> None:
        """Release the folder and remove the file; do nothing in a forked process."""
        handle, self._handle = self._handle, -1
        if handle in _held:
            _held.discard(handle)
            with contextlib.suppress(OSError):
                self.path.unlink()
            os.close(handle)

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _lock(self) -> None:
        try:
            if fcntl is None:
                raise OSError('no locks')
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._handle)
            self._refuse()
        except OSError:  # a file system without locks: rely on the content of the file
            if _alive(_read(self.path)):
                os.close(self._handle)
                self._refuse(f' If that run is gone, delete {self.path}.')

    def _refuse(self, more: str = '') -> NoReturn:
        owner = _read(self.path)
        who = f'process {owner.get("pid", "?")} on {owner.get("host", "?")}'
        since = f', since {owner["since"]}' if owner.get('since') else ''
        raise UserError(
            f'{self.folder} is in use by another run ({who}{since}). Wait for it, end it, or pass '
            f'another `{self.parameter}`.{more}'
        )


def _read(path: Path) -> dict:
    try:
        owner = json.loads(path.read_bytes()[:1000])
    except (OSError, ValueError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _alive(owner: dict) -> bool:
    """Return whether the named process runs; one on another host is assumed to run."""
    pid = owner.get('pid')
    if not isinstance(pid, int) or pid <= 0:
        return False
    if owner.get('host') != socket.gethostname():
        return True
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
