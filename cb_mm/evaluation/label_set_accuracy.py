"""Accuracy with several true labels, or among some classes: ImageNet-ReaL, ImageNet-A."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from mmengine.registry import METRICS
from mmpretrain.evaluation import Accuracy

from ..errors import MissingFile, UserError
from ..fileio.result_files import parse_json

_NUMBERED = re.compile(r'ILSVRC2012_val_(\d{8})\.')


@METRICS.register_module()
class LabelSetAccuracy(Accuracy):
    """Top-k accuracy with several true labels per image, or among only some of the classes.

    Args:
        topk: As in mmpretrain's Accuracy.
        real_labels: The label file of ImageNet-ReaL: a JSON list of a list of labels for each of
            the 50,000 validation images, in the order of their numbers. 'timm' is timm's copy of
            it. An image is right when any of its labels is hit, and left out when it has none.
        present_only: Only classes in the data set compete, as for the 200 classes of ImageNet-A.
        **kwargs: As in mmpretrain's Accuracy.
    """

    def __init__(
        self,
        topk: int | Sequence[int] = (1,),
        real_labels: str | None = None,
        present_only: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(topk=topk, **kwargs)
        self.present_only = present_only
        self.real_labels: Any = read_real_labels(real_labels) if real_labels else None

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Keep the scores and the true labels of every image of a batch."""
        for sample in data_samples:
            label = sample['gt_label'].cpu()
            truth = label.tolist() if self.real_labels is None else self._real(sample['img_path'])
            score = sample['pred_score'].cpu()
            self.results.append({'pred_score': score, 'gt_label': label, 'truth': truth})

    def _real(self, path: str) -> list[int]:
        found = _NUMBERED.search(Path(path).name)
        number = int(found[1]) if found else 0
        if not 1 <= number <= len(self.real_labels):
            raise UserError(
                f'ImageNet-ReaL labels the 50,000 validation images ILSVRC2012_val_00000001.JPEG '
                f'and so on; {path} is none of them.'
            )
        return self.real_labels[number - 1]

    def hits(self, results: Sequence[dict]) -> dict[int, list[float]]:
        """Return one value per image for each k: 1 hit, 0 missed, NaN without a true label."""
        scores = torch.stack([result['pred_score'] for result in results]).float()
        if self.present_only:
            absent = torch.ones(scores.shape[1], dtype=torch.bool)
            absent[list(self.dataset_meta['present_labels'])] = False
            scores[:, absent] = -torch.inf
        order = scores.topk(min(max(self.topk), scores.shape[1]), dim=1).indices.tolist()
        return {
            k: [
                float(any(label in result['truth'] for label in row[:k]))
                if result['truth']
                else float('nan')
                for row, result in zip(order, results, strict=True)
            ]
            for k in self.topk
        }

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Return percentages of the images that have a true label."""
        found = {k: torch.tensor(values) for k, values in self.hits(results).items()}
        return {f'top{k}': float(100 * values.nanmean()) for k, values in found.items()}


def read_real_labels(source: str) -> list[list[int]]:
    """Return the labels of ImageNet-ReaL, from its file or from timm's copy ('timm')."""
    if source == 'timm':
        content = (resources.files('timm.data') / '_info/imagenet_real_labels.json').read_bytes()
    else:
        path = Path(source).expanduser()
        if not path.is_file():
            raise MissingFile(f'label file {source} of ImageNet-ReaL does not exist.')
        content = path.read_bytes()
    try:
        labels = parse_json(content)
        return [[int(label) for label in row] for row in labels]
    except (ValueError, TypeError) as error:
        raise UserError(
            f'{source} is not the label file of ImageNet-ReaL (a JSON list of lists of labels): '
            f'{error}'
        ) from error
