"""What the embedded scenes contain, in the words and numbers of ADE20K and COCO.

The scenes use the label numbers of the real data sets, so that mmseg's ``ADE20KDataset`` and
mmdet's ``CocoDataset`` read them as they are: with ``metainfo=dict(classes=SCENE_CLASSES)`` they
pick out these classes only; without it the full 150 or 80 classes of a real recipe apply.
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

#: supercategory -> its categories, in COCO's order
_COCO_GROUPS: dict[str, str] = {
    'person': 'person',
    'vehicle': 'bicycle, car, motorcycle, airplane, bus, train, truck, boat',
    'outdoor': 'traffic light, fire hydrant, stop sign, parking meter, bench',
    'animal': 'bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe',
    'accessory': 'backpack, umbrella, handbag, tie, suitcase',
    'sports': 'frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, '
    'skateboard, surfboard, tennis racket',
    'kitchen': 'bottle, wine glass, cup, fork, knife, spoon, bowl',
    'food': 'banana, apple, sandwich, orange, broccoli, carrot, hot dog, pizza, donut, cake',
    'furniture': 'chair, couch, potted plant, bed, dining table, toilet',
    'electronic': 'tv, laptop, mouse, remote, keyboard, cell phone',
    'appliance': 'microwave, oven, toaster, sink, refrigerator',
    'indoor': 'book, clock, vase, scissors, teddy bear, hair drier, toothbrush',
}

#: Ids 1 to 90 that COCO gave to no category in the end.
_COCO_GAPS = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}

#: COCO's 80 categories as an instances file lists them. All of them are written, though few occur:
#: mmdet numbers the classes by the categories it finds, and a missing one would shift the rest.
COCO_CATEGORIES: list[dict] = [
    {'supercategory': group, 'id': number, 'name': name}
    for number, (group, name) in zip(
        (number for number in range(1, 91) if number not in _COCO_GAPS),
        ((group, name) for group, names in _COCO_GROUPS.items() for name in names.split(', ')),
        strict=True,
    )
]

#: things that are drawn, in the order a detector numbers them
SCENE_THING_CLASSES: tuple[str, ...] = ('person', 'car', 'bus', 'boat', 'stop sign', 'sheep')

#: thing name -> category id in COCO's instances files
SCENE_THINGS: dict[str, int] = {
    category['name']: category['id']
    for category in COCO_CATEGORIES
    if category['name'] in SCENE_THING_CLASSES
}
