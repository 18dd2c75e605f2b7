"""A map laid over its image, pixel for pixel."""

from __future__ import annotations

import io
from dataclasses import dataclass

import matplotlib
import numpy as np
from PIL import Image

from ..errors import UserError
from .maps import at_image, map_range, scale_map
from .tokens import Tokens

#: Perceptually uniform, and safe for colour-blind readers.
COLOURS = 'inferno'
BLENDS = ('value', 'flat')


@dataclass(frozen=True)
class Look:
    """How maps are drawn.

    The default scales each map from its smallest to its largest value, and the same threshold
    holds for all: the rule of the paper's Figure 10.

    Attributes:
        threshold: Smaller values, on the scale 0 to 1, are not drawn.
        opacity: Of the strongest colour, 0 to 1.
        clip: Percentile of a map's cells that is drawn as 1; 100 is the largest value. Less keeps
            a single outlier from hiding the rest.
        blend: 'value': the opacity follows the value, so that where there is no attention the
            photograph stays as it is; 'flat': the same opacity everywhere.
    """

    threshold: float = 0.0
    opacity: float = 0.85
    clip: float = 100.0
    blend: str = 'value'

    def check(self) -> None:
        """Raise a UserError for a value that cannot be used."""
        for name in ('threshold', 'opacity'):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise UserError(f'`{name}` {value:g} is not between 0 and 1.')
        if not 50 <= self.clip <= 100:
            raise UserError(f'`clip` {self.clip:g} is not a percentile between 50 and 100.')
        if self.blend not in BLENDS:
            raise UserError(f'`blend` {self.blend} is not one of {", ".join(BLENDS)}.')

    @property
    def words(self) -> str:
        """How a map becomes a picture, for captions."""
        top = 'its largest value' if self.clip == 100 else f'its {ordinal(self.clip)} percentile'
        text = f'Each map is scaled separately: 0 is its smallest value, 1 is {top}.'
        if self.clip < 100:
            text += ' Larger values are drawn as 1.'
        if self.threshold > 0:
            text += f' Values below {self.threshold:g} are not drawn.'
        return text


def ordinal(number: float) -> str:
    """Return '1st', '22nd', '99.5th'."""
    text = f'{number:g}'
    if text.endswith(('11', '12', '13')):
        return f'{text}th'
    return text + {'1': 'st', '2': 'nd', '3': 'rd'}.get(text[-1], 'th')


def overlay(
    image: np.ndarray, values: np.ndarray, tokens: Tokens, look: Look | None = None
) -> np.ndarray:
    """Draw the map in colour over the greyed image: uint8 (H, W, 3) at the image's size.

    Args:
        image: RGB, uint8 (H, W, 3), of any size.
        values: The map, (rows, columns).
        tokens: Where the map's cells are.
        look: How; by default `Look`'s own.
    """
    look = look or Look()
    low, high = map_range(values, look.clip)
    scaled = scale_map(at_image(values, tokens, image.shape[:2]), low, high, look.threshold)
    drawn = np.isfinite(scaled)
    scaled = np.nan_to_num(scaled)
    colours = matplotlib.colormaps[COLOURS](scaled)[..., :3]
    weight = look.opacity * (scaled if look.blend == 'value' else drawn)[..., None]
    mixed = grey(image) * (1 - weight) + 255 * colours * weight
    return mixed.round().clip(0, 255).astype(np.uint8)


def grey(image: np.ndarray) -> np.ndarray:
    """Remove half of the colour, so that only the map has strong colours; float (H, W, 3)."""
    luma = image @ np.array([0.299, 0.587, 0.114])
    return 0.35 * image + 0.65 * luma[..., None]


def encode(image: np.ndarray, kind: str = 'png', **options: int) -> bytes:
    """Return an image file in memory."""
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, kind, **options)
    return stream.getvalue()
