"""Very small models of both tasks, on the embedded scenes, for the tests of testing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import cv2
import numpy as np
import torch
from mmengine.registry import MODELS, init_default_scope
from tool import SMALL_MASK_RCNN, SMALL_UPERNET, write_config

from cb_mm.corruption import Cell
from cb_mm.engine.training import RunOptions, prepare_config
from cb_mm.robustness.console_log import quiet_console
from cb_mm.robustness.jobs import Job
from cb_mm.robustness.tester import ModelUnderTest

FAST_MASK_RCNN = (
    SMALL_MASK_RCNN
    + """
model['test_cfg']['rcnn'].update(score_thr=0.0)
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(128, 96), keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(
        type='PackDetInputs',
        meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'),
    ),
]
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
"""
)

# The process of the tests has threads, and forking it is not safe: tests that need workers ask.
NO_WORKERS = """
test_dataloader = dict(
    num_workers=0, persistent_workers=False, dataset=dict(pipeline=test_pipeline)
)
"""
TEXTS = {'seg': SMALL_UPERNET + NO_WORKERS, 'det': FAST_MASK_RCNN + NO_WORKERS}
LAYOUTS = {'seg': 'ade20k', 'det': 'coco'}
SCOPES = {'seg': 'mmseg', 'det': 'mmdet'}


class SmallModel:
    """A config, its random weights as a checkpoint, and where its data lie."""

    def __init__(
        self, folder: Path, task: str, data: Path, seed: int = 0, own_labels: bool = True
    ) -> None:
        self.task = task
        self.folder = folder
        self.data = data
        self.config = write_config(folder, TEXTS[task], f'{task}.py')
        self.checkpoint = folder / f'{task}_{seed}.pth'
        with quiet_console():
            config = self.prepared()
            init_default_scope(SCOPES[task])
            torch.manual_seed(seed)
            model = MODELS.build(config.model)
            for layer in model.modules():
                # Without this, random weights predict one class for every pixel.
                if isinstance(layer, torch.nn.Conv2d) and layer.kernel_size == (1, 1):
                    torch.nn.init.normal_(layer.weight, std=0.3)
            torch.save({'state_dict': model.state_dict(), 'meta': {}}, self.checkpoint)
            annotate = {'seg': label_by_model, 'det': annotate_by_model}[task]
            if own_labels:
                self.data = annotate(self, folder / f'{task}_data')

    def prepared(self, *options: str):
        """The whole config, on the scenes."""
        return prepare_config(
            RunOptions(
                str(self.config), data_root=str(self.data), cfg_options=[*options],
                work_dir=str(self.folder / 'work'),
            )
        )  # fmt: skip

    def words(self, *more: object, checkpoint: Path | None = None) -> list[str]:
        """The command line of tools/test.py."""
        start = [self.config, checkpoint or self.checkpoint, '--data-root', self.data]
        return [str(word) for word in (*start, *more)]


# Random weights find nothing that is there; so what they find is put there. Scores are then well
# between 0 and 1, and fall under corruption.


def label_by_model(model: SmallModel, root: Path) -> Path:
    """A data set whose label maps are the model's predictions in the left two thirds."""
    shutil.copytree(model.data, root)
    tester = ModelUnderTest(model.prepared(), model.checkpoint)
    # The classes are some of ADE20K's: number in the file -> number in the model.
    places = tester.dataset.metainfo['label_map']
    numbers = np.array([old + 1 for new in range(16) for old in places if places[old] == new])
    for _, batch in tester.loader.load(Job(Cell('clean'))):
        with torch.no_grad():
            found = tester.model.test_step(batch)[0]
        file = root / Path(found.seg_map_path).relative_to(model.data)
        labels = cv2.imread(str(file), cv2.IMREAD_UNCHANGED)
        third = labels.shape[1] * 2 // 3
        labels[:, :third] = numbers[found.pred_sem_seg.data[0, :, :third].numpy()]
        cv2.imwrite(str(file), labels)
    return root


def annotate_by_model(model: SmallModel, root: Path) -> Path:
    """A data set whose objects are every other detection of the model."""
    shutil.copytree(model.data, root)
    tester = ModelUnderTest(model.prepared(), model.checkpoint)
    file = root / 'annotations' / 'instances_val2017.json'
    content = json.loads(file.read_text())
    content['annotations'] = []
    for numbers, batch in tester.loader.load(Job(Cell('clean'))):
        with torch.no_grad():
            found = tester.model.test_step(batch)[0]
        image = content['images'][numbers[0]]
        assert image['id'] == found.img_id
        objects = found.pred_instances
        for i in range(0, len(objects), 2):
            mask = objects.masks[i].cpu().numpy()
            x1, y1, x2, y2 = objects.bboxes[i].tolist()
            if not mask.any() or x2 - x1 < 2 or y2 - y1 < 2:
                continue
            content['annotations'].append(
                {
                    'id': len(content['annotations']) + 1,
                    'image_id': image['id'],
                    'category_id': tester.dataset.dataset.cat_ids[int(objects.labels[i])],
                    'bbox': [x1, y1, x2 - x1, y2 - y1],
                    'area': float(mask.sum()),
                    'iscrowd': 0,
                    'segmentation': {'size': list(mask.shape), 'counts': run_lengths(mask)},
                }
            )
    file.write_text(json.dumps(content))
    return root


def run_lengths(mask: np.ndarray) -> list[int]:
    """COCO's uncompressed code: lengths of runs of 0 and 1 in turn, column by column."""
    flat = np.concatenate([[0], mask.ravel(order='F').astype(int), [2]])
    starts = np.flatnonzero(np.diff(flat))
    lengths = np.diff(np.concatenate([[0], starts])).tolist()
    return lengths if flat[1] == 0 else [0, *lengths[1:]]


def records(out: Path) -> dict[str, dict]:
    """Finished passes by key, as they are on disk."""
    lines = (out / 'results.jsonl').read_text().splitlines()[1:]
    return {record['key']: record for record in map(json.loads, lines)}


def scores(out: Path) -> dict[str, dict]:
    """All that must be equal between two runs of one test."""
    return {
        key: {
            name: record[name] for name in ('metrics', 'upstream', 'per_class', 'images', 'level')
        }
        | {'images': (out / record['per_image']).read_text(), 'curves': record.get('curves')}
        for key, record in records(out).items()
    }
