"""mmengine's local files, written atomically; `cb_mm.safe_io` switches it on."""

from __future__ import annotations

from pathlib import Path

from mmengine.fileio import LocalBackend

from .atomic import write_atomically


class AtomicBackend(LocalBackend):
    """Write local files beside their final place, and rename them when they are on disk."""

    def put(self, obj: bytes, filepath: str | Path) -> None:
        """Write bytes."""
        write_atomically(filepath, obj)

    def put_text(self, obj: str, filepath: str | Path, encoding: str = 'utf-8') -> None:
        """Write text."""
        write_atomically(filepath, obj.encode(encoding))
