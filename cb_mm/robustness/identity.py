"""The identity of a test, in a few digits: results of different tests must never be mixed.

Files are identified by their content: a data set may be copied or touched, and finished passes stay
valid, while a single changed pixel makes it another test. Reading all files once costs less than
decoding them, which every pass does.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mmengine.config import Config

from ..compat import families as family
from ..engine.optim.precision import Precision
from ..errors import UserError
from ..fileio.digests import content_digest, value_digest
from ..fileio.folders import list_files
from .attacks.catalogue import FGSM
from .jobs import AttackCell

#: Settings of a data loader that do not change what is tested.
_NEUTRAL = ('num_workers', 'persistent_workers', 'pin_memory', 'prefetch_factor', 'sampler',
            'timeout', 'multiprocessing_context', 'drop_last')  # fmt: skip
_PARTS = ('model', 'data_preprocessor', 'default_scope', 'test_evaluator', 'test_cfg')


def sweep_identity(
    config: Config, checkpoint: str, tester: Any, jobs: Sequence[Any], seed: int
) -> dict[str, Any]:
    """Return everything that a figure depends on; other identities are never mixed in.

    Args:
        config: as it is tested.
        checkpoint: digest of the file.
        tester: a ``ModelUnderTest``.
        jobs: the passes.
        seed: of the noise.
    """
    identity = {
        'config': config_digest(config),
        'checkpoint': checkpoint,
        'data': tester.dataset.digest,
        'annotations': evaluator_digest(config.test_evaluator, tester.dataset.label_maps),
        'images': len(tester.dataset),
        'seed': seed,
        'repeats': max(job.repeat for job in jobs) + 1,
        'cells': list(dict.fromkeys(job.cell.key for job in jobs)),
        'device': next(tester.model.parameters()).device.type,
        'software': family.software_versions(),
    }
    identity |= _precision_identity(tester.precision)
    if tester.truth_config is not None:  # where an attack takes the labels from
        root = config.test_dataloader.dataset.get('data_root')
        identity['attack'] = settings_digest(tester.truth_config, root)
    cells = [job.cell for job in jobs if isinstance(job.cell, AttackCell)]
    iterated = [cell.attack for cell in cells if cell.name != FGSM]  # which has no settings
    if iterated:
        identity['attack_settings'] = {
            'attack_steps': iterated[0].steps,
            'attack_step_size': iterated[0].share,
            'attack_restarts': max(attack.starts for attack in iterated),
            'random_start': any(attack.random_start for attack in iterated),
        }
    return identity


def _precision_identity(precision: Precision | None) -> dict[str, Any]:
    """Return the only run option that is meant to change figures; ``amp`` keeps its old name."""
    if precision is None:
        return {}
    amp = precision.name == ('fp16' if precision.device == 'cuda' else 'bf16')
    return {'amp': True} if amp else {'precision': precision.name}


def config_digest(config: Config) -> str:
    """Tell configs apart by what matters to a test: model, pipeline, evaluator.

    The location of the data and the number of workers do not matter.
    """
    loading = config.test_dataloader
    parts = {key: config.get(key) for key in _PARTS}
    parts['test_dataloader'] = {k: v for k, v in loading.items() if k not in _NEUTRAL}
    return settings_digest(parts, (loading.get('dataset') or {}).get('data_root'))


def settings_digest(settings: Any, root: str | None = None) -> str:
    """Tell settings apart, independently of the data folder ``root``."""
    root = str(root or '').rstrip('/')

    def clean(node: Any) -> Any:
        if isinstance(node, Mapping):
            return {str(k): clean(node[k]) for k in sorted(node, key=str) if k != 'data_root'}
        if isinstance(node, (list, tuple)):
            return [clean(item) for item in node]
        if root and isinstance(node, str) and f'{node}/'.startswith(f'{root}/'):
            return node[len(root) :].lstrip('/')  # a metric may name its file by its full path
        return node

    return value_digest(clean(settings))


def image_path(info: dict, index: int) -> str:
    """Return the path of an image of a data set, or its number if it has no path."""
    path = info.get('img_path')
    if isinstance(path, (list, tuple)):
        path = path[0]
    return str(path) if path else f'{info.get("img_id", index)}'


def short_names(paths: Sequence[str]) -> list[str]:
    """Return the paths relative to their common folder, and so never outside of it.

    Files are written under these names, and annotations choose the paths.
    """
    paths = [os.path.abspath(path) for path in paths]
    try:
        common = os.path.commonpath([os.path.dirname(path) for path in paths] or [os.sep])
    except ValueError:  # on several drives
        paths, common = [os.path.splitdrive(path)[1] for path in paths], os.sep
    return [os.path.relpath(path, common).replace(os.sep, '/') for path in paths]


def loaded_files(steps: Iterable[Any]) -> tuple[set[str], bool]:
    """Return the keys of files that a pipeline requires, and whether it may load others.

    A data set may list missing label maps if its pipeline does not load them.
    """
    keys, others = {'img_path'}, False
    for step in steps:
        kind = type(step).__name__
        if not kind.startswith('Load') or kind.startswith('LoadImage'):
            continue
        labels = getattr(step, 'with_seg', None)
        if labels or ('Panoptic' in kind and getattr(step, 'with_mask', False)):
            keys.add('seg_map_path')
        others = others or labels is None
    return keys, others


def data_digest(
    names: Sequence[str], infos: Sequence[dict], steps: Iterable[Any], local: bool = True
) -> str:
    """Tell data sets apart: names and content of images and label maps, and all annotations.

    Args:
        names: of the images.
        infos: what the data set knows about each.
        steps: of the pipelines that load them.
        local: the files are on disk; they are then read, and a missing one is an error.
    """
    keys, others = loaded_files(steps)
    total = hashlib.sha256()
    for name, info in zip(names, infos, strict=True):
        facts, files = {}, {}
        for key, value in info.items():
            if not key.endswith(('_path', '_prefix')):
                facts[key] = value
            elif local and value and (key in keys or others):
                files[key] = [_known_content(file, key in keys) for file in _listed(value)]
        total.update(value_digest([name, files, facts]).encode())
    return total.hexdigest()[:16]


def evaluator_digest(settings: Any, label_maps: Sequence[Any] = ()) -> str:
    """Digest the files that the metrics read: annotations, and folders of label maps.

    Args:
        settings: of the metrics.
        label_maps: file of each test image, or None. mmseg's CityscapesMetric reads others, whose
            names it derives from these.
    """
    found = []
    if any(key == 'type' and value.endswith('CityscapesMetric') for key, value in _texts(settings)):
        names = [str(f).replace('labelTrainIds.png', 'labelIds.png') for f in label_maps if f]
        found += [[Path(name).name, _known_content(name, True)] for name in names]
    for key, value in _texts(settings):
        if key.startswith('out'):  # outfile_prefix, output_dir: written, not read
            continue
        if os.path.isfile(value):
            found.append([key, content_digest(value)])
        elif key == 'seg_prefix' and os.path.isdir(value):
            found += [[name, content_digest(Path(value, name))] for name in list_files(value)]
    return value_digest(found)


def _texts(node: Any, key: str = '') -> Iterator[tuple[str, str]]:
    """Yield every text in a config with its key."""
    if isinstance(node, Mapping):
        for name, value in node.items():
            yield from _texts(value, str(name))
    elif isinstance(node, (list, tuple)):
        for value in node:
            yield from _texts(value, key)
    elif isinstance(node, str):
        yield key, node


def _listed(value: Any) -> Collection:
    return value if isinstance(value, (list, tuple)) else (value,)


def _known_content(path: Any, needed: bool) -> str | None:
    if not isinstance(path, (str, os.PathLike)):
        return None
    try:
        return content_digest(Path(path))
    except OSError as error:
        if not needed:
            return None
        missing = isinstance(error, FileNotFoundError)
        reason = 'does not exist' if missing else f'cannot be read: {error.strerror}'
        raise UserError(f'{path} of the test data {reason}.') from error
