"""mmengine's reading of files by their endings, without what could run code.

``mmengine.load('x.pkl')`` unpickles, and ``mmengine.load('x.yaml')`` builds whatever Python object
the file names. Such file names in a safe config are refused; this catches those that data sets
build.
"""

from __future__ import annotations

from typing import Any

import yaml
from mmengine.fileio import handlers
from mmengine.fileio.handlers import PickleHandler, YamlHandler

from ...errors import UserError

_FILE_HANDLERS: dict[str, Any] = handlers.file_handlers
_before: dict[str, Any] = {}


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


def install() -> None:
    """Let mmengine refuse pickles, and read YAML as data."""
    if not _before:
        _before.update(_FILE_HANDLERS)
        pickles, data = RefusingPickles(), PlainYaml()
        _FILE_HANDLERS.update(pkl=pickles, pickle=pickles, yaml=data, yml=data)


def uninstall() -> None:
    """Undo `install`."""
    _FILE_HANDLERS.update(_before)
    _before.clear()
