"""Context Broadcasting in any torch model, in one line, and out of it again.

    python examples/any_model.py
    python examples/any_model.py --model swin_tiny_patch4_window7_224 --broadcast cb_s --layers all

Takes a model of timm and a plain torch one, neither of which knows of cb_mm. CB adds no parameters
and changes the output; CB_S starts as the model was and adds a scale a channel. Afterwards the
model is as it was, to the last bit. Nothing is downloaded or written.
"""

from __future__ import annotations

import argparse

import timm
import torch
from torch import nn

from cb_mm import add_context_broadcast


def show(name: str, model: nn.Module, inputs: torch.Tensor, broadcast: str, layers: str) -> None:
    """Put CB in, say what changed, take it out."""
    model.eval()
    before = model(inputs)
    size = sum(parameter.numel() for parameter in model.parameters())

    added = add_context_broadcast(model, broadcast, layers)

    more = sum(parameter.numel() for parameter in model.parameters()) - size
    change = (model(inputs) - before).norm() / before.norm()
    print(f'{name}: {added}')
    print(f'  {size:,} parameters, {more:,} more; the output changes by {change:.1%}')

    added.remove()

    same = torch.equal(model(inputs), before)
    print(f'  taken out again: {"as it was" if same else "NOT as it was"}')


@torch.no_grad()
def main(argv: list[str] | None = None) -> int:
    """Two models, one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--model', default='vit_tiny_patch16_224', help='a model of timm')
    parser.add_argument('--broadcast', default='cb', help='cb, cb_s, cb_gate, cb_hybrid or se')
    parser.add_argument('--layers', default='upper', help='upper or all')
    args = parser.parse_args(argv)

    torch.manual_seed(0)
    model = timm.create_model(args.model)
    images = torch.randn(1, *model.default_cfg['input_size'])
    show(args.model, model, images, args.broadcast, args.layers)

    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    show('torch', encoder, torch.randn(2, 50, 64), args.broadcast, args.layers)
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
