"""Size and work of every system that uses Context Broadcasting, next to the papers' numbers.

Parameters are counted with the classifier for 1000 classes, as the papers do. Work is that of one
224 x 224 image: multiply-adds of products and convolutions, counted while the model runs. CB adds
additions, which such counters do not see: we count one per averaged number, the rule that gives the
paper's 0.9 MFLOPs for ViT-S.

Examples:
  python benchmarks/variants.py
  python benchmarks/variants.py --systems 'PiT-B' 'Swin-Ti' --out /tmp

Writes variants.json and variants.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

#: system -> (option, the papers' parameters in millions, their GFLOPs, their accuracy plain and
#: with CB; None if a paper gives none)
VITCB = {
    'ViT-Ti': ({'arch': 'tiny'}, 5.7, 1.3, '72.2, CB 73.4'),
    'ViT-S': ({}, 22, 4.6, '79.9, CB 80.8'),
    'ViT-B': ({'arch': 'base'}, 86.6, 17.6, '81.8, CB 82.1'),
    'ViT-S, uniform head (A)': ({'attention': 'uniform_a'}, 21, None, '80.1'),
    'ViT-S, uniform head (B)': ({'attention': 'uniform_b'}, 22, None, '80.3'),
    'ViT-S, uniform head (C)': ({'attention': 'uniform_c'}, 29, None, '80.6'),
    'ViT-S, sparse R': ({'attention': 'R'}, None, None, None),
    'ViT-S, sparse W': ({'attention': 'W'}, None, None, None),
    'ViT-S, sparse G': ({'attention': 'G'}, None, None, None),
    'ViT-S, sparse R+W+G': ({'attention': 'R+W+G'}, None, None, None),
    'ViT-S, distilled': (
        {'arch': 'deit_small_distilled_patch16_224'}, 22.4, 4.6, '81.2, CB 81.3',
    ),
}  # fmt: skip
TIMM = {
    'PiT-B': ('pit_b_224', 73.8, 12.4, '82.0, CB 82.6'),
    'Mixer-S/16': ('mixer_s16_224', 18.5, 3.8, '74.3, CB 74.9'),
    "PVT-S's nearest in timm": ('twins_pcpvt_small', None, None, 'PVT-S: 76.7, CB 77.3'),
    'PVTv2-B1': ('pvt_v2_b1', None, None, '76.4, CB 76.5'),
    'Swin-Ti': ('swin_tiny_patch4_window7_224', None, None, '79.3, CB 79.5'),
    'LocalViT-Ti': ('localvit_tiny_patch16_224', None, None, '69.4, CB 72.5'),
    'ConvNeXt-T, a control': ('convnext_tiny', None, None, None),
}
#: Input other than one 224 x 224 image, or not from timm: built by hand below.
OTHERS = ('PVT-S', 'ViLT-B/32')


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    systems = [*VITCB, *TIMM, *OTHERS]
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        '--systems', nargs='+', choices=systems, default=systems, metavar='NAME',
        help='which ones (all): ' + ', '.join(systems),
    )  # fmt: skip
    parser.add_argument(
        '--out', default=str(HERE / 'results'), metavar='DIR', help='folder of the results'
    )
    return parser.parse_args(argv)


def count(model) -> int:
    """Count the parameters."""
    return sum(p.numel() for p in model.parameters())


def averaged_numbers(model, forward) -> int:
    """Count the numbers that all broadcasts of a model average while it runs."""
    from cb_mm.models.broadcast.context_broadcast import ContextBroadcast

    total = 0

    def look(module, args) -> None:
        nonlocal total
        total += args[0].numel()

    handles = [
        module.register_forward_pre_hook(look)
        for module in model.modules()
        if isinstance(module, ContextBroadcast)
    ]
    forward()
    for handle in handles:
        handle.remove()
    return total


def measure(name: str) -> dict:
    """Measure one row of the table."""
    import timm
    import torch

    from cb_mm import add_context_broadcast
    from cb_mm.apis.benchmark_report import count_multiplications
    from cb_mm.models import TimmCB, ViTCB

    images = torch.randn(1, 3, 224, 224)
    paper = (None, None, None)
    if name in VITCB:
        options, *paper = VITCB[name]
        options = {'arch': 'small', 'pyramid': False, 'norm_out': True, **options}
        model = ViTCB(**options)
        heads = 2 if 'distilled' in name else 1
        classifier = 1000 * (model.embed_dim + 1) * heads
        plain, scaled = count(model), count(ViTCB(**options, broadcast='cb_s', layers='upper'))
        host = ViTCB(**options, broadcast='cb')
        layers = f'{len(host.broadcast_layers)} of 12'
        work_of = [model, host]
    elif name in TIMM:
        model_name, *paper = TIMM[name]
        whole = timm.create_model(model_name, num_classes=1000)
        options = {'model_name': model_name, 'pyramid': False}
        plain, classifier = count(whole), 0
        host = TimmCB(**options, broadcast='cb')
        scaled = plain + count(TimmCB(**options, broadcast='cb_s', layers='upper')) - count(host)
        layers = f'{len(host.broadcast_layers)} of {host.depth}'
        work_of = [whole, host]
    elif name == 'PVT-S':
        from mmdet.models.backbones import PyramidVisionTransformer

        def build():
            return PyramidVisionTransformer(num_layers=[3, 4, 6, 3])

        paper = (None, None, '76.7, CB 77.3')
        model, host, other = build(), build(), build()
        added = add_context_broadcast(host)
        add_context_broadcast(other, 'cb_s', 'upper')
        plain, scaled, classifier = count(model), count(other), 1000 * 513
        layers = f'{len(added.names)} of {added.found}'
        work_of = [model, host]
    else:
        return measure_vilt()
    for module in work_of:
        module.eval().requires_grad_(False)  # torch's counter fails on PiT otherwise
    with torch.no_grad():
        work = count_multiplications(lambda: work_of[0](images))
        extra = averaged_numbers(host, lambda: host(images))
    return {
        'system': name,
        'parameters': plain + classifier,
        'parameters_cb': plain + classifier,
        'parameters_cb_s': scaled + classifier,
        'multiplications': work,
        'layers': layers,
        'extra_flops': extra,
        'paper_parameters_m': paper[0],
        'paper_gflops': paper[1],
        'paper_accuracy': paper[2],
    }


def measure_vilt() -> dict:
    """Measure ViLT-B/32 for VQAv2, with 40 words and a 384 x 384 image, CB_S on both."""
    import torch
    from transformers import ViltConfig, ViltForQuestionAnswering

    from cb_mm import add_context_broadcast
    from cb_mm.apis.benchmark_report import count_multiplications

    model = ViltForQuestionAnswering(ViltConfig(num_labels=3129)).eval()
    batch = {
        'input_ids': torch.ones(1, 40, dtype=torch.long),
        'attention_mask': torch.ones(1, 40, dtype=torch.long),
        'pixel_values': torch.randn(1, 3, 384, 384),
        'pixel_mask': torch.ones(1, 384, 384, dtype=torch.long),
    }
    plain = count(model)
    with torch.no_grad():
        work = count_multiplications(lambda: model(**batch))
        added = add_context_broadcast(model, 'cb_s', 'upper', tokens='both')
        extra = averaged_numbers(model, lambda: model(**batch))
    return {
        'system': 'ViLT-B/32',
        'parameters': plain,
        'parameters_cb': plain,
        'parameters_cb_s': count(model),
        'multiplications': work,
        'layers': f'{len(added.names)} of {added.found}',
        'extra_flops': extra,
        'paper_parameters_m': None,
        'paper_gflops': None,
        'paper_accuracy': '71.28, CB_S image 71.44, text 71.46, both 71.42',
    }


def table(rows: list[dict]) -> str:
    """Return the rows as Markdown."""
    lines = [
        '| system | parameters, M | CB_S adds | GMAC | layers with CB | CB adds, MFLOPs '
        "| the paper's M | the paper's GFLOPs | the paper's accuracy |",
        '|---|---|---|---|---|---|---|---|---|',
    ]
    for row in rows:
        more = row['parameters_cb_s'] - row['parameters']
        cells = [
            row['system'],
            f'{row["parameters"] / 1e6:.2f}',
            f'{more:,}',
            f'{row["multiplications"] / 1e9:.2f}',
            row['layers'],
            f'{row["extra_flops"] / 1e6:.2f}',
            *(
                str(row[key]) if row[key] is not None else '–'
                for key in ('paper_parameters_m', 'paper_gflops', 'paper_accuracy')
            ),
        ]
        lines.append(f'| {" | ".join(cells)} |')
    return '\n'.join(lines) + '\n'


def run(args: argparse.Namespace) -> None:
    """Measure, print, write."""
    from parts.about import machine

    import cb_mm  # noqa: F401
    from cb_mm.fileio.atomic import write_atomically

    rows = []
    for name in args.systems:
        rows.append(measure(name))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
    content = {'machine': machine(), 'rows': rows}
    write_atomically(Path(args.out) / 'variants.json', json.dumps(content, indent=1) + '\n')
    write_atomically(Path(args.out) / 'variants.md', table(rows))


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 0 on success, 2 on a user error."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args))


if __name__ == '__main__':
    sys.exit(main())
