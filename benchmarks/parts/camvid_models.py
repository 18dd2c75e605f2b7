"""What the CamVid study compares: four models from two starts. Imports little: options use it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Model(NamedTuple):
    """Its name in tables, and what it changes in the backbone."""

    title: str
    backbone: dict[str, Any]


class Start(NamedTuple):
    """Its name in tables, and the learning rate of the backbone.

    Heads and pyramid, which are always new, use `NEW_LAYERS`. The rates were chosen in short runs
    without CB: with 1e-4 for all, small classes are not found in 1,500 iterations.
    """

    title: str
    rate: float


NEW_LAYERS = 1e-3
MODELS = {
    'none': Model('none', dict(broadcast=None)),
    'cb': Model('CB, upper layers', dict(broadcast='cb', layers='upper')),
    'cb_all': Model('CB, all layers', dict(broadcast='cb', layers='all')),
    'cb_s': Model('CB_S', dict(broadcast='cb_s', layers='all')),
}
STARTS = {
    'imagenet': Start('From ImageNet weights of a plain ViT-Ti', 1e-4),
    'scratch': Start('From scratch', 5e-4),
}
