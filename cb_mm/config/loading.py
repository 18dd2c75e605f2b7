"""Configs: reading them, and changing them by the options of a tool.

Everything here turns a wrong word into one clear message. mmengine itself takes a misspelt key of
``cfg_options`` for a new one and silently ignores it.
"""

from __future__ import annotations

import argparse
import ast
import copy
import glob
import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mmengine import registry
from mmengine.config import Config, DictAction
from mmengine.runner import Runner
from torch.utils.data import DataLoader

from ..errors import MissingFile, UserError, did_you_mean, require_name
from . import restricted as safe_config
from .choices import apply_schedule as apply_schedule
from .choices import apply_test_set
from .dicts import require_dicts
from .ignore_index import follow_ignore_index
from .length import set_length
from .recipes import files as recipe_files
from .recipes import names_are_known, recipe_file
from .restricted.limits import TooLarge, counting_values

#: What a config that was made in Python is called.
IN_MEMORY = 'in_memory'

#: Top-level keys that something reads; all others are variables of the config file. So are
#: ``schedules`` and ``test_sets``: one of each is applied before the options are.
_READ_KEYS = {
    *inspect.signature(Runner.__init__).parameters,
    *('auto_scale_lr', 'custom_imports', 'tta_model', 'tta_pipeline', 'ignore_index'),
    *('runner_type', 'strategy'),
} - {'self', 'cfg'}


def load_config(
    source: str | Path | Config,
    options: Sequence[str] = (),
    test_set: str | None = None,
    schedule: str | None = None,
    length: tuple[int | None, int | None] = (None, None),
) -> Config:
    """Read a config file, choose a test set and a schedule in it, and apply ``key=value`` options.

    ``length`` scales the schedule to so many iterations or epochs. The options come last: what a
    user sets by name is what runs. A ``Config`` is copied, and the copy changed.
    """
    path = config_name(source)
    config = _copied(source) if isinstance(source, Config) else _read(Path(path))
    require_dicts(config, path)
    apply_test_set(config, test_set)
    apply_schedule(config, schedule)
    set_length(config, *length)
    changes = parse_options(options)
    for key in changes:
        _check_key(config, key)
    for key, value in changes.items():
        try:
            config.merge_from_dict({key: value})
        except (TypeError, KeyError, ValueError, IndexError, AttributeError) as error:
            raise UserError(
                f'`cfg_options` {key}: {value!r} does not fit the config: {error}'
            ) from error
    require_dicts(config, path)
    follow_ignore_index(config)
    safe_config.check(config, f'config {path} with `cfg_options`')
    return config


def config_name(source: str | Path | Config) -> str:
    """Return the file of a config, or what to call one that comes from no file."""
    if isinstance(source, Config):
        return source.filename or IN_MEMORY
    require_name(source, 'config')
    return str(source)


def _copied(config: Config) -> Config:
    if config.filename:
        return copy.deepcopy(config)
    # Messages and folders are called after the file: without one they need another name.
    return Config(config.to_dict(), cfg_text=f'# {IN_MEMORY}', filename=IN_MEMORY)


def _read(path: Path) -> Config:
    if not path.is_file():
        recipe = recipe_file(str(path))
        if recipe is None:
            raise MissingFile(f'config {path} does not exist.{_near(path)}')
        path = recipe
    if path.suffix not in ('.py', '.yaml', '.yml', '.json'):
        raise UserError(
            f'{path} is not a config: it does not end in .py, .yaml, .yml or .json. The config '
            'comes first, the checkpoint second.'
        )
    try:
        if safe_config.enabled():
            return safe_config.load(path)
        with counting_values(), names_are_known():
            return Config.fromfile(path)
    except UserError:
        raise
    except TooLarge as error:
        raise UserError(f'config {path}: {error}') from error
    except Exception as error:  # a config is a program: it can fail in any way
        kind = MissingFile if isinstance(error, FileNotFoundError) else UserError
        raise kind(_explain_reading(path, error)) from error


def _near(missing: Path) -> str:
    """Suggest the config that was meant: the same name in a family's folder, or a near name."""
    moved = sorted(missing.parent.glob(f'*/{glob.escape(missing.name)}'))
    if moved:
        return f' It is now {moved[0]}.'
    there = did_you_mean(missing.name, [file.name for file in missing.parent.glob('*.py')])
    return there or did_you_mean(missing.name.removesuffix('.py'), recipe_files())


def _explain_reading(path: Path, error: Exception) -> str:
    if isinstance(error, SyntaxError):
        file, line, reason = _find_syntax_error(path) or (path, error.lineno, error.msg)
        return f'config {file}, line {line}: it is not Python: {reason}.'
    missing = getattr(error, 'filename', None)
    if isinstance(error, FileNotFoundError) and missing:
        return f'config {path}: its base {missing} does not exist.{_near(Path(missing))}'
    return f'config {path} cannot be read: {type(error).__name__}: {error}.'


def _find_syntax_error(path: Path) -> tuple[Path, int | None, str] | None:
    """Return the file, of a config and its bases, that is not Python; mmengine does not say."""
    try:
        tree = ast.parse(path.read_text(encoding='utf-8'))
    except SyntaxError as error:
        return path, error.lineno, error.msg
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == '_base_':
            for node in ast.walk(statement.value):
                named = node.value if isinstance(node, ast.Constant) else None
                base = path.parent / named if isinstance(named, str) else None
                found = _find_syntax_error(base) if base and base.is_file() else None
                if found:
                    return found
    return None


def parse_options(words: Sequence[str]) -> dict[str, Any]:
    """Parse ``['a.b=1', 'c=[2,3]']`` to ``{'a.b': 1, 'c': [2, 3]}`` by mmengine's own rules."""
    for word in words:
        key, equals, _ = word.partition('=')
        if not equals or not key.strip('.'):
            raise UserError(f'`cfg_options` takes key=value pairs; "{word}" is not one.')
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument('--options', nargs='+', action=DictAction, default={})
    try:
        return parser.parse_args(['--options', *words]).options if words else {}
    except (AssertionError, ValueError, argparse.ArgumentError) as error:
        raise UserError(f'`cfg_options` cannot be read: {error}') from error


def _check_key(config: Config, key: str) -> None:
    """Check that each part of the key exists, or is an argument of the class that gets it."""
    scope = config.get('default_scope', 'mmengine')
    first = key.split('.')[0]
    if first not in _READ_KEYS:
        if first in config:
            raise UserError(
                f'`cfg_options` {key}: "{first}" is a variable inside the config file; changing it '
                'has no effect. Name the place where it is used, such as '
                'train_dataloader.dataset.data_root.'
            )
        raise UserError(
            f'`cfg_options` {key}: the config has no "{first}".{did_you_mean(first, config)}'
        )
    if first not in config:
        return
    node: Any = config.to_dict()
    done: list[str] = []
    for part in key.split('.'):
        where = '.'.join(done) or 'the config'
        if isinstance(node, list):
            if not part.isdigit() or int(part) >= len(node):
                raise UserError(
                    f'`cfg_options` {key}: {where} is a list of {len(node)}; "{part}" is not one '
                    f'of its places 0 to {len(node) - 1}.'
                )
            node = node[int(part)]
        elif isinstance(node, dict):
            if part not in node:
                known = {*node, *(_arguments(node, scope, done) or ())}
                if part in known or _arguments(node, scope, done) is None:
                    return  # a new argument; what is below it cannot be checked
                raise UserError(
                    f'`cfg_options` {key}: {where} has no "{part}".{did_you_mean(part, known)} '
                    f'It has: {", ".join(sorted(known - {"self"}))}.'
                )
            node = node[part]
        else:
            raise UserError(f'`cfg_options` {key}: {where} is {node!r}, which has no keys.')
        done.append(part)


def _arguments(node: dict, scope: str, path: list[str]) -> set[str] | None:
    """Return the names that the class of this dict takes; None where any name may be right."""
    if path and path[-1].endswith('_dataloader'):
        return {*inspect.signature(DataLoader.__init__).parameters, 'dataset', 'sampler'}
    if path == ['model', 'test_cfg'] and scope == 'mmseg':  # no class, but these are read
        return {'mode', 'crop_size', 'stride'}
    if 'type' not in node:
        return set()
    built = _find_class(node['type'], scope)
    if not inspect.isclass(built):
        return None
    names: set[str] = {'type', '_delete_', '_scope_'}
    for base in built.__mro__:
        if '__init__' not in vars(base):
            continue
        parameters = inspect.signature(vars(base)['__init__']).parameters.values()
        names |= {p.name for p in parameters}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            return names
    return None


def _find_class(kind: Any, scope: str) -> Any:
    if not isinstance(kind, str):
        return kind
    for root in vars(registry).values():
        if isinstance(root, registry.Registry):
            with root.switch_scope_and_registry(scope) as local:
                try:
                    found = local.get(kind)
                except Exception:  # a scope that is not installed
                    found = None
                if found is not None:
                    return found
    return None


def dataset_configs(
    config: Config, splits: Sequence[str] = ('train', 'val', 'test')
) -> Iterator[dict]:
    """Yield every data set of these splits in the config, including wrapped ones."""

    def inner(node: Any) -> Iterator[dict]:
        if isinstance(node, dict):
            if 'data_root' in node or 'ann_file' in node:
                yield node
            for key in ('dataset', 'datasets'):
                yield from inner(node.get(key))
        elif isinstance(node, (list, tuple)):
            for item in node:
                yield from inner(item)

    for split in splits:
        yield from inner(config.get(f'{split}_dataloader'))


def dataset_class(config: Config, dataset: dict) -> Any:
    """Return the class of a data set of the config; None where it is not known."""
    if not isinstance(kind := dataset.get('type'), str):
        return kind
    # The names of mmseg and mmdet are known in their own registries alone.
    with registry.DATASETS.switch_scope_and_registry(config.get('default_scope')) as datasets:
        return datasets.get(kind)


def set_data_root(config: Config, root: str | Path | None) -> None:
    """Let every data set, and every metric with its own file, look under ``root``."""
    if root is None:
        return
    if not Path(root).is_dir():
        raise UserError(f'`data_root` {root} is not a folder.')
    roots = {str(dataset.get('data_root') or '').rstrip('/') for dataset in dataset_configs(config)}
    old = sorted(roots - {''}, key=len, reverse=True)  # one may be inside another
    for dataset in dataset_configs(config):
        dataset['data_root'] = str(root)
    for split in ('val', 'test'):
        metrics = config.get(f'{split}_evaluator') or {}
        metrics = metrics.get('metrics', metrics) if isinstance(metrics, dict) else metrics
        for metric in metrics if isinstance(metrics, (list, tuple)) else [metrics]:
            for name in ('ann_file', 'seg_prefix'):
                file = str((metric or {}).get(name) or '')
                base = next((one for one in old if file.startswith(f'{one}/')), None)
                if base:
                    metric[name] = str(Path(root) / file[len(base) :].lstrip('/'))


def replace_sync_bn(config: Config) -> bool:
    """Turn every SyncBN into BN, return True if there was one. SyncBN needs several GPUs."""

    def walk(node: Any) -> int:
        found = 0
        if isinstance(node, dict):
            if node.get('type') == 'SyncBN':
                node['type'] = 'BN'
                found = 1
            found += sum(map(walk, list(node.values())))
        elif isinstance(node, (list, tuple)):
            found += sum(map(walk, node))
        return found

    return walk(config.model) > 0
