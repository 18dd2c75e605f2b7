"""What a config takes from its bases, ``_base_.a`` and ``{{_base_.a}}``, and from the shell."""

from __future__ import annotations

import re

from mmengine.config import ConfigDict

#: What mmengine replaces in the text of a config: the name of the file, and variables of the shell.
FILLED_IN = re.compile(r'\{\{\s*[\'"]?\s*(\$|file(Dirname|Basename|BasenameNoExtension|Extname)\b)')


class BaseValue:
    """``{{_base_.a.b}}``: mmengine fills it in after the file was read."""

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys


def is_refilled(text: str) -> bool:
    """Return whether mmengine would replace part of a text in a config that it has dumped."""
    return bool(FILLED_IN.search(text) or re.search(r'\{\{\s*_base_', text))


def is_free(name: str) -> bool:
    """Return whether an attribute of mmengine's dicts is a key, not a member of the class."""
    return not (name.startswith('_') or name == 'scope' or hasattr(ConfigDict, name))
