"""What a config takes from its bases: ``_base_.a`` and ``{{_base_.a}}``."""

from __future__ import annotations

from mmengine.config import ConfigDict


class BaseValue:
    """``{{_base_.a.b}}``: mmengine fills it in after the file was read."""

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys


def is_free(name: str) -> bool:
    """Return whether an attribute of mmengine's dicts is a key, not a member of the class."""
    return not (name.startswith('_') or name == 'scope' or hasattr(ConfigDict, name))
