"""Which patches a model's answer comes from: attention rollout, and relevance of a class.

Rollout (Abnar and Zuidema, 2020) multiplies the attention of all layers, with half of each layer
for the residual. Relevance weighs attention by its gradient with respect to a class's logits, as
Chefer et al. (2021) do for classifiers; what is done for segmentation is our reading.

No map is kept: a vector over the tokens goes through the layers from the last to the first, and
the rows of each are computed again in chunks. Memory grows with the number of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError
from ..fileio.images import to_tensor
from .capture import LayerAttention, find_attention
from .maps import Query
from .projection import Projection, project
from .subject import Subject
from .tokens import Tokens, TokenWatcher


def rollout(
    subject: Subject, image: np.ndarray, query: Query, file_size: tuple[int, int]
) -> tuple[np.ndarray, Tokens]:
    """Return how much of a query comes from each patch (rows, columns), through all layers.

    Args:
        subject: The model.
        image: RGB (H, W, 3), at the size for the model.
        query: Whose.
        file_size: Height and width of the image file, which the query's pixel refers to.
    """
    layers: list[LayerAttention] = []
    subject.run(image, lambda layer: layers.append(layer.kept()))
    tokens = layers[-1].tokens
    place = query.token(tokens, file_size)
    row = torch.zeros(tokens.count, device=layers[-1].values.device)
    if place is None:
        row[len(tokens.prefix) :] = 1 / (tokens.grid[0] * tokens.grid[1])
    else:
        row[place] = 1
    return _on_grid(roll_back(layers, row), tokens), tokens


def roll_back(layers: Sequence[LayerAttention], row: Tensor) -> Tensor:
    """Return a row over the last layer's tokens as one over the first layer's input."""
    for layer in reversed(layers):
        received = torch.zeros_like(row)
        for which, rows in layer.chunks():
            received += row[which] @ rows[0].mean(0)
        row = (row + received) / 2
    return row


@dataclass(frozen=True)
class ClassRelevance:
    """Relevance for one class of one image.

    Attributes:
        values: (rows, columns); 0 or more, in no unit.
        tokens: Where the cells are.
        region: The pixels of the logits that are predicted as the class, bool.
    """

    values: np.ndarray
    tokens: Tokens
    region: np.ndarray


@dataclass
class SegmentorRun:
    """One forward pass of a segmentor with its graph, for the relevance of any of its classes.

    Attributes:
        logits: (classes, h, w).
        outputs: Numbers of the attention layers whose tokens the head reads.
    """

    logits: Tensor
    outputs: tuple[int, ...]
    _layers: list[_Recorded] = field(repr=False)

    @property
    def prediction(self) -> Tensor:
        """The class of every pixel of the logits, (h, w)."""
        return self.logits.detach().argmax(0)

    def relevance(self, number: int) -> ClassRelevance | None:
        """Return which patches the logits of a class come from; None where it is not predicted.

        The score is the sum of the class's logits over the pixels predicted as it. From the
        patches of these pixels, in each layer that the head reads, relevance goes back through
        ``R + R · mean over heads of max(A ⊙ ∂score/∂A, 0)``. What the pixels' own patches have to
        begin with is left out: only what attention brings counts.
        """
        region = self.prediction == number
        if not region.any():
            return None
        score = self.logits[number][region].sum()
        gradients = torch.autograd.grad(
            score, [layer.output for layer in self._layers], retain_graph=True
        )
        tokens = self._layers[-1].tokens
        prefix = len(tokens.prefix)
        start = F.adaptive_avg_pool2d(region[None].float(), tokens.grid).flatten()
        start = F.pad(start / start.sum(), (prefix, 0))
        row, begun = torch.zeros_like(start), torch.zeros_like(start)
        for layer, gradient in reversed(list(zip(self._layers, gradients, strict=True))):
            if layer.index in self.outputs:
                row, begun = row + start, begun + start
            row = row + layer.received(row, gradient)
        return ClassRelevance(_on_grid(row - begun, tokens), tokens, region.cpu().numpy())


@dataclass
class _Recorded:
    """An attention layer of one forward pass: enough to compute its rows and their gradient."""

    index: int
    name: str
    tokens: Tokens
    module: nn.Module
    args: tuple
    kwargs: dict[str, Any]
    output: Tensor

    @torch.no_grad()
    def received(self, row: Tensor, gradient: Tensor) -> Tensor:
        """Return ``row · mean over heads of max(A ⊙ ∂score/∂A, 0)``, in chunks of rows."""
        parts = project(self.module, self.args, self.kwargs)
        layer = LayerAttention(self.index, self.name, self.tokens, parts)
        mixed = torch.cat([layer.mix(rows) for _, rows in layer.chunks()], dim=2)
        # A's gradient is ∂score/∂(A v) · vᵀ; the layer's output is a function of A v.
        upward = _through(parts, mixed, _batch_first(self.module, gradient))
        values, total = layer.values.transpose(-2, -1), torch.zeros_like(row)
        for which, rows in layer.chunks():
            if row[which].any():
                weighted = (rows * (upward[:, :, which] @ values)).clamp_(min=0)
                total += row[which] @ weighted[0].mean(0)
        return total


def _through(parts: Projection, mixed: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient of mixed values (1, heads, N, d) from that of the output (1, N, C)."""
    flat = mixed.transpose(1, 2).flatten(2).to(parts.v.dtype).requires_grad_()
    with torch.enable_grad():
        output = parts.finish(flat, slice(None))
    (found,) = torch.autograd.grad(output, flat, gradient.to(output.dtype))
    return found.unflatten(2, (mixed.shape[1], -1)).transpose(1, 2).float()


def run_segmentor(subject: Subject, segmentor: nn.Module, image: np.ndarray) -> SegmentorRun:
    """Run a segmentor on an image, with its graph, and record its attention layers.

    Args:
        subject: How images are prepared.
        segmentor: In evaluation mode; called with ``mode='tensor'``, as OpenMMLab's models are.
        image: RGB (H, W, 3), at the size for the model.
    """
    device = next(segmentor.parameters()).device
    inputs = to_tensor(image, subject.mean, subject.std, subject.to_rgb).to(device)
    inputs.requires_grad_()  # a frozen backbone has a graph, too
    with torch.enable_grad(), _recording(segmentor) as layers:
        logits = segmentor(inputs, mode='tensor')
    if not isinstance(logits, Tensor) or logits.ndim != 4:
        raise UserError(
            f'`classes` needs a segmentor that returns logits (classes, h, w); '
            f'{type(segmentor).__name__} returns {type(logits).__name__}.'
        )
    last = layers[-1].index
    outputs = getattr(getattr(segmentor, 'backbone', None), 'out_indices', (last,))
    outputs = tuple(last if i < 0 or i > last else i for i in outputs)
    return SegmentorRun(logits[0], outputs, layers)


@contextmanager
def _recording(model: nn.Module) -> Iterator[list[_Recorded]]:
    layers: list[_Recorded] = []
    watcher = TokenWatcher()
    modules = find_attention(model)

    def hook_for(index: int, name: str) -> Any:
        parts = name.split('.')
        owners = [model.get_submodule('.'.join(parts[:i])) for i in range(len(parts))]

        def hook(module: nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
            found = output[0] if isinstance(output, tuple) else output
            axis = 1 if getattr(module, 'batch_first', True) else 0
            tokens = watcher.tokens(owners, name, found.shape[axis])
            layers.append(_Recorded(index, name, tokens, module, args, kwargs, found))

        return hook

    with ExitStack() as stack:
        stack.enter_context(watcher.watch(model))
        for index, (name, module) in enumerate(modules.items()):
            # Before all other hooks, such as CB's, which changes the output.
            handle = module.register_forward_hook(
                hook_for(index, name), prepend=True, with_kwargs=True
            )
            stack.callback(handle.remove)
        yield layers


def _batch_first(module: nn.Module, x: Tensor) -> Tensor:
    return x if getattr(module, 'batch_first', True) else x.transpose(0, 1)


def _on_grid(row: Tensor, tokens: Tokens) -> np.ndarray:
    return row[len(tokens.prefix) :].reshape(tokens.grid).cpu().numpy()


def class_number(name: str | int, classes: Sequence[str], count: int) -> int:
    """Return the number of a class that is given by name or number."""
    text = str(name)
    if text in classes:
        return list(classes).index(text)
    if text.isdigit() and int(text) < count:
        return int(text)
    known = f'Its classes are {", ".join(classes)}' if classes else 'Its classes have no names here'
    raise UserError(
        f'`classes` {text}: the model has no such class. {known}; numbers go from 0 to {count - 1}.'
    )
