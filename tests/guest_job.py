"""What importing a module changes in a process: see compat/test_guest.py.

Run as ``python guest_job.py MODULE``: first the libraries that cb_mm itself uses are imported, then
MODULE; printed is a JSON object of all that differs, place -> [before, after].

Run as ``python guest_job.py calls CONFIG CHECKPOINT DATA IMAGE OUT``: the functions of cb_mm.apis
are called, one after the other; printed is such an object for each.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import multiprocessing
import os
import signal
import sys
import types
import warnings
from collections.abc import Callable, Iterator

WATCHED = ('mmengine', 'mmcv', 'mmseg', 'mmdet', 'mmpretrain', 'torch', 'timm', 'warnings')
#: All that registering is allowed to touch: what a registry holds, and where it looks for more.
REGISTRY_CONTENT = ('_module_dict', '_locations', '_imported', '_children')


def show(value: object, depth: int = 2) -> str:
    """A value by its identity, or by its content where that can change in place."""
    kind = type(value)
    if kind in (list, tuple, set, frozenset) and depth:
        items = [show(item, depth - 1) for item in value]
        return f'{kind.__name__}{items if kind in (list, tuple) else sorted(items)}'
    if isinstance(value, dict) and depth:
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
    yield 'start of processes', repr(multiprocessing.get_start_method(allow_none=True))
    for number in signal.valid_signals():
        yield f'signal {number}', repr(signal.getsignal(number))
    loggers = {'root': logging.root, **logging.root.manager.loggerDict}
    for name, logger in sorted(loggers.items()):
        if isinstance(logger, logging.Logger):
            state = (logger.level, logger.disabled, logger.propagate)
            yield f'logger {name}', f'{state} {show(logger.handlers)} {show(logger.filters)}'
    yield 'logging.disable', repr(logging.root.manager.disable)
    torch = sys.modules['torch']
    cv2 = sys.modules['cv2']
    yield 'torch settings', repr((
        cv2.getNumThreads(), torch.backends.cudnn.deterministic,
        torch.get_default_dtype(), torch.get_num_threads(), torch.initial_seed(),
        torch.is_grad_enabled(), torch.backends.cudnn.benchmark,
        torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision(),
    ))  # fmt: skip
    yield 'random state', str(hash(torch.get_rng_state().numpy().tobytes()))


def snapshot() -> dict[str, str]:
    """All of it, by place."""
    return dict(process()) | dict(attributes())


def import_libraries() -> None:
    """Import what cb_mm itself uses."""
    for name in (
        'torch', 'torchvision', 'timm', 'cv2', 'scipy.special', 'safetensors.torch',
        'mmcv', 'mmcv.transforms',
        'mmengine', 'mmengine.hub', 'mmengine.runner', 'mmengine.model', 'mmengine.optim',
        'mmengine.dataset', 'mmengine.visualization', 'mmengine.hooks', 'mmengine.fileio',
        'mmseg', 'mmseg.registry', 'mmdet', 'mmdet.registry', 'mmpretrain',
    ):  # fmt: skip
        importlib.import_module(name)


def changes(job: Callable[[], object]) -> dict[str, list]:
    """Return what differs after a job, place -> [before, after]."""
    known = set(sys.modules)
    before = snapshot()
    kept = job()  # until the look afterwards: what is freed could hide what has replaced it
    after = snapshot()
    del kept
    changed = {
        place: [before.get(place), after.get(place)]
        for place in sorted({*before, *after})
        if before.get(place) != after.get(place)
    }
    # A module that is imported for the first time brings its own attributes, and is one.
    fresh = {name for name in sys.modules if name not in known}
    return {
        place: change
        for place, change in changed.items()
        if not any(place == name or place.startswith(f'{name}.') for name in fresh - {'mmcv._ext'})
    }


def calls(config: str, checkpoint: str, data: str, image: str, out: str) -> dict[str, dict]:
    """Return what each function of cb_mm.apis changes, as it is called from a host's process."""
    from cb_mm import apis

    quick = ['test_dataloader.num_workers=0', 'test_dataloader.persistent_workers=False',
             'train_dataloader.num_workers=0', 'train_dataloader.persistent_workers=False',
             'val_dataloader.num_workers=0', 'val_dataloader.persistent_workers=False']  # fmt: skip
    given = (config, checkpoint)
    jobs = {
        'evaluate_robustness': lambda: apis.evaluate_robustness(
            *given, corruptions=['fog=1'], limit=1, data_root=data, cfg_options=quick,
            safe_config=True),
        'attention_statistics': lambda: apis.attention_statistics(*given, image),
        'visualize_attention': lambda: apis.visualize_attention(*given, image, html=True),
        'predict': lambda: apis.predict(*given, image, corruptions=['fog=1'], safe_config=True),
        'benchmark': lambda: apis.benchmark(config, size=(48, 64), repeats=1, threads=2),
        'train': lambda: apis.train(
            config, data_root=data, work_dir=f'{out}/work', seed=1, safe_config=True,
            cfg_options=[*quick, 'train_cfg.max_iters=1', 'train_cfg.val_interval=1',
                         'train_dataloader.batch_size=2']),
    }  # fmt: skip
    return {name: changes(job) for name, job in jobs.items()}


if __name__ == '__main__':
    import_libraries()
    if sys.argv[1] == 'calls':
        found = calls(*sys.argv[2:])
    else:
        found = changes(lambda: importlib.import_module(sys.argv[1]))
    print(json.dumps(found))
