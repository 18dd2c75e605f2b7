"""Label maps of a config's data set as files: missing, left over, or stored with other values."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from ...errors import did_you_mean
from .findings import Report

#: Endings of files that are probably meant as images.
_IMAGES = ('.jpg', '.jpeg', '.png', '.bmp', '.tif', '.tiff', '.webp')
#: Modes of Pillow's with more than 8 bits per pixel.
_DEEP = ('I', 'F', 'I;16', 'I;16B', 'I;16L', 'I;16N')


def why_missing(image: str, label_map: str) -> str:
    """Say that there is no such label map, and what is there instead."""
    told = f'its image is {image}; there is no label map of this name'
    folder, stem = Path(label_map).parent, Path(image).stem
    names = _names(os.path.abspath(folder))
    if names is None:
        beside = [path.parent for path in folder.parent.parent.glob(f'*/{folder.name}')]
        hint = did_you_mean(folder.parent.name, [path.name for path in beside])
        return f'{told}: the folder {folder} does not exist (data_prefix.seg_map_path).{hint}'
    similar = [name for name in names if name.startswith(stem) and not name[len(stem)].isalnum()]
    if similar:
        return f'{told}, but {similar[0]}: set seg_map_suffix={similar[0][len(stem) :]!r}'
    return told


def forget_folders() -> None:
    """Forget the folders listed so far; called when a check starts."""
    _names.cache_clear()


@lru_cache(maxsize=64)
def _names(folder: str) -> list[str] | None:
    """Return the files of a folder; None if there is no such folder."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return None


def stored_otherwise(label_map: str) -> tuple[str, str] | None:
    """Return the kind of finding and its message if a file cannot hold exactly its labels."""
    try:
        with Image.open(label_map) as opened:
            if opened.format in ('JPEG', 'MPO', 'WEBP'):
                return 'label-lossy', f'it is a {opened.format} file'
            if opened.mode not in _DEEP:
                return None
            values = np.asarray(opened)
    except (OSError, ValueError, UnidentifiedImageError):
        return None  # of a kind that mmcv alone can read
    with np.errstate(invalid='ignore'):
        read = values.astype(np.uint8)
    if (read == values).all():
        return None
    worst = values[read != values].max()
    return 'label-range', (
        f'it has the value {worst:g}, and label maps are read with 8 bits, where that is '
        f'{np.asarray(worst).astype(np.uint8)}. Write numbers from 0 to 255'
    )


def report_leftovers(report: Report, dataset: Any) -> None:
    """Report images that the suffix leaves out, and label maps without an image."""
    for one in _plain(dataset):
        prefix, ending = getattr(one, 'data_prefix', None), getattr(one, 'img_suffix', None)
        listed = getattr(one, 'ann_file', None)  # then the list says what is used
        if not isinstance(prefix, Mapping) or not ending or listed:
            continue
        images, maps = (_below(prefix.get(key)) for key in ('img_path', 'seg_map_path'))
        for name in images:
            if not name.endswith(ending) and name.lower().endswith(_IMAGES):
                report.add('suffix', Path(prefix['img_path']) / name,
                           f'only files that end in {ending} are read (img_suffix)')  # fmt: skip
        its = getattr(one, 'seg_map_suffix', '.png')
        wanted = {name.removesuffix(ending) + its for name in images if name.endswith(ending)}
        if prefix.get('img_path') == prefix.get('seg_map_path') or not wanted & set(maps):
            continue  # nothing fits, which is reported for every image
        for name in maps:
            if name.endswith(its) and name not in wanted:
                report.add('label-alone', Path(prefix['seg_map_path']) / name,
                           f'there is no image {name.removesuffix(its)}{ending}')  # fmt: skip


def _plain(dataset: Any) -> Iterator[Any]:
    """Yield the data sets inside wrappers."""
    inner = getattr(dataset, 'datasets', None) or [getattr(dataset, 'dataset', None)]
    if inner == [None]:
        yield dataset
    else:
        for one in inner:
            yield from _plain(one)


def _below(folder: Any) -> list[str]:
    """Return the names of all files below a local folder, relative to it."""
    return sorted(
        os.path.relpath(os.path.join(place, name), folder)
        for place, _, names in os.walk(folder or '')
        for name in names
    )


def report_class_count(report: Report, model: Mapping[str, Any], classes: int) -> None:
    """Compare the classes of a data set with what the heads of a config predict."""
    for where, count in _predicted(model):
        told = f'{where}.num_classes is {count}, and the data set has {classes} classes'
        if count < classes:
            report.add('head-too-small', '.', told)
        elif count > classes:
            report.add('head-too-large', '.', told)


def _predicted(model: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    inside = model.get('roi_head')
    for parent, holder in (('model', model), ('model.roi_head', inside)):
        for name in ('decode_head', 'auxiliary_head', 'bbox_head', 'mask_head'):
            heads = holder.get(name) if isinstance(holder, Mapping) else None
            several = list(heads) if isinstance(heads, (list, tuple)) else None
            for number, head in enumerate([heads] if several is None else several):
                count = head.get('num_classes') if isinstance(head, Mapping) else None
                if isinstance(count, int):
                    place = f'.{number}' if several is not None else ''
                    yield f'{parent}.{name}{place}', count
