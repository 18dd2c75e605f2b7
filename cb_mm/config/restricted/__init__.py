"""Configs without code, for ``safe_config``.

A config is a Python program, and mmengine runs it. Here it is never run: its text is parsed, the
part of Python that configs use is evaluated to plain data, and the data are checked for what the
classes that they name would do with them:

- `evaluate`, `arithmetic` and `budget`: from syntax to data, within limits;
- `files`: a file and its bases, merged by mmengine's rules;
- `content` and `types`: which keys, types and options pass;
- `readers`: which files mmengine then reads;
- `limits`: how large a config may be, safe or not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from mmengine.config import Config
from mmengine.registry import registry as registry_module
from mmengine.utils import import_modules_from_strings

from . import readers
from .content import check_content
from .files import Reader

__all__ = ['check', 'disable', 'enable', 'enabled', 'load', 'only_data', 'read']
_on = False
_by_import_path = registry_module.get_object_from_string
_from_file = vars(Config)['fromfile']


def enable() -> None:
    """Let this process read safe configs only from now on, and build nothing by import path.

    That includes configs that the classes of a config read, such as a detector's teacher's.
    """
    global _on
    _on = True
    registry_module.get_object_from_string = lambda name: None
    Config.fromfile = staticmethod(lambda filename, *_, **__: load(Path(filename)))
    readers.install()


def disable() -> None:
    """Undo `enable`."""
    global _on
    _on = False
    registry_module.get_object_from_string = _by_import_path
    Config.fromfile = _from_file
    readers.uninstall()


@contextlib.contextmanager
def only_data(on: bool = True) -> Iterator[None]:
    """Let this process read safe configs only, within the block."""
    if not on or _on:
        yield
        return
    enable()
    try:
        yield
    finally:
        disable()


def enabled() -> bool:
    """Return whether `enable` was called."""
    return _on


def read(path: Path) -> Config:
    """Read a config without running it, or importing anything for it.

    Raises:
        UserError: It holds anything but data, or data that would run code; what and where is named.
    """
    reader = Reader()
    values = reader.read(path)
    check_content(values, f'config {path}')
    return Config(values, cfg_text='\n'.join(reader.texts), filename=str(path))


def load(path: Path) -> Config:
    """Read a config as `read` does, and import the modules that register what it names."""
    config = read(path)
    if config.get('custom_imports'):
        import_modules_from_strings(**config.custom_imports)
    return config


def check(config: Config, what: str) -> None:
    """Check a config again, after options or a choice inside it have changed it."""
    if _on:
        check_content(config.to_dict(), what)
