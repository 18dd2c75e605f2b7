"""Files of a prediction: pictures, label maps and videos, each written atomically."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from mmengine.config import Config
from PIL import Image

from ..fileio.atomic import write_atomically
from ..fileio.result_files import write_csv
from .categories import category_ids
from .colours import ClassStyle
from .records import write_coco, write_table
from .results import Segmentation
from .sheets import Look, Panel, draw_one, draw_side_by_side
from .video_file import VideoFile


class PredictionFiles:
    """What is written into the folder of a prediction.

    With corruptions, each has a folder of its own, beside that of the clean images; pictures that
    show them side by side are in the folder itself.

    Args:
        out: The folder.
        corruptions: 'clean', and what else was done to every image.
        look: How predictions are drawn.
    """

    def __init__(self, out: Path, corruptions: Sequence[str], look: Look) -> None:
        self.out, self.corruptions, self.look = out, corruptions, look
        several = len(corruptions) > 1
        self._folders = [out / key if several else out for key in corruptions]
        self._pictures = [out] if look.side_by_side else self._folders

    def draw(self, panels: Sequence[Panel]) -> list[np.ndarray]:
        """Return the pictures of one image, RGB: one, or one per corruption."""
        if self.look.side_by_side:
            return [draw_side_by_side(panels, self.look)]
        return [draw_one(panel, self.look) for panel in panels]

    def write_image(self, name: str, panels: Sequence[Panel]) -> list[str]:
        """Write pictures and label maps of one image; return their paths in the folder."""
        written = []
        for folder, picture in zip(self._pictures, self.draw(panels), strict=True):
            written.append(write_png(folder / 'overlays' / f'{name}.png', picture))
        for folder, panel in zip(self._folders, panels, strict=True):
            if isinstance(panel.result, Segmentation):
                file = folder / 'labels' / f'{name}.png'
                written.append(write_label_map(file, panel.result.labels, self.look.style))
        return [str(file.relative_to(self.out)) for file in written]

    def videos(self, name: str, rate: float) -> list[VideoFile]:
        """Return the files that take the pictures of a video's frames."""
        return [VideoFile(folder / 'videos' / f'{name}.mp4', rate) for folder in self._pictures]

    def write_tables(self, config: Config) -> None:
        """Write what sums up all images, from their records."""
        style = self.look.style
        kind = write_table(self.out, style, self.look.score)
        if kind == 'detection':
            ids = category_ids(config, style.names)
            for place, key in enumerate(self.corruptions):
                write_coco(self.out, style, ids, place, key if place else '')
        elif kind == 'segmentation':
            colours = style.colours(len(style.names)).tolist()
            rows = [
                [number, name, '#{:02x}{:02x}{:02x}'.format(*colours[number])]
                for number, name in enumerate(style.names)
            ]
            write_csv(self.out / 'classes.csv', ['number', 'class', 'colour'], rows)


def write_png(path: Path, image: np.ndarray) -> Path:
    """Write an RGB image."""
    return write_atomically(path, cv2.imencode('.png', image[..., ::-1])[1].tobytes())


def write_label_map(path: Path, labels: np.ndarray, style: ClassStyle) -> Path:
    """Write class numbers as the pixels of a PNG, which shows in the colours of the classes.

    With more than 256 classes, 16-bit numbers without colours.
    """
    if labels.max(initial=0) > 255 or len(style.names) > 256:
        code = cv2.imencode('.png', labels.astype(np.uint16))[1].tobytes()
        return write_atomically(path, code)
    picture = Image.fromarray(labels.astype(np.uint8), mode='P')
    picture.putpalette(style.colours(int(labels.max(initial=0)) + 1)[:256].tobytes())
    stream = io.BytesIO()
    picture.save(stream, 'PNG')
    return write_atomically(path, stream.getvalue())


def read_label_map(content: bytes) -> np.ndarray:
    """Return the class numbers that `write_label_map` wrote."""
    return np.array(Image.open(io.BytesIO(content)))
