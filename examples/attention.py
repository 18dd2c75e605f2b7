"""Measure a ViT's attention: entropy and reach in every layer, and a page to explore it.

    python examples/attention.py
    python examples/attention.py --weights vit_tiny.safetensors --image street.jpg

Without --weights the ViT is random and its attention nearly uniform: its entropy is close to the
bound, the logarithm of the number of tokens. Open the HTML file in a browser and click on the
image. Everything goes to example_out/attention.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import timm
import torch

from cb_mm.attention import LayerAttention, load_subject, measure
from cb_mm.attention.options import ModelChoice
from cb_mm.attention.visualization import VisualizationOptions, visualize
from cb_mm.datasets import write_scenes
from cb_mm.fileio.images import read_image


def main(argv: list[str] | None = None) -> int:
    """Measure every layer, then draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--model', default='vit_tiny_patch16_224', help='a timm ViT')
    parser.add_argument('--weights', type=Path, help='its weights (default: random)')
    parser.add_argument('--image', type=Path, help='an image (default: a drawn scene)')
    parser.add_argument('--out', type=Path, default=Path('example_out/attention'))
    args = parser.parse_args(argv)

    scenes = write_scenes(args.out / 'scenes', train=1, val=1)
    image = args.image or scenes.ade20k / 'images' / 'validation' / 'ADE_val_00000001.jpg'
    if args.weights is None:
        torch.manual_seed(0)
        args.weights = args.out / 'random.pth'
        torch.save(timm.create_model(args.model).state_dict(), args.weights)

    subject = load_subject(args.model, str(args.weights))

    def look(layer: LayerAttention) -> None:  # called once per layer, while the model runs
        found = measure(layer)
        entropy, reach = found.whole['entropy'][0], found.whole['reach'][0]
        print(f'{layer.name:<16} entropy {entropy:.3f} of {found.bound:.3f}, reach {reach:.3f}')

    subject.run(subject.fit(read_image(image), (192, 256)), look)

    written = visualize(
        VisualizationOptions(
            [ModelChoice(args.model, str(args.weights))],
            [str(image)],
            args.out / 'pictures',
            size=(192, 256),
            html=True,
            formats=['png'],
        )
    )
    print('\n'.join(map(str, written)))
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
