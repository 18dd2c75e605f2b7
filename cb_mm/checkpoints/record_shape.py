"""The shape of cb_mm's record in a checkpoint: anyone can have written it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from .label_set import KEY
from .plain_pickle import Refused

_LONGEST_WORD = 1000
_MOST_LAYERS = 10_000


def require_sound_record(content: Any) -> None:
    """Refuse a record that cannot be compared with a model or shown in a message."""
    meta = content.get('meta') if isinstance(content, Mapping) else None
    record = meta.get(KEY) if isinstance(meta, Mapping) else None
    if not isinstance(record, Mapping):
        return
    for name, is_sound in _PARTS.items():
        if record.get(name) is not None and not is_sound(record[name]):
            raise Refused(f'has a record of its training that is damaged: its {name}')


def _is_word(value: Any) -> bool:
    return type(value) is str and value.isprintable() and len(value) <= _LONGEST_WORD


def _are_layers(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) <= _MOST_LAYERS
        and all(type(layer) is int for layer in value)
    )


def _are_numbers(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(
        type(number) in (int, float) and abs(number) < 1e15 and math.isfinite(number)
        for number in value
    )


def _are_settings(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and all(map(_is_word, value))
        and all(map(_is_setting, value.values()))
    )


def _is_setting(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_setting, value))
    return value is None or type(value) in (bool, int, float, str)


_PARTS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(('broadcast', 'position', 'channel_order'), _is_word),
    'layers': _are_layers,
    **dict.fromkeys(('mean', 'std'), _are_numbers),
    'settings': _are_settings,
}
