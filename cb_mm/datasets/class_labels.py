"""From the names of class folders to labels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from timm.data import ImageNetInfo

from ..errors import UserError

ORDERS = ('auto', 'imagenet', 'numbers', 'sorted')


@cache
def imagenet_synsets() -> dict[str, int]:
    """Map the folder name of each ImageNet-1K class (n01440764, ...) to its label, from timm."""
    return {name: i for i, name in enumerate(ImageNetInfo('imagenet-1k').label_names())}


def class_names(folder: Path) -> list[str]:
    """Return the names of the class folders, sorted, hidden ones left out."""
    return sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith('.'))


def reference_names(root: Path, names: Sequence[str]) -> Sequence[str]:
    """Return the folder names that labels are counted by: those of ``train``, if it has any.

    Args:
        root: The folder of the data set.
        names: The folders of the part that is read, which count where ``train`` has none.
    """
    train = root / 'train'
    return (class_names(train) if train.is_dir() else []) or names


def labels_of(names: Sequence[str], order: str = 'auto') -> dict[str, int]:
    """Return the label of every class folder.

    Args:
        names: of the folders, sorted.
        order: 'imagenet': the place of the name among ImageNet-1K's 1,000, also when only some of
            them are there, as in ImageNet-A; 'numbers': the name is the label, as in ImageNet-V2;
            'sorted': counted in the order of the names; 'auto': the first of these that is
            possible.
    """
    known = imagenet_synsets()
    if order == 'auto':
        if all(name in known for name in names):
            order = 'imagenet'
        else:
            order = 'numbers' if all(name.isdecimal() for name in names) else 'sorted'
    if order == 'imagenet':
        foreign = [name for name in names if name not in known]
        if foreign:
            raise UserError(
                f"folder {foreign[0]!r} is not one of ImageNet-1K's 1,000 classes; for other "
                "classes, set labels='sorted' in the data sets."
            )
        return {name: known[name] for name in names}
    if order == 'numbers':
        wrong = [name for name in names if not name.isdecimal()]
        if wrong:
            raise UserError(f"labels='numbers': folder {wrong[0]!r} is not a number.")
        return {name: int(name) for name in names}
    if order != 'sorted':
        raise UserError(f'labels={order!r} of ClassFolders is not one of {", ".join(ORDERS)}.')
    return {name: i for i, name in enumerate(names)}
