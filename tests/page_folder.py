"""A folder where the commands of docs/reproduce.md run as they stand, within a second or two.

The configs there have their names and are the real ones, with narrow models and small images. Data
sets lie in ``data``, for ``/data`` of the page.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import tiny_vqa
import torch
from mmengine.config import Config
from tiny_imagenet import SYNSETS, write_imagenet, write_pictures
from tool import REPO, main_of

WIDTH = 48
NARROW = {
    'model.backbone.arch_changes': dict(embed_dim=WIDTH, num_heads=3),
    'model.backbone.img_size': 32,
}
#: Hosts: arguments of the real model that make it small, and the width of its features.
HOSTS: dict[str, tuple[dict[str, Any], int]] = {
    'pit_b': (dict(base_dims=(8, 8, 8), depth=(1, 2, 2)), 128),
    'mixer_s16': (dict(mlp_ratio=(0.1, 0.25)), 512),
    'pvtv2_b1': (dict(depths=(1, 1, 1, 1), embed_dims=(8, 16, 40, 64)), 64),
    'localvit_ti': (dict(depth=2), 192),
    'swin_t': (dict(depths=(1, 1, 1, 1), embed_dim=24), 192),
    'pvt_s': (dict(num_layers=[1, 1, 1, 1], embed_dims=8), 64),
}


class PageFolder:
    """The folder, its data sets, and what was trained in it."""

    def __init__(self, root: Path, scenes: Any) -> None:
        self.root = root
        data = root / 'data'
        write_imagenet(data / 'imagenet', train=2, val=1)
        for number, file in enumerate(sorted((data / 'imagenet' / 'val').rglob('*.jpg'))):
            file.rename(file.with_name(f'ILSVRC2012_val_{number + 1:08d}.JPEG'))
        write_pictures(data / 'imagenetv2-matched-frequency-format-val', ('0', '1', '10'), 1)
        write_pictures(data / 'imagenet-a', SYNSETS, 1)
        write_imagenet(data / 'imagenette', train=2, val=1)
        for part in ('train', 'test'):
            write_pictures(data / 'cifar100' / part, ('apple', 'bear'), 2, size=(32, 32))
        (data / 'ade20k').symlink_to(scenes.ade20k)
        (data / 'coco').symlink_to(scenes.coco)
        cv2.imwrite(str(root / 'scene.jpg'), np.full((48, 64, 3), 90, np.uint8))
        self._configs: dict[str, Config] = {}
        self._trained: dict[str, Path] = {}

    def add_weights(self) -> None:
        """WEIGHTS of a plain ViT, and the weights of a teacher."""
        import timm

        torch.manual_seed(0)
        vit = timm.create_model(
            'vit_tiny_patch16_224', embed_dim=WIDTH, num_heads=3, img_size=32, num_classes=0
        )
        torch.save(vit.state_dict(), self.root / 'WEIGHTS')
        teacher = timm.create_model('test_resnet', num_classes=1000)
        torch.save(teacher.state_dict(), self.root / 'teacher.pth')

    def add_vqa(self) -> None:
        """VILT and its data."""
        if not (self.root / 'VILT').exists():
            tiny_vqa.write_vilt(self.root / 'VILT')
            tiny_vqa.write_vqa(self.root / 'data' / 'vqav2', train=2)

    def add_config(self, name: str) -> Config:
        """Write ``configs/...`` of the checkout, made small."""
        if name in self._configs:
            return self._configs[name]
        file = self.root / name
        if 'vqa' in name:
            self.add_vqa()
        config = Config.fromfile(REPO / name)
        config.merge_from_dict(self._changes(name))
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [f'{key} = {value!r}' for key, value in config.to_dict().items()]
        file.write_text('\n'.join(lines) + '\n')
        self._configs[name] = config
        return config

    def _changes(self, name: str) -> dict[str, Any]:
        changes: dict[str, Any] = {'default_hooks.logger.interval': 1}
        for split in ('train', 'val', 'test'):
            changes[f'{split}_dataloader.num_workers'] = 0
            changes[f'{split}_dataloader.persistent_workers'] = False
        changes['train_dataloader.batch_size'] = 2 if 'upernet' in name or 'vqa' in name else 4
        family = name.split('/')[1]
        if 'vqa' in name:
            return changes | self._vqa()
        if 'upernet' in name:
            return changes | _segmentor()
        if 'mask_rcnn' in name:
            return changes | _detector()
        if family == 'imagenette':
            return changes | _sparse()
        size = 224 if family == 'hosts' else 32
        first = 0 if family == 'cifar100' else 1
        changes[f'train_dataloader.dataset.pipeline.{first}.scale'] = size
        for split in ('val', 'test'):
            where = f'{split}_dataloader.dataset.pipeline'
            if family == 'cifar100':
                changes[f'{where}.1.scale'] = (size, size)
            else:
                changes |= {f'{where}.1.scale': size + 4, f'{where}.2.crop_size': size}
        if family == 'hosts':
            return changes | _host(name)
        if family == 'distillation':
            weights = str(self.root / 'teacher.pth')
            changes |= {'model.teacher': 'test_resnet', 'model.teacher_weights': weights}
        return changes | NARROW | {'model.head.in_channels': WIDTH}

    def _vqa(self) -> dict[str, Any]:
        changes = {f'model.backbone.arch.{key}': value for key, value in tiny_vqa.ARCH.items()}
        changes |= {
            'model.head.num_classes': 3,
            'model.data_preprocessor.tokenizer': str(self.root / 'VILT'),
        }
        for split, resize in (('train', 2), ('val', 1), ('test', 1)):
            changes[f'{split}_dataloader.dataset.min_count'] = 1
            changes[f'{split}_dataloader.dataset.pipeline.{resize}.shorter'] = 64
        return changes

    def run(self, words: list[str]) -> int:
        """Run ``python tools/NAME.py ...`` here, its configs made small; return its exit code."""
        _, script, *words = words
        for word in words:
            if word.startswith('configs/'):
                self.add_config(word)
        words = [word.replace('/data/', 'data/', 1) for word in words]
        return main_of(Path(script).name)(words)

    def train(self, words: list[str]) -> Path:
        """Run a training command for one iteration, once; return its checkpoint."""
        known = ' '.join(words)
        if known not in self._trained:
            config = self.add_config(words[2])
            unit = 'epoch' if 'max_epochs' in config.train_cfg else 'iter'
            short = [f'train_cfg.max_{unit}s=1', 'train_cfg.val_begin=2']
            schedule = words[words.index('--schedule') + 1] if '--schedule' in words else None
            name = f'{Path(words[2]).stem}_{schedule or config.schedule}'
            assert self.run([*words, '--cfg-options', *short]) == 0, known
            self._trained[known] = self.root / 'work_dirs' / name / f'{unit}_1.pth'
        return self._trained[known]

    def losses(self, checkpoint: Path) -> list[float]:
        """Return the logged losses of the run that wrote a checkpoint."""
        (log,) = checkpoint.parent.glob('*/vis_data/scalars.json')
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        return [line['loss'] for line in lines if 'loss' in line]

    def name(self, checkpoint: Path, name: str) -> None:
        """Give a checkpoint the name that a command of the page has for it."""
        shutil.copyfile(checkpoint, self.root / name)


def _segmentor() -> dict[str, Any]:
    return NARROW | {
        'model.data_preprocessor.size': (64, 64),
        'model.decode_head.in_channels': [WIDTH] * 4,
        'model.decode_head.channels': 16,
        'model.auxiliary_head.in_channels': WIDTH,
        'model.auxiliary_head.channels': 8,
        'train_dataloader.dataset.pipeline.2.scale': (128, 64),
        'train_dataloader.dataset.pipeline.3.crop_size': (64, 64),
        'val_dataloader.dataset.pipeline.1.scale': (128, 64),
        'test_dataloader.dataset.pipeline.1.scale': (128, 64),
    }


def _detector() -> dict[str, Any]:
    resize = dict(type='Resize', scale=(128, 96), keep_ratio=True)
    return NARROW | {
        'model.neck.in_channels': [WIDTH] * 4,
        'model.train_cfg.rpn_proposal.nms_pre': 50,
        'model.train_cfg.rcnn.sampler.num': 16,
        'model.test_cfg.rpn.nms_pre': 50,
        'train_dataloader.dataset.pipeline.3.transforms': [[resize]],
        'val_dataloader.dataset.pipeline.1.scale': (128, 96),
        'test_dataloader.dataset.pipeline.1.scale': (128, 96),
        'train_dataloader.batch_size': 8,  # all
    }


def _sparse() -> dict[str, Any]:
    arch = dict(embed_dim=32, num_heads=2, depth=2, patch_size=4)
    changes = {f'model.backbone.arch.{key}': value for key, value in arch.items()}
    changes |= {
        'model.backbone.img_size': 32,
        'model.head.in_channels': 32,
        'train_dataloader.dataset.pipeline.2.scale': 32,
    }
    for split in ('train', 'val', 'test'):
        changes[f'{split}_dataloader.dataset.pipeline.1.scale'] = (32, 32)
    return changes


def _host(name: str) -> dict[str, Any]:
    small, width = HOSTS[Path(name).stem.removeprefix('imagenet_').removesuffix('_cb')]
    if 'pvt_s' in name:
        changes = {f'model.backbone.backbone.{key}': value for key, value in small.items()}
    else:
        changes = {'model.backbone.model_kwargs': small}
    return changes | {'model.head.in_channels': width}
