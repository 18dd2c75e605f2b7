"""What a checkpoint was trained with: broadcast, normalisation, settings, classes.

None of it shows in the tensors. CB has no parameters, so the weights of a plain ViT load silently
into a ViT with CB, and the other way round; the result is another function. The same is true of the
number of heads, the order of the channels or of the classes. Checkpoints of cb_mm therefore carry a
record, which is compared on loading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from ..compat.wrappers import with_weights
from ..errors import UserError
from .label_set import KEY, LabelSet
from .model_settings import Settings, differences, settings_of

_ALLOW = '`allow_mismatch`'

#: Suffixes of settings that no training changes: other blocks may be read out, attention may become
#: sparse, but the weights of queries and keys are cut into heads in only one way.
_FIXED = '.num_heads'

#: What to expect, and where the page with our figures is.
PLAIN_START = (
    'expect less after a short fine-tune (docs/pretraining.md has figures); pre-train with CB '
    '(configs/imagenet/imagenet_vit_*_cb.py), take CB_S, or train for longer'
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
        channel_order: 'RGB' or 'BGR'; None when not known.
        settings: See `settings_of`; empty when not known.
    """

    broadcast: str | None = None
    layers: tuple[int, ...] = ()
    position: str | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    channel_order: str | None = None
    settings: Settings = field(default_factory=dict)

    def __str__(self) -> str:
        if self.broadcast is None:
            return 'no broadcast'
        return f'{self.broadcast} in layers {_ranges(self.layers)}, position {self.position}'

    def to_meta(self) -> dict[str, Any]:
        """Return it as a checkpoint stores it: only strings, numbers and lists."""
        return {
            'broadcast': self.broadcast,
            'layers': list(self.layers),
            'position': self.position,
            'mean': list(self.mean),
            'std': list(self.std),
            'channel_order': self.channel_order,
            'settings': self.settings,
        }

    @classmethod
    def of_checkpoint(cls, content: Any) -> Provenance | None:
        """Return the record in what a checkpoint file holds; None where there is none."""
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
            found.get('channel_order'),
            _settings_in(found),
        )

    @classmethod
    def of_model(cls, model: nn.Module) -> Provenance:
        """Return that of a built model, or of a backbone by itself."""
        model = with_weights(model)
        backbone = getattr(model, 'backbone', model)
        layers = tuple(getattr(backbone, 'broadcast_layers', ()))
        kind = getattr(backbone, 'broadcast', None) if layers else None
        position = getattr(backbone, 'position', None) if kind else None
        preprocessor = getattr(model, 'data_preprocessor', None)
        return cls(
            kind,
            layers,
            position,
            *_normalization(preprocessor),
            channel_order(preprocessor),
            # A backbone by itself is compared with that of a whole model.
            settings_of(model, '' if backbone is not model else 'backbone.'),
        )


def check_exact(
    file: str,
    content: Any,
    model: nn.Module,
    allow: bool = False,
    labels: LabelSet | None = None,
    fine_tuned: bool = False,
) -> None:
    """Refuse a checkpoint that was trained with another model than the one that gets its weights.

    For every use of a trained model: resuming, testing, exporting, visualising.

    Args:
        file: Its name, for messages.
        content: What it holds.
        model: The model or its backbone.
        allow: Another broadcast, other settings and other classes are wanted.
        labels: What the model's labels mean here; None where they do not matter.
        fine_tuned: The model is trained further, so that only what the weights depend on must
        agree.

    Raises:
        UserError: It was trained with another broadcast, with other settings or classes, and that
            was not allowed; or with images that were normalised differently.
    """
    trained, own = Provenance.of_checkpoint(content), Provenance.of_model(model)
    if trained is not None and not allow:
        parts = ('broadcast', 'layers', 'position')
        if any(getattr(trained, part) != getattr(own, part) for part in parts):
            raise UserError(_refusal(file, trained, own))
        _check_settings(file, trained, own, _FIXED if fine_tuned else '')
    contradiction = labels.contradiction(LabelSet.of_checkpoint(content)) if labels else ''
    if contradiction and not allow:
        raise UserError(
            f'checkpoint {file}: {contradiction}. Give the data set its classes in the order of '
            f'the training (metainfo), or pass {_ALLOW} if you mean it.'
        )
    if trained is not None and differs(trained, own):
        raise UserError(
            f'checkpoint {file} was trained with images of {normalization_text(trained)}; the '
            f'config has {normalization_text(own)}. Pass `normalization` weights to follow it.'
        )


def _check_settings(file: str, trained: Provenance, own: Provenance, only: str = '') -> None:
    """Refuse a setting that was different in training; ``only``: suffixes of names to check."""
    found = [
        change for change in differences(trained.settings, own.settings) if change[0].endswith(only)
    ]
    orders = (trained.channel_order, own.channel_order)
    if not only and None not in orders and orders[0] != orders[1]:
        found.insert(0, ('data_preprocessor.channel_order', str(orders[0]), str(orders[1])))
    if not found:
        return
    # The number of heads says more than the scale that follows from it.
    found.sort(key=lambda change: (change[0].count('.'), change[0].endswith('.scale')))
    shown = '; '.join(f'{name} was {there} and is {here} here' for name, there, here in found[:3])
    more = f'; and {len(found) - 3} more' if len(found) > 3 else ''
    raise UserError(
        f'checkpoint {file} was trained with other settings, which its weights do not show: '
        f'{shown}{more}. Set them in the config as they were in training, take the weights that '
        f'match, or pass {_ALLOW} if you mean it.'
    )


def check_start(file: str, content: Any, model: nn.Module, allow: bool = False) -> str:
    """Compare weights that a backbone starts from with the backbone.

    Args:
        file: Name of the weights, for messages.
        content: What they hold.
        model: The backbone.
        allow: Another broadcast is wanted.

    Returns:
        What the user should know about this start, or nothing.

    Raises:
        UserError: The weights say that they were trained with another broadcast.
    """
    trained, own = Provenance.of_checkpoint(content), Provenance.of_model(model)
    if trained is not None and not allow:
        _check_settings(file, trained, own, _FIXED)
    unchanged = own.broadcast is not None and _starts_plain(model)
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
            return f'CAUTION: trained with {trained}, started with {own}, as requested'
    if own.broadcast is None or unchanged:
        return ''
    knowledge = 'were trained without CB' if trained else 'carry no record of training with CB'
    return f'CAUTION: these weights {knowledge}, and this model has {own}: {PLAIN_START}'


def plain_weights_caution(file: str, model: nn.Module) -> str:
    """Return what to know of weights without a record that are used, not trained, in a model."""
    own = Provenance.of_model(model)
    if own.broadcast is None or _starts_plain(model):
        return ''
    return (
        f'weights: {file} carries no record of training with CB, and this model has {own}, which '
        'changes what plain weights compute. Take the config without CB, or pass '
        f'{_ALLOW} if they were trained with it'
    )


def _starts_plain(model: nn.Module) -> bool:
    """Return whether every broadcast starts as the identity, and the model as the plain one."""
    return all(
        part.identity_at_init for part in model.modules() if hasattr(part, 'identity_at_init')
    )


def _refusal(file: str, trained: Provenance, own: Provenance) -> str:
    # CB_S once had the upper layers as its default: a config that leaves them out means all now.
    hint = ''
    if own.broadcast == trained.broadcast == 'cb_s' and set(trained.layers) < set(own.layers):
        hint = f' If the config leaves out the layers, write layers={list(trained.layers)} into it.'
    return (
        f'{file} was trained with {trained}, but this model has {own}. Take the config or the '
        f'weights that match, or pass {_ALLOW} if you mean it.{hint}'
    )


def differs(one: Provenance, other: Provenance) -> bool:
    """Return whether two normalisations are known and not the same."""
    pairs = ((one.mean, other.mean), (one.std, other.std))
    return any(
        a and b and (len(a) != len(b) or any(abs(x - y) > 0.05 for x, y in zip(a, b, strict=True)))
        for a, b in pairs
    )


def normalization_text(trained: Provenance) -> str:
    """Return 'mean 123.675, 116.28, 103.53 and std ...'."""
    mean, std = (', '.join(f'{value:g}' for value in part) for part in (trained.mean, trained.std))
    return f'mean {mean} and std {std}'


def channel_order(preprocessor: Any) -> str | None:
    """Return the order of the channels that a model sees; None without a preprocessor."""
    if preprocessor is None:
        return None
    # mmcv loads images as BGR. The OpenMMLab families, and mmpretrain, name the swap differently.
    names = ('channel_conversion', '_channel_conversion', 'to_rgb')
    return 'RGB' if any(getattr(preprocessor, name, False) for name in names) else 'BGR'


def _settings_in(record: Mapping[str, Any]) -> Settings:
    settings = record.get('settings')
    if not isinstance(settings, Mapping):
        return {}
    return {
        str(name): list(values)
        for name, values in settings.items()
        if isinstance(values, (list, tuple))
    }


def _normalization(preprocessor: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    values = []
    for name in ('mean', 'std'):
        tensor: Any = getattr(preprocessor, name, None)
        flat = tensor.flatten().tolist() if hasattr(tensor, 'flatten') else ()
        values.append(tuple(round(float(value), 4) for value in flat))
    return values[0], values[1]


def _ranges(numbers: Sequence[int]) -> str:
    """Return '6-8, 11' for (6, 7, 8, 11)."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ', '.join(f'{a}' if a == b else f'{a}-{b}' for a, b in parts) or 'none'
