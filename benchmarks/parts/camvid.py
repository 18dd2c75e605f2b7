"""CamVid: 11 street classes; label 11 means unlabelled."""

from __future__ import annotations

from pathlib import Path

from cb_mm.errors import UserError

from .segmentation_data import Source

CLASSES = (
    *('sky', 'building', 'pole', 'road', 'pavement', 'tree', 'sign', 'fence', 'car'),
    *('pedestrian', 'bicyclist'),
)
#: Folders of images and of label maps: ADE20K's layout, and that of the SegNet tutorial, whose
#: CamVid with 12 labels this is.
LAYOUTS = (('images/{}', 'annotations/{}'), ('{}', '{}annot'))
SUFFIXES = ('.jpg', '.png')


def find_camvid(folder: Path) -> Source:
    """Find CamVid in a folder.

    Raises:
        UserError: It is not there; the message says what was looked for.
    """
    for images, labels in LAYOUTS:
        for suffix in SUFFIXES:
            source = Source(
                dataset=dict(type='BaseSegDataset', data_root='camvid', img_suffix=suffix),
                classes=CLASSES,
                train='train',
                val='val',
                ignore=11,
                images=images,
                labels=labels,
            )
            if all(_pairs(folder, source, split) for split in (source.train, source.val)):
                return source
    raise UserError(
        f'CamVid is not at {folder}: there are no images (.jpg or .png) with label maps (.png) of '
        'the same names in images/train, annotations/train, images/val and annotations/val, nor in '
        'train, trainannot, val and valannot. Pass its folder with --camvid.'
    )


def _pairs(folder: Path, source: Source, split: str) -> bool:
    """Return whether there are images, and every image has a label map."""
    images = (folder / source.images.format(split)).glob(f'*{source.dataset["img_suffix"]}')
    labels = {file.stem for file in (folder / source.labels.format(split)).glob('*.png')}
    stems = {file.stem for file in images}
    return bool(stems) and stems <= labels
