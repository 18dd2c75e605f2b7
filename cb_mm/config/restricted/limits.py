"""How large a config may be, counted before anything walks through it.

Names share what they hold: ``b = [a, a]``, ``c = [b, b]`` and so on is a few lines in memory, and
2^28 values when copied, merged or printed, as mmengine does. The count below visits each
object once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mmengine.config import Config

#: Values in a whole config; the largest that mmdet ships has 11,839.
MAX_VALUES = 100_000
#: The same for a config that is trusted.
MAX_VALUES_TRUSTED = 1_000_000
#: Dicts and lists inside each other; the deepest that mmseg, mmdet or mmpretrain ships has 14.
MAX_DEPTH = 50
MAX_DEPTH_TRUSTED = 200
#: Characters that count as one value.
_TEXT = 64


def show(value: Any, most: int = 80) -> str:
    """Return a value from a config for use in a message of one line."""
    return ' '.join(str(value).split())[:most]


class TooLarge(ValueError):
    """A config too large to be written by hand; names the limit it breaks."""


def count_values(content: Any, most: int = MAX_VALUES, depth: int = MAX_DEPTH) -> int:
    """Return the number of values in nested dicts, lists and tuples, shared ones each time.

    Raises:
        TooLarge: There are more than ``most``, it is deeper than ``depth``, or it holds itself.
    """
    counted: dict[int, tuple[int, int]] = {}  # id -> values, depth
    open_: set[int] = set()
    waiting: list[tuple[Any, bool]] = [(content, False)]
    while waiting:
        value, children_done = waiting.pop()
        children = _children(value)
        if children_done:
            open_.discard(id(value))
            sizes = [counted[id(child)] for child in children or ()]
            total = 1 + sum(size for size, _ in sizes)
            deep = 1 + max((levels for _, levels in sizes), default=0)
            if total > most:
                raise TooLarge(
                    f'it has more than {most:,} values. Lists that are used twice count twice.'
                )
            if deep > depth:
                raise TooLarge(f'it has more than {depth} dicts and lists inside each other.')
            counted[id(value)] = total, deep
        elif id(value) in open_:
            raise TooLarge('it has a list or dict that contains itself.')
        elif id(value) not in counted:
            if children is None:
                counted[id(value)] = 1 + (len(value) // _TEXT if isinstance(value, str) else 0), 0
                continue
            open_.add(id(value))
            waiting.append((value, True))
            waiting += [(child, False) for child in children or ()]
    return counted[id(content)][0]


def _children(value: Any) -> list | tuple | None:
    """Return what a container holds, or None if it is not a container; keys are kept alive."""
    if isinstance(value, dict):
        # dict's own methods: those of mmengine's ConfigDict import what a lazy value names.
        return [*dict.keys(value), *dict.values(value)]
    return value if isinstance(value, (list, tuple)) else None


@contextmanager
def counting_values() -> Iterator[None]:
    """Count the values of each file that mmengine runs, before it copies and merges them.

    Raises:
        TooLarge: A config is larger than anyone would write.
    """
    before = {name: vars(Config)[name] for name in ('_parse_scope', '_dict_to_config_dict_lazy')}

    def counted(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(values: Any) -> Any:
            count_values(values, MAX_VALUES_TRUSTED, MAX_DEPTH_TRUSTED)
            return function(values)

        return call

    try:
        for name, method in before.items():
            setattr(Config, name, staticmethod(counted(method.__func__)))
        yield
    finally:
        for name, method in before.items():
            setattr(Config, name, method)
