"""Checks of a data set in the layout of ADE20K's scene parsing release."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from .files import Progress, data_root
from .findings import Report
from .label_pairs import PairLayout, check_pairs

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
        layout = PairLayout(f'images/{split}', f'annotations/{split}', classes=num_classes)
        check_pairs(root, split, layout, report, progress, workers)
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
