"""Files in a folder and all folders below it."""

from __future__ import annotations

import os
from pathlib import Path


def list_files(folder: str | Path) -> list[str]:
    """List all files below ``folder``: relative names with '/', sorted, hidden ones left out."""
    names = []
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith('.')]
        below = os.path.relpath(where, folder)
        prefix = '' if below == '.' else Path(below).as_posix() + '/'
        names += [prefix + name for name in files if not name.startswith('.')]
    return sorted(names)
