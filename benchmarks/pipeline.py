"""The complete pipeline, scaled down for a CPU: pre-train with and without CB, fine-tune, test.

ViT-Ti at 128² is pre-trained on procedural scenes, with CB in the upper layers and without. Each is
fine-tuned as a segmentor on real CamVid, with several seeds, and tested on clean images and under
the corruptions of Table 9; then the entropy of the attention is measured by depth. The report
gives CB minus plain, pair by pair (same pre-training seed, same fine-tuning seed).

Pre-training uses the dense labels of the scenes, not the kind of scene (street, shore, ...): four
kinds are two bits per image; hundreds of labelled cells teach a ViT far more in the same time.

Examples:
  python benchmarks/pipeline.py --camvid data/camvid
  python benchmarks/pipeline.py --camvid data/camvid --pretrain 2000 --finetune 400 --scenes 2000
  python benchmarks/pipeline.py --camvid data/camvid --shortcut   # also with CB from plain weights
  python benchmarks/pipeline.py --camvid data/camvid --report     # only report what is finished

Run again after a kill, it continues where it stopped. Needs CamVid with images/{train,val}/*.jpg
and annotations/{train,val}/*.png (labels 0 to 10, 11 for none). Writes pipeline.json, .md and .png.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from parts.options import BENCHMARKS, BESIDE, parse_counts, study_parser

#: name -> broadcast in pre-training, broadcast in fine-tuning
VARIANTS: dict[str, tuple[str | None, str | None]] = {
    'plain': (None, None),
    'cb': ('cb', 'cb'),
    'shortcut': (None, 'cb'),
}


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = study_parser(__doc__, 'pipeline')
    add = parser.add_argument
    add('--camvid', type=Path, default=BESIDE / 'data/camvid', metavar='DIR',
        help='folder of CamVid')  # fmt: skip
    add('--scenes', type=int, default=600, metavar='N', help='images to pre-train on (600)')
    add('--pretrain', type=int, default=600, metavar='N', help='iterations of pre-training (600)')
    add('--finetune', type=int, default=150, metavar='N', help='iterations of fine-tuning (150)')
    add('--batch', type=int, default=16, metavar='N', help='images per iteration (16)')
    add('--pretrain-seeds', type=int, default=2, metavar='N', help='pre-training runs each (2)')
    add('--finetune-seeds', type=int, default=3, metavar='N', help='fine-tuning runs of each (3)')
    add('--repeats', type=int, default=2, metavar='N', help='passes of a random corruption (2)')
    add('--limit', type=int, metavar='N', help='test on the first N images only')
    add('--threads', type=int, default=1, metavar='N', help='threads (1)')
    add('--shortcut', action='store_true', help='also fine-tune with CB from plain weights')
    add('--report', action='store_true', help='only write the report of what is finished')
    counts = (
        'batch',
        'scenes',
        'pretrain',
        'finetune',
        'pretrain_seeds',
        'finetune_seeds',
        'repeats',
    )
    return parse_counts(parser, argv, (*counts, 'threads'))


class Pipeline:
    """The steps, each of which does nothing if its result exists."""

    def __init__(self, args: argparse.Namespace) -> None:
        from parts.camvid import find_camvid

        self.args = args
        self.work = args.work.resolve()
        self.camvid = args.camvid.resolve()
        self.source = find_camvid(self.camvid)
        names = ('scenes', 'batch', 'pretrain', 'finetune', 'repeats', 'limit')
        settings = {name: getattr(args, name) for name in names}
        self.settings = settings
        self._check(settings)

    def _check(self, settings: dict[str, Any]) -> None:
        from cb_mm.errors import UserError
        from cb_mm.fileio.atomic import write_atomically

        file = self.work / 'settings.json'
        if file.is_file() and json.loads(file.read_text()) != settings:
            raise UserError(
                f'{self.work} holds a pipeline with other settings. Pass another --work.'
            )
        write_atomically(file, json.dumps(settings))

    def call(self, what: str, tool: str, *words: object) -> None:
        """Run a tool in a separate process; its output goes to a log."""
        from parts.tool_call import call_tool

        started = time.monotonic()
        call_tool(tool, *words, log=self.work / 'pipeline.log', threads=self.args.threads)
        print(f'{what}: {time.monotonic() - started:.0f} s', flush=True)

    def run(self) -> None:
        """Run everything, one pre-training seed after another."""
        scenes = self.work / 'scenes'
        self.call('scenes', 'make_scenes.py', scenes, '--train', self.args.scenes, '--val', 20)
        variants = [v for v in VARIANTS if v != 'shortcut' or self.args.shortcut]
        for p in range(self.args.pretrain_seeds):
            for f in range(self.args.finetune_seeds):
                for variant in variants:
                    start = self.pretrain(VARIANTS[variant][0], p)
                    self.finetune(variant, p, f, start)
            self.entropy(p)

    def pretrain(self, broadcast: str | None, seed: int) -> Path:
        """Pre-train; return the checkpoint."""
        folder = self.work / 'pretrain' / f'{broadcast or "plain"}_{seed}'
        config = self._config(folder, 'scenes', broadcast, self.args.pretrain)
        return self._train(config, folder, self.work / 'scenes/ade20k', self.args.pretrain, seed)

    def finetune(self, variant: str, p: int, f: int, start: Path) -> None:
        """Fine-tune and test."""
        folder = self.finetuned(variant, p, f)
        config = self._config(folder, 'camvid', VARIANTS[variant][1], self.args.finetune)
        words: list[object] = ['--init', start]
        words += ['--allow-broadcast-mismatch'] if variant == 'shortcut' else []
        file = self._train(config, folder, self.camvid, self.args.finetune, f, words)
        if not (folder / 'test' / 'results.json').is_file():
            limit = ['--limit', self.args.limit] if self.args.limit else []
            self.call(
                f'test {folder.name}', 'test.py', config, file, '--suite', 'table9', '--repeats',
                self.args.repeats, '--data-root', self.camvid, '--out', folder / 'test', *limit,
            )  # fmt: skip

    def entropy(self, p: int) -> None:
        """Measure the attention of the first fine-tuned pair."""
        if (self.work / f'entropy_{p}' / 'summary.json').is_file():
            return
        pairs = [self.finetuned(variant, p, 0) for variant in ('plain', 'cb')]
        a, b = ((pair / 'config.py', pair / f'iter_{self.args.finetune}.pth') for pair in pairs)
        self.call(
            f'entropy {p}', 'analyze_attention.py', *a, self.source.test_images(self.camvid),
            '--compare', *b, '--names', 'plain', 'CB', '--size', '192x256',
            '--limit', self.args.limit or 40, '--out', self.work / f'entropy_{p}',
            '--format', 'png', '--overwrite',
        )  # fmt: skip

    def finetuned(self, variant: str, p: int, f: int) -> Path:
        """Return the folder of a fine-tuning run."""
        return self.work / 'finetune' / f'{variant}_{p}_{f}'

    def _config(self, folder: Path, part: str, broadcast: str | None, iterations: int) -> Path:
        from mmengine.config import Config
        from parts.scenes import SCENES
        from parts.short_training import short_training

        from cb_mm.fileio.atomic import write_atomically

        source, rate = {'scenes': (SCENES, 5e-4), 'camvid': (self.source, 3e-4)}[part]
        data = source.config(128, (256, 192), self.args.batch, resize_test=True)
        head = dict(num_classes=len(source.classes), ignore_index=source.ignore)
        config = Config.fromfile(BENCHMARKS / 'parts' / 'pipeline_segmentor.py')
        for piece in (
            data,
            short_training(iterations, rate, weight_decay=0.05),
            dict(val_cfg=None, val_dataloader=None, val_evaluator=None),
            dict(
                model=dict(
                    data_preprocessor=dict(seg_pad_val=source.ignore),
                    backbone=dict(broadcast=broadcast),
                    decode_head=head,
                )
            ),
        ):
            config.merge_from_dict(piece)
        file = folder / 'config.py'
        if not file.is_file():
            write_atomically(file, config.pretty_text)
        return file

    def _train(
        self, config: Path, folder: Path, data: Path, iterations: int, seed: int,
        words: list[object] | None = None,
    ) -> Path:  # fmt: skip
        file = folder / f'iter_{iterations}.pth'
        if not file.is_file():
            what = f'{folder.parent.name} {folder.name}'
            self.call(
                what, 'train.py', config, '--data-root', data, '--work-dir', folder, '--seed', seed,
                '--resume', *(words or ()),
            )  # fmt: skip
        return file


def main(argv: list[str] | None = None) -> int:
    """Run the pipeline and write its report."""
    args = parse_args(argv)
    from parts.pipeline_report import write_report

    from cb_mm.errors import exit_code

    def job() -> None:
        pipeline = Pipeline(args)
        if not args.report:
            pipeline.run()
        print(write_report(pipeline, args.out))

    return exit_code(job)


if __name__ == '__main__':
    sys.exit(main())
