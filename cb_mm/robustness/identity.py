"""What was tested, in a few digits: results of different tests must never be mixed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmengine.config import Config

from ..errors import UserError, require_name

#: Settings of a data loader that do not change what is tested.
_NEUTRAL = ('num_workers', 'persistent_workers', 'pin_memory', 'prefetch_factor', 'sampler',
            'timeout', 'multiprocessing_context', 'drop_last')  # fmt: skip


def config_digest(config: Config) -> str:
    """Tells configs apart by what matters to a test: model, pipeline, evaluator.

    Where the data lie and how many workers load them does not matter.
    """
    root = str(config.test_dataloader.get('dataset', {}).get('data_root') or '').rstrip('/')

    def clean(node: Any) -> Any:
        if isinstance(node, Mapping):
            return {str(k): clean(v) for k, v in node.items() if k not in ('data_root', *_NEUTRAL)}
        if isinstance(node, (list, tuple)):
            return [clean(item) for item in node]
        if root and isinstance(node, str) and f'{node}/'.startswith(f'{root}/'):
            return node[len(root) :].lstrip('/')  # a metric may name its file by the whole path
        return node

    parts = {key: config.get(key) for key in ('model', 'test_dataloader', 'test_evaluator')}
    parts['test_cfg'] = config.get('test_cfg')
    text = json.dumps(clean(parts), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_digest(path: str | Path) -> str:
    """SHA-256 of a file, shortened to 16 digits; a UserError when it cannot be read."""
    require_name(path, 'checkpoint')
    path = Path(path).expanduser()
    if not path.is_file():
        kind = 'is a folder, not a file' if path.is_dir() else 'does not exist'
        raise UserError(f'checkpoint {path} {kind}.')
    digest = hashlib.sha256()
    with path.open('rb') as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()[:16]


def image_path(info: dict, index: int) -> str:
    """Where an image of a data set lies, or its number when it lies nowhere."""
    path = info.get('img_path')
    if isinstance(path, (list, tuple)):
        path = path[0]
    return str(path) if path else f'{info.get("img_id", index)}'


def short_names(paths: Sequence[str]) -> list[str]:
    """The paths without the folder that all of them lie in."""
    folders = [os.path.dirname(path) for path in paths]
    if not all(folders):
        return list(paths)
    try:
        common = os.path.commonpath(folders)
    except ValueError:  # on several drives
        return list(paths)
    return [os.path.relpath(path, common).replace(os.sep, '/') for path in paths]


def data_digest(names: Sequence[str], infos: Sequence[dict], local: bool = True) -> str:
    """Tells data sets apart: names and sizes of images and label maps, or the annotations.

    Args:
        names: of the images.
        infos: what the data set knows about each.
        local: the files lie on disk; they are then looked at, and a missing one is an error.
    """
    total = hashlib.sha256()
    for name, info in zip(names, infos, strict=True):
        files = (info.get('img_path'), info.get('seg_map_path'))
        sizes = [_file_size(file) if local and file else None for file in files]
        total.update(json.dumps([name, *sizes, info.get('instances')], default=str).encode())
    return total.hexdigest()[:16]


def _file_size(path: Any) -> int | None:
    if not isinstance(path, (str, os.PathLike)):
        return None
    try:
        return os.path.getsize(path)
    except OSError as error:
        raise UserError(f'{path} of the test data does not exist.') from error
