"""Attention maps of a running model, layer by layer, while its fused kernels stay on.

    def show(layer):
        print(layer.name, layer.rows(0).shape)       # (batch, heads, 1, tokens)

    with capture(model, show):
        model(images)

Fused attention never forms the map. Here every attention module gets a forward hook that computes
queries and keys again from the module's own input and weights, and passes the layer to a consumer,
which requests as many rows at a time as it can use. Nothing outlives the consumer's call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from .projection import Projection, is_attention, no_attention, project, real_output
from .tokens import Tokens, TokenWatcher

#: Bytes of one chunk of rows on a CPU, per thread: what fits in its cache is fastest.
CPU_CHUNK = 2 * 2**20
#: Bytes of one chunk of rows on a GPU, which wants more work at a time.
GPU_CHUNK = 64 * 2**20


class LayerAttention:
    """The attention of one layer in one forward pass. Valid until the consumer returns.

    Attributes:
        index: Number of the layer among the attention layers of the model, from 0.
        name: Its name in the model, such as ``backbone.blocks.3.attn``.
        tokens: What the tokens are.
        batch: Number of images.
        heads: Number of heads.
    """

    def __init__(self, index: int, name: str, tokens: Tokens, projection: Projection) -> None:
        self.index = index
        self.name = name
        self.tokens = tokens
        self.batch, self.heads = projection.q.shape[:2]
        self._projection: Projection | None = projection
        # A third faster than a transposed view, for matrices with few rows.
        self._keys = projection.k.transpose(-2, -1).contiguous()

    def __repr__(self) -> str:
        rows, columns = self.tokens.grid
        return (
            f'LayerAttention({self.index}, {self.name!r}, heads={self.heads}, '
            f'tokens={len(self.tokens.prefix)}+{rows}x{columns})'
        )

    def rows(
        self, queries: int | slice | Sequence[int] | Tensor, heads: Sequence[int] | None = None
    ) -> Tensor:
        """Return rows of the map, (batch, heads, queries, tokens), float32; each sums to one.

        Args:
            queries: The query tokens: a token, a slice or several tokens.
            heads: Which heads; all by default.
        """
        parts = self._parts
        if isinstance(queries, int):
            queries = [queries]
        which = queries if isinstance(queries, slice) else torch.as_tensor(queries)
        chosen = slice(None) if heads is None else torch.as_tensor(heads)
        # float32 whatever the model's precision: entropies of long rows need it.
        with torch.autocast(parts.q.device.type, enabled=False):
            logits = parts.q[:, chosen][:, :, which] @ self._keys[:, chosen]
            if parts.bias is not None:
                shape = (self.batch, self.heads, parts.q.shape[2], parts.k.shape[2])
                logits += parts.bias.expand(shape)[:, chosen][:, :, which]
            return torch.softmax(logits, dim=-1, out=logits)

    def chunks(self, max_bytes: int | None = None) -> Iterator[tuple[slice, Tensor]]:
        """Yield the whole map in chunks of rows: which rows, and the rows as in `rows`."""
        if max_bytes is None:
            on_cpu = self._parts.q.device.type == 'cpu'
            max_bytes = CPU_CHUNK * torch.get_num_threads() if on_cpu else GPU_CHUNK
        count = self._parts.q.shape[2]
        row = 4 * self.batch * self.heads * self._parts.k.shape[2]
        step = max(max_bytes // row, 1)
        for start in range(0, count, step):
            which = slice(start, min(start + step, count))
            yield which, self.rows(which)

    def full(self) -> Tensor:
        """Return the whole map (batch, heads, tokens, tokens): for small images only."""
        return self.rows(slice(None))

    def output(self, queries: slice | Tensor = slice(None)) -> Tensor:
        """Return the module's output for these tokens from the map: (batch, queries, channels)."""
        parts = self._parts
        mixed = self.rows(queries).to(parts.v.dtype) @ parts.v
        return parts.finish(mixed.transpose(1, 2).flatten(2), queries)

    @property
    def values(self) -> Tensor:
        """The values (batch, heads, tokens, channels of a head), float32."""
        return self._parts.v.float()

    def mix(self, rows: Tensor) -> Tensor:
        """Return what the queries of these rows receive: (batch, heads, queries, channels)."""
        with torch.autocast(rows.device.type, enabled=False):  # float32, as the rows are
            return rows @ self.values

    def kept(self) -> LayerAttention:
        """Return the same layer for use after the consumer's call; it holds queries and keys."""
        return LayerAttention(self.index, self.name, self.tokens, self._parts)

    @property
    def _parts(self) -> Projection:
        if self._projection is None:
            raise RuntimeError(
                f'the attention of {self.name} is gone: read it inside the consumer, or keep what '
                'you need.'
            )
        return self._projection

    def _close(self) -> None:
        self._projection = None
        del self._keys


Consumer = Callable[[LayerAttention], Any]


def find_attention(model: nn.Module) -> dict[str, nn.Module]:
    """Return a model's attention modules in order, by name; a UserError if there are none."""
    found = {name: module for name, module in model.named_modules() if is_attention(module)}
    if not found:
        raise no_attention(model)
    return found


def choose(option: str, chosen: Iterable[int] | None, count: int, what: str) -> list[int]:
    """Return numbers of layers or heads, negative ones resolved; None means all of them."""
    if chosen is None:
        return list(range(count))
    chosen = list(chosen)
    wrong = [number for number in chosen if not -count <= number < count]
    if wrong:
        raise UserError(
            f'{option} {wrong[0]} does not exist: the model has the {count} {what} 0 to '
            f'{count - 1}.'
        )
    return list(dict.fromkeys(number % count for number in chosen))


@contextmanager
def capture(
    model: nn.Module,
    consume: Consumer | None = None,
    *,
    layers: Iterable[int] | None = None,
    keep: bool = False,
    prefix_tokens: int | None = None,
    grid: tuple[int, int] | None = None,
    verify: bool = True,
) -> Iterator[dict[int, Tensor]]:
    """Pass each layer's attention to ``consume`` as the model computes it.

    The model may be a ViT, or a segmentor or detector around one. It runs as usual: its fused
    kernels, its dtype and its output do not change.

    Args:
        model: Any model with attention modules that `projection` knows.
        consume: Called with each `LayerAttention`, in the order of the model, without gradients.
        layers: Numbers of the layers; all by default, negative ones count from the end.
        keep: Keep the whole maps, on the CPU, in the dict that the context yields. One float for
            every pair of tokens, head and layer: for small images only.
        prefix_tokens: Number of tokens before the grid, if the model does not record it.
        grid: Rows and columns of the spatial tokens, if the model does not record them.
        verify: Compare a few rows of each layer's real output with those that the map gives, once
            per layer. This detects a module that is not softmax(q k) v.

    Yields:
        Layer -> map (batch, heads, tokens, tokens); empty unless ``keep``.

    Raises:
        UserError: No attention, a layer that does not exist, or attention that cannot be read.
    """
    modules = find_attention(model)
    names = list(modules)
    chosen = choose('layer', layers, len(names), 'attention layers')
    watcher = TokenWatcher(prefix_tokens, grid)
    kept: dict[int, Tensor] = {}
    verified: set[int] = set()

    def hook_for(index: int) -> Callable[..., None]:
        name = names[index]
        owners = [model.get_submodule(path) for path in _ancestors(name)]

        def hook(module: nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
            with torch.no_grad():
                projection = project(module, args, kwargs)
                tokens = watcher.tokens(owners, name, projection.k.shape[2])
                layer = LayerAttention(index, name, tokens, projection)
                try:
                    if verify and index not in verified and not module.training:
                        _verify(layer, module, real_output(module, output))
                        verified.add(index)
                    if keep:
                        kept[index] = layer.full().cpu()
                    if consume is not None:
                        consume(layer)
                finally:
                    layer._close()

        return hook

    with ExitStack() as stack:
        stack.enter_context(watcher.watch(model))
        for index in chosen:
            # Before all other hooks, such as CB's, which changes the output.
            handle = modules[names[index]].register_forward_hook(
                hook_for(index), prepend=True, with_kwargs=True
            )
            stack.callback(handle.remove)
        yield kept


def _ancestors(name: str) -> list[str]:
    """Return the names of the enclosing modules, outermost first: 'a.b.c' -> '', 'a', 'a.b'."""
    parts = name.split('.')
    return ['.'.join(parts[:i]) for i in range(len(parts))] if name else ['']


def _verify(layer: LayerAttention, module: nn.Module, real: Tensor) -> None:
    count = real.shape[1]
    rows = torch.linspace(0, count - 1, min(count, 4), device=real.device).long()
    difference = (layer.output(rows).float() - real[:, rows].float()).abs().max().item()
    scale = real.abs().max().item()
    # Half precision keeps 8 to 11 bits; its kernels round at other points than this code.
    exact = real.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled(
        real.device.type
    )
    if not difference <= scale * (1e-3 if exact else 5e-2) + 1e-6:
        raise UserError(
            f'{layer.name} ({type(module).__name__}) does not compute softmax(q k) v over its '
            f'tokens as its parts suggest: its output differs by {difference:.2g} from what that '
            'gives. Its attention cannot be read.'
        )
