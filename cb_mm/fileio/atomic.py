"""Atomic writing: a draft beside the file is renamed to it once it is on disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from ..errors import UserError


@contextlib.contextmanager
def draft_of(path: str | os.PathLike) -> Iterator[Path]:
    """Yield the name of a draft; it becomes ``path`` when the block ends without an error.

    The folder is made. After an error, or a kill, ``path`` is what it was before.

    Raises:
        UserError: The disk is full, the folder cannot be written, and the like.
    """
    path = Path(path)
    draft = path.with_name(f'.{path.name}.{os.getpid()}.part')
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        with draft.open('rb') as stream:
            os.fsync(stream.fileno())
        draft.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise UserError(f'cannot write {path}: {error.strerror or error}.') from error
    finally:
        # Already gone if all went well; unreachable if the folder turned out to be a file.
        with contextlib.suppress(OSError):
            draft.unlink()


def write_atomically(path: str | os.PathLike, content: str | bytes) -> Path:
    """Write a file atomically: a reader never sees half of it."""
    with draft_of(path) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
    return Path(path)


def sync_folder(folder: Path) -> None:
    """Make sure that the name of a new file is on disk too."""
    with contextlib.suppress(OSError):  # some systems cannot open folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_drafts(folder: str | os.PathLike) -> None:
    """Remove what killed runs left behind; only for a folder that no other run writes to."""
    for draft in Path(folder).glob('.*.part'):
        with contextlib.suppress(OSError):
            draft.unlink()
