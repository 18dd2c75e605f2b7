"""What a checkpoint was trained with: its broadcast, and the normalisation of its images.

Neither shows in the tensors. CB has no parameters, so the weights of a plain ViT load into a ViT
with CB without a complaint, and the other way round; the result is another function. Checkpoints of
cb_mm therefore carry a record, and whoever loads them compares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from torch import nn

from .errors import UserError

#: Name of the record in a checkpoint's ``meta``.
KEY = 'cb_mm'

ALLOW = '--allow-broadcast-mismatch'

#: What to expect, measured by us: ViT-Ti with plain ImageNet weights.
PLAIN_START = (
    'expect less after a short fine-tune (ours on CamVid, ViT-Ti, 1,500 iterations, three seeds: '
    '62.0 mIoU without CB, 61.3 with CB in the upper layers, 59.0 in all layers, 62.0 with CB_S); '
    'pre-train with CB (configs/imagenet/imagenet_vit_*_cb.py), take CB_S, or train for longer'
)


@dataclass(frozen=True)
class Provenance:
    """What a model is trained with, in plain values.

    Attributes:
        broadcast: 'cb' and so on, or None.
        layers: Blocks with it.
        position: Where in the block; None without broadcast.
        mean: Of the normalisation, in grey levels; empty when not known.
        std: Of the normalisation.
    """

    broadcast: str | None = None
    layers: tuple[int, ...] = ()
    position: str | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __str__(self) -> str:
        if self.broadcast is None:
            return 'no broadcast'
        return f'{self.broadcast} in layers {_ranges(self.layers)}, position {self.position}'

    def to_meta(self) -> dict[str, Any]:
        """As it is kept in a checkpoint: strings, numbers and lists alone."""
        return {
            'broadcast': self.broadcast,
            'layers': list(self.layers),
            'position': self.position,
            'mean': list(self.mean),
            'std': list(self.std),
        }

    @classmethod
    def of_checkpoint(cls, content: Any) -> Provenance | None:
        """The record in what a checkpoint file holds; None where there is none."""
        meta = content.get('meta') if isinstance(content, Mapping) else None
        found = meta.get(KEY) if isinstance(meta, Mapping) else None
        if not isinstance(found, Mapping):
            return None
        return cls(
            found.get('broadcast'),
            tuple(found.get('layers') or ()),
            found.get('position'),
            tuple(found.get('mean') or ()),
            tuple(found.get('std') or ()),
        )

    @classmethod
    def of_model(cls, model: nn.Module) -> Provenance | None:
        """That of a backbone or of a model around one; None for backbones of others."""
        model = model.module if is_model_wrapper(model) else model
        backbone = getattr(model, 'backbone', model)
        if not hasattr(backbone, 'broadcast_layers'):
            return None
        kind = getattr(backbone, 'broadcast', None) if backbone.broadcast_layers else None
        position = getattr(backbone, 'position', None) if kind else None
        mean, std = _normalization(getattr(model, 'data_preprocessor', None))
        return cls(kind, tuple(backbone.broadcast_layers), position, mean, std)


def check_exact(
    file: str, content: Any, model: nn.Module, allow: bool = False, option: str = ALLOW
) -> None:
    """A checkpoint that is gone on with, tested or looked at must be of this very model.

    Args:
        file: Its name, for messages.
        content: What it holds.
        model: The model or its backbone.
        allow: Another broadcast is wanted.
        option: By which option a user says so; '' where there is none.

    Raises:
        UserError: It was trained with another broadcast, and that was not asked for; or with
            images that were normalised otherwise.
    """
    trained, own = Provenance.of_checkpoint(content), Provenance.of_model(model)
    if trained is None or own is None:
        return
    parts = ('broadcast', 'layers', 'position')
    if not allow and any(getattr(trained, part) != getattr(own, part) for part in parts):
        raise UserError(_refusal(file, trained, own, option))
    if differs(trained, own):
        raise UserError(
            f'checkpoint {file} was trained with images of {normalization_text(trained)}; the '
            f'config has {normalization_text(own)}. Pass --normalization weights to follow it.'
        )


def check_start(file: str, content: Any, model: nn.Module, allow: bool = False) -> str:
    """Compare weights that a backbone starts from with the backbone.

    Args:
        file: Name of the weights, for messages.
        content: What they hold.
        model: The backbone.
        allow: Another broadcast is wanted.

    Returns:
        What people should know about this start, or nothing.

    Raises:
        UserError: The weights say that they were trained with another broadcast.
    """
    trained, own = Provenance.of_checkpoint(content), Provenance.of_model(model)
    if own is None:
        return ''
    # If it starts as the identity, the model is the plain one until it learns otherwise.
    starts = [
        part.identity_at_init for part in model.modules() if hasattr(part, 'identity_at_init')
    ]
    unchanged = own.broadcast is not None and all(starts)
    if trained is not None:
        skipped = getattr(model, 'out_indices', ()) if getattr(model, 'skip_out_layers', 0) else ()
        expected = tuple(i for i in trained.layers if i not in skipped)
        same = (trained.broadcast, trained.position) == (own.broadcast, own.position)
        if same and own.layers in (trained.layers, expected):
            left_out = [i for i in trained.layers if i not in own.layers]
            return f'trained with {trained}' + (
                f'; left out here in layers {_ranges(left_out)}, which feed the neck'
                if left_out
                else ''
            )
        if trained.broadcast is None and unchanged:
            return (
                f'trained with no broadcast; {own.broadcast} starts as the identity (CB_S: Λ = 0), '
                'so nothing changes at first'
            )
        if not allow:
            raise UserError(_refusal(file, trained, own))
        if trained.broadcast is not None:
            return f'CAUTION: trained with {trained}, started with {own}, as asked for'
    if own.broadcast is None or unchanged:
        return ''
    knowledge = 'were trained without CB' if trained else 'carry no record of training with CB'
    return f'CAUTION: these weights {knowledge}, and this model has {own}: {PLAIN_START}'


def _refusal(file: str, trained: Provenance, own: Provenance, option: str = ALLOW) -> str:
    way_out = f', or pass {option} if you mean it' if option else ''
    return (
        f'{file} was trained with {trained}, but this model has {own}. Take the config or the '
        f'weights that match{way_out}.'
    )


def differs(one: Provenance, other: Provenance) -> bool:
    """Whether two normalisations are known and not the same."""
    pairs = ((one.mean, other.mean), (one.std, other.std))
    return any(
        a and b and (len(a) != len(b) or any(abs(x - y) > 0.05 for x, y in zip(a, b, strict=True)))
        for a, b in pairs
    )


def normalization_text(trained: Provenance) -> str:
    """'mean 123.675, 116.28, 103.53 and std ...'."""
    mean, std = (', '.join(f'{value:g}' for value in part) for part in (trained.mean, trained.std))
    return f'mean {mean} and std {std}'


def _normalization(preprocessor: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    values = []
    for name in ('mean', 'std'):
        tensor = getattr(preprocessor, name, None)
        flat = tensor.flatten().tolist() if hasattr(tensor, 'flatten') else ()
        values.append(tuple(round(float(value), 4) for value in flat))
    return values[0], values[1]


def _ranges(numbers: Sequence[int]) -> str:
    """(6, 7, 8, 11) -> '6-8, 11'."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ', '.join(f'{a}' if a == b else f'{a}-{b}' for a, b in parts) or 'none'


@HOOKS.register_module()
class ProvenanceHook(Hook):
    """Writes the record into every checkpoint, and compares when a run is resumed.

    Args:
        allow_mismatch: Resume a checkpoint of another broadcast.
    """

    def __init__(self, allow_mismatch: bool = False) -> None:
        self.allow_mismatch = allow_mismatch

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Add the record to ``meta``."""
        record = Provenance.of_model(runner.model)
        if record is not None:
            checkpoint.setdefault('meta', {})[KEY] = record.to_meta()

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Refuse a checkpoint of another model."""
        file = str(runner.cfg.get('load_from') or 'the checkpoint')
        check_exact(file, checkpoint, runner.model, self.allow_mismatch)


def record_provenance(runner: Runner, allow_mismatch: bool) -> None:
    """Give a runner the hook, or tell the one that its config has what is allowed."""
    hooks = [hook for hook in runner.hooks if isinstance(hook, ProvenanceHook)]
    if not hooks:
        runner.register_hook(ProvenanceHook(allow_mismatch))
    for hook in hooks:
        hook.allow_mismatch = hook.allow_mismatch or allow_mismatch
