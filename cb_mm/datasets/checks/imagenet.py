"""Checks of a data set with one folder per class: ImageNet, its relatives, and custom ones."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ...errors import UserError
from ...fileio.folders import list_files
from ..class_labels import class_names, labels_of, reference_names
from .files import Progress, ReadResult, data_root, inspect_image, run_all
from .files import sample as sample_of
from .findings import Report

SPLITS = ('train', 'val')
SUFFIXES = ('.jpg', '.jpeg', '.png', '.ppm', '.bmp', '.pgm', '.tif')

#: images in the full release
FULL_COUNTS = {'train': 1_281_167, 'val': 50_000}


def check_imagenet(
    root: str | os.PathLike,
    quick: bool = False,
    splits: Sequence[str] = SPLITS,
    num_classes: int | None = None,
    labels: str = 'auto',
    progress: Progress | None = None,
    workers: int | None = None,
) -> Report:
    """Check layout, classes and files.

    Args:
        root: The folder with ``train`` and ``val``, each with one folder per class.
        quick: Look at all folders, but list a few of them and read a few images only.
        splits: The parts to look at; '' is the root itself, as in ImageNet-V2 and -A.
        num_classes: Labels must be below this number, where given: that of the model.
        labels: How labels follow from the names of folders; see `labels_of`.
        progress: Wraps the loop over images: called with an iterable and its length.
        workers: Number of decoding threads; by default one per processor.

    Raises:
        UserError: If ``root`` is not a folder.
    """
    root = data_root(root)
    report = Report('imagenet', root, quick)
    for split in splits:
        names = _check_classes(root, split, labels, num_classes, report)
        if names:
            _check_images(root / split, split, names, report, progress, workers)
    return report


def _check_classes(
    root: Path, split: str, order: str, num_classes: int | None, report: Report
) -> list[str]:
    """Return the names of the class folders, which may be incomplete."""
    folder, shown = root / split, Path(split or '.')
    if not folder.is_dir():
        report.add('missing-folder', shown, 'the folder does not exist')
        return []
    names = class_names(folder)
    if not names:
        loose = len([file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES])
        found = f'{loose:,} images are directly in it' if loose else 'it holds none'
        report.add('no-class-folders', shown, f'there must be one folder per class; {found}')
        return []
    report.counts[f'{split or "all"} classes'] = len(names)
    known = reference_names(root, names) if split else names
    for name in sorted(set(names) - set(known)):
        report.add('class-unknown', shown / name, 'train has no folder of this name')
    try:
        labels = labels_of(known, order)
    except UserError as error:
        report.add('class-unknown', shown, str(error))
        return names
    top = max(labels, key=lambda name: labels[name])
    if num_classes is not None and labels[top] >= num_classes:
        message = f'its label is {labels[top]}, but the model has {num_classes} classes'
        report.add('class-count', shown / top, message)
    return names


def _check_images(
    folder: Path,
    split: str,
    names: Sequence[str],
    report: Report,
    progress: Progress | None,
    workers: int | None,
) -> None:
    what, shown = split or 'all', Path(split or '.')
    images = []
    for name in sample_of(names) if report.quick else names:
        files = [file for file in list_files(folder / name) if file.lower().endswith(SUFFIXES)]
        report.check_names(shown / name, files)
        if not files:
            report.add('class-empty', shown / name, 'there is no image in the folder')
        images += [Path(name, file) for file in files]
    if not report.quick:
        report.counts[f'{what} images'] = len(images)
        if split in FULL_COUNTS and len(names) == 1000 and len(images) != FULL_COUNTS[split]:
            report.add('count', shown, f'{len(images):,} of {FULL_COUNTS[split]:,} images')

    def read(file: Path) -> ReadResult:
        return inspect_image(folder / file)

    chosen = sample_of(images) if report.quick else images
    report.counts[f'{what} images read'] = len(chosen)
    for file, facts in zip(chosen, run_all(read, chosen, progress, workers), strict=True):
        for kind, message in facts.findings:
            report.add(kind, shown / file, message)
