"""Corrupted copies of data sets from Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mmengine.config import Config
from tqdm import tqdm

from ..config.explain import explaining_build_errors, require_keys
from ..config.loading import config_name, load_config, set_data_root
from ..corruption import cells_for
from ..corruption.frost_pictures import FrostPictures
from ..corruption.pipeline import type_name
from ..corruption.suites import CLEAN
from ..engine.training import check_data
from ..errors import UserError
from ..robustness.corrupted_copy import plan_copy, write_copy
from ..robustness.corrupted_images import Encoding, folder_of
from .calls import api


@dataclass(frozen=True)
class CorruptedCopy:
    """A corrupted copy of a data set on disk.

    Attributes:
        folder: Where it is.
        folders: Cell ('fog=3') -> its folder, which is the ``data_root`` of a test on it. For a
            classifier's crops, that is ``val`` in it, with the test set 'imagenet-c'.
        images: Images per folder.
        written: Images that this call wrote; the others were there.
    """

    folder: Path
    folders: dict[str, Path]
    images: int
    written: int


@api
def corrupt_dataset(
    config: Config | str | Path,
    out: str | Path,
    *,
    suite: str | None = None,
    corruptions: Sequence[str] = (),
    severity: int | None = None,
    seed: int = 0,
    limit: int | None = None,
    format: str = 'png',
    quality: int | None = None,
    workers: int = 0,
    frost_pictures: str | Path | None = None,
    data_root: str | Path | None = None,
    test_set: str | None = None,
    cfg_options: Sequence[str] = (),
    safe_config: bool = False,
    verbose: bool = False,
) -> CorruptedCopy:
    """Write a corrupted copy of the test set of a config; its labels are linked, not copied.

    The images are those that `evaluate_robustness` tests with the same seed in its first repeat.
    They are in ``out/CORRUPTION/SEVERITY/`` under the path and name that they have in the data set.

    Args:
        config: Path of a config, or a ``Config``, which is not changed.
        out: Folder for the copy; the same call resumes there, and another one is refused.
        suite: A named set of corruptions: 'imagenet-c', 'cityscapes-c', 'coco-c' or 'table9'.
        corruptions: Names with levels in their own unit ('gaussian_noise=5,10'), or without.
        severity: From 1 to 5, for corruptions without a level; all five by default.
        seed: Of the noise.
        limit: Only the first images.
        format: 'png', which keeps every pixel, or 'jpg'. A file keeps its name in either case.
        quality: Of 'jpg'; by default 85, that of ImageNet-C's own files.
        workers: Processes that write; the files do not depend on their number.
        frost_pictures: Folder with photographs of frost; by default its ice is drawn.
        data_root: Folder of the data set, in place of the config's.
        test_set: Another test set of the config, such as 'acdc'.
        cfg_options: Changes to the config.
        safe_config: Refuse a config that holds more than data.
        verbose: Print the plan, a progress bar and how to test on the copy.

    Raises:
        UserError: Something that the caller can fix; it names the parameter or the file.
        Stopped: A signal asked for the end. What is written is kept.
    """
    for name, value, least in (('limit', limit, 1), ('workers', workers, 0)):
        if value is not None and value < least:
            raise UserError(f'`{name}` {value}: it must be at least {least}.')
    if quality is not None and format != 'jpg':
        raise UserError('`quality` is for `format` jpg: a PNG keeps every pixel.')
    encoding = Encoding(format) if quality is None else Encoding(format, quality)
    cells = [cell for cell in cells_for(suite, corruptions, severity) if cell.name != CLEAN]
    if not cells:
        raise UserError('nothing to corrupt: give `suite` or `corruptions`.')
    frost = None if frost_pictures is None else str(frost_pictures)
    if frost is not None:
        FrostPictures(frost)
        if all(cell.name != 'frost' for cell in cells):
            raise UserError('`frost_pictures` has no use: no frost is written.')
    with explaining_build_errors(config_name(config)):
        read = load_config(config, cfg_options, test_set)
        require_keys(read, 'test_dataloader')
        set_data_root(read, data_root)
        check_data(read, ['test'])
        plan = plan_copy(read, cells, out, seed, limit, encoding, frost)
    images = len(plan.writer.paths)
    if verbose:
        print(f'{images:,} images × {len(cells)} = {images * len(cells):,} files in {out}')
    bar = (lambda items, n: tqdm(items, 'writing', total=n, disable=None)) if verbose else None
    written = write_copy(plan, workers, bar)
    folders = {cell.key: Path(out) / folder_of(cell) for cell in cells}
    if verbose:
        there = images * len(cells) - written
        print(f'{written:,} files written, {there:,} were there. To test on one of them:')
        print(f'  {_test_words(read, folders[cells[0].key])}')
    return CorruptedCopy(Path(out), folders, images, written)


def _test_words(config: Config, folder: Path) -> str:
    """Return how to test on a folder; a classifier's images are cropped already."""
    steps = config.test_dataloader.dataset.get('pipeline') or ()
    if all(type_name(step) != 'CorruptionPoint' for step in steps):
        return f'CONFIG CHECKPOINT --data-root {folder}'
    if 'imagenet-c' in (config.get('test_sets') or {}):
        return f'CONFIG CHECKPOINT --test-set imagenet-c --data-root {folder / "val"}'
    return f'{folder}, with a pipeline that neither resizes nor crops: the images are the crops'
