"""CamVid: 11 classes of the street, label 11 is not labelled."""

from __future__ import annotations

from pathlib import Path

from cb_mm.errors import UserError

from .segmentation_data import Source

IGNORE = 11
CAMVID = Source(
    dataset=dict(type='BaseSegDataset', data_root='camvid', img_suffix='.jpg'),
    classes=(
        *('sky', 'building', 'pole', 'road', 'pavement', 'tree', 'sign', 'fence', 'car'),
        *('pedestrian', 'bicyclist'),
    ),
    train='train',
    val='val',
    ignore=IGNORE,
)


def require_camvid(folder: Path) -> None:
    """Say what is missing, before anything runs."""
    for part in ('images/train', 'images/val', 'annotations/train', 'annotations/val'):
        if not (folder / part).is_dir():
            raise UserError(
                f'CamVid is not at {folder}: there is no {part}. Give its folder by --camvid.'
            )
