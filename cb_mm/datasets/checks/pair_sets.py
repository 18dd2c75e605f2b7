"""Data sets of images and label maps whose check is their layout: one entry each.

Cityscapes; ACDC and Dark Zurich, on which a model of Cityscapes is tested; Pascal VOC 2012 with the
further labels of SBD; COCO-Stuff 164k.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .files import Progress, data_root
from .findings import Report
from .label_pairs import PairLayout, check_pairs

_TRAIN_IDS = (
    'make them with "pip install cityscapesscripts" and '
    '"CITYSCAPES_DATASET=ROOT csCreateTrainIdLabelImgs"'
)
_STREET: dict[str, Any] = dict(classes=19, ignored=255)
_ETH: dict[str, Any] = dict(
    **_STREET, image_suffix='_rgb_anon.png', label_suffix='_gt_labelTrainIds.png'
)
_VOC: dict[str, Any] = dict(images='JPEGImages', classes=21, ignored=255)
_VOC_LISTS = 'ImageSets/Segmentation'
_VOC_AUG = (
    "get SBD (benchmark.tgz) and convert it with mmsegmentation's "
    'tools/dataset_converters/voc_aug.py, which writes SegmentationClassAug and aug.txt'
)
_STUFF = (
    "make them with mmsegmentation's tools/dataset_converters/coco_stuff164k.py from "
    'stuffthingmaps_trainval2017.zip'
)


@dataclass(frozen=True)
class PairSet:
    """One data set.

    Attributes:
        name: What ``dataset`` calls it.
        type: The class of mmseg that reads it.
        layouts: Part -> where it is.
        counts: Part -> images in the full release.
    """

    name: str
    type: str
    layouts: Mapping[str, PairLayout]
    counts: Mapping[str, int]

    def part_of(self, dataset: Mapping[str, Any]) -> str | None:
        """Return the part that a config of the data set reads from its standard folders."""
        prefix = dataset.get('data_prefix')
        prefix = prefix if isinstance(prefix, Mapping) else {}
        folders = [str(prefix.get(key, '')).strip('/') for key in ('img_path', 'seg_map_path')]
        for part, layout in self.layouts.items():
            listed = dataset.get('ann_file') or None
            if folders == [layout.images, layout.labels] and listed == layout.listed:
                return part
        return None


PAIR_SETS: dict[str, PairSet] = {
    one.name: one
    for one in (
        PairSet(
            'cityscapes',
            'CityscapesDataset',
            {
                split: PairLayout(
                    images=f'leftImg8bit/{split}',
                    labels=f'gtFine/{split}',
                    image_suffix='_leftImg8bit.png',
                    label_suffix='_gtFine_labelTrainIds.png',
                    sources=('_gtFine_polygons.json', '_gtFine_labelIds.png'),
                    how=_TRAIN_IDS,
                    size=(2048, 1024),
                    **_STREET,
                )
                for split in ('train', 'val')
            },
            {'train': 2975, 'val': 500},
        ),
        PairSet(
            'acdc',
            'CityscapesDataset',  # mmseg has no class of its own for it
            {
                condition: PairLayout(
                    images=f'rgb_anon/{condition}/val',
                    labels=f'gt/{condition}/val',
                    size=(1920, 1080),
                    **_ETH,
                )
                for condition in ('fog', 'night', 'rain', 'snow')
            },
            {'fog': 100, 'night': 106, 'rain': 100, 'snow': 100},
        ),
        PairSet(
            'dark-zurich',
            'DarkZurichDataset',
            {'val': PairLayout('rgb_anon/val', 'gt/val', size=(1920, 1080), **_ETH)},
            {'val': 50},
        ),
        PairSet(
            'voc',
            'PascalVOCDataset',
            {
                'train': PairLayout(
                    labels='SegmentationClass', listed=f'{_VOC_LISTS}/train.txt', **_VOC
                ),
                'aug': PairLayout(
                    labels='SegmentationClassAug',
                    listed=f'{_VOC_LISTS}/aug.txt',
                    how=_VOC_AUG,
                    **_VOC,
                ),
                'val': PairLayout(
                    labels='SegmentationClass', listed=f'{_VOC_LISTS}/val.txt', **_VOC
                ),
            },
            {'train': 1464, 'aug': 9118, 'val': 1449},
        ),
        PairSet(
            'coco-stuff',
            'COCOStuffDataset',
            {
                split: PairLayout(
                    images=f'images/{split}',
                    labels=f'annotations/{split}',
                    label_suffix='_labelTrainIds.png',
                    classes=171,
                    ignored=255,
                    sources=('.png',),
                    how=_STUFF,
                )
                for split in ('train2017', 'val2017')
            },
            {'train2017': 118_287, 'val2017': 5_000},
        ),
    )
}


def check_pair_set(
    name: str,
    root: str | os.PathLike,
    quick: bool = False,
    splits: Sequence[str] | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
) -> Report:
    """Check layout, pairs, files, sizes and labels.

    Args:
        name: One of ``PAIR_SETS``.
        root: The folder that the layout is below.
        quick: Look at the names of all files, but read only a few of them.
        splits: The parts to look at; all by default.
        progress: Wraps the loop over pairs: called with an iterable and its length.
        workers: Number of decoding threads; by default one per processor.

    Raises:
        UserError: If ``root`` is not a folder.
    """
    root, known = data_root(root), PAIR_SETS[name]
    report = Report(name, root, quick)
    if not _misplaced(root, known, report):
        for split in splits or known.layouts:
            check_pairs(root, split, known.layouts[split], report, progress, workers)
            found = report.counts.get(f'{split} images', 0)
            if found and found != known.counts[split]:
                layout = known.layouts[split]
                told = f'{found:,} of {known.counts[split]:,} {split} images'
                report.add('count', layout.images, told)
    return report


#: name -> its check
RUN = {name: partial(check_pair_set, name) for name in PAIR_SETS}


def _misplaced(root: Path, known: PairSet, report: Report) -> bool:
    """Report if ``root`` is the wrong folder or data set; return whether it is."""
    if _has_layout(root, known):
        return False
    for other in PAIR_SETS.values():
        if _has_layout(root, other):
            told = f'this folder is in the layout of {other.name}, not of {known.name}'
            report.add('other-data-set', '.', told)
            return True
    below = sorted(path for path in root.iterdir() if path.is_dir())
    nearby = [path for path in (*below, *root.absolute().parents[:2]) if _has_layout(path, known)]
    if nearby:
        report.add('wrong-folder', '.', f'the data set is in {nearby[0]}, not in {root}')
    return bool(nearby)


def _has_layout(root: Path, known: PairSet) -> bool:
    return any((root / layout.images).is_dir() for layout in known.layouts.values())
