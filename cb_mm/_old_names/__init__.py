"""Where modules stood before the package had rooms: the old import paths, for one release.

Nothing in cb_mm uses them. This folder is the last place where ``import cb_mm.<name>`` looks; a
stub here warns and hands over the module at its new place. Remove the folder, and the lines that
name it in the rooms, in the release after next.
"""

import importlib
import sys
import warnings
from collections.abc import Callable
from pathlib import Path


def folder(room: str = '') -> str:
    """Return the folder with the old names of a room, to append to its ``__path__``."""
    return str(Path(__file__).parent / room)


def moved(old: str, new: str) -> None:
    """Warn that a module has moved, and put it where it was."""
    warn(old, new, stacklevel=4)
    sys.modules[old] = importlib.import_module(new)


def renamed(module: str, names: dict[str, str]) -> Callable[[str], object]:
    """Return a ``__getattr__`` for a module, under which the old names in it still work.

    ``names`` has their new names: in the same module, or with the module that has them now.
    """

    def find(name: str) -> object:
        if name not in names:
            raise AttributeError(f'module {module!r} has no attribute {name!r}')
        home, _, new = names[name].rpartition('.')
        warn(f'{module}.{name}', f'{home or module}.{new}')
        return getattr(importlib.import_module(home or module), new)

    return find


def warn(old: str, new: str, stacklevel: int = 3) -> None:
    """Warn whoever imports an old name."""
    warnings.warn(
        f'{old} is now {new}; the old name will be removed in the next release',
        DeprecationWarning,
        stacklevel=stacklevel,
    )
