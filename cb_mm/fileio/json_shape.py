"""The shape that a JSON value must have, in plain Python, and the first place where it differs.

A shape is ``str``, ``bool``, ``int``, ``float`` (any number) or ``None``; a dict of the keys that
an object must have; a ``ListOf`` or ``MapOf`` one shape; or a tuple of shapes, any of which does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: Beyond this a number is not a measurement, and drawing it overflows.
_LARGEST = 1e15
_WORDS = {str: 'a text', bool: 'true or false', int: 'a whole number', float: 'a number',
          None: 'null'}  # fmt: skip


@dataclass(frozen=True)
class ListOf:
    """A list of any length."""

    item: Any


@dataclass(frozen=True)
class MapOf:
    """An object with any keys."""

    item: Any


def mismatch(value: Any, shape: Any, where: str = '') -> str | None:
    """Describe the first thing in ``value`` that does not match ``shape``; None if all is well."""
    place = where or 'it'
    if isinstance(shape, tuple):
        if any(mismatch(value, one) is None for one in shape):
            return None
        return f'{place} is not {" or ".join(map(_words, shape))}'
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f'{place} is not an object'
        missing = next((key for key in shape if key not in value), None)
        if missing is not None:
            return f'{_join(where, missing)} is missing'
        return _first(mismatch(value[key], shape[key], _join(where, key)) for key in shape)
    if isinstance(shape, ListOf):
        if not isinstance(value, list):
            return f'{place} is not a list'
        return _first(mismatch(item, shape.item, f'{where}[{i}]') for i, item in enumerate(value))
    if isinstance(shape, MapOf):
        if not isinstance(value, dict):
            return f'{place} is not an object'
        return _first(mismatch(item, shape.item, _join(where, key)) for key, item in value.items())
    return None if _is(value, shape) else f'{place} is not {_words(shape)}'


def _is(value: Any, shape: Any) -> bool:
    if shape is None or value is None:
        return value is shape
    if shape in (int, float):  # in Python a bool is an int
        kinds = (int, float) if shape is float else int
        return isinstance(value, kinds) and not isinstance(value, bool) and abs(value) <= _LARGEST
    return isinstance(value, shape)


def _words(shape: Any) -> str:
    if isinstance(shape, (dict, MapOf)):
        return 'an object'
    return 'a list' if isinstance(shape, ListOf) else _WORDS[shape]


def _join(where: str, key: str) -> str:
    return f'{where}.{key}' if where else str(key)


def _first(findings: Any) -> str | None:
    return next((finding for finding in findings if finding), None)
