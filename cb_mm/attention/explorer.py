"""One HTML file, usable offline, for exploring attention maps interactively.

Every map is kept as bytes: the square root of a value over the largest of its row, in 255 steps.
The root gives weak attention enough steps: no value is off by more than 1/255 of the row's largest.
Entropies are computed here, from the real rows, and kept as floats.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch

from ..errors import UserError
from ..fileio.atomic import write_atomically
from ..fileio.images import resize
from ..fileio.safe_text import one_line, readable
from .capture import LayerAttention, choose
from .maps import Query, mean_row
from .measures import entropy
from .overlay import COLOURS, Look, encode
from .sinks import sinks_of
from .subject import Subject
from .tokens import Tokens

#: Bytes of all maps before compression, which base64 roughly cancels: the size of the file.
MAX_BYTES = 6_000_000
#: Maximum size of the picture in the file.
PICTURE_SIDE = 1024


@dataclass(frozen=True)
class Plan:
    """The part of a model that goes into the file.

    Attributes:
        layers: Numbers of the layers.
        heads: Numbers of the heads.
        stride: Every ``stride``-th patch in both directions can be chosen as query.
    """

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    stride: int

    def queries(self, tokens: Tokens) -> list[int]:
        """Return the tokens that can be chosen, row by row; each is in the middle of its block."""
        prefix, (rows, columns) = len(tokens.prefix), tokens.grid
        return [
            prefix + row * columns + column
            for row in block_middles(rows, self.stride)
            for column in block_middles(columns, self.stride)
        ]


def block_middles(cells: int, stride: int) -> list[int]:
    """Return the middle of each block of ``stride`` cells, from 0 to cells - 1."""
    return [min(start + stride // 2, cells - 1) for start in range(0, cells, stride)]


def plan(
    models: Sequence[tuple[Tokens, int, int]],
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    max_bytes: int = MAX_BYTES,
) -> list[Plan]:
    """Choose what fits into the file.

    All layers with all patches if they fit. Otherwise fewer layers, at least four, evenly spaced
    and including the last; then fewer patches as queries, every 2nd, every 3rd, and so on.
    Requested layers are all kept.

    Args:
        models: Tokens, number of layers and number of heads of each model.
        layers: The requested layers.
        heads: The requested heads.
        max_bytes: Of all maps together.
    """
    share = max_bytes // len(models)
    parts = []
    for tokens, depth, count in models:
        its_heads = tuple(choose('head', heads, count, 'heads'))
        # In the order of the model, as they are captured and as the slider shows them.
        asked = (
            None
            if layers is None
            else sorted(set(choose('layer', layers, depth, 'attention layers')))
        )
        wanted = min(depth, 4) if asked is None else len(asked)
        stride, fits = _fit(tokens, len(its_heads), wanted, share)
        parts.append((asked or list(range(depth)), its_heads, stride, fits))
    # One slider serves all models, so all have the same number of layers.
    count = min(min(len(its_layers), fits) for its_layers, _, _, fits in parts)
    return [
        Plan(tuple(its_layers[i] for i in _spread(len(its_layers), count)), its_heads, stride)
        for its_layers, its_heads, stride, _ in parts
    ]


def _fit(tokens: Tokens, heads: int, wanted: int, max_bytes: int) -> tuple[int, int]:
    """Return the smallest stride with which so many layers fit, and how many then fit."""
    cells = tokens.grid[0] * tokens.grid[1]
    for stride in range(1, max(tokens.grid) + 1):
        queries = len(Plan((), (), stride).queries(tokens)) + 2
        fits = max_bytes // (heads * queries * cells)
        if fits >= wanted:
            return stride, fits
    raise UserError(
        f'`html`: the maps of {wanted} layers do not fit into {max_bytes / 1e6:g} MB. Choose fewer '
        '`layers` or `heads`, or a smaller `size`.'
    )


def _spread(depth: int, count: int) -> list[int]:
    """Return that many of the layers, evenly spaced, including the last one."""
    return sorted({depth - 1 - round(i * depth / count) for i in range(count)})


@dataclass
class _Rows:
    """What is kept of one layer of one model, queries in the order: class token, mean, patches.

    ``sinks`` is one line per head: place of the strongest key, its share of all attention, the
    norm of its value over the mean norm, and the share of the output that all queries receive.
    """

    maps: np.ndarray
    largest: np.ndarray
    entropy: np.ndarray
    prefix: np.ndarray
    sinks: np.ndarray


@dataclass
class _Collector:
    plan: Plan
    layers: list[_Rows] = field(default_factory=list)
    tokens: Tokens | None = None

    def __call__(self, layer: LayerAttention) -> None:
        tokens = self.tokens = layer.tokens
        heads = list(self.plan.heads)
        first = 0 if tokens.class_token is None else tokens.class_token
        special = torch.stack([layer.rows(first)[0, :, 0], mean_row(layer)], dim=1)[heads]
        queries = self.plan.queries(tokens)
        # In chunks: all rows of a large image at once would need its whole map.
        parts = [self._keep(special, tokens)]
        step = max(4_000_000 // (layer.heads * tokens.count), 1)
        for start in range(0, len(queries), step):
            rows = layer.rows(queries[start : start + step], heads)[0]
            parts.append(self._keep(rows, tokens))
        joined = (np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
        maps, largest, entropies, prefix = joined
        self.layers.append(_Rows(maps, largest, entropies, prefix, self._sinks(layer)))

    def _sinks(self, layer: LayerAttention) -> np.ndarray:
        found = sinks_of(layer)
        numbers = found.measures()
        names = ('sink_mass', 'sink_value', 'broadcast')
        columns = [found.places.float(), *(numbers[name] for name in names)]
        return torch.stack(columns, dim=-1)[0, list(self.plan.heads)].float().cpu().numpy()

    def _keep(self, rows: torch.Tensor, tokens: Tokens) -> tuple[np.ndarray, ...]:
        prefix = len(tokens.prefix)
        values, largest = quantise(rows[..., prefix:].cpu().numpy())
        return (
            values,
            largest,
            entropy(rows).cpu().numpy(),
            rows[..., :prefix].sum(-1).cpu().numpy(),
        )


def quantise(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows (..., cells) as bytes (..., cells), and the largest value of each (...)."""
    largest = rows.max(axis=-1)
    share = rows / np.maximum(largest, np.finfo(np.float32).tiny)[..., None]
    return np.rint(255 * np.sqrt(share)).astype(np.uint8), largest.astype(np.float32)


def restore(values: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """Return what `quantise` made, back as floats; the page does the same."""
    return (values / np.float32(255)) ** 2 * largest[..., None]


def token_layout(subject: Subject, image: np.ndarray) -> tuple[Tokens, int, int]:
    """Return tokens, number of layers and number of heads that a model has for this image."""
    seen: list[LayerAttention] = []
    subject.run(image, seen.append, [0])
    return seen[0].tokens, subject.layers, seen[0].heads


def write_explorer(
    path: Path,
    title: str,
    picture: np.ndarray,
    models: Sequence[tuple[Subject, np.ndarray]],
    query: Query | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    look: Look | None = None,
    max_bytes: int = MAX_BYTES,
) -> list[Plan]:
    """Write the HTML file and return what it holds of each model.

    Args:
        path: The file.
        title: What the image is called.
        picture: RGB (H, W, 3), as in the file.
        models: One or two models, each with the image at the size for it.
        query: What is shown at first; the middle of the image by default.
        layers: Which layers; as many as fit by default.
        heads: Which heads; all by default.
        look: How maps are drawn at first.
        max_bytes: About the size of the file.
    """
    plans = plan([token_layout(*model) for model in models], layers, heads, max_bytes)
    described = []
    for (subject, image), its_plan in zip(models, plans, strict=True):
        collector = _Collector(its_plan)
        subject.run(image, collector, list(its_plan.layers))
        described.append(_describe(subject.name, collector))
    scale = min(PICTURE_SIDE / max(picture.shape[:2]), 1)
    small = tuple(max(round(side * scale), 1) for side in picture.shape[:2])
    jpeg = encode(resize(picture, small), 'jpeg', quality=88)
    height, width = picture.shape[:2]
    start = {'kind': 'pixel', 'x': 0.5, 'y': 0.5}
    if query is not None:
        x, y = (query.x + 0.5) / width, (query.y + 0.5) / height
        start = {'kind': query.kind, 'x': x, 'y': y} if query.kind == 'pixel' else {
            **start, 'kind': query.kind,
        }  # fmt: skip
    colours = np.rint(255 * matplotlib.colormaps[COLOURS](np.arange(256))[:, :3]).astype(np.uint8)
    data = {
        'title': one_line(title),
        'width': width,
        'height': height,
        'picture': f'data:image/jpeg;base64,{_text(jpeg)}',
        'colours': _text(colours.tobytes()),
        'start': {'query': start, **asdict(look or Look())},
        'models': described,
    }
    template = resources.files(__package__).joinpath('explorer.html').read_text('utf-8')
    # '<' would let a file name end the script element.
    text = json.dumps(data, ensure_ascii=False, separators=(',', ':')).replace('<', '\\u003c')
    # In one pass: a name may itself look like a placeholder of the template.
    parts = {'title': html.escape(one_line(title)), 'data': readable(text)}
    write_atomically(path, re.sub(r'\{\{(title|data)\}\}', lambda m: parts[m[1]], template))
    return plans


def _describe(name: str, collector: _Collector) -> dict[str, Any]:
    tokens, its_plan = collector.tokens, collector.plan
    assert tokens is not None  # the model has run

    def packed(part: str) -> str:
        array = np.stack([getattr(layer, part) for layer in collector.layers])
        array = array.astype(array.dtype.newbyteorder('<'), copy=False)
        # mtime: the same maps give the same file.
        return _text(gzip.compress(array.tobytes(), 6, mtime=0))

    (rows, columns), (height, width) = tokens.grid, tokens.image
    return {
        'name': one_line(name),
        'layers': its_plan.layers,
        'heads': its_plan.heads,
        'grid': [rows, columns],
        # Extent of the grid, in heights and widths of the image: over 1 if it is padded.
        'reach': [rows * tokens.patch[0] / height, columns * tokens.patch[1] / width],
        'queryRows': block_middles(rows, its_plan.stride),
        'queryColumns': block_middles(columns, its_plan.stride),
        'prefix': tokens.prefix,
        'hasClass': tokens.class_token is not None,
        'bound': float(np.log(tokens.count)),
        'maps': packed('maps'),
        'largest': packed('largest'),
        'entropy': packed('entropy'),
        'prefixMass': packed('prefix'),
        'sinks': packed('sinks'),
    }


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode('ascii')
