"""Speed of the backbone: ViTCB without CB, with CB and CB_S, against other libraries' ViTs.

The others are timm's, mmseg's and, if installed, mmpretrain's.

ViT-S, four maps, random weights. All run in turns in one process, on one thread. We compare the CPU
time of the process, which other programs on the machine disturb least.

Examples:
  python benchmarks/backbone_speed.py
  python benchmarks/backbone_speed.py --size 224 --repeats 40 --out /tmp

Writes backbone_speed.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OUT = (3, 5, 7, 11)


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument('--size', type=int, default=512, metavar='N', help='image side (512)')
    parser.add_argument('--repeats', type=int, default=21, metavar='N', help='forward turns (21)')
    parser.add_argument(
        '--train-repeats', type=int, default=9, metavar='N', help='turns forward and backward (9)'
    )
    parser.add_argument('--threads', type=int, default=1, metavar='N', help='threads (1)')
    parser.add_argument(
        '--out', default=str(HERE / 'results'), metavar='DIR', help='folder of the results'
    )
    args = parser.parse_args(argv)
    if min(args.size, args.repeats, args.train_repeats, args.threads) < 1:
        parser.error('all numbers are at least 1')
    return args


def build(size: int) -> dict[str, Any]:
    """Build each module, from images to four maps, by name."""
    import timm
    from mmseg.models.backbones import VisionTransformer
    from torch import Tensor, nn

    from cb_mm.models import ViTCB

    def ours(broadcast: str | None) -> nn.Module:
        return ViTCB('small', broadcast=broadcast, out_indices=OUT, pyramid=False, img_size=size)

    class TimmMaps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.vit = timm.create_model('vit_small_patch16_224', img_size=size, num_classes=0)

        def forward(self, x: Tensor) -> list[Tensor]:
            return self.vit.forward_intermediates(
                x, indices=list(OUT), stop_early=True, intermediates_only=True
            )

    mmseg = VisionTransformer(
        img_size=size, patch_size=16, embed_dims=384, num_layers=12, num_heads=6, out_indices=OUT
    )
    models = {
        'ViTCB': ours(None),
        'ViTCB, CB': ours('cb'),
        'ViTCB, CB_S': ours('cb_s'),
        'timm': TimmMaps(),
        "mmseg's ViT": mmseg,
    }
    if find_spec('mmpretrain') is not None:
        from mmpretrain.models import VisionTransformer as Pretrained

        models["mmpretrain's ViT"] = Pretrained(
            arch='deit-small', img_size=size, out_indices=OUT, out_type='featmap'
        )
    return models


def broadcast_alone(size: int) -> dict[str, float]:
    """Measure CB alone on the tokens of one layer: less than the noise of a full forward pass."""
    import torch

    from cb_mm.apis.benchmark_report import Times, time_in_turns
    from cb_mm.models.broadcast.context_broadcast import ContextBroadcast

    tokens, broadcast = torch.randn(1, 1 + (size // 16) ** 2, 384), ContextBroadcast()

    def fifty_times() -> None:
        with torch.no_grad():
            for _ in range(50):
                broadcast(tokens)

    times = time_in_turns({'cb': fifty_times}, 20)['cb']
    one = Times([t / 50 for t in times.wall], [t / 50 for t in times.cpu])
    return one.summary()


def run(args: argparse.Namespace) -> None:
    """Measure, print, write."""
    import torch
    from parts.about import machine

    import cb_mm  # noqa: F401
    from cb_mm.apis.benchmark_report import ratio, time_in_turns
    from cb_mm.fileio.atomic import write_atomically

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    models = build(args.size)
    images = torch.randn(1, 3, args.size, args.size)

    def forward(model) -> None:
        with torch.no_grad():
            model(images)

    def both(model) -> None:
        sum(m.mean() for m in model(images)).backward()
        model.zero_grad()

    report = {'machine': machine(), 'size': args.size, 'repeats': args.repeats, 'rows': {}}
    pairs = [(name, peer) for name in list(models)[:3] for peer in list(models)[3:]]
    pairs += [('ViTCB, CB', 'ViTCB'), ('ViTCB, CB_S', 'ViTCB')]
    for kind, job in (('forward', forward), ('forward and backward', both)):
        for model in models.values():
            model.train(job is both)
        jobs = {name: (lambda model=model, job=job: job(model)) for name, model in models.items()}
        times = time_in_turns(jobs, args.repeats if job is forward else args.train_repeats)
        print(f'\n| {kind} | CPU ms, median | fastest |\n|---|---|---|')
        for name, found in times.items():
            report['rows'].setdefault(name, {})[kind] = found.summary()
            row = report['rows'][name][kind]
            print(
                f'| {name} | {1e3 * row["cpu_median_s"]:.1f} | {1e3 * row["cpu_fastest_s"]:.1f} |'
            )
        for name, peer in pairs:
            found = ratio(times[name], times[peer])
            found['of_fastest'] = min(times[name].cpu) / min(times[peer].cpu)
            report.setdefault('ratios', {}).setdefault(f'{name} / {peer}', {})[kind] = found
            print(
                f'{name} / {peer}: {found["ratio"]:.3f}, of the fastest {found["of_fastest"]:.3f}'
            )
    report['cb_alone'] = alone = broadcast_alone(args.size)
    share = len(models['ViTCB, CB'].broadcast_layers) * alone['cpu_median_s']
    share /= report['rows']['ViTCB']['forward']['cpu_median_s']
    report['cb_share_of_forward'] = share
    print(f'\nCB alone: {1e3 * alone["cpu_median_s"]:.3f} ms per layer, {share:.2%} of forward')
    write_atomically(Path(args.out) / 'backbone_speed.json', json.dumps(report, indent=1) + '\n')


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 0 on success, 2 on a user error."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args))


if __name__ == '__main__':
    sys.exit(main())
