"""One number for pixels without a class, instead of five places that must agree."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from mmengine.config import Config

from ..errors import UserError

KEY = 'ignore_index'


def follow_ignore_index(config: Config) -> None:
    """Let data sets, heads, metrics and padding follow a top-level ``ignore_index``.

    Configs without it, and without a segmentor, are unchanged. A place that has a number of its own
    must have the same one: mmseg would train with one and score with the other.
    """
    number = config.get(KEY)
    heads = list(_dicts((config.get('model') or {}).get('decode_head')))
    if number is None or not heads:
        return
    if not isinstance(number, int) or not 0 <= number <= 255:
        raise UserError(f'ignore_index is {number!r} in the config; a label is 0 to 255.')
    heads += _dicts(config.model.get('auxiliary_head'))
    places = {
        'a head': heads,
        'a data set': [
            one for split in ('train', 'val', 'test')
            for one in _datasets(config.get(f'{split}_dataloader'))
        ],
        'a metric': [
            one for split in ('val', 'test') for one in _dicts(config.get(f'{split}_evaluator'))
            if 'IoU' in str(one.get('type'))
        ],
    }  # fmt: skip
    for where, found in places.items():
        for one in found:
            if one.setdefault(KEY, number) != number:
                raise UserError(
                    f'ignore_index is {number} in the config, but {one[KEY]} in {where} '
                    f'({one.get("type")}). Leave the second out: the first reaches all of them.'
                )
    preprocessor = config.model.get('data_preprocessor') or config.get('data_preprocessor')
    if preprocessor:
        preprocessor['seg_pad_val'] = number  # padding must not count either


@contextlib.contextmanager
def followed_in_every_config() -> Iterator[None]:
    """Let configs that upstream's own tools read follow it as well, within the block."""
    original = Config.__dict__['fromfile']

    def fromfile(*args: Any, **kwargs: Any) -> Config:
        config = original.__func__(*args, **kwargs)
        follow_ignore_index(config)
        return config

    Config.fromfile = staticmethod(fromfile)
    try:
        yield
    finally:
        Config.fromfile = original


def _dicts(node: Any) -> Iterator[dict]:
    for one in node if isinstance(node, (list, tuple)) else [node]:
        if isinstance(one, dict):
            yield one


def _datasets(node: Any) -> Iterator[dict]:
    """Yield the data sets that read files, within whatever repeats or joins them."""
    for one in _dicts(node):
        inner = [*_dicts(one.get('dataset')), *_dicts(one.get('datasets'))]
        if inner:
            yield from _datasets(inner)
        elif 'pipeline' in one:
            yield one
