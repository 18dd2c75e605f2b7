"""Which numbers of a layer's tensor are tokens, for layers that are not plain (B, N, C)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...errors import UserError
from .context_broadcast import ContextBroadcast

MODALITIES = ('image', 'text', 'both')


class Modalities:
    """Where the text ends and which tokens are padding, in a sequence of text, then image.

    It watches the embeddings of a model such as Hugging Face's ViLT whenever they run. All
    broadcasts of the model share one of these.
    """

    def __init__(self) -> None:
        self.text_length: int | None = None
        self.real: Tensor | None = None

    def watch(self, model: nn.Module) -> None:
        """Watch the embeddings of ``model`` from now on, until `forget`."""
        for module in model.modules():
            if isinstance(getattr(module, 'text_embeddings', None), nn.Module):
                module.text_embeddings.register_forward_hook(self._see_text)
                module.register_forward_hook(self._see_mask)
                return
        raise UserError(
            f'{type(model).__name__} has no part with text_embeddings, as the ViLT of Hugging Face '
            'has: it is not known which tokens are image and which are text. Give the tokens as a '
            'slice, such as tokens=slice(40, None).'
        )

    @staticmethod
    def forget(model: nn.Module) -> None:
        """Remove the hooks of `watch`."""
        for module in model.modules():
            for key, hook in list(module._forward_hooks.items()):
                if isinstance(getattr(hook, '__self__', None), Modalities):
                    del module._forward_hooks[key]

    def _see_text(self, module: nn.Module, args: tuple, output: Tensor) -> None:
        self.text_length = output.shape[1]

    def _see_mask(self, module: nn.Module, args: tuple, output: Any) -> None:
        self.real = output[1] if isinstance(output, tuple) and len(output) > 1 else None

    def span(self, modality: str) -> slice:
        """Place of the tokens of that modality in the sequence."""
        if modality == 'both':
            return slice(None)
        cut = self.text_length
        return slice(cut, None) if modality == 'image' else slice(0, cut)

    def __getstate__(self) -> dict:
        return {'text_length': None, 'real': None}  # of one forward pass: not for copies or files


class TokenLayout:
    """How the tensor of one layer becomes tokens.

    Args:
        where: Name of the layer, for messages.
        width: Channels that are expected, or None.
        channels_first: (B, C, ...) instead of (B, ..., C). None: whichever has that width; where
            both have, first in the maps of a convolution, else last.
        convolution: Whether a convolution is the last layer before.
        tokens: The tokens that take part: a slice, a name in `MODALITIES`, or None for all.
        modalities: What tells the places of the modalities.
        padding_in_mean: Whether tokens that are padding count in the mean.
    """

    def __init__(
        self,
        where: str,
        width: int | None = None,
        channels_first: bool | None = False,
        convolution: bool = False,
        tokens: slice | str | None = None,
        modalities: Modalities | None = None,
        padding_in_mean: bool = False,
    ) -> None:
        self.where = where
        self.width = width
        self.channels_first = channels_first
        self.convolution = convolution
        self.tokens = tokens
        self.modalities = modalities
        self.padding_in_mean = padding_in_mean

    def apply(self, broadcast: ContextBroadcast, x: Any) -> Tensor:
        """Return ``x`` after ``broadcast``, in the shape and layout of ``x``."""
        if not isinstance(x, Tensor) or x.ndim < 3:
            what = f'of shape {tuple(x.shape)}' if isinstance(x, Tensor) else type(x).__name__
            raise UserError(
                f'{self.where} gives no tokens (B, N, C) or (B, H, W, C) but a tensor {what}. '
                'Choose another pattern.'
            )
        first = self._channels_first(x)
        last = x.movedim(1, -1) if first else x
        if broadcast.needs_class_token and last.ndim > 3:
            raise UserError(
                f'{type(broadcast).__name__} needs a class token, but {self.where} gives a map of '
                f'shape {tuple(x.shape)}.'
            )
        tokens = last.flatten(1, -2)
        changed = self._chosen(broadcast, tokens).reshape(last.shape)
        return changed.movedim(-1, 1) if first else changed

    def _channels_first(self, x: Tensor) -> bool:
        fits = {first: self.width in (None, x.shape[1 if first else -1]) for first in (True, False)}
        first = self.channels_first
        if first is None:
            first = fits[True] and (self.convolution and x.ndim > 3 if fits[False] else True)
        if not fits[first]:
            raise UserError(
                f'{self.where} gives {tuple(x.shape)}, which does not have its {self.width} '
                f'channels {"first" if first else "last"}. '
                + (
                    f'Set channels_first={not first}.'
                    if fits[not first]
                    else 'Choose another pattern.'
                )
            )
        return first

    def _chosen(self, broadcast: ContextBroadcast, x: Tensor) -> Tensor:
        if self.tokens is None:
            return broadcast(x)
        span, real = self.tokens, None
        if isinstance(span, str):
            assert self.modalities is not None  # a name is taken only with them
            span, real = self.modalities.span(span), self.modalities.real
            real = None if real is None or self.padding_in_mean else real[:, span]
        start, stop, step = span.indices(x.shape[1])
        if step != 1 or start >= stop:
            raise UserError(f'tokens={span} chooses none of the {x.shape[1]} tokens in a row.')
        part = broadcast(x[:, start:stop], real)
        if part.shape == x.shape:
            return part
        return torch.cat([x[:, :start], part, x[:, stop:]], dim=1)
