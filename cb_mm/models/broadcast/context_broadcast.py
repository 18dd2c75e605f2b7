"""Context Broadcasting: every token of a transformer gains the mean of all tokens.

The modules take and return tokens of shape (..., N, C). `place_broadcast` puts one of them into a
transformer block; neither the block's code nor its state-dict keys change. For blocks of any other
kind see `insert.add_context_broadcast`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import UserError, did_you_mean


class ContextBroadcast(nn.Module):
    """CB: ``x_i -> (x_i + mean_j x_j) / 2``. No parameters.

    The base class of every broadcast. Its attributes are all that the backbones, the insertion and
    the checkpoints' records need to know of a variant.

    Args:
        skip_tokens: How many tokens at the start of the sequence (class, distillation,
            registers) stay out of the mean. They still receive it. 0: every token takes part.

    Attributes:
        needs_class_token: Whether token 0 must be a class token.
        needs_width: Whether the constructor takes the number of channels, as ``width``. Read from
            its signature, so that a new variant cannot forget it.
        identity_at_init: Whether a new module returns the tokens unchanged: weights that were
            trained without it then fit as they are.
        default_layers: Which layers get it when ``layers`` is None.
    """

    default_layers = 'upper'
    needs_class_token = False
    needs_width = False
    identity_at_init = False

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        cls.needs_width = 'width' in inspect.signature(cls).parameters

    def __init__(self, skip_tokens: int = 0) -> None:
        super().__init__()
        self.skip_tokens = skip_tokens

    def mean(self, x: Tensor, real: Tensor | None = None, parts: int = 1) -> Tensor:
        """Return the mean token (..., 1, C), summed in float32 or wider under any autocast type.

        Args:
            x: Tokens (..., N, C).
            real: (..., N), True for tokens that are not padding; None: all tokens.
            parts: Return this part of the mean: 2 is half of it.
        """
        x = x[..., self.skip_tokens :, :] if self.skip_tokens else x
        wide = torch.promote_types(x.dtype, torch.float32)
        if real is None:
            # Not x.mean(), whose backward pass writes a gradient of the size of x.
            return x.sum(dim=-2, keepdim=True, dtype=wide) / (parts * x.shape[-2])
        share = real[..., self.skip_tokens :, None].to(wide)
        share = share / (parts * share.sum(dim=-2, keepdim=True).clamp(min=1))
        return (x.to(wide) * share).sum(dim=-2, keepdim=True)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:  # noqa: D102
        # One pass over x. Halving before adding is exact and cannot overflow.
        return torch.add(self.mean(x, real, parts=2).to(x.dtype), x, alpha=0.5)

    def extra_repr(self) -> str:  # noqa: D102
        return f'skip_tokens={self.skip_tokens}' if self.skip_tokens else ''


class ScaledContextBroadcast(ContextBroadcast):
    """CB_S: ``x_i -> x_i + scale * mean_j x_j`` with a learned scale per channel.

    The paper does not give the initial value. Zero is our reading: a pretrained model is then
    unchanged at the first step. All layers have it by default: the paper's 0.02 % more parameters
    for ViT-S are 12 x 384.
    """

    default_layers = 'all'

    def __init__(self, width: int, scale_init: float = 0.0, skip_tokens: int = 0) -> None:
        super().__init__(skip_tokens)
        self.scale = nn.Parameter(torch.full((width,), float(scale_init)))
        self.identity_at_init = scale_init == 0

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:  # noqa: D102
        return x + (self.scale * self.mean(x, real)).to(x.dtype)


class BlendBroadcast(ContextBroadcast):
    """cb_blend, ours: ``x_i -> (1 - scale) x_i + scale * mean_j x_j`` with one learned scale.

    CB is its value at 1/2. It starts at 0 unless told otherwise, so that plain weights fit as they
    are, and training chooses how much every layer broadcasts. All layers have it by default.
    """

    default_layers = 'all'

    def __init__(self, scale_init: float = 0.0, skip_tokens: int = 0) -> None:
        super().__init__(skip_tokens)
        self.scale = nn.Parameter(torch.full((1,), float(scale_init)))
        self.identity_at_init = scale_init == 0

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:  # noqa: D102
        mean = (self.scale * self.mean(x, real)).to(x.dtype)
        return torch.addcmul(mean, x, (1 - self.scale).to(x.dtype))


class GateBroadcast(ContextBroadcast):
    """CB_gate: ``x_i -> x_i * (x_0 + 1)`` with the class token x_0. No parameters."""

    needs_class_token = True

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:  # noqa: D102
        return torch.addcmul(x, x, x[..., :1, :])


class HybridBroadcast(ContextBroadcast):
    """CB_hybrid: ``x_i -> x_i * x_0 + CB(x_i)`` with the class token x_0. No parameters."""

    needs_class_token = True

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:  # noqa: D102
        return torch.addcmul(super().forward(x, real), x, x[..., :1, :])


class SqueezeExcite(ContextBroadcast):
    """SE, for comparison: ``x_i -> x_i * sigmoid(W2 relu(W1 mean_j x_j))``.

    The paper names no reduction of the hidden width; 16 is that of the SE paper.
    """

    def __init__(self, width: int, reduction: int = 16, skip_tokens: int = 0) -> None:
        super().__init__(skip_tokens)
        hidden = max(width // reduction, 1)
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:  # noqa: D102
        weight = self.fc2(self.fc1(self.mean(x, real).to(x.dtype)).relu()).sigmoid()
        return x * weight.to(x.dtype)


BROADCASTS: dict[str, type[ContextBroadcast]] = {
    'cb': ContextBroadcast,
    'cb_s': ScaledContextBroadcast,
    'cb_blend': BlendBroadcast,
    'cb_gate': GateBroadcast,
    'cb_hybrid': HybridBroadcast,
    'se': SqueezeExcite,
}

#: position -> places in a block: (part of the block, whether its input or its output)
POSITIONS: dict[str, tuple[tuple[str, str], ...]] = {
    'end': (('mlp', 'output'),),
    'mid': (('mlp.fc2', 'input'),),
    'front': (('mlp', 'input'),),
    'attn': (('attn', 'output'),),
    'mlp+attn': (('mlp', 'output'), ('attn', 'output')),
}


def check_choice(option: str, value: object, choices: Iterable[str]) -> None:
    """Raise a UserError unless ``value`` is one of ``choices``."""
    choices = list(choices)
    if value not in choices:
        hint = did_you_mean(value, choices)
        raise UserError(f'{option}={value!r} is not one of {", ".join(choices)}.{hint}')


def build_broadcast(
    kind: str, width: int, scale_init: float = 0.0, skip_tokens: int = 0
) -> ContextBroadcast:
    """Return a new module of that name (see `BROADCASTS`) for tokens with ``width`` channels."""
    check_choice('broadcast', kind, BROADCASTS)
    options: dict[str, Any] = {'skip_tokens': skip_tokens}
    if BROADCASTS[kind].needs_width:
        options['width'] = width
    if 'scale_init' in inspect.signature(BROADCASTS[kind]).parameters:
        options['scale_init'] = scale_init
    return BROADCASTS[kind](**options)


def resolve_layers(
    layers: str | Iterable[int] | None, depth: int, kind: str = 'cb'
) -> tuple[int, ...]:
    """Return the indices of the layers that get CB.

    Args:
        layers: 'all', 'upper' (layers >= depth / 2: our reading, the paper does not define it), or
            the indices, from 0; negative ones count from the end. None is the variant's own: all
            for CB_S, upper for the others.
        depth: Number of layers of the model.
        kind: Name in `BROADCASTS`.
    """
    if layers is None:
        layers = BROADCASTS[kind].default_layers
    if isinstance(layers, str):
        check_choice('layers', layers, ('upper', 'all'))
        return tuple(range((depth + 1) // 2 if layers == 'upper' else 0, depth))
    return resolve_indices('layers', layers, depth)


def resolve_indices(option: str, indices: Iterable[int], depth: int) -> tuple[int, ...]:
    """Return the indices with negative ones resolved; a UserError if one is out of range."""
    indices = tuple(indices)
    wrong = [i for i in indices if type(i) is not int] or [
        i for i in indices if not -depth <= i < depth
    ]
    if wrong:
        raise UserError(
            f'{option}={indices} holds {wrong[0]!r}, but the model has the {depth} layers '
            f'0 to {depth - 1}.'
        )
    return tuple(i % depth for i in indices)


def _change_input(host: nn.Module, args: tuple) -> tuple:
    return (host.broadcast(args[0]), *args[1:])


def _change_output(host: nn.Module, args: tuple, output: Tensor) -> Tensor:
    return host.broadcast(output)


def attach(host: nn.Module, broadcast: nn.Module, where: str = 'output') -> None:
    """Let ``broadcast`` change the input or output of ``host``, as its child ``host.broadcast``.

    A forward hook does it, so that the host may be of any class and keeps its keys. The hook itself
    holds no reference: copies and pickles of the model stay complete.
    """
    if hasattr(host, 'broadcast'):
        raise UserError(f'this {type(host).__name__} has a broadcast already; attach only one.')
    host.add_module('broadcast', broadcast)
    if where == 'input':
        host.register_forward_pre_hook(_change_input)
    else:
        host.register_forward_hook(_change_output)


def place_broadcast(
    block: nn.Module,
    kind: str,
    position: str = 'end',
    scale_init: float = 0.0,
    skip_tokens: int = 0,
) -> None:
    """Put CB, or another of `BROADCASTS`, into a transformer block with timm's part names.

    Args:
        block: Has an ``mlp`` whose second layer is ``fc2`` and, for the attention, an ``attn``
            that ends with ``proj``.
        kind: Name in `BROADCASTS`.
        position: 'front' is the input of the MLP (after the norm), 'mid' the input of its second
            layer (after the activation), 'end' its output (after the second layer and its
            dropout; before layer scale, drop path and the residual sum), 'attn' the output of
            the attention, 'mlp+attn' is 'end' and 'attn'.
        scale_init: Initial value of the scales of CB_S and cb_blend.
        skip_tokens: Tokens at the start of the sequence that stay out of the mean.
    """
    check_choice('position', position, POSITIONS)
    for path, where in POSITIONS[position]:
        try:
            host = block.get_submodule(path)
            last = block.mlp.fc2 if path.startswith('mlp') else block.attn.proj
        except AttributeError:
            raise UserError(
                f'position={position!r} needs blocks with the parts mlp.fc2 and attn.proj; '
                f'{type(block).__name__} has no {path}.'
            ) from None
        if not isinstance(last, nn.Linear):
            raise UserError(
                f'the {path} of {type(block).__name__} has no linear layers: use TimmCB for this '
                'model.'
            )
        width = last.in_features if position == 'mid' else last.out_features
        attach(host, build_broadcast(kind, width, scale_init, skip_tokens), where)
