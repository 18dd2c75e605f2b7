"""A corrupted copy of a test set on disk, for those who compare numbers measured on such copies.

The images are those that a sweep tests in its first repeat, pixel for pixel: the pipeline of the
config runs as far as its corruption, and what is there is written. Where a file stands in the
folder of the data, it stands in the folder of the copy, under its own name. Labels are linked.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from mmengine.config import Config
from mmengine.registry import init_default_scope
from torch.utils.data import DataLoader

from ..compat import families as family
from ..config.loading import dataset_configs
from ..corruption import Cell
from ..corruption.frost_pictures import FrostPictures
from ..datasets.checks.files import sample
from ..engine.signals import Stopped, stop_on_signals
from ..errors import UserError
from ..fileio.atomic import remove_drafts
from ..fileio.digests import value_digest
from ..fileio.folder_lock import FolderLock
from ..fileio.result_files import plain, read_json, write_json
from .corrupted_images import PNG, Encoding, ImageWriter, folder_of
from .data import quiet_worker
from .extra_metrics import metric_configs
from .panoptic import do_without_panopticapi

#: What the folder of a copy holds, beside its images.
ABOUT = 'copy.json'
#: Where a data set says which label file belongs to an image.
_LABEL_FILES = ('seg_map_path', 'xml_path')
#: Takes an iterable and its length, and shows how far it is.
Progress = Callable[[Iterable, int], Iterable]


@dataclass
class CopyPlan:
    """What is to be written, and what of it is there already.

    Attributes:
        writer: Writes an image.
        identity: What every file depends on; another identity never shares the folder.
        links: Path below the folder of a cell -> file or folder of labels that it links to.
    """

    writer: ImageWriter
    identity: dict[str, Any]
    links: dict[str, Path]


def plan_copy(
    config: Config,
    cells: Sequence[Cell],
    out: str | Path,
    seed: int = 0,
    limit: int | None = None,
    encoding: Encoding = PNG,
    frost_pictures: str | None = None,
) -> CopyPlan:
    """Look at the test set of a config, and plan its copy.

    Raises:
        UserError: There is nothing to corrupt, images lie outside the folder of the data, or the
            copy would lie among them.
    """
    init_default_scope(config.get('default_scope', 'mmengine'))
    if config.get('test_evaluator'):  # a copy needs no metric, but no loader of their truth either
        do_without_panopticapi(config, metric_configs(config))
    settings = config.test_dataloader.dataset
    roots = [str(one.get('data_root') or '') for one in dataset_configs(config, ['test'])]
    writer = ImageWriter(settings, roots, cells, Path(out), seed, limit, encoding, frost_pictures)
    identity: dict[str, Any] = {
        'data': writer.digest(),
        'pipeline': value_digest([str(step) for step in settings.get('pipeline') or ()]),
        'images': len(writer.paths),
        'cells': [cell.key for cell in writer.cells],
        'seed': seed,
        'format': encoding.format,
        'quality': encoding.quality if encoding.format == 'jpg' else None,
        'frost_pictures': FrostPictures(frost_pictures).digest if frost_pictures else None,
        'software': family.software_versions(),
    }
    links = _labels(config, writer)
    _refuse_inside(Path(out), roots, writer.paths, links)
    return CopyPlan(writer, plain(identity), links)


def write_copy(plan: CopyPlan, workers: int = 0, progress: Progress | None = None) -> int:
    """Write what is missing of a copy; return the number of images that were written.

    Args:
        plan: What to write.
        workers: Processes beside this one; the files do not depend on it.
        progress: Wraps the loop over images.

    Raises:
        UserError: The folder holds another copy, an image cannot be read, the disk is too small.
        Stopped: A signal asked for the end; the same call resumes.
    """
    writer, out = plan.writer, plan.writer.out
    with FolderLock(out, 'out'), stop_on_signals() as stop:
        _claim(out, plan.identity)
        for folder, _, _ in os.walk(out):  # does not follow the links to the labels
            remove_drafts(folder)
        for cell in writer.cells:
            _link(out / folder_of(cell), plan.links)
        missing = [item for item in writer.items if not writer.file(item).exists()]
        done: Iterable = _write(writer, missing, workers)
        for _ in progress(done, len(missing)) if progress else done:
            if stop.number:
                raise Stopped(stop.number)
    return len(missing)


def _write(
    writer: ImageWriter, items: Sequence[tuple[int, int]], workers: int
) -> Iterator[tuple[int, int]]:
    """Write these images: a few for every cell, then the rest if the disk has room for it."""
    chosen = set(sample(range(len(writer.paths))))
    first = [item for item in items if item[0] in chosen]
    rest = [item for item in items if item[0] not in chosen]
    for part in (first, rest):
        if part and part is rest:
            _require_space(writer, [item for item in writer.items if item[0] in chosen], len(rest))
        loader = DataLoader(
            writer,
            sampler=part,  # any list of items is a sampler
            batch_size=None,
            num_workers=min(workers, len(part)),
            worker_init_fn=quiet_worker,
        )
        for item, failure in zip(part, loader, strict=True):
            if failure:
                raise UserError(failure)
            yield item


def _require_space(writer: ImageWriter, written: Sequence[tuple[int, int]], left: int) -> None:
    """Stop if the rest of the copy is larger than what the disk has free."""
    mean = sum(writer.file(item).stat().st_size for item in written) / len(written)
    needed, free = mean * left, shutil.disk_usage(writer.out).free
    if needed > free:
        raise UserError(
            f'{writer.out}: the copy needs about {needed / 1e9:.1f} GB more (judged by '
            f'{len(written)} images), and the disk has {free / 1e9:.1f} GB free. Choose another '
            '`out`, fewer corruptions, `limit`, or `format` jpg; the same command resumes.'
        )


def _claim(out: Path, identity: dict[str, Any]) -> None:
    """Refuse a folder with another copy; otherwise record what this one is."""
    file = out / ABOUT
    if file.exists():
        try:
            there = read_json(file)
        except (OSError, ValueError) as error:
            raise UserError(f'{file} cannot be read: {error}. Remove the folder.') from error
        other = there if isinstance(there, dict) else {}
        differs = [key for key in identity if other.get(key) != identity[key]]
        if differs:
            key = differs[0]
            raise UserError(
                f'{out} holds another copy: its {key.replace("_", " ")} was '
                f'{str(other.get(key))[:80]}, and now is {str(identity[key])[:80]}. '
                'Choose another `out`.'
            )
        return
    if any(not name.startswith('.') for name in os.listdir(out)):
        raise UserError(f'{out} is not empty, and is not a copy: choose another `out`.')
    write_json(file, identity)


def _refuse_inside(
    out: Path, roots: Sequence[str], images: Sequence[str], labels: Iterable[str]
) -> None:
    """Refuse to write where the data set would take the copy for images or labels of its own."""
    flat = any('/' not in image for image in images)
    folders = {name.split('/')[0] for name in (*images, *labels)}
    for root in filter(None, roots):
        below = os.path.relpath(os.path.realpath(out), os.path.realpath(root)).split(os.sep)[0]
        if below not in ('..', '.') and (flat or below in folders):
            raise UserError(
                f'`out` {out} is inside the data set ({root if flat else Path(root, below)}), '
                'which would read the copy as its own: choose a folder outside.'
            )


def _labels(config: Config, writer: ImageWriter) -> dict[str, Path]:
    """Return the label folders and annotation files of a test set, by their path below its root.

    Raises:
        UserError: They lie outside: a link in the same place would be outside of the copy.
    """
    links: dict[str, Path] = {}
    for dataset in dataset_configs(config, ['test']):
        root = str(dataset.get('data_root') or '')
        prefix = dataset.get('data_prefix') or {}
        prefix = prefix if isinstance(prefix, Mapping) else {}
        names = [dataset.get('ann_file'), prefix.get('seg_map_path'), prefix.get('seg')]
        # Pascal VOC has a file for each image, in a folder that no setting has to name.
        written = {os.path.dirname(str(i['xml_path'])) for i in writer.infos if i.get('xml_path')}
        beside = [os.path.relpath(folder, root or '.') for folder in sorted(written)]
        for name in [*names, *(one for one in beside if not one.startswith('..'))]:
            given = str(name or '').strip('/')
            name = os.path.normpath(given)
            path = Path(root, name).absolute()
            if not given or not path.exists():
                continue
            if name != '.' and not any(image.startswith(f'{name}/') for image in writer.paths):
                links[name] = path
                continue
            # Images are in the same folder: a link to it would have them overwritten.
            files = [Path(str(i[k])) for i in writer.infos for k in _LABEL_FILES if i.get(k)]
            links |= {os.path.relpath(file, root or '.'): file.absolute() for file in files}
        if outside := [path for name, path in links.items() if name.split(os.sep)[0] == '..']:
            raise UserError(
                f'{outside[0]} is not below data_root ({root or "none"}): set data_root of the '
                'data set to a folder that holds its images and its annotations.'
            )
    # What is in a linked folder is there already; a link to it would replace the original.
    return {
        name: path
        for name, path in links.items()
        if links.keys().isdisjoint(map(str, PurePath(name).parents))
    }


def _link(folder: Path, links: Mapping[str, Path]) -> None:
    for name, target in links.items():
        link = folder / name
        if link.is_symlink() and link.exists():
            continue
        try:
            link.unlink(missing_ok=True)  # the data were moved since
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target, target_is_directory=target.is_dir())
        except OSError as error:
            raise UserError(f'cannot link {link} to the labels: {error.strerror}.') from error
