"""Train a segmentor with Context Broadcasting, then test it on clean and on corrupted images.

    python examples/train_and_test.py

Draws its own data set, trains UperNet with ViT-Ti + CB for a minute on a CPU, and compares the
score on clean images with that under noise and blur. Results are in example_out/train_and_test.
The same with the tools:

    python tools/make_scenes.py scenes
    python tools/train.py configs/demo/demo_upernet_vit_ti_cb.py --data-root scenes/ade20k
    python tools/test.py configs/demo/demo_upernet_vit_ti_cb.py CHECKPOINT --suite table9
"""

from __future__ import annotations

import argparse
from pathlib import Path

from cb_mm.apis import evaluate_robustness, train
from cb_mm.datasets import write_scenes

CONFIG = Path(__file__).resolve().parent.parent / 'configs' / 'demo' / 'demo_upernet_vit_ti_cb.py'


def main(argv: list[str] | None = None) -> int:
    """Draw, train, test, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--out', type=Path, default=Path('example_out/train_and_test'))
    parser.add_argument('--iterations', type=int, default=60)
    parser.add_argument('--batch', type=int, default=8)
    args = parser.parse_args(argv)

    scenes = write_scenes(args.out / 'scenes', train=40, val=10)

    run = train(
        CONFIG,
        data_root=scenes.ade20k,
        work_dir=args.out / 'train',
        resume='auto',  # run again, it continues where it stopped
        cfg_options=[
            f'train_cfg.max_iters={args.iterations}',
            f'train_dataloader.batch_size={args.batch}',
        ],
        verbose=True,
    )

    report = evaluate_robustness(
        CONFIG,
        run.checkpoint,
        data_root=scenes.ade20k,
        corruptions=['gaussian_noise=10,40', 'gaussian_blur=2'],
        repeats=2,  # noise is random: two passes each, with an interval
        out=args.out / 'robustness',
    )
    for cell in report.cells:
        print(f'{cell.title:<24} mIoU {cell.metrics["mIoU"]["mean"]:.2f}')
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
