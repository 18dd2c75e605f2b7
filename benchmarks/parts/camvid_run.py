"""One training of the CamVid study: train, test under corruption, measure the attention."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mmengine.config import Config

from cb_mm.fileio.atomic import write_atomically

from .camvid import find_camvid
from .camvid_models import MODELS, NEW_LAYERS, STARTS
from .short_training import short_training
from .tool_call import call_tool
from .training_log import scalars

CROP = 224
#: The same model, tested in windows: six of them cover an image of 480 × 360. A ViT that was
#: trained only on crops of one size knows no positions beyond it.
WINDOWS = f"""_base_ = ['config.py']
model = dict(test_cfg=dict(mode='slide', crop_size=({CROP}, {CROP}), stride=(136, 128)))
"""


@dataclass(frozen=True)
class Run:
    """Identifies a run."""

    start: str
    model: str
    seed: int

    @property
    def key(self) -> str:
        """The name of the run in the results."""
        return f'{self.start}/{self.model}/{self.seed}'


@dataclass(frozen=True)
class Settings:
    """What all runs share and must not change between calls."""

    imagenet: int
    scratch: int
    batch: int
    repeats: int
    limit: int | None
    attention_images: int

    def iterations(self, start: str) -> int:
        """Return the number of training iterations."""
        return getattr(self, start)


class Runner:
    """Does runs; skips each step whose result exists."""

    def __init__(
        self, settings: Settings, camvid: Path, weights: Path, work: Path, threads: int = 1
    ) -> None:
        self.settings, self.camvid, self.weights, self.work = settings, camvid, weights, work
        self.call = partial(call_tool, threads=threads)
        self.source = find_camvid(camvid)

    def folder(self, run: Run) -> Path:
        """Return the folder with all files of a run."""
        return self.work / run.key

    def iteration(self, run: Run) -> int:
        """Return the current training iteration, from the log."""
        steps = [0, *(line.get('step', 0) for line in scalars(self.folder(run)))]
        return max(steps)

    def do(self, run: Run) -> dict[str, Any]:
        """Train, test and measure the attention; return the record of the run."""
        folder, log = self.folder(run), self.folder(run) / 'log.txt'
        config, iterations = self._config(run), self.settings.iterations(run.start)
        checkpoint = folder / f'iter_{iterations}.pth'
        started = time.monotonic()
        if not checkpoint.is_file():
            init = []
            if run.start == 'imagenet':  # this half is about CB in plain weights
                init = ['--init', self.weights, '--allow-broadcast-mismatch']
            self.call(
                'train.py', config, '--data-root', self.camvid, '--work-dir', folder,
                '--seed', run.seed, '--resume', *init, log=log,
            )  # fmt: skip
        trained = time.monotonic()
        windows = folder / 'windows.py'
        write_atomically(windows, WINDOWS)
        limit = ['--limit', self.settings.limit] if self.settings.limit else []
        for tested, suite in ((config, 'table9'), (windows, 'clean')):
            self.call(
                'test.py', tested, checkpoint, '--suite', suite, '--data-root', self.camvid,
                '--repeats', self.settings.repeats, '--out', folder / suite, *limit, log=log,
            )  # fmt: skip
        self.call(
            'analyze_attention.py', config, checkpoint, self.source.test_images(self.camvid),
            '--limit', self.settings.attention_images, '--format', 'png',
            '--out', folder / 'attention', log=log,
        )  # fmt: skip
        return {
            'curve': _curve(folder),
            'cells': _cells(folder / 'table9' / 'results.json'),
            'windows': _cells(folder / 'clean' / 'results.json')['clean']['mIoU'],
            **_attention(folder / 'attention' / 'summary.json'),
            'minutes': [round((end - start) / 60, 1) for start, end in
                        ((started, trained), (trained, time.monotonic()))],
        }  # fmt: skip

    def _config(self, run: Run) -> Path:
        """Write the config once; it can also be used by hand."""
        file = self.folder(run) / 'config.py'
        if file.is_file():
            return file
        suffix = self.source.dataset['img_suffix']
        images = len(list(self.source.test_images(self.camvid).glob(f'*{suffix}')))
        config = Config.fromfile(Path(__file__).with_name('camvid_upernet.py'))
        for part in (
            self.source.config(crop=CROP, scale=(480, 360), batch=self.settings.batch),
            short_training(
                self.settings.iterations(run.start),
                STARTS[run.start].rate,
                weight_decay=0.01,
                new_layers=NEW_LAYERS / STARTS[run.start].rate,
                validations=5,
            ),
            dict(model=dict(backbone=MODELS[run.model].backbone)),
            # The curve uses every third image; the test at the end uses all.
            dict(val_dataloader=dict(dataset=dict(indices=list(range(0, images, 3))))),
        ):
            config.merge_from_dict(part)
        write_atomically(file, config.pretty_text)
        return file


def _curve(folder: Path) -> dict[str, float]:
    """Return the mIoU on clean images during training, by iteration."""
    return {str(line['step']): line['mIoU'] for line in scalars(folder) if 'mIoU' in line}


def _cells(file: Path) -> dict[str, dict[str, Any]]:
    """Return the title, mIoU and values of all passes, by corruption."""
    return {
        cell['key']: {'title': cell['title'], 'mIoU': cell['metrics']['mIoU']['mean']}
        for cell in json.loads(file.read_text())['cells']
    }


def _attention(file: Path) -> dict[str, list[float]]:
    """Return entropy and its 15th percentile (nats), and the distances, by layer."""
    (model,) = json.loads(file.read_text())['models']
    return {
        name: [layer['all_heads'][name]['mean'] for layer in model['layers']]
        for name in ('entropy', 'entropy_p15', 'distance', 'reach')
    }
