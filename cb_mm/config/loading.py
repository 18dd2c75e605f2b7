"""Configs: reading them, and changing them by the options of a tool.

Everything here turns a wrong word into one clear message.
"""

from __future__ import annotations

import ast
import copy
import glob
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mmengine import registry
from mmengine.config import Config

from ..errors import MissingFile, UserError, did_you_mean, require_name
from . import restricted as safe_config
from .choices import apply_schedule as apply_schedule
from .choices import apply_test_set
from .dicts import require_dicts
from .ignore_index import follow_ignore_index
from .length import set_length
from .options import check_key, parse_options
from .recipes import files as recipe_files
from .recipes import names_are_known, recipe_file
from .restricted.limits import TooLarge, counting_values

#: What a config that was made in Python is called.
IN_MEMORY = 'in_memory'


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
        check_key(config, key)
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
