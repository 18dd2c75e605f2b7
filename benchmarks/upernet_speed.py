"""Speed of complete UperNets: ours against mmseg's own ViT and UPerHead.

Three models with the same widths, 512 channels in the head and 150 classes:
  ours                ViTCB with CB, pyramid, FastUPerHead (configs/upernet_vit_*_cb.py)
  mmseg, our pyramid  mmseg's VisionTransformer, the same pyramid, mmseg's UPerHead
  mmseg, MLN          mmseg's VisionTransformer, its MultiLevelNeck, its UPerHead: its own configs
Auxiliary heads are the same. Forward is images to logits at stride 4; a training step is the
losses, their gradients and a step of AdamW, on two images. All run in turns in one process. We
compare the CPU time of the process, which other programs disturb least.

Examples:
  python benchmarks/upernet_speed.py
  python benchmarks/upernet_speed.py --arch tiny --repeats 9 --train-repeats 0 --out /tmp

Writes upernet_speed_ARCH.json and .png.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
CONFIGS = {'tiny': 'upernet_vit_ti_cb.py', 'small': 'upernet_vit_s_cb.py'}
PEERS = ('mmseg, our pyramid', 'mmseg, MLN')


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument('--arch', nargs='+', choices=CONFIGS, default=list(CONFIGS))
    parser.add_argument('--size', type=int, default=512, metavar='N', help='image side (512)')
    parser.add_argument('--repeats', type=int, default=5, metavar='N', help='forward turns (5)')
    parser.add_argument(
        '--train-repeats', type=int, default=2, metavar='N', help='training turns (2), 0: none'
    )
    parser.add_argument('--threads', type=int, default=1, metavar='N', help='threads (1)')
    parser.add_argument(
        '--out', default=str(HERE / 'results'), metavar='DIR', help='folder of the results'
    )
    args = parser.parse_args(argv)
    if min(args.size, args.repeats, args.threads) < 1 or args.train_repeats < 0:
        parser.error('the numbers are at least 1 (--train-repeats: 0)')
    return args


def build(arch: str, size: int, batch: int) -> dict:
    """Build each model, with inputs to run it on, by name."""
    from cb_mm.apis.benchmark_models import build_subject
    from cb_mm.config.loading import load_config
    from cb_mm.models import FeaturePyramid

    def subject(name: str):
        config = load_config(HERE.parent / 'configs' / CONFIGS[arch])
        if name == 'ours':
            return build_subject(config, name, (size, size), batch)
        width, heads = {'tiny': (192, 3), 'small': (384, 6)}[arch]
        config.model.backbone = dict(
            type='VisionTransformer', img_size=(size, size), patch_size=16, embed_dims=width,
            num_layers=12, num_heads=heads, out_indices=(3, 5, 7, 11), drop_path_rate=0.1,
        )  # fmt: skip
        config.model.decode_head.type = 'UPerHead'
        config.model.auxiliary_head.type = 'FCNHead'
        if name == 'mmseg, MLN':
            scales = [4, 2, 1, 0.5]
            config.model.neck = dict(
                type='MultiLevelNeck', in_channels=[width] * 4, out_channels=width, scales=scales
            )
        built = build_subject(config, name, (size, size), batch)
        if name == 'mmseg, our pyramid':
            built.model.neck = FeaturePyramid(width)
        return built

    return {name: subject(name) for name in ('ours', *PEERS)}


def measure(arch: str, args: argparse.Namespace) -> dict:
    """Measure times and memory of one ViT size."""
    import torch

    from cb_mm.apis.benchmark_report import count_multiplications

    subjects = build(arch, args.size, batch=1)

    def logits(subject) -> None:
        with torch.no_grad():
            subject.model.eval()
            subject.model(subject.images, mode='tensor')

    report: dict = {name: {} for name in subjects}
    for name, subject in subjects.items():
        report[name]['parameters'] = sum(p.numel() for p in subject.model.parameters())
        report[name]['multiplications'] = count_multiplications(lambda s=subject: logits(s))
    _time(arch, 'forward', {name: partial(logits, s) for name, s in subjects.items()}, args, report)
    if args.train_repeats:
        # The norm after the 1 x 1 pool needs two images. MLN is left out to save time.
        subjects = build(arch, args.size, batch=2)
        steps = {name: subjects[name].train_step for name in ('ours', PEERS[0])}
        _time(arch, 'training step', steps, args, report)
    return report


def _time(arch: str, kind: str, jobs: dict, args: argparse.Namespace, report: dict) -> None:
    from cb_mm.apis.benchmark_report import peak_memory, ratio, time_in_turns

    if kind == 'forward':
        times = time_in_turns(jobs, args.repeats)
    else:
        times = time_in_turns(
            jobs, args.train_repeats, warm_up=0
        )  # steps take so long that none is needed
    print(f'\n| ViT-{arch}, {kind} | GMAC | CPU s, median | fastest | peak MiB | ours / it |')
    print('|---|---|---|---|---|---|')
    for name, found in times.items():
        row = report[name][kind] = found.summary()
        row['peak_bytes'] = peak_memory(jobs[name])
        row['ours_to_this'] = quotient = ratio(times['ours'], found)
        quotient['of_fastest'] = min(times['ours'].cpu) / min(found.cpu)
        print(
            f'| {name} | {report[name]["multiplications"] / 1e9:.0f} '
            f'| {row["cpu_median_s"]:.2f} | {row["cpu_fastest_s"]:.2f} '
            f'| {(row["peak_bytes"] or 0) / 2**20:.0f} '
            f'| {quotient["ratio"]:.2f} (of fastest {quotient["of_fastest"]:.2f}) |',
            flush=True,
        )


def chart(arch: str, report: dict) -> bytes:
    """Draw a PNG of each model's CPU seconds; the lighter end is from the fastest to the median."""
    from cb_mm.fileio.figures import blank_figure, figure_bytes

    kinds = [
        (f'ViT-{arch}, {kind}', {n: row[kind] for n, row in report.items() if kind in row})
        for kind in ('forward', 'training step')
    ]
    kinds = [(title, rows) for title, rows in kinds if rows]
    figure = blank_figure(4.2 * len(kinds) + 1, 2.1)
    for axis, (title, rows) in zip(
        figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True
    ):
        names = list(rows)
        axis.barh(names, [rows[n]['cpu_median_s'] for n in names], color='#a9c1d9')
        axis.barh(names, [rows[n]['cpu_fastest_s'] for n in names], color='#4878a8')
        axis.invert_yaxis()
        axis.set_title(title, fontsize=9)
        axis.set_xlabel('CPU seconds: fastest, median', fontsize=8)
        axis.tick_params(labelsize=8)
        axis.spines[['top', 'right']].set_visible(False)
    figure.tight_layout()
    return figure_bytes(figure, dpi=110)


def run(args: argparse.Namespace) -> None:
    """Measure, print, write."""
    import torch
    from parts.about import machine

    import cb_mm  # noqa: F401
    from cb_mm.fileio.atomic import write_atomically

    torch.set_num_threads(args.threads)
    about = {'machine': machine(), 'size': args.size, 'repeats': args.repeats}
    about['train_repeats'] = args.train_repeats
    for arch in args.arch:
        rows = measure(arch, args)
        file = Path(args.out) / f'upernet_speed_{arch}.json'
        write_atomically(file, json.dumps({**about, 'rows': rows}, indent=1) + '\n')
        write_atomically(file.with_suffix('.png'), chart(arch, rows))


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 0 on success, 2 on a user error."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args))


if __name__ == '__main__':
    sys.exit(main())
