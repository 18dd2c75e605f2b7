"""Loading of weights into a backbone: any file, any layout, one log line about the result."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from mmengine.logging import print_log
from torch import nn

from ..errors import UserError
from .layouts import StateDict, find_prefix, fit, is_spare, layout_of, rename, state_dicts_in
from .normalization import normalization_in
from .provenance import check_start
from .sources import read_weights

#: Start of the one line in the log that says what was loaded.
WEIGHTS_LINE = 'weights: '
#: Tensors that no published ViT has: CB's own and the pyramid's.
_OWN = re.compile(r'(^|\.)broadcast\.|^pyramid\.')


@dataclass(frozen=True)
class WeightsReport:
    """What a file gave to a backbone. ``str(report)`` is one line.

    Attributes:
        source: File or model name.
        layout: 'timm', 'MAE', 'DINOv2', 'mmseg', 'mmpretrain' or 'npz'.
        where: Where in the file the weights were, such as ``state_dict backbone.``.
        loaded: Number of tensors that were loaded.
        total: Number of tensors of the backbone.
        changed: What was resized, or filled with zeros.
        missing: Tensors of the backbone that the file lacks, though it should have them.
        unexpected: Tensors of the file that the backbone has no place for.
        expected_missing: Lacking as they should: CB_S scales, pyramid, parts that do not run.
        expected_unexpected: Left out as they should be: the classifier and the like.
        outside: Number of tensors of other parts of the model, such as the decode head.
        note: What the weights were trained with, and what that means for this model.
        normalization: Mean and std of the images, as the file records them; None if it does not.
    """

    source: str
    layout: str
    where: str
    loaded: int
    total: int
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    expected_missing: tuple[str, ...] = ()
    expected_unexpected: tuple[str, ...] = ()
    outside: int = 0
    note: str = ''
    normalization: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    def __str__(self) -> str:
        place = f', under {self.where}' if self.where else ''
        words = [f'{self.source} ({self.layout} layout{place}): loaded {self.loaded}/{self.total}']
        words += self.changed
        for what, keys in (
            ('missing as expected', self.expected_missing),
            ('left out as expected', self.expected_unexpected),
            ('NOT EXPECTED, missing in the file', self.missing),
            ('NOT EXPECTED, no place in the model', self.unexpected),
        ):
            words += [f'{what}: {summary(keys)}'] if keys else []
        words += [f'{self.outside} tensors of other parts left out'] if self.outside else []
        words += [self.note] if self.note else []
        return '; '.join(words)


def summary(keys: Iterable[str], limit: int = 6) -> str:
    """Join keys on one line, with numbers merged: ``blocks.*.mlp.fc1.bias ×12``."""
    groups: dict[str, list[str]] = {}
    for key in keys:
        groups.setdefault(re.sub(r'\b\d+\b', '*', key), []).append(key)
    words = [f'{name} ×{len(all_)}' if all_[1:] else all_[0] for name, all_ in groups.items()]
    more = f' and {len(words) - limit} more' if len(words) > limit else ''
    return ', '.join(words[:limit]) + more


def load_weights(
    model: nn.Module,
    source: str | Path,
    *,
    prefix: str | None = None,
    trust: bool = False,
    allow_broadcast_mismatch: bool = False,
) -> WeightsReport:
    """Load weights of any known layout into a backbone, and log one line about it.

    Args:
        model: A backbone such as ViTCB, or a model whose ``backbone`` is one.
        source: A local .pth, .pt, .safetensors or .npz file; the checkpoint of a whole segmentor
            or detector; an http(s) address; or the name of a timm model, whose weights then come
            from the hub.
        prefix: Take only the keys with this prefix. Detected when not given.
        trust: Let the file be unpickled without limits.
        allow_broadcast_mismatch: Also take weights that say that they were trained with another
            broadcast, in other layers or at another position.

    Raises:
        UserError: The file cannot be read, says that it was trained with another broadcast, is for
            another model (less than half of the tensors match, or one has another shape), or holds
            values that are not finite. The model is then as it was.
    """
    model = getattr(model, 'module', model)
    backbone = model = getattr(model, 'backbone', model)
    # TimmCB is loaded by the keys of the inner model; its authors may have used other ones.
    adapt = getattr(model, 'adapt_weights', None)
    model = getattr(model, 'weights_target', model)
    content, layout = read_weights(source, trust=trust)
    found = _find(content, layout, model, prefix)
    state_dict, changed = fit(found.state_dict, model)
    try:
        report = _compare(str(source), found, state_dict, changed, model)
    except UserError as refusal:
        if adapt is None:
            raise
        try:
            state_dict = adapt(found.state_dict)
        except Exception:  # each of timm's filters fails on foreign files in its own way
            raise refusal from None
        report = _compare(str(source), found, state_dict, changed, model)
    note = check_start(str(source), content, backbone, allow_broadcast_mismatch)
    report = replace(report, note=note, normalization=normalization_in(content, str(source)))
    own = model.state_dict()
    used = {key: value for key, value in state_dict.items() if key in own}
    broken = [key for key, value in used.items() if not torch.isfinite(value).all()]
    if broken:
        raise UserError(
            f'{source}: the values of {summary(broken)} are not all finite (NaN or infinity). '
            'Take an earlier checkpoint.'
        )
    model.load_state_dict(used, strict=False)
    print_log(f'{WEIGHTS_LINE}{report}', logger='current')
    return report


@dataclass(frozen=True)
class _Found:
    """The backbone's part of a checkpoint, under timm's names."""

    state_dict: StateDict
    layout: str
    where: str
    outside: int


def find_backbone(content: Any, layout: str | None, model: nn.Module) -> StateDict:
    """Return the part of a checkpoint that holds a backbone, with its head, under timm's names."""
    return _find(content, layout, model, None).state_dict


def _find(content: Any, layout: str | None, model: nn.Module, prefix: str | None) -> _Found:
    """Return the first state dict in a checkpoint that holds most of what the model needs."""
    wanted = set(model.state_dict())
    best, most = _Found({}, layout or 'timm', '', 0), -1
    for name, raw in state_dicts_in(content):
        if prefix is not None:
            raw = {key[len(prefix) :]: raw[key] for key in raw if key.startswith(prefix)}
        its_layout = layout or layout_of(list(raw))
        # Unchanged too: the blocks.1.2 of Twins would be taken for a chunk of DINOv2's.
        for named in (rename(raw, its_layout), raw):
            before, count = find_prefix(list(named), wanted)
            inside = {key[len(before) :]: named[key] for key in named if key.startswith(before)}
            if count > most:
                where = ' '.join(filter(None, [name, (prefix or '') + before]))
                best, most = _Found(inside, its_layout, where, len(named) - len(inside)), count
    return best


def _compare(
    source: str, found: _Found, state_dict: StateDict, changed: list[str], model: nn.Module
) -> WeightsReport:
    """Sort every tensor of the file and of the model; a UserError when they do not belong."""
    own = model.state_dict()
    shared = [key for key in own if key in state_dict]
    matched = [key for key in shared if own[key].shape == state_dict[key].shape]
    wrong = [key for key in shared if own[key].shape != state_dict[key].shape]
    published = [key for key in own if not _OWN.search(key)]
    enough = 2 * len([key for key in published if key in matched]) >= len(published)
    kind = type(model).__name__
    if wrong or not enough:
        examples = '; '.join(
            f'{key} is {_size(state_dict[key])} in the file and {_size(own[key])} in the model'
            for key in wrong[:3]
        )
        lacking = summary([key for key in published if key not in shared], 3)
        foreign = summary([key for key in state_dict if key not in own], 3)
        raise UserError(
            f'{source} does not fit this {kind}: {len(matched)} of its {len(own)} tensors match.'
            + (f' Other shapes: {examples}.' if wrong else '')
            + (f' Only in the model: {lacking}.' if lacking else '')
            + (f' Only in the file: {foreign}.' if foreign else '')
            + ' Check that arch is the one that the weights were made for.'
        )
    unused = tuple(f'{part}.' for part in getattr(model, 'unused_parts', ()))
    missing = [key for key in own if key not in shared]
    spare = [key for key in state_dict if key not in own]
    return WeightsReport(
        source=source,
        layout=found.layout,
        where=found.where,
        loaded=len(matched),
        total=len(own),
        changed=tuple(changed),
        missing=tuple(k for k in missing if not (_OWN.search(k) or k.startswith(unused))),
        unexpected=tuple(key for key in spare if not is_spare(key)),
        expected_missing=tuple(k for k in missing if _OWN.search(k) or k.startswith(unused)),
        expected_unexpected=tuple(key for key in spare if is_spare(key)),
        outside=found.outside,
    )


def _size(tensor: torch.Tensor) -> str:
    return 'x'.join(map(str, tensor.shape)) or 'a number'
