"""What the embedded scenes contain, in the words and numbers of ADE20K and COCO.

The scenes use the label numbers of the real data sets, so that mmseg's ``ADE20KDataset`` and
mmdet's ``CocoDataset`` read them as they are: with ``metainfo=dict(classes=SCENE_CLASSES)`` they
pick out these classes alone, without it the full 150 or 80 classes of a real recipe apply.
"""

from __future__ import annotations

#: class name -> label in the annotation file (ADE20K's number, counted from 1; 0 is "other")
SCENE_LABELS: dict[str, int] = {
    'building': 2,
    'sky': 3,
    'tree': 5,
    'road': 7,
    'grass': 10,
    'sidewalk': 12,
    'person': 13,
    'mountain': 17,
    'car': 21,
    'water': 22,
    'fence': 33,
    'signboard': 44,
    'boat': 77,
    'bus': 81,
    'streetlight': 88,
    'animal': 127,
}

#: classes in the order a model numbers them (0, 1, ...) after ``reduce_zero_label``
SCENE_CLASSES: tuple[str, ...] = tuple(SCENE_LABELS)

#: RGB colour of each class, the ones that mmseg gives these classes of ADE20K
SCENE_PALETTE: tuple[tuple[int, int, int], ...] = (
    (180, 120, 120),
    (6, 230, 230),
    (4, 200, 3),
    (140, 140, 140),
    (4, 250, 7),
    (235, 255, 7),
    (150, 5, 61),
    (143, 255, 140),
    (0, 102, 200),
    (61, 230, 250),
    (255, 184, 6),
    (255, 5, 153),
    (173, 255, 0),
    (255, 0, 245),
    (0, 71, 255),
    (255, 0, 122),
)

#: thing name -> category id in COCO's instances files
SCENE_THINGS: dict[str, int] = {
    'person': 1,
    'car': 3,
    'bus': 6,
    'boat': 9,
    'stop sign': 13,
    'sheep': 20,
}

#: thing categories in the order a detector numbers them
SCENE_THING_CLASSES: tuple[str, ...] = tuple(SCENE_THINGS)

#: COCO's own supercategory of each thing
SCENE_SUPERCATEGORIES: dict[str, str] = {
    'person': 'person',
    'car': 'vehicle',
    'bus': 'vehicle',
    'boat': 'vehicle',
    'stop sign': 'outdoor',
    'sheep': 'animal',
}
