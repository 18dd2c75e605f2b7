"""UperNet against those of other libraries: Hugging Face's and segmentation_models_pytorch's.

All have the same ViT with CB and the same pyramid, 512 channels in the head and 150 classes; where
the heads have the same parameters they get the same weights, and the logits are compared:
  ours          FastUPerHead and FastFCNHead (configs/upernet_vit_*_cb.py)
  mmseg         UPerHead and FCNHead
  Hugging Face  UperNetForSemanticSegmentation; its auxiliary head runs in testing too
  smp           its UPerNetDecoder, with a LayerNorm before it and without an auxiliary head. Its
                UPerNet refuses a ViT by name, since all maps of a ViT have one stride
Forward: one image to logits of its own size. Training step: two images, cross-entropy on logits of
their size, gradients, AdamW. In turns in one process, on one thread; we compare CPU time.

Examples:
  python benchmarks/upernet_peers.py --smp FOLDER
  python benchmarks/upernet_peers.py --arch tiny --kind forward --repeats 9 --out /tmp

FOLDER is where `pip install --no-deps --target FOLDER segmentation_models_pytorch` put it; without
it that row is left out. Writes upernet_peers.json and .md; other kinds and sizes in them are kept.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parts.options import BENCHMARKS, parse_counts

if TYPE_CHECKING:  # torch is not imported for --help
    from torch import Tensor

CONFIGS = {'tiny': 'upernet_vit_ti_cb.py', 'small': 'upernet_vit_s_cb.py'}
KINDS = ('forward', 'training step')


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add('--arch', nargs='+', choices=CONFIGS, default=['small'])
    add('--kind', nargs='+', choices=KINDS, default=list(KINDS))
    add('--size', type=int, default=512, metavar='N', help='image side (512)')
    add('--repeats', type=int, default=5, metavar='N', help='forward turns (5)')
    add('--train-repeats', type=int, default=2, metavar='N', help='training turns (2)')
    add('--smp', type=Path, metavar='FOLDER', help='where segmentation_models_pytorch is')
    add('--out', type=Path, default=BENCHMARKS / 'results', metavar='DIR',
        help='folder of the results')  # fmt: skip
    return parse_counts(parser, argv, ('size', 'repeats', 'train_repeats'))


def build(arch: str, size: int, batch: int, smp: Path | None) -> dict[str, Any]:
    """Build a `Peer` of each library, by name, with the same weights where they have the same."""
    from parts.upernet_models import OfHuggingFace, OfOpenMMLab, OfSmp

    from cb_mm.apis.benchmark_models import build_subject
    from cb_mm.config.loading import load_config

    config = load_config(BENCHMARKS.parent / 'configs' / CONFIGS[arch])
    ours = build_subject(config, 'ours', (size, size), batch)
    config.model.decode_head.type, config.model.auxiliary_head.type = 'UPerHead', 'FCNHead'
    theirs = build_subject(config, 'mmseg', (size, size), batch)
    theirs.model.load_state_dict(ours.model.state_dict())
    peers = {
        'ours': OfOpenMMLab(ours),
        'mmseg': OfOpenMMLab(theirs),
        'Hugging Face': OfHuggingFace(ours),
    }
    if smp is not None:
        sys.path.insert(0, str(smp))
        peers['smp'] = OfSmp(ours)
    return peers


def measure_kind(kind: str, arch: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measure all peers in one kind of job; return a row each."""
    from parts.in_turns import measure

    forward = kind == 'forward'
    # The norm after the 1 x 1 pool needs two images to train.
    peers = build(arch, args.size, 1 if forward else 2, args.smp)
    jobs: dict[str, Callable[[], object]] = {
        name: peer.forward if forward else peer.train_step for name, peer in peers.items()
    }
    if forward:
        rows = measure(jobs, args.repeats)
        expected = peers['ours'].forward()
        for name, peer in peers.items():
            rows[name]['parameters'] = sum(p.numel() for p in peer.model.parameters())
            if name != 'smp':  # it has norms that the others do not have
                rows[name]['difference'] = relative(peer.forward(), expected)
        return rows
    return measure(jobs, args.train_repeats, warm_up=0)  # too long for a turn that does not count


def relative(output: Tensor, expected: Tensor) -> float:
    """Return the norm of the difference relative to that of what is expected."""
    assert output.shape == expected.shape
    return float((output - expected).norm() / expected.norm())


def table(runs: dict[str, Any]) -> str:
    """Return all runs as Markdown: a table per architecture, forward and training side by side."""
    from parts.in_turns import cells
    from parts.markdown import table as markdown

    texts = []
    for arch in (arch for arch in CONFIGS if any(key.startswith(arch) for key in runs)):
        forward, train = (runs.get(f'{arch}, {kind}', {}).get('rows', {}) for kind in KINDS)
        head = [f'UperNet ViT-{arch}', 'parameters, M', 'logits differ by']
        for kind in KINDS:
            head += [f'{kind}, CPU s (fastest)', 'peak MiB', 'ours / it (of fastest)']
        lines = []
        for name in forward or train:
            row = forward.get(name, {})
            count, off = row.get('parameters'), row.get('difference')
            about = ['–' if count is None else f'{count / 1e6:.2f}']
            about += ['–' if off is None else f'{off:.0e}']
            lines.append([name, *about, *cells(row or None), *cells(train.get(name))])
        texts.append(markdown(head, lines))
    return '\n\n'.join(texts) + '\n'


def run(args: argparse.Namespace) -> None:
    """Measure, print, write after each kind."""
    import torch
    from parts.about import machine
    from parts.records import Records

    import cb_mm  # noqa: F401
    from cb_mm.fileio.atomic import write_atomically

    torch.set_num_threads(1)
    records = Records(args.out / 'upernet_peers.json', {'size': args.size})
    for arch in args.arch:
        for kind in args.kind:
            rows = measure_kind(kind, arch, args)
            records.add(f'{arch}, {kind}', {'machine': machine(), 'rows': rows})
            write_atomically(args.out / 'upernet_peers.md', table(records.runs))
    print(table(records.runs))


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 0 on success, 2 on a user error."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args))


if __name__ == '__main__':
    sys.exit(main())
