"""mmengine's reading of files, without what could run code, connect, wait or never end.

``mmengine.load('x.pkl')`` unpickles, and ``mmengine.load('x.yaml')`` builds whatever Python object
the file names. Such file names in a safe config are refused; this catches those that data sets
build. Pipes wait for a writer, and devices such as ``/dev/zero`` have no end. An address in place
of a file name connects to where it says, and its answer may have no end either.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Callable
from typing import Any

import yaml
from mmengine.fileio import FileClient, LocalBackend, handlers
from mmengine.fileio import io as mmengine_io
from mmengine.fileio.handlers import PickleHandler, YamlHandler

from ...errors import UserError

_FILE_HANDLERS: dict[str, Any] = handlers.file_handlers
_before: dict[str, Any] = {}
#: Where mmengine looks up what reads 'http://...': by prefix; '' is a local file.
_BY_PREFIX: tuple[dict[str, Any], ...] = (
    mmengine_io.prefix_to_backends, FileClient._prefix_to_backends,
)  # fmt: skip
_before_by_prefix: list[dict[str, Any]] = []


class RefusingPickles(PickleHandler):
    """Handler that writes pickles, but never reads them."""

    def load_from_fileobj(self, file: Any, **options: Any) -> Any:
        """Refuse."""
        raise UserError(
            f'`safe_config`: {getattr(file, "name", "a file")} is a pickle; reading it can run any '
            'code. Leave the option out if you trust the config and the file.'
        )

    def load_from_path(self, filepath: Any, **options: Any) -> Any:
        """Refuse."""
        raise UserError(f'`safe_config`: {filepath} is a pickle; reading it can run any code.')


class PlainYaml(YamlHandler):
    """Handler that reads only plain data from YAML."""

    def load_from_fileobj(self, file: Any, **options: Any) -> Any:
        """Return the data; a Python object is an error."""
        try:
            return yaml.load(file, Loader=yaml.SafeLoader)
        except yaml.YAMLError as error:
            first = ' '.join(str(error).split())[:200]
            raise UserError(f'`safe_config`: a YAML file holds more than data: {first}.') from error


def is_plain(path: Any) -> bool:
    """Return whether it is no pipe, no device, and nothing that the system shows as a file.

    What does not exist fails when it is opened.
    """
    try:
        kind = os.stat(path).st_mode
    except (OSError, ValueError):
        return True
    return (stat.S_ISREG(kind) or stat.S_ISDIR(kind)) and not _is_of_the_system(path)


def _require_file(path: Any) -> None:
    if not is_plain(path):
        raise UserError(f'`safe_config`: {path} is not a plain file.')


def _require_folder(path: Any) -> None:
    """Refuse to list all files of the machine, or those that the system shows of processes."""
    if _is_of_the_system(path) or os.path.realpath(path) == os.sep:
        raise UserError(f'`safe_config`: {path} is not a folder of data.')


def _is_of_the_system(path: Any) -> bool:
    return os.path.realpath(path).split(os.sep)[1:2] in (['proc'], ['sys'])


#: Method of mmengine's backend -> what looks at the path first.
_CHECKS: dict[str, Callable[[Any], None]] = {
    **dict.fromkeys(('get', 'get_text', 'get_local_path'), _require_file),
    'list_dir_or_file': _require_folder,
}
_unchecked = {name: vars(LocalBackend)[name] for name in _CHECKS}


def _checked(name: str) -> Callable[..., Any]:
    method, check = _unchecked[name], _CHECKS[name]

    @functools.wraps(method)
    def read(self: LocalBackend, path: Any, *args: Any, **kwargs: Any) -> Any:
        check(path)
        return method(self, path, *args, **kwargs)

    return read


def _refuse_address(prefix: str, **_: Any) -> None:
    raise UserError(
        f'`safe_config`: data at an address of {prefix}: a safe config reads local files. Download '
        'them and name the folder.'
    )


def install() -> None:
    """Let mmengine refuse pickles, pipes, devices and addresses, and read YAML as data."""
    for name in _CHECKS:
        setattr(LocalBackend, name, _checked(name))
    if not _before:
        _before.update(_FILE_HANDLERS)
        pickles, data = RefusingPickles(), PlainYaml()
        _FILE_HANDLERS.update(pkl=pickles, pickle=pickles, yaml=data, yml=data)
        for table in _BY_PREFIX:
            _before_by_prefix.append(dict(table))
            table.update({p: functools.partial(_refuse_address, p) for p in table if p})
        mmengine_io.backend_instances.clear()  # those that it has used


def uninstall() -> None:
    """Undo `install`."""
    for name, method in _unchecked.items():
        setattr(LocalBackend, name, method)
    _FILE_HANDLERS.update(_before)
    _before.clear()
    for table, before in zip(_BY_PREFIX, _before_by_prefix, strict=False):
        table.update(before)
    _before_by_prefix.clear()
