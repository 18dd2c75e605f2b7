"""One run of the study: write its config, train, test, measure; each step only if it is missing."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from cb_mm.checkpoints.shipped import SCOPE
from cb_mm.config.loading import load_config
from cb_mm.errors import UserError
from cb_mm.fileio.atomic import write_atomically

from .about import code_version
from .camvid import find_camvid
from .options import BENCHMARKS
from .short_training import short_training
from .study_data import AUGREG, DEIT, StudyData
from .study_plan import PUBLISHED, QUESTIONS, Run
from .tool_call import call_tool
from .training_log import scalars

CONFIGS = BENCHMARKS.parent / 'configs'
EPSILONS = (1, 2, 4)


class Worker:
    """Does runs, each in its own folder.

    Args:
        data: Where data and weights are.
        work: Folder for the runs.
        trial: Two steps and a few images instead of everything, to see that all of it works.
    """

    def __init__(self, data: StudyData, work: Path, trial: bool = False) -> None:
        self.data, self.work, self.trial = data, work.resolve(), trial

    def folder(self, run: Run) -> Path:
        """Return the folder with all files of a run."""
        return self.work / run.key

    def minute(self, run: Run) -> int:
        """Return how many of the minutes of a run are done, by its training log."""
        file = self.folder(run) / 'length.json'
        if not file.is_file():
            return 0
        ((unit, total),) = json.loads(file.read_text()).items()
        done = max((line[unit] for line in scalars(self.folder(run)) if unit in line), default=0)
        return int(QUESTIONS[run.question].minutes * min(done / total, 1))

    def do(self, run: Run) -> dict[str, Any]:
        """Do what is missing of a run; return its record."""
        started = time.monotonic()
        job = _Job(self, run)
        scores = job.do()
        return {
            'scores': scores,
            'settings': job.settings,
            'code': code_version(),
            'torch': torch.__version__,
            'minutes': round((time.monotonic() - started) / 60, 1),
        }


class _Job:
    """One run."""

    def __init__(self, worker: Worker, run: Run) -> None:
        self.worker, self.run, self.data, self.trial = worker, run, worker.data, worker.trial
        self.folder = worker.folder(run)
        self.config = self.folder / 'config.py'
        self.call = partial(call_tool, log=self.folder / 'log.txt')
        self.changes = dict(QUESTIONS[run.question].arms[run.arm].changes)
        self.settings: dict[str, Any] = {}

    def do(self) -> dict[str, Any]:
        """Do the run; return its scores."""
        kinds = {
            'baseline': self._baseline,
            'cifar': self._cifar,
            'heads': self._cifar,
            'sparse': self._sparse,
            'dense': self._dense,
            'weights': self._weights,
        }
        return kinds[self.run.question]()

    # The questions.

    def _cifar(self) -> dict[str, Any]:
        root = self.data.cifar10()
        config = load_config(CONFIGS / 'cifar10' / 'cifar10_vit_micro.py')
        file = self._train(config, root)
        images = sorted((root / 'test').glob('*/*'))
        main = self._test('test', file, root, '--suite', 'table9', '--corruption', 'occlusion=0.5')
        attacked = list(range(0, len(images), 5))
        fgsm = self._test(
            'fgsm', file, root, '--fgsm', *EPSILONS,
            '--cfg-options', f'test_dataloader.dataset.indices={attacked}',
        )  # fmt: skip
        return {
            **_scores(main, 'top1'),
            'fgsm': _scores(fgsm, 'top1'),
            **self._curve('accuracy/top1', 'validation/cross_entropy'),
            **self._attention(file, images[::50]),
        }

    def _sparse(self) -> dict[str, Any]:
        root = self.data.imagenette()
        config = load_config(CONFIGS / 'imagenette' / f'{self.changes.pop("base")}.py')
        schedule = load_config(CONFIGS / 'cifar10' / 'cifar10_vit_micro.py')
        warm, cosine = (dict(each) for each in schedule.param_scheduler)
        size = (64, 64)
        config.merge_from_dict(
            {
                'model.backbone.img_size': 64,
                'model.backbone.arch': dict(patch_size=4, embed_dim=96, depth=3, num_heads=3),
                'model.head.in_channels': 96,
                'train_cfg': dict(max_epochs=10, val_interval=2),
                'train_dataloader': dict(batch_size=64, num_workers=0, persistent_workers=False),
                'val_dataloader': dict(num_workers=0, persistent_workers=False),
                'test_dataloader': dict(num_workers=0, persistent_workers=False),
                'default_hooks.checkpoint': dict(save_best=None),
            }
        )
        cosine['end'] = 10
        config.param_scheduler = [warm, cosine]
        for part in ('train', 'val', 'test'):
            for step in config[f'{part}_dataloader'].dataset.pipeline:
                if step.type == 'Resize':
                    step.scale = size
                elif step.type == 'RandomResizedCrop':
                    step.scale = 64
        file = self._train(config, root)
        return {
            **_scores(self._test('test', file, root, '--suite', 'clean'), 'top1'),
            **self._curve('accuracy/top1', 'validation/cross_entropy'),
        }

    def _dense(self) -> dict[str, Any]:
        weights, width = self._backbone_of_cifar(), 96
        config = load_config(BENCHMARKS / 'parts' / 'camvid_upernet.py')
        trained = load_config(CONFIGS / 'cifar10' / 'cifar10_vit_micro.py').model
        preprocessor = trained.data_preprocessor
        config.merge_from_dict(
            {
                'model.data_preprocessor': dict(
                    # mmseg loads BGR and turns it into RGB
                    mean=preprocessor.mean, std=preprocessor.std, size=(width, width)
                ),
                'model.backbone': dict(
                    arch=dict(trained.backbone.arch, _delete_=True), img_size=width,
                    out_indices=(2, 3, 4, 7), pyramid=(2, 1, 0.5, 0.5),
                ),
                'model.decode_head': dict(in_channels=[width] * 4, channels=64),
                'model.auxiliary_head': dict(in_channels=width, channels=64),
            }
        )  # fmt: skip
        root = self._camvid(config, crop=96, scale=(240, 180), batch=8, iterations=2000, rate=3e-4)
        file = self._train(config, root, '--init', weights)
        windows = ('mode=slide', 'crop_size=(96,96)', 'stride=(72,84)')
        slide = ('--cfg-options', *(f'model.test_cfg.{word}' for word in windows))
        whole = self._test('test', file, root, '--suite', 'table9')
        cut = self._test('windows', file, root, '--suite', 'clean', *slide)
        return {**_scores(whole, 'mIoU'), 'windows': _scores(cut, 'mIoU')['clean']}

    def _backbone_of_cifar(self) -> Path | str:
        run = self.run
        before = self.worker.folder(Run('cifar', run.arm, run.seed))
        file = before / f'epoch_{2 if self.trial else 8}.pth'
        if file.is_file():
            return file
        if run.seed == 0 and not self.trial:  # the same weights, where the machine is another
            return f'{SCOPE}{PUBLISHED[run.arm]}'
        raise UserError(
            f'{run.key} starts from {file}, which is not there: do the runs of cifar first, with '
            'the same --work.'
        )

    def _weights(self) -> dict[str, Any]:
        start = self.run.arm.partition('_')[0]
        weights = self.data.file({'deit': DEIT, 'augreg': AUGREG}[start])
        config = load_config(BENCHMARKS / 'parts' / 'camvid_upernet.py')
        if start == 'deit':
            config.merge_from_dict(
                {'model.data_preprocessor': dict(mean=[123.675, 116.28, 103.53],
                                                 std=[58.395, 57.12, 57.375])}
            )  # fmt: skip
        root = self._camvid(config, crop=224, scale=(480, 360), batch=4, iterations=1500, rate=1e-4)
        file = self._train(config, root, '--init', weights, '--allow-broadcast-mismatch')
        return _scores(self._test('test', file, root, '--suite', 'clean'), 'mIoU')

    def _baseline(self) -> dict[str, Any]:
        root, weights = self.data.file('data/imagenet_val'), self.data.file(DEIT)
        self._write(load_config(CONFIGS / 'imagenet' / 'imagenet_vit_ti.py'))
        self.settings = {'weights': weights.name, 'passes': 1, 'trial': self.trial}
        one = ('--cfg-options', 'test_dataloader.num_workers=0',
               'test_dataloader.persistent_workers=False')  # fmt: skip
        attacks = ('--corruption', 'occlusion=0.5', '--fgsm', *EPSILONS)
        common = self._test('test', weights, root, '--suite', 'table9', *attacks, *one)
        labels = ('--test-set', 'imagenet-real', '--suite', 'clean')
        real = self._test('real', weights, root, *labels, *one)
        family = self._test('imagenet_c', weights, root, '--suite', 'imagenet-c', *one)
        return {
            'top1': _with_images(common, 'top1'),
            'top5': _with_images(common, 'top5'),
            'real': _with_images(real, 'top1')['clean'],
            'imagenet_c': _with_images(family, 'top1'),
        }

    # What they share.

    def _camvid(
        self, config: Any, crop: int, scale: tuple[int, int], batch: int, iterations: int,
        rate: float,
    ) -> Path:  # fmt: skip
        """Add CamVid and a short training to a config; return the folder of CamVid."""
        root = self.data.file('data/camvid')
        half = scale[0] < 480
        data = find_camvid(root).config(crop=crop, scale=scale, batch=batch, resize_test=half)
        training = short_training(iterations, rate, weight_decay=0.01, new_layers=1e-3 / rate)
        for part in (data, training, dict(val_cfg=None, val_dataloader=None, val_evaluator=None)):
            config.merge_from_dict(part)
        for name, factor in self.changes.pop('rates', {}).items():
            keys = config.optim_wrapper.paramwise_cfg.custom_keys
            keys[name] = dict(lr_mult=factor, decay_mult=0.0)
        return root

    def _write(self, config: Any) -> None:
        """Write the config of the run once; it can also be used by hand."""
        config.merge_from_dict(self.changes)
        config.merge_from_dict({'randomness.seed': self.run.seed})
        if self.trial:
            config.merge_from_dict({'train_dataloader.dataset.indices': 400})
        optimizer = config.optim_wrapper.optimizer
        self.settings = {
            'length': dict(config.train_cfg),
            'batch': config.train_dataloader.batch_size,
            'optimizer': dict(optimizer),
            'backbone': config.model.backbone.to_dict(),
            'trial': self.trial,
        }
        if not self.config.is_file():
            write_atomically(self.config, config.pretty_text)

    def _train(self, config: Any, root: Path, *words: object) -> Path:
        """Train to the end; return the last checkpoint."""
        self._write(config)
        by_epoch = 'max_epochs' in config.train_cfg
        whole = config.train_cfg['max_epochs' if by_epoch else 'max_iters']
        length = 2 if self.trial else whole
        unit = 'epoch' if by_epoch else 'iter'
        write_atomically(self.folder / 'length.json', json.dumps({unit: length}))
        file = self.folder / f'{unit}_{length}.pth'
        shorter = ('--epochs' if by_epoch else '--iters', length) if self.trial else ()
        if not file.is_file():
            self.call(
                'train.py', self.config, '--data-root', root, '--work-dir', self.folder,
                '--seed', self.run.seed, '--resume', *shorter, *words,
            )  # fmt: skip
        return file

    def _test(self, name: str, weights: Path, root: Path, *words: object) -> dict[str, Any]:
        """Test; return results.json."""
        results = self.folder / name / 'results.json'
        limit = ['--limit', 4] if self.trial else []
        if not _complete(results):
            self.call(
                'test.py', self.config, weights, '--data-root', root, '--repeats', 1,
                '--out', self.folder / name, '--format', 'png', *limit, *words,
            )  # fmt: skip
        return json.loads(results.read_text())

    def _attention(self, file: Path, images: list[Path]) -> dict[str, list[float]]:
        """Return entropy (nats) and distance by layer."""
        out = self.folder / 'attention'
        images = images[:2] if self.trial else images
        if not (out / 'summary.json').is_file():
            self.call(
                'analyze_attention.py', self.config, file, *images, '--format', 'png', '--out', out
            )
        (model,) = json.loads((out / 'summary.json').read_text())['models']
        return {
            name: [layer['all_heads'][name]['mean'] for layer in model['layers']]
            for name in ('entropy', 'distance')
        }

    def _curve(self, score: str, loss: str) -> dict[str, Any]:
        """Return score and loss on the validation images while training, and the last loss."""
        lines = [line for line in scalars(self.folder) if score in line]
        return {
            'curve': {str(line['step']): line[score] for line in lines},
            'loss': lines[-1][loss],
        }


def _complete(results: Path) -> bool:
    """Return whether a test is finished; a killed one has no results or lacks passes."""
    if not results.is_file():
        return False
    content = json.loads(results.read_text())
    return len(content['cells']) == len(content['identity']['cells'])


def _scores(results: Mapping[str, Any], metric: str) -> dict[str, float]:
    return {cell['key']: cell['metrics'][metric]['mean'] for cell in results['cells']}


def _with_images(results: Mapping[str, Any], metric: str) -> dict[str, list[float]]:
    """Return score and 95 % interval over images, by cell."""
    return {
        cell['key']: [
            cell['metrics'][metric]['mean'],
            *(cell['metrics'][metric]['over_images'][end] for end in ('low', 'high')),
        ]
        for cell in results['cells']
    }
