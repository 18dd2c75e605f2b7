"""What importing a module changes in a process: see compat/test_guest.py.

Run as ``python guest_job.py MODULE``: first the libraries that cb_mm itself uses are imported, then
MODULE; printed is a JSON object of all that differs, place -> [before, after].
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import os
import signal
import sys
import types
import warnings
from collections.abc import Iterator

WATCHED = ('mmengine', 'mmcv', 'mmseg', 'mmdet', 'mmpretrain', 'torch', 'timm', 'warnings')
#: All that registering is allowed to touch: what a registry holds, and where it looks for more.
REGISTRY_CONTENT = ('_module_dict', '_locations', '_imported', '_children')


def show(value: object, depth: int = 2) -> str:
    """A value by its identity, or by its content where that can change in place."""
    kind = type(value)
    if kind in (list, tuple, set, frozenset) and depth:
        items = [show(item, depth - 1) for item in value]
        return f'{kind.__name__}{items if kind in (list, tuple) else sorted(items)}'
    if kind is dict and depth:
        return f'dict{[(show(key, 0), show(item, depth - 1)) for key, item in value.items()]}'
    plain = (str, bytes, int, float, bool, type(None))
    return repr(value) if kind in plain else f'{kind.__name__} {id(value)}'


def attributes() -> Iterator[tuple[str, str]]:
    """Every attribute of the watched modules, of their classes and of their registries."""
    for name, module in sorted(sys.modules.items()):
        if name.split('.')[0] not in WATCHED or not isinstance(module, types.ModuleType):
            continue
        for key, value in list(vars(module).items()):
            if key == '__builtins__':
                continue
            if isinstance(value, types.ModuleType):
                yield f'{name}.{key}', value.__name__
            else:
                yield f'{name}.{key}', show(value)
            if inspect.isclass(value) and value.__module__ == name:
                for attribute, item in list(vars(value).items()):
                    if not attribute.startswith(('_abc_', '__')):
                        yield f'{name}.{key}.{attribute}', show(item)
            elif type(value).__name__ == 'Registry':
                for attribute, item in vars(value).items():
                    if attribute not in REGISTRY_CONTENT:
                        yield f'{name}.{key}.{attribute}', show(item)


def process() -> Iterator[tuple[str, str]]:
    """What belongs to the process as a whole."""
    yield 'warnings.filters', repr(warnings.filters)
    yield 'sys.meta_path', show(sys.meta_path)
    yield 'sys.path_hooks', show(sys.path_hooks)
    yield 'sys.path', repr(sys.path)
    yield 'sys.excepthook', show(sys.excepthook)
    yield 'os.environ', repr(sorted(os.environ.items()))
    for number in signal.valid_signals():
        yield f'signal {number}', repr(signal.getsignal(number))
    loggers = {'root': logging.root, **logging.root.manager.loggerDict}
    for name, logger in sorted(loggers.items()):
        if isinstance(logger, logging.Logger):
            state = (logger.level, logger.disabled, logger.propagate)
            yield f'logger {name}', f'{state} {show(logger.handlers)} {show(logger.filters)}'
    yield 'logging.disable', repr(logging.root.manager.disable)
    torch = sys.modules['torch']
    yield 'torch settings', repr((
        torch.get_default_dtype(), torch.get_num_threads(), torch.initial_seed(),
        torch.is_grad_enabled(), torch.backends.cudnn.benchmark,
        torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision(),
    ))  # fmt: skip
    yield 'random state', str(hash(torch.get_rng_state().numpy().tobytes()))


def snapshot() -> dict[str, str]:
    """All of it, by place."""
    return dict(process()) | dict(attributes())


def main(module: str) -> None:
    """Print what importing ``module`` changes."""
    for name in (
        'torch', 'torchvision', 'timm', 'cv2', 'scipy.special', 'safetensors.torch',
        'mmcv', 'mmcv.transforms',
        'mmengine', 'mmengine.hub', 'mmengine.runner', 'mmengine.model', 'mmengine.optim',
        'mmengine.dataset', 'mmengine.visualization', 'mmengine.hooks', 'mmengine.fileio',
        'mmseg', 'mmseg.registry', 'mmdet', 'mmdet.registry', 'mmpretrain',
    ):  # fmt: skip
        importlib.import_module(name)
    known = set(sys.modules)
    before = snapshot()
    importlib.import_module(module)
    after = snapshot()
    changed = {
        place: [before.get(place), after.get(place)]
        for place in sorted({*before, *after})
        if before.get(place) != after.get(place)
    }
    # A module that is imported for the first time brings its own attributes, and is one.
    fresh = {name for name in sys.modules if name not in known}
    print(json.dumps({
        place: change
        for place, change in changed.items()
        if not any(place == name or place.startswith(f'{name}.') for name in fresh - {'mmcv._ext'})
    }))  # fmt: skip


if __name__ == '__main__':
    main(sys.argv[1])
