"""A config file and its bases, read and merged as mmengine does, but never run."""

from __future__ import annotations

import ast
import importlib.util
import os
import warnings
from pathlib import Path
from typing import Any

from mmengine.config import Config, ConfigDict

from ...errors import MissingFile, UserError
from ..recipes import SCOPE, base_file
from .base_values import FILLED_IN, BaseValue
from .budget import Budget, Refusal
from .evaluate import Evaluator
from .limits import TooLarge, count_values, show

MAX_BYTES = 1_000_000
MAX_FILES = 100
MAX_LEVELS = 20
#: Packages whose own configs may be a base: ``mmdet::_base_/default_runtime.py``.
CONFIG_PACKAGES = ('mmdet', 'mmpretrain', 'mmseg')


class Reader:
    """Reader of one config with its bases; the limits hold for all of its files together."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._budget = Budget()
        self._bytes = 0

    def read(self, path: Path, inside: tuple[Path, ...] = ()) -> dict[str, Any]:
        """Return the values of a file, merged into those of its bases.

        Raises:
            UserError: It holds anything but data; file and line are named.
        """
        text = self._text(path, inside)
        tree = _parse(path, text)
        bases = [statement for statement in tree.body if _is_base(statement)]
        try:
            base = self._bases(path, bases, inside)
            others = [statement for statement in tree.body if statement not in bases]
            values = Evaluator(base, self._budget).run(others)
            values.pop('_deprecation_', None)
            count_values(values)
            values = {name: _fill_in(value, base) for name, value in values.items()}
            count_values([values, base])
            merged = Config._merge_a_into_b(values, base)
        except Refusal as refusal:
            raise _refusal(path, refusal.line, str(refusal)) from None
        except (TooLarge, TypeError, KeyError, AttributeError) as error:  # or a merge does not fit
            raise UserError(f'`safe_config`: config {path}: {show(error, 200)}') from error
        except RecursionError as error:
            raise UserError(f'`safe_config`: config {path} is nested too deeply.') from error
        self.texts.append(f'{os.path.abspath(path)}\n{text}')
        return {name: value for name, value in merged.items() if not name.startswith('__')}

    def _bases(
        self, path: Path, statements: list[ast.stmt], inside: tuple[Path, ...]
    ) -> ConfigDict:
        base = ConfigDict()
        if len(statements) > 1:
            raise Refusal(statements[1], 'it has _base_ twice')
        for statement in statements:
            for name in _base_names(statement):
                file, scope = _find(path, statement, name)
                found = self.read(file, (*inside, path.resolve()))
                if double := base.keys() & found.keys():
                    raise Refusal(statement, f'two of its bases have "{min(double)}"')
                base.update(Config._dict_to_config_dict(found, scope))
        return base

    def _text(self, path: Path, inside: tuple[Path, ...]) -> str:
        if path.suffix != '.py':
            raise _refusal(path, 1, 'it is not a .py file')
        if path.resolve() in inside:
            raise _refusal(path, 1, 'it is a base of itself')
        if len(inside) >= MAX_LEVELS or len(self.texts) >= MAX_FILES:
            raise _refusal(path, 1, 'it has too many bases')
        try:
            with path.open('rb') as stream:
                content = stream.read(MAX_BYTES + 1)
        except OSError as error:
            raise UserError(f'config {path} cannot be read: {error.strerror}.') from error
        self._bytes += len(content)
        if self._bytes > MAX_BYTES:
            raise _refusal(path, 1, f'with its bases it has more than {MAX_BYTES:,} bytes')
        try:
            text = content.decode('utf-8')
        except UnicodeDecodeError as error:
            raise _refusal(path, 1, 'it is not UTF-8') from error
        if found := FILLED_IN.search(text):
            line = text.count('\n', 0, found.start()) + 1
            raise _refusal(path, line, 'it has a {{...}} that mmengine would fill in')
        return text


def _parse(path: Path, text: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # "invalid escape sequence" and the like
            return ast.parse(text, str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = getattr(error, 'msg', None) or type(error).__name__
        line = getattr(error, 'lineno', None) or 1
        raise _refusal(path, line, f'it is not Python: {reason}') from error


def _is_base(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == '_base_' for target in statement.targets
    )


def _base_names(statement: ast.stmt) -> list[str]:
    assert isinstance(statement, ast.Assign)
    try:
        given = ast.literal_eval(statement.value)
    except (ValueError, TypeError, RecursionError, MemoryError):
        given = None
    names = given if isinstance(given, list) else [given]
    if len(statement.targets) > 1 or not all(isinstance(name, str) for name in names):
        raise Refusal(statement, '_base_ must be names of files')
    return names


def _find(path: Path, statement: ast.stmt, name: str) -> tuple[Path, str | None]:
    """Return the file of a base, and the package whose parts it names."""
    if name.startswith(SCOPE) and '\0' not in name:
        return base_file(name), None
    package, colons, inside = name.rpartition('::')
    if '://' in name or '~' in name or '\0' in name or (colons and package not in CONFIG_PACKAGES):
        raise Refusal(statement, f'its base {show(name)} is not a local file')
    if colons:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise Refusal(statement, f'its base {show(name)}: {package} is not installed')
        folder = Path(spec.origin).parent / '.mim' / 'configs'
        file = folder / inside
        if not file.resolve().is_relative_to(folder.resolve()):
            raise Refusal(statement, f'its base {show(name)} is not a config of {package}')
    else:
        file = path.parent / name
    if not file.is_file():
        raise MissingFile(f'config {path}: its base {show(name)} does not exist.')
    return file, package or None


def _fill_in(value: Any, base: ConfigDict) -> Any:
    """Replace each ``{{_base_.a}}`` by what the base has; the result shares no list or dict."""
    if isinstance(value, BaseValue):
        found: Any = base
        for key in value.keys:
            found = found[key]
        return found
    if isinstance(value, ConfigDict):
        return ConfigDict({key: _fill_in(item, base) for key, item in value.items()})
    if isinstance(value, dict):
        return {key: _fill_in(item, base) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_fill_in(item, base) for item in value)
    return value


def _refusal(path: Path, line: int, what: str) -> UserError:
    return UserError(
        f'`safe_config`: {path}, line {line}: {what.rstrip(".")}. Allowed are literals, _base_, '
        'names of earlier values, and calls of dict, list and tuple. Without the option a config '
        'runs as a program: read it first.'
    )
