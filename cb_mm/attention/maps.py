"""Maps of one query over the image, for the heads of the chosen layers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..errors import UserError
from .capture import LayerAttention, choose
from .measures import entropy
from .subject import Subject
from .tokens import Tokens


@dataclass(frozen=True)
class Query:
    """Whose attention is shown: the class token's, the mean of all patches', or one patch's.

    Attributes:
        kind: 'cls', 'mean' or 'pixel'.
        x: Column of a pixel of the image file, from 0 at the left.
        y: Row of it, from 0 at the top.
    """

    kind: str
    x: float = 0.0
    y: float = 0.0

    def __str__(self) -> str:
        return f'{self.x:g},{self.y:g}' if self.kind == 'pixel' else self.kind

    @property
    def words(self) -> str:
        """For captions."""
        texts = {'cls': 'class token', 'mean': 'mean of all patches'}
        return texts.get(self.kind, f'patch at x = {self.x:g}, y = {self.y:g}')

    def token(self, tokens: Tokens, size: tuple[int, int]) -> int | None:
        """Return the query token, None for the mean; ``size`` is height and width of the file."""
        if self.kind == 'mean':
            return None
        if self.kind == 'cls':
            if tokens.class_token is None:
                raise UserError('`query` cls: the model has no class token. Use mean or X,Y.')
            return tokens.class_token
        height, width = size
        if not (0 <= self.x < width and 0 <= self.y < height):
            raise UserError(
                f'`query` {self} is outside the image: x goes from 0 to {width - 1}, y from 0 to '
                f'{height - 1}.'
            )
        return tokens.at_pixel(self.x * tokens.image[1] / width, self.y * tokens.image[0] / height)


def parse_query(text: str) -> Query:
    """Parse 'cls', 'mean' or 'X,Y'."""
    if text in ('cls', 'mean'):
        return Query(text)
    number = r'(-?\d+(?:\.\d+)?)'
    match = re.fullmatch(rf'\s*{number}\s*,\s*{number}\s*', text)
    if not match:
        raise UserError(
            f'`query` {text!r} is neither cls, nor mean, nor the X,Y of a pixel such as 120,80.'
        )
    return Query('pixel', float(match[1]), float(match[2]))


@dataclass(frozen=True)
class LayerMaps:
    """Attention of one query in one layer.

    Attributes:
        index: Number of the layer.
        name: Its name in the model.
        tokens: Meaning of its tokens.
        heads: Numbers of the heads, one per map.
        maps: (heads, rows, columns); with the prefix tokens' part, each head sums to one.
        prefix: (heads, prefix tokens).
        entropy: (heads,) in nats, over all tokens.
    """

    index: int
    name: str
    tokens: Tokens
    heads: tuple[int, ...]
    maps: np.ndarray
    prefix: np.ndarray
    entropy: np.ndarray


def read_maps(
    subject: Subject,
    image: np.ndarray,
    query: Query,
    file_size: tuple[int, int],
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> list[LayerMaps]:
    """Run a model on an image and keep the maps of one query.

    Args:
        subject: The model.
        image: RGB (H, W, 3), at the size for the model.
        query: Whose attention.
        file_size: Height and width of the image file, which the query's pixel refers to.
        layers: Which layers; all by default.
        heads: Which heads; all by default.
    """
    found: list[LayerMaps] = []

    def keep(layer: LayerAttention) -> None:
        chosen = choose('head', heads, layer.heads, 'heads')
        token = query.token(layer.tokens, file_size)
        row = mean_row(layer) if token is None else layer.rows(token)[0, :, 0]
        row = row[chosen].cpu()
        prefix = len(layer.tokens.prefix)
        found.append(
            LayerMaps(
                layer.index,
                layer.name,
                layer.tokens,
                tuple(chosen),
                row[:, prefix:].reshape(-1, *layer.tokens.grid).numpy(),
                row[:, :prefix].numpy(),
                entropy(row).numpy(),
            )
        )

    subject.run(image, keep, layers)
    return found


def mean_row(layer: LayerAttention) -> torch.Tensor:
    """Return the mean of the rows of all spatial tokens of the first image, (heads, tokens)."""
    prefix = len(layer.tokens.prefix)
    total = sum(rows[0, :, max(prefix - which.start, 0) :].sum(1) for which, rows in layer.chunks())
    return torch.as_tensor(total) / (layer.tokens.grid[0] * layer.tokens.grid[1])


def normalise(values: np.ndarray, threshold: float = 0.0, clip: float = 100.0) -> np.ndarray:
    """Return a map from 0 at its smallest to 1 at its largest value; NaN below the threshold.

    Every map is scaled separately, so that heads and models are shown alike whatever the mass on
    prefix tokens. A uniform map is 0 everywhere.

    Args:
        values: The map.
        threshold: On the scale 0 to 1.
        clip: Percentile that is 1, see `map_range`.
    """
    return scale_map(values, *map_range(values, clip), threshold)


def map_range(values: np.ndarray, clip: float = 100.0) -> tuple[float, float]:
    """Return the smallest value of a map, and the percentile ``clip`` of its cells.

    A map with so few cells above its smallest value that the percentile is that value keeps its
    largest one.
    """
    low, high = float(values.min()), float(np.percentile(values, clip))
    return low, high if high > low else float(values.max())


def scale_map(values: np.ndarray, low: float, high: float, threshold: float = 0.0) -> np.ndarray:
    """Return the values from 0 at ``low`` to 1 at ``high``; NaN below the threshold."""
    span = high - low
    scaled = ((values - low) / span).clip(0, 1) if span > 0 else np.zeros_like(values)
    return np.where(scaled >= threshold, scaled, np.nan)


def at_image(values: np.ndarray, tokens: Tokens, size: tuple[int, int]) -> np.ndarray:
    """Return a map (rows, columns) at the pixels of an image of any size, between cells linearly.

    Cells may extend beyond the image at the right and the bottom; that part is cut off.
    """
    at = []
    for pixels, cells, patch, seen in zip(
        size, tokens.grid, tokens.patch, tokens.image, strict=True
    ):
        # Pixel middles, in cells from the middle of the first one.
        at.append((np.arange(pixels) + 0.5) * seen / pixels / patch - 0.5)
        at[-1] = at[-1].clip(0, cells - 1)
    grid = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
    y, x = (torch.from_numpy(axis).float() for axis in at)
    rows, columns = tokens.grid
    # grid_sample counts from -1 at the first to 1 at the last cell.
    place = torch.stack(
        torch.broadcast_tensors(
            (x / max(columns - 1, 1) * 2 - 1)[None, :], (y / max(rows - 1, 1) * 2 - 1)[:, None]
        ),
        dim=-1,
    )
    return torch.nn.functional.grid_sample(
        grid[None, None], place[None], mode='bilinear', padding_mode='border', align_corners=True
    )[0, 0].numpy()
