"""Python's own containers and numbers from checkpoints, each from checked arguments."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

from .plain_pickle import Foreign, Refused, require_keys

_LATIN = ('latin1', 'latin-1')


def ordered_dict(pairs: Any = ()) -> OrderedDict:
    """Return the dictionary of pairs."""
    if type(pairs) not in (list, tuple) or any(
        type(pair) not in (list, tuple) or len(pair) != 2 for pair in pairs
    ):
        raise Refused('is damaged: an OrderedDict is not made of pairs')
    require_keys(key for key, _ in pairs)
    return OrderedDict(pairs)


def counter(counts: Any = None) -> Counter:
    """Return the counts of a dictionary."""
    if counts is not None and type(counts) is not dict:
        raise Refused('is damaged: a Counter is not made of counts')
    return Counter(counts)


def set_of(items: Any = ()) -> set:
    """Return the set of the items of a list."""
    if type(items) not in (list, tuple):
        raise Refused('is damaged: a set is not made of a list')
    require_keys(items)
    return set(items)


def slice_of(*bounds: Any) -> slice:
    """Return a slice between integers."""
    if any(bound is not None and type(bound) is not int for bound in bounds):
        raise Refused('is damaged: a slice has other bounds than integers')
    return slice(*bounds)


def complex_of(*parts: Any) -> complex:
    """Return the number of two numbers."""
    if any(type(part) is not float for part in parts):
        raise Refused('is damaged: a complex number is not made of two numbers')
    return complex(*parts)


def no_bytes() -> bytes:
    """Return what protocol 2 writes for no bytes."""
    return b''


def bytes_of(text: Any, encoding: Any = None) -> bytes:
    """Return bytes as protocol 2 writes them; other encodings run more code, some of it slow."""
    if type(text) is not str or type(encoding) is not str or encoding not in _LATIN:
        raise Foreign('_codecs.encode to another encoding than latin1')
    return text.encode('latin-1')
