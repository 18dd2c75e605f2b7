"""mmengine's local files, whole or absent; see `cb_mm.safe_io` for how it comes into use."""

from __future__ import annotations

from pathlib import Path

from mmengine.fileio import LocalBackend

from .atomic import write_atomically


class AtomicBackend(LocalBackend):
    """Write local files beside their place, and rename them when they are on the disk."""

    def put(self, obj: bytes, filepath: str | Path) -> None:
        """Write bytes."""
        write_atomically(filepath, obj)

    def put_text(self, obj: str, filepath: str | Path, encoding: str = 'utf-8') -> None:
        """Write text."""
        write_atomically(filepath, obj.encode(encoding))
