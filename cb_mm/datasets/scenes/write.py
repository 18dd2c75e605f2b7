"""The embedded data set: procedural scenes written as real files.

``write_scenes(root)`` makes ``root/ade20k`` and ``root/coco``, the same pictures in the layouts of
the two data sets: each is a ``data_root`` for mmseg's ``ADE20KDataset`` or mmdet's ``CocoDataset``.

The same arguments give the same bytes (with the same versions of NumPy and OpenCV), and picture k
does not depend on how many are made. The folder is written atomically.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ...errors import UserError
from ...fileio.folders import list_files
from .classes import SCENE_LABELS
from .files import coco_annotations, coco_document, coco_image, jpeg, png
from .painter import SPLITS, paint_scene

#: Incremented whenever the same arguments give different pictures than before.
SCENES_VERSION = 1

#: Height and width of the pictures.
SCENE_SIZE = (192, 256)

MARKER = 'scenes.json'

#: takes the indices to do and shows progress while they are consumed (as tqdm does)
Progress = Callable[[Iterable], Iterable]


@dataclass(frozen=True)
class ScenePaths:
    """Where the data set is: each of the two is a ``data_root``."""

    root: Path

    @property
    def ade20k(self) -> Path:
        """The root of the ADE20K layout."""
        return self.root / 'ade20k'

    @property
    def coco(self) -> Path:
        """The root of the COCO layout."""
        return self.root / 'coco'


def write_scenes(
    root: str | os.PathLike,
    train: int = 200,
    val: int = 50,
    size: tuple[int, int] = SCENE_SIZE,
    seed: int = 0,
    progress: Progress | None = None,
) -> ScenePaths:
    """Write the data set to ``root``, or return at once if it is there already.

    Args:
        root: The folder to make. It may exist if it is empty or holds exactly this data set.
        train: Number of training pictures.
        val: Number of validation pictures.
        size: Height and width in pixels, at least 32 each.
        seed: The same seed gives the same files.
        progress: Wraps the loop over pictures, for instance ``tqdm.tqdm``.

    Raises:
        UserError: If ``root`` holds anything else, or an argument is out of range.
    """
    root = Path(root)
    _check_arguments(train, val, size, seed)
    wanted = {
        'version': SCENES_VERSION,
        'train': train,
        'val': val,
        'size': list(size),
        'seed': seed,
    }
    if _already_there(root, wanted):
        return ScenePaths(root)
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        _sweep_up(root)
        partial = root.parent / f'.{root.name}.partial-{socket.gethostname()}-{os.getpid()}'
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
    except OSError as error:
        raise UserError(
            f'cannot write the scenes to {root}: {error.strerror} ({error.filename}); '
            'give a folder that can be written'
        ) from error
    try:
        _write_all(partial, train, val, size, seed, progress)
        count, total = _weigh(partial)
        record = {**wanted, 'files': count, 'bytes': total, 'labels': SCENE_LABELS}
        (partial / MARKER).write_text(json.dumps(record, indent=1) + '\n', encoding='utf-8')
        try:
            os.replace(partial, root)
        except OSError:
            # Another process may have finished the same work first: then its files are ours.
            if not _already_there(root, wanted):
                raise
    except OSError as error:
        raise UserError(
            f'writing the scenes to {root} failed: {error.strerror or error}; nothing was kept'
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return ScenePaths(root)


def _check_arguments(train: int, val: int, size: tuple[int, int], seed: int) -> None:
    for name, value in (('train', train), ('val', val)):
        if value < 1:
            raise UserError(f'scenes: {name} must be at least 1, not {value}')
    if len(size) != 2 or min(size) < 32 or max(size) > 4096:
        raise UserError(f'scenes: size must be height and width, 32 to 4096 each, not {size}')
    if seed < 0:
        raise UserError(f'scenes: seed must not be negative, got {seed}')


def _already_there(root: Path, wanted: dict) -> bool:
    """Return True if ``root`` holds the complete data set; raise if it holds anything else."""
    if not root.exists():
        return False
    if not root.is_dir():
        raise UserError(f'{root} is a file; give the name of a folder for the scenes')
    if not any(root.iterdir()):
        return False
    try:
        found = json.loads((root / MARKER).read_text(encoding='utf-8'))
        there = {key: found[key] for key in (*wanted, 'files', 'bytes')}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f'{root} is not empty and is not a finished set of scenes (no readable {MARKER}): '
            'give an empty or new folder'
        ) from error
    other = [
        f'{key} {there[key]}, not {wanted[key]}' for key in wanted if there[key] != wanted[key]
    ]
    if other:
        raise UserError(
            f'{root} holds other scenes ({"; ".join(other)}): give another folder, '
            'or delete this one first'
        )
    count, total = _weigh(root)
    if (count, total) != (there['files'], there['bytes']):
        raise UserError(
            f'{root} is damaged: {count} files of {total} bytes where {there["files"]} files of '
            f'{there["bytes"]} bytes were written; delete it and make it again'
        )
    return True


def _weigh(root: Path) -> tuple[int, int]:
    """Return the number and total size of the files in the two layouts (no marker, no strays)."""
    files = [
        root / part / name
        for part in ('ade20k', 'coco')
        for name in list_files(root / part)
        if name.endswith(('.jpg', '.png', '.json'))
    ]
    return len(files), sum(file.stat().st_size for file in files)


def _sweep_up(root: Path) -> None:
    """Remove what a killed process on this machine left behind while writing this folder."""
    for left in root.parent.glob(f'.{root.name}.partial-{socket.gethostname()}-*'):
        pid = left.name.rpartition('-')[2]
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue  # alive, but owned by someone else


def _write_all(
    root: Path,
    train: int,
    val: int,
    size: tuple[int, int],
    seed: int,
    progress: Progress | None,
) -> None:
    paths = ScenePaths(root)
    ade_split = {'train': 'training', 'val': 'validation'}
    for split in SPLITS:
        for kind in ('images', 'annotations'):
            (paths.ade20k / kind / ade_split[split]).mkdir(parents=True)
        (paths.coco / f'{split}2017').mkdir(parents=True)
    (paths.coco / 'annotations').mkdir()
    jobs = [(split, i) for split, count in (('train', train), ('val', val)) for i in range(count)]
    images: dict[str, list[dict]] = {split: [] for split in SPLITS}
    annotations: dict[str, list[dict]] = {split: [] for split in SPLITS}
    for split, index in progress(jobs) if progress else jobs:
        scene = paint_scene(split, index, size, seed)
        picture = jpeg(scene.image)
        stem = f'ADE_{split}_{index + 1:08d}'
        folder = ade_split[split]
        (paths.ade20k / 'images' / folder / f'{stem}.jpg').write_bytes(picture)
        (paths.ade20k / 'annotations' / folder / f'{stem}.png').write_bytes(png(scene.labels))
        record = coco_image(split, index, size)
        (paths.coco / f'{split}2017' / record['file_name']).write_bytes(picture)
        images[split].append(record)
        annotations[split].extend(coco_annotations(scene, record['id']))
    for split in SPLITS:
        document = coco_document(images[split], annotations[split])
        target = paths.coco / 'annotations' / f'instances_{split}2017.json'
        target.write_text(json.dumps(document, separators=(',', ':')), encoding='utf-8')
