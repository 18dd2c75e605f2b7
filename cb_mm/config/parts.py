"""Which part of a config was at work when an error arose.

Libraries complain about a value far from where it was written: an assertion without a message, a
tensor of a wrong shape. The frames of the error still hold the objects that were at work, and a
config says of what class each of its parts is.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Iterator, Mapping
from typing import Any


def part_at_work(error: BaseException, config: Any) -> str:
    """Return the innermost part of the config in the error's frames, such as 'model.decode_head'.

    Args:
        error: What was raised.
        config: The config, as a mapping.

    Returns:
        Its keys with dots, and its class; '' where no part of the config was at work.
    """
    plain = config.to_dict() if hasattr(config, 'to_dict') else config
    parts = dict(_parts(plain))
    chosen: list[str] = []
    for frame in _frames(error):
        found = _candidates(frame, parts)
        if not chosen:
            chosen = found
        elif len(chosen) > 1:  # the same class in several places: the one inside its caller
            inside = [key for key in chosen if any(key.startswith(f'{o}.') for o in found)]
            chosen = inside or chosen
    if not chosen:
        return ''
    kind = parts[chosen[0]].get('type')
    return ' or '.join(chosen[:2]) + (f' ({_name(kind)})' if kind else '')


def source_line(error: BaseException) -> str:
    """Return the line of code that raised the error: all that a bare ``assert`` tells."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ''
    return linecache.getline(trace.tb_frame.f_code.co_filename, trace.tb_lineno).strip()


def _parts(node: Any, path: str = '') -> Iterator[tuple[str, Mapping]]:
    """Yield every mapping inside of a config with its keys."""
    if isinstance(node, Mapping):
        if path and node:
            yield path, node
        items: Any = node.items()
    elif isinstance(node, (list, tuple)):
        items = enumerate(node)
    else:
        return
    for key, value in items:
        yield from _parts(value, f'{path}.{key}' if path else str(key))


def _frames(error: BaseException | None) -> Iterator[Any]:
    """Yield the frames of an error and of what it was raised from, the innermost first."""
    chain = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    for one in reversed(chain):
        frames, trace = [], one.__traceback__
        while trace is not None:
            frames.append(trace.tb_frame)
            trace = trace.tb_next
        yield from reversed(frames)


def _candidates(frame: Any, parts: Mapping[str, Mapping]) -> list[str]:
    """Return the parts that a frame works for: its values are theirs, or its object is one.

    A frame with the values of several parts, such as a constructor, works for what is around them.
    """
    values = frame.f_locals.values()
    given = [dict(value) for value in values if isinstance(value, Mapping) and value]
    found = [[key for key in parts if _equal(parts[key], one)] for one in given]
    found = [keys for keys in found if keys]
    if found and all(keys == found[0] for keys in found):
        return found[0]
    owner = type(frame.f_locals.get('self')).__name__
    own = [key for key, part in parts.items() if _name(part.get('type')) == owner]
    if own or not found:
        return own
    around = _common_start([key.split('.') for keys in found for key in keys])
    return [around] if around in parts else []


def _common_start(keys: list[list[str]]) -> str:
    shared = itertools.takewhile(lambda level: len(set(level)) == 1, zip(*keys, strict=False))
    return '.'.join(level[0] for level in shared)


def _equal(one: Mapping, other: Mapping) -> bool:
    try:
        return bool(one == other)
    except Exception:  # arrays and tensors do not compare to one truth
        return False


def _name(kind: Any) -> str:
    return getattr(kind, '__name__', None) or str(kind).rpartition('.')[2]
