"""Images in one folder per class: ImageNet, its relatives V2 and A, and custom folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mmengine.registry import DATASETS
from mmpretrain.datasets import CustomDataset
from mmpretrain.datasets.categories import IMAGENET_CATEGORIES

from ..errors import MissingFile, UserError
from ..fileio.folders import list_files
from .class_labels import class_names, imagenet_synsets, labels_of, reference_names


@DATASETS.register_module()
class ClassFolders(CustomDataset):
    """Images below ``data_root/data_prefix/CLASS/``.

    Where there is a ``data_root/train``, its folders are the classes of every part, so that a part
    that lacks a class gives the same labels.

    Args:
        data_root: The folder of the data set.
        data_prefix: The folder of this part below it, such as 'train'.
        labels: How labels follow from the names of folders; see `labels_of`.
        **kwargs: As in mmpretrain's CustomDataset.

    ``metainfo`` has ``classes``, and ``present_labels``: the labels whose folder is in this part.
    """

    def __init__(
        self, data_root: str = '', data_prefix: Any = '', labels: str = 'auto', **kwargs: Any
    ) -> None:
        self.order = labels
        super().__init__(data_root=data_root, data_prefix=data_prefix, **kwargs)

    def _find_samples(self) -> list[tuple[str, int]]:
        folder = Path(self.img_prefix)
        if not folder.is_dir():
            raise MissingFile(f'data set folder {folder} does not exist.')
        names = class_names(folder)
        root = Path(self.data_root) if self.data_root else None
        label_of = labels_of(reference_names(root, names) if root else names, self.order)
        foreign = [name for name in names if name not in label_of]
        if foreign:
            raise UserError(
                f'class folder {folder / foreign[0]} has no counterpart in {root}/train.'
            )
        files = [
            (f'{name}/{file}', label_of[name])
            for name in names
            for file in list_files(folder / name)
            if self.is_valid_file(file)
        ]
        if not files:
            raise UserError(f'there is no image in the class folders of {folder}.')
        if self.CLASSES is None:
            self._metainfo['classes'] = _titles(label_of)
        self._metainfo['present_labels'] = tuple(sorted({label for _, label in files}))
        return files


def _titles(label_of: dict[str, int]) -> tuple[str, ...]:
    """Return one name per label: ImageNet's own words if the folders are ImageNet's."""
    known = imagenet_synsets()
    if all(known.get(name) == label for name, label in label_of.items()):
        return tuple(IMAGENET_CATEGORIES)
    if len(label_of) == len(IMAGENET_CATEGORIES) and all(name.isdecimal() for name in label_of):
        return tuple(IMAGENET_CATEGORIES)
    names = {label: name for name, label in label_of.items()}
    return tuple(names.get(label, str(label)) for label in range(max(names) + 1))
