"""What the labels of a model mean: its classes, in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmengine.config import Config

from ..config.loading import dataset_class, dataset_configs

#: Name of cb_mm's record in a checkpoint's ``meta``.
KEY = 'cb_mm'


@dataclass(frozen=True)
class LabelSet:
    """The meaning of labels, as far as it is known.

    Attributes:
        classes: Their names; empty when not known.
        reduce_zero_label: Whether label 0 of a file is left out, and 1 becomes 0, as mmseg does
            for ADE20K; None when not known.
    """

    classes: tuple[str, ...] = ()
    reduce_zero_label: bool | None = None

    def to_meta(self) -> dict[str, Any]:
        """Return it as a checkpoint keeps it."""
        return {'classes': list(self.classes), 'reduce_zero_label': self.reduce_zero_label}

    @classmethod
    def of_metainfo(cls, metainfo: Any) -> LabelSet:
        """Return that of a data set's ``metainfo``."""
        if not isinstance(metainfo, Mapping):
            return cls()
        # Early checkpoints of mmdet 3 and those of mmcv 1 have capital letters.
        facts = {str(key).lower(): value for key, value in metainfo.items()}
        reduced = facts.get('reduce_zero_label')
        return cls(_names(facts.get('classes')), reduced if isinstance(reduced, bool) else None)

    @classmethod
    def of_checkpoint(cls, content: Any) -> LabelSet:
        """Return that of the data set that a checkpoint was trained on."""
        meta = content.get('meta') if isinstance(content, Mapping) else None
        meta = meta if isinstance(meta, Mapping) else {}
        places = (meta.get(KEY), meta.get('dataset_meta'), meta)
        found = [cls.of_metainfo(place) for place in places]
        return next((labels for labels in found if labels.classes), cls())

    @classmethod
    def of_config(cls, config: Config) -> LabelSet:
        """Return the classes that the first data set of a config names; it is not built."""
        for dataset in dataset_configs(config, ('test', 'val', 'train')):
            known = cls.of_metainfo(getattr(dataset_class(config, dataset), 'METAINFO', None))
            own = cls.of_metainfo(dataset.get('metainfo'))
            if own.classes or known.classes:
                return cls(own.classes or known.classes)
        return cls()

    def moved(self, other: LabelSet) -> tuple[str, int, int] | None:
        """Return the first class that has another number there: its name, and both numbers."""
        here, there = _places(self.classes), _places(other.classes)
        for name in here:
            if name in there and not here[name] & there[name]:
                place = min(here[name])
                return self.classes[place], place, min(there[name])
        return None

    def contradiction(self, trained: LabelSet) -> str:
        """Say how these labels contradict those of the training; '' when they do not.

        Names may differ, since people rename classes, and some may be missing. But a name in
        another position means that the model's answers would be read as other classes.
        """
        moved = self.moved(trained)
        if moved:
            name, here, there = moved
            return f'class {name!r} was number {there} in training and is number {here} here'
        known = None not in (self.reduce_zero_label, trained.reduce_zero_label)
        if known and self.reduce_zero_label != trained.reduce_zero_label:
            return (
                f'the data set had reduce_zero_label={trained.reduce_zero_label} in training and '
                f'has {self.reduce_zero_label} here'
            )
        return ''


def _names(classes: Any) -> tuple[str, ...]:
    if not isinstance(classes, Sequence) or isinstance(classes, str):
        return ()
    return tuple(map(str, classes))


def _places(classes: Sequence[str]) -> dict[str, set[int]]:
    """Return the position of each name, ignoring case and underscores; ImageNet has some twice."""
    places: dict[str, set[int]] = {}
    for place, name in enumerate(classes):
        places.setdefault(name.casefold().replace('_', ' ').replace('-', ' '), set()).add(place)
    return places
