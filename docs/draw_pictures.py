"""Draw hero.png and the pictures of getting_started.md from what `make demo` leaves behind.

    make demo
    python docs/draw_pictures.py demo_out

Everything comes from calls of cb_mm.apis with the demo's config, its last checkpoint and its
validation scenes; this file only arranges it. The other pictures are drawn by the commands that
their pages give.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Patch

from cb_mm.apis import evaluate_robustness, predict, visualize_attention

CONFIG = 'demo_upernet_vit_micro_cb'
SIZE = (96, 128)  # height and width at which it reads the scenes
CORRUPTIONS = ('gaussian_noise', 'motion_blur', 'fog', 'contrast')
SEVERITY = 4


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('run', type=Path, help='folder of `make demo`, such as demo_out')
    parser.add_argument('--out', type=Path, default=Path(__file__).parent / 'pictures')
    parser.add_argument('--hero', type=int, default=2, help='number of its scene, from 0')
    parser.add_argument('--scenes', type=int, nargs=3, default=(0, 1, 2), help='those predicted')
    return parser.parse_args()


class Demo:
    """The model and the validation scenes of a demo."""

    def __init__(self, run: Path) -> None:
        self.data = run / 'scenes' / 'ade20k'
        found = sorted((run / 'train').glob('iter_*.pth'), key=lambda file: file.stat().st_mtime)
        if not found:
            raise SystemExit(f'{run}/train has no checkpoint: run `make demo` first.')
        self.given = (CONFIG, found[-1])
        self.images = sorted((self.data / 'images' / 'validation').glob('*.jpg'))
        self.classes: list[dict[str, str]] = []  # number, class, colour
        self.present: set[int] = set()  # numbers of those that were predicted so far

    def drawn(self, image: Path, opacity: float, corruptions: tuple[str, ...] = ()) -> list:
        """Return one picture per corruption, clean first, without its legend."""
        with TemporaryDirectory() as folder:
            severity = SEVERITY if corruptions else None
            found = predict(*self.given, image, out=folder, corruptions=corruptions,
                            severity=severity, opacity=opacity)  # fmt: skip
            pictures = []
            for one in found:
                file = one.folder / 'overlays' / f'{one.name}.png'
                height, width = one.size
                pictures.append(_read(file)[:height, :width])
                self.present |= set(one.pixels)
            with open(found.folder / 'classes.csv', encoding='utf-8', newline='') as table:
                self.classes = list(csv.DictReader(table))
        return pictures

    def legend(self, image: Path) -> np.ndarray:
        """Return the legend beside a prediction."""
        with TemporaryDirectory() as folder:
            found = predict(*self.given, image, out=folder)
            (one,) = found
            return _read(one.folder / 'overlays' / f'{one.name}.png')[:, one.size[1] :]


def _read(file: Path) -> np.ndarray:
    return np.round(255 * plt.imread(file)[..., :3]).astype(np.uint8)


def draw_hero(demo: Demo, number: int, file: Path) -> None:
    """One scene, clean and corrupted, its prediction, and the scores of all validation scenes."""
    report = evaluate_robustness(
        *demo.given, corruptions=CORRUPTIONS, severity=SEVERITY, repeats=1, data_root=demo.data
    )
    rows = [demo.drawn(demo.images[number], opacity, CORRUPTIONS) for opacity in (0, 0.5)]
    titles = ['clean', *(f'{name.replace("_", " ")}, severity {SEVERITY}' for name in CORRUPTIONS)]
    titles = [title.replace('gaussian', 'Gaussian') for title in titles]
    height, width = rows[0][0].shape[:2]
    figure, axes = plt.subplots(2, len(titles), figsize=(13.5, 4.9), dpi=100, layout='constrained')
    for row, pictures in enumerate(rows):
        for column, picture in enumerate(pictures):
            axes[row, column].imshow(picture, extent=(0, width, height, 0), interpolation='none')
            axes[row, column].set(xticks=[], yticks=[])
            axes[row, column].spines[:].set_visible(False)
    for column, (title, cell) in enumerate(zip(titles, report.cells, strict=True)):
        axes[0, column].set_title(title, fontsize=13)
        axes[1, column].set_xlabel(f'mIoU {cell.metrics["mIoU"]["mean"]:.1f}', fontsize=13)
        print(f'{cell.title}: mIoU {cell.metrics["mIoU"]["mean"]:.2f}')
    for row, name in enumerate(('input', 'prediction')):
        axes[row, 0].set_ylabel(name, fontsize=13)
    patches = [
        Patch(color=row['colour'], label=row['class'])
        for row in demo.classes
        if int(row['number']) in demo.present
    ]
    figure.legend(handles=patches, loc='outside lower center', ncols=len(patches), frameon=False)
    figure.savefig(file)
    plt.close(figure)


def draw_predictions(demo: Demo, numbers: tuple[int, ...], file: Path) -> None:
    """Draw predictions side by side, with the legend at the end."""
    images = [demo.images[number] for number in numbers]
    pictures = [demo.drawn(image, 0.5)[0] for image in images]
    parts = [*pictures, demo.legend(images[-1])]
    height = max(part.shape[0] for part in parts)
    gap = np.full((height, 8, 3), 255, np.uint8)
    spaced = []
    for part in parts:
        below = np.full((height - part.shape[0], part.shape[1], 3), 255, np.uint8)
        spaced += [np.concatenate([part, below]), gap]
    plt.imsave(file, np.concatenate(spaced[:-1], axis=1))


def main() -> None:
    """Draw all of them."""
    args = parse()
    demo = Demo(args.run)
    draw_hero(demo, args.hero, args.out / 'hero.png')
    draw_predictions(demo, args.scenes, args.out / 'getting_started_predictions.png')
    with TemporaryDirectory() as folder:
        visualize_attention(
            *demo.given, demo.images[0], layers=[-1], size=SIZE, clip=99,
            names=['ViT-micro + CB'], out=folder,
        )  # fmt: skip
        (heads,) = Path(folder).glob('*_heads_layer*.png')
        (args.out / 'getting_started_attention.png').write_bytes(heads.read_bytes())


if __name__ == '__main__':
    main()
