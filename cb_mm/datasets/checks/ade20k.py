"""Checks of a data set in the layout of ADE20K's scene parsing release."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ...fileio.folders import list_files
from .files import (
    Progress,
    ReadResult,
    data_root,
    inspect_image,
    inspect_labels,
    run_all,
    turned_apart,
)
from .files import sample as sample_of
from .findings import Report

SPLITS = ('training', 'validation')

#: images in the full release
FULL_COUNTS = {'training': 20_210, 'validation': 2_000}


def check_ade20k(
    root: str | os.PathLike,
    quick: bool = False,
    num_classes: int = 150,
    splits: Sequence[str] = SPLITS,
    progress: Progress | None = None,
    workers: int | None = None,
) -> Report:
    """Check layout, pairs, files, sizes and labels.

    Args:
        root: The folder with ``images`` and ``annotations``.
        quick: Look at the layout and names of all files, but read only a few of them.
        num_classes: Labels 0 (other) to this number are allowed.
        splits: The parts to look at: a test needs no training images.
        progress: Wraps the loop over pairs: called with an iterable and its length.
        workers: Number of decoding threads; by default one per processor.

    Raises:
        UserError: If ``root`` is not a folder.
    """
    root = data_root(root)
    report = Report('ade20k', root, quick)
    if _misplaced(root, report):
        return report
    for split in splits:
        _check_split(root, split, num_classes, report, progress, workers)
    if num_classes == 150 and all(report.counts.get(f'{s} images') for s in FULL_COUNTS):
        found = {s: report.counts[f'{s} images'] for s in FULL_COUNTS}
        if found != FULL_COUNTS:
            parts = ', '.join(f'{n:,} of {FULL_COUNTS[s]:,} {s}' for s, n in found.items())
            report.add('count', 'images', f'{parts} images')
    return report


def _has_layout(folder: Path) -> bool:
    return (folder / 'images').is_dir() and (folder / 'annotations').is_dir()


def _full_release(root: Path) -> str | None:
    """Return what shows that this is the full ADE20K with parts, in one of its several layouts."""
    for index in ('index_ade20k.pkl', 'index_ade20k.mat'):
        if (root / index).exists():
            return index
    for folder in ('images/ADE', 'ADE/training'):
        if (root / folder).is_dir():
            return folder
    for split in SPLITS:
        # images/training/a/abbey/ADE_train_00000970.jpg with ..._seg.png and ..._parts_1.png
        top = root / 'images' / split
        if any((top / letter).is_dir() for letter in 'abcs') or (
            top.is_dir()
            and any(
                name.endswith(('_seg.png', '_parts_1.png', '_atr.txt')) for name in os.listdir(top)
            )
        ):
            return f'images/{split}'
    return None


def _misplaced(root: Path, report: Report) -> bool:
    """Report if ``root`` is the wrong folder or data set; return whether it is."""
    evidence = _full_release(root)
    if evidence:
        report.add(
            'wrong-release',
            evidence,
            'this is the full ADE20K release with objects and parts; training uses the scene '
            'parsing release with 150 classes, ADEChallengeData2016',
        )
        return True
    if list((root / 'annotations').glob('instances_*.json')):
        report.add('other-data-set', '.', 'this folder is in the layout of COCO, not of ADE20K')
        return True
    if _has_layout(root):
        return False
    folders = sorted(path for path in root.iterdir() if path.is_dir())
    nearby = [path for path in (*folders, *root.parents[:2]) if _has_layout(path)]
    if nearby:
        report.add('wrong-folder', '.', f'the data set is in {nearby[0]}, not in {root}')
        return True
    for path in folders:
        if _full_release(path):
            return _misplaced(path, report)
    return False


def _check_split(
    root: Path,
    split: str,
    num_classes: int,
    report: Report,
    progress: Progress | None,
    workers: int | None,
) -> None:
    image_dir, label_dir = Path('images', split), Path('annotations', split)
    missing = [folder for folder in (image_dir, label_dir) if not (root / folder).is_dir()]
    for folder in missing:
        report.add('missing-folder', folder, 'the folder does not exist')
    if missing:
        return
    image_files, label_files = (list_files(root / folder) for folder in (image_dir, label_dir))
    report.check_names(image_dir, image_files)
    report.check_names(label_dir, label_files)
    images: set[str] = set()
    for name in image_files:
        stem, dot, suffix = name.rpartition('.')
        if suffix == 'jpg':
            images.add(stem)
        elif suffix.lower() in ('jpg', 'jpeg', 'png', 'bmp', 'webp', 'tif', 'tiff'):
            report.add('suffix', image_dir / name, f'ends in {dot}{suffix}, only .jpg is read')
    labels = {name[:-4] for name in label_files if name.endswith('.png')}
    report.counts[f'{split} images'] = len(images)
    report.counts[f'{split} label maps'] = len(labels)
    if not images:
        report.add('no-images', image_dir, 'there is no .jpg file in the folder')
    for stem in sorted(images - labels):
        report.add(
            'label-missing', image_dir / f'{stem}.jpg', f'there is no {label_dir}/{stem}.png'
        )
    for stem in sorted(labels - images):
        report.add('label-alone', label_dir / f'{stem}.png', f'there is no {image_dir}/{stem}.jpg')

    def read(stem: str) -> tuple[ReadResult, ReadResult]:
        return (
            inspect_image(root / image_dir / f'{stem}.jpg'),
            inspect_labels(root / label_dir / f'{stem}.png', num_classes),
        )

    pairs = sorted(images & labels)
    chosen = sample_of(pairs) if report.quick else pairs
    report.counts[f'{split} pairs read'] = len(chosen)
    for stem, (image, label) in zip(chosen, run_all(read, chosen, progress, workers), strict=True):
        image_file, label_file = image_dir / f'{stem}.jpg', label_dir / f'{stem}.png'
        for kind, message in image.findings:
            report.add(kind, image_file, message)
        for kind, message in label.findings:
            report.add(kind, label_file, message)
        if turned_apart(image, label.size):
            report.add('orientation', image_file, f'has the EXIF orientation {image.orientation}')
        elif image.size and label.size and image.size != label.size:
            report.add(
                'label-size',
                label_file,
                f'is {label.size[0]}x{label.size[1]}, its image is {image.size[0]}x{image.size[1]}',
            )
