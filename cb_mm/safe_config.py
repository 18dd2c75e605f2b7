"""Configs without code, for ``--safe-config``: looked through before anything of them runs.

A config is a Python program, and mmengine runs it. Besides, a ``type`` with dots in it
(``os.system``) makes mmengine import and call whatever it names, and ``{{$NAME:text}}`` puts text
into the program after it was looked through. All three are refused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.registry import registry as registry_module
from mmengine.utils import import_modules_from_strings

from .errors import UserError

#: Packages whose parts a safe config may use.
PACKAGES = ('cb_mm', 'mmcv', 'mmdet', 'mmengine', 'mmpretrain', 'mmseg')
_CALLS = ('dict', 'list', 'tuple')
_SCOPE_KEYS = ('default_scope', '_scope_')
_TYPE_KEYS = ('type', 'constructor', 'runner_type')
#: mmengine reads files of these kinds in ways that can run code.
_CODE_FILES = ('.pkl', '.pickle', '.yaml', '.yml')
_on = False


def enable() -> None:
    """From now on this process reads safe configs only, and builds nothing by its import path."""
    global _on
    _on = True
    registry_module.get_object_from_string = lambda name: None


def enabled() -> bool:
    """Whether `enable` was called."""
    return _on


def load(path: Path) -> Config:
    """Read a config after looking through it and its bases.

    Raises:
        UserError: It holds anything but data; file and line are named.
    """
    check_file(path, [])
    config = Config.fromfile(path, import_custom_modules=False)
    check_content(config.to_dict(), path)
    if config.get('custom_imports'):
        import_modules_from_strings(**config.custom_imports)
    return config


def check_file(path: Path, inside: list[Path]) -> None:
    """Look through one file and its bases, without running them."""
    if path.suffix != '.py':
        raise _refusal(path, 1, 'it is not a .py file')
    resolved = path.resolve()
    if resolved in inside:
        raise _refusal(path, 1, 'it is a base of itself')
    try:
        text = path.read_text(encoding='utf-8')
        tree = ast.parse(text, str(path))
    except OSError as error:
        raise UserError(f'config {path} cannot be read: {error.strerror}.') from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = getattr(error, 'msg', None) or type(error).__name__
        raise _refusal(
            path, getattr(error, 'lineno', None) or 1, f'it is not Python: {reason}'
        ) from (error)
    for number, line in enumerate(text.splitlines(), 1):
        if '{{' in line:
            raise _refusal(path, number, 'it has a {{...}} that mmengine would fill in')
    names: set[str] = set()
    for statement in tree.body:
        _check_statement(statement, path, names)
        for base in _bases(statement, path):
            if '::' in base or '://' in base:
                raise _refusal(path, statement.lineno, f'its base {base} is not a local file')
            file = (path.parent / base).expanduser()
            if not file.is_file():
                raise UserError(f'config {path}: its base {base} does not exist.')
            check_file(file, [*inside, resolved])


def _check_statement(statement: ast.stmt, path: Path, names: set[str]) -> None:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return  # a docstring
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        targets: list[ast.expr] = [statement.target]
    elif isinstance(statement, ast.Assign):
        targets = statement.targets
    else:
        raise _refusal(path, statement.lineno, f'"{_words(statement)}" is no assignment of data')
    if statement.value is not None:
        _check_value(statement.value, path, names)
    for target in targets:
        if not isinstance(target, ast.Name):
            raise _refusal(path, statement.lineno, f'"{_words(target)}" is not a plain name')
        names.add(target.id)


def _check_value(node: ast.expr, path: Path, names: set[str]) -> None:
    """Data: literals, names of earlier data and parts of them, calls of dict, list and tuple."""
    waiting: list[ast.expr | None] = [node]
    while waiting:
        one = waiting.pop()
        if one is None or _is_plain(one, names):
            continue  # None is the key of a ** in a dict
        if isinstance(one, (ast.List, ast.Tuple, ast.Set)):
            waiting += one.elts
        elif isinstance(one, ast.Dict):
            waiting += [*one.keys, *one.values]
        elif isinstance(one, ast.Starred) or (
            isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Constant)
        ):
            waiting.append(one.value)
        elif (
            isinstance(one, ast.Call)
            and isinstance(one.func, ast.Name)
            and (one.func.id in _CALLS and one.func.id not in names)
        ):
            waiting += [*one.args, *(keyword.value for keyword in one.keywords)]
        else:
            raise _refusal(path, one.lineno, f'"{_words(one)}" is more than data')


def _is_plain(node: ast.expr, names: set[str]) -> bool:
    """A literal such as -1, the name of an earlier value, or of one in a base."""
    if isinstance(node, ast.UnaryOp):
        node = node.operand
        return isinstance(node, ast.Constant)
    if isinstance(node, ast.Name):
        return node.id in names
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Attribute) and _of_base(node))


def _of_base(node: ast.expr) -> bool:
    """``_base_.a.b``, mmengine's way to name what a base holds."""
    while isinstance(node, ast.Attribute) and not node.attr.startswith('_'):
        node = node.value
    return isinstance(node, ast.Name) and node.id == '_base_'


def _bases(statement: ast.stmt, path: Path) -> Iterator[str]:
    if not isinstance(statement, ast.Assign):
        return
    if '_base_' not in [target.id for target in statement.targets if isinstance(target, ast.Name)]:
        return
    try:
        given = ast.literal_eval(statement.value)
    except ValueError:
        given = None
    for base in given if isinstance(given, (list, tuple)) else [given]:
        if not isinstance(base, str):
            raise _refusal(path, statement.lineno, '_base_ must be names of files')
        yield base


def check_content(content: Any, path: Path) -> None:
    """Look through a config that has been read: what it would import, call and open."""
    for key, value in _items(content):
        if key == 'custom_imports':
            given = (value or {}).get('imports') if isinstance(value, dict) else value
            for module in [given] if isinstance(given, str) else given or ():
                if str(module).split('.')[0] not in PACKAGES:
                    raise UserError(
                        f'--safe-config: config {path} imports "{module}"; allowed are '
                        f'{", ".join(PACKAGES)}.'
                    )
        elif key in _SCOPE_KEYS and value is not None and value not in PACKAGES:
            raise UserError(f'--safe-config: config {path} names the package "{value}" as {key}.')
        elif key in _TYPE_KEYS and isinstance(value, str) and '.' in value:
            # "mmdet.FPN" is a name in a registry, "os.system" would be imported and called.
            scope, _, name = value.partition('.')
            if scope not in PACKAGES or not name.isidentifier():
                raise UserError(
                    f'--safe-config: config {path} has {key} "{value}", an import path. Only '
                    'registered names are allowed.'
                )
        elif isinstance(value, str) and value.lower().endswith(_CODE_FILES):
            raise UserError(
                f'--safe-config: config {path} names {value} ({key}); reading such a file can run '
                'code.'
            )


def _items(content: Any) -> Iterator[tuple[str, Any]]:
    """(key, value) of everything in nested dicts and lists; the items of a list have its key."""
    waiting: list[tuple[str, Any]] = [('', content)]
    while waiting:
        key, value = waiting.pop()
        yield key, value
        if isinstance(value, dict):
            waiting += [(str(name), item) for name, item in value.items()]
        elif isinstance(value, (list, tuple, set)):
            waiting += [(key, item) for item in value]


def _words(node: ast.AST) -> str:
    text = ' '.join(ast.unparse(node).split())
    return text if len(text) <= 60 else text[:57] + '...'


def _refusal(path: Path, line: int, what: str) -> UserError:
    return UserError(
        f'--safe-config: {path}, line {line}: {what}. Allowed are literals, _base_, names of '
        'earlier values, and calls of dict, list and tuple. Without the option a config runs as '
        'a program: read it first.'
    )
