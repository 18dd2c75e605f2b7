"""Options of the command line that change a config: ``a.b=1``.

mmengine itself takes a misspelt key for a new one and silently ignores it; here it is an error.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Sequence
from typing import Any

from mmengine import registry
from mmengine.config import Config, DictAction
from mmengine.runner import Runner
from torch.utils.data import DataLoader

from ..errors import UserError, did_you_mean

#: Top-level keys that something reads; all others are variables of the config file. So are
#: ``schedules`` and ``test_sets``: one of each is applied before the options are.
_READ_KEYS = {
    *inspect.signature(Runner.__init__).parameters,
    *('auto_scale_lr', 'custom_imports', 'tta_model', 'tta_pipeline', 'ignore_index'),
    *('runner_type', 'strategy'),
} - {'self', 'cfg'}


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


def check_key(config: Config, key: str) -> None:
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
