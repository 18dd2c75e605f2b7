"""Add Context Broadcasting to any torch model with one line, and remove it again.

    python examples/any_model.py
    python examples/any_model.py --model swin_tiny_patch4_window7_224 --broadcast cb_s --layers all

Uses a timm model and a plain torch model, neither of which knows about cb_mm. CB adds no parameters
and changes the output; CB_S adds one scale per channel and does not change the output at first.
Afterwards the model is restored exactly. Nothing is downloaded or written.
"""

from __future__ import annotations

import argparse

import timm
import torch
from torch import nn

from cb_mm import add_context_broadcast


def show(
    name: str, model: nn.Module, inputs: torch.Tensor, broadcast: str, layers: str | None
) -> None:
    """Add CB, print what changed, and remove it."""
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
    print(f'  removed again: the output is {"as before" if same else "NOT as before"}')


@torch.no_grad()
def main(argv: list[str] | None = None) -> int:
    """Show two models, one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--model', default='vit_tiny_patch16_224', help='a timm model')
    parser.add_argument('--broadcast', default='cb', help='cb, cb_s, cb_gate, cb_hybrid or se')
    parser.add_argument('--layers', help='upper or all (all for cb_s, upper for the others)')
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
