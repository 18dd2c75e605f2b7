"""Count the parameters of every model that the papers give a number for, and write the table.

python benchmarks/parameter_counts.py

Models are built without memory for their weights. Results: parameter_counts.json and .md in
benchmarks/results.
"""

from __future__ import annotations

import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
RESULTS = REPO / 'benchmarks' / 'results'
VIT_S = 'configs/imagenet/imagenet_vit_s_cb.py'
KINDS = {'': '', '_cb': ' + CB', '_cb_s': ' + CB_S'}


def rows() -> list[tuple[str, str, str, str, tuple[str, ...]]]:
    """Return table, model, the paper's millions as printed, config, and options of every row."""
    uniform = [
        (f'({letter.upper()})', millions, VIT_S,
         ('model.backbone.broadcast=None', f'model.backbone.attention=uniform_{letter}'))
        for letter, millions in (('a', '21'), ('b', '22'), ('c', '29'))
    ]  # fmt: skip
    found = [('Table 1', 'ViT-S', '22', 'configs/imagenet/imagenet_vit_s.py', ())]
    found += [('Table 1', *row) for row in uniform]
    found.append(('Table 1', 'CB', '22', VIT_S, ()))
    found.append(('Table 1', 'CB_S', '22', 'configs/imagenet/imagenet_vit_s_cb_s.py', ()))
    for table, folder, sizes in (
        ('Table 5', 'imagenet/imagenet', ('5.7', '22.0', '86.6')),
        ('Table 6', 'upernet', ('34.1', '53.5', '127.0')),
        ('Table S12', 'distillation/distilled', ('5.9', '22.4', '87.3')),
    ):
        for size, millions in zip(('ti', 's', 'b'), sizes, strict=True):
            for kind, title in KINDS.items():
                config = f'configs/{folder}_vit_{size}{kind}.py'
                found.append((table, f'ViT-{size.title()}{title}', millions, config, ()))
    for name, title, millions in (('pit_b', 'PiT-B', '73.8'), ('mixer_s16', 'Mixer-S/16', '18.5')):
        for kind in ('', '_cb'):
            config = f'configs/hosts/imagenet_{name}{kind}.py'
            found.append(('Table 11', f'{title}{KINDS[kind]}', millions, config, ()))
    at_376 = ('model.backbone.img_size=376',)
    for name, title, millions, options in (
        ('vit_tiny', 'ViT-Tiny, 184 px', '7.5', ()),
        ('vit_tiny_368', 'ViT-Tiny, 368 px', '7.5', ()),
        ('vit_tiny', 'ViT-Tiny, 376 px', '7.5', at_376),
        ('bbvit_tiny', 'BBViT-Tiny, 184 px', '6.8', ()),
        ('bbvit_tiny_368', 'BBViT-Tiny, 368 px', '6.8', ()),
        ('bbvit_tiny', 'BBViT-Tiny, 376 px', '6.8', at_376),
        ('vit_moderate', 'ViT-Moderate', '51.7', ()),
        ('bbvit_moderate', 'BBViT-Moderate', '45.5', ()),
    ):
        config = f'configs/imagenette/imagenette_{name}.py'
        found.append(('sparse-attention paper, Table 1', title, millions, config, options))
    return found


def agrees(parameters: int, printed: str) -> bool:
    """Return whether a count rounds to the millions that the paper prints, digit by digit."""
    digits = len(printed.partition('.')[2])
    return f'{parameters / 1e6:.{digits}f}' == printed


def count(config: str, options: tuple[str, ...] = (), device: str = 'meta') -> int:
    """Return the parameters that training changes, in the model that it would build."""
    import torch
    from mmengine.registry import MODELS, init_default_scope

    from cb_mm.engine.training import RunOptions, prepare_config

    prepared = prepare_config(RunOptions(REPO / config, cfg_options=options))
    init_default_scope(prepared.default_scope)
    with torch.device(device):
        model = MODELS.build(prepared.model)
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def table(records: list[dict]) -> str:
    """Return the table as Markdown."""
    lines = [
        "| table | model | the paper's, M | ours, M | rounds to it | config |",
        '|---|---|---|---|---|---|',
    ]
    for one in records:
        same = 'yes' if agrees(one['parameters'], one['paper']) else 'no'
        lines.append(
            f'| {one["table"]} | {one["model"]} | {one["paper"]} | '
            f'{one["parameters"] / 1e6:.3f} | {same} | `{one["config"]}` |'
        )
    return '\n'.join(lines) + '\n'


def main() -> int:
    """Count, and write both files; a config that does not exist here is an error."""
    sys.path.insert(0, str(REPO))
    from cb_mm.fileio.atomic import write_atomically
    from cb_mm.fileio.result_files import write_json

    records = []
    for name, model, millions, config, options in rows():
        parameters = count(config, options)
        records.append(
            dict(table=name, model=model, paper=millions, parameters=parameters, config=config,
                 options=list(options))
        )  # fmt: skip
        print(f'{name}, {model}: {parameters / 1e6:.3f} M, the paper {millions} M', flush=True)
    write_json(RESULTS / 'parameter_counts.json', records)
    write_atomically(RESULTS / 'parameter_counts.md', table(records))
    return 0


if __name__ == '__main__':
    sys.exit(main())
