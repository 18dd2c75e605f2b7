"""The data half of a segmentation config, the same for all sources."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Source:
    """A data set with a folder of images and one of label maps for each split.

    Attributes:
        dataset: Its config without paths, classes and pipeline.
        classes: Their names.
        train: Name of the split to train on.
        val: Name of the split to test on.
        ignore: The label of pixels without a class.
        loading: Options of LoadAnnotations.
        crop: Options of RandomCrop.
        images: Folder of the images of a split.
        labels: Folder of its label maps.
    """

    dataset: dict[str, Any]
    classes: tuple[str, ...]
    train: str
    val: str
    ignore: int = 255
    loading: dict[str, Any] = field(default_factory=dict)
    crop: dict[str, Any] = field(default_factory=dict)
    images: str = 'images/{}'
    labels: str = 'annotations/{}'

    def config(
        self, crop: int, scale: tuple[int, int], batch: int, resize_test: bool = False
    ) -> dict[str, Any]:
        """Return loaders and metrics. Images are tested at their own size, or at the scale."""
        image = dict(type='LoadImageFromFile')
        labels = dict(type='LoadAnnotations', **self.loading)
        train = [
            image,
            labels,
            dict(type='RandomResize', scale=scale, ratio_range=(0.75, 1.5), keep_ratio=True),
            dict(
                type='RandomCrop', crop_size=(crop, crop), ignore_index=self.ignore, **self.crop
            ),
            dict(type='RandomFlip', prob=0.5),
            dict(type='PhotoMetricDistortion'),
            dict(type='PackSegInputs'),
        ]  # fmt: skip
        resize = [dict(type='Resize', scale=scale, keep_ratio=True)] if resize_test else []
        tested = dict(
            batch_size=1,
            num_workers=0,
            sampler=dict(type='DefaultSampler', shuffle=False),
            dataset=self._dataset(self.val, [image, *resize, labels, dict(type='PackSegInputs')]),
        )
        metric = dict(type='IoUMetric', iou_metrics=['mIoU'], ignore_index=self.ignore)
        return dict(
            default_scope='mmseg',
            train_dataloader=dict(
                batch_size=batch,
                num_workers=0,
                sampler=dict(type='ReplayInfiniteSampler', shuffle=True),
                dataset=self._dataset(self.train, train),
            ),
            val_dataloader=tested,
            test_dataloader=tested,
            val_evaluator=metric,
            test_evaluator=metric,
        )

    def test_images(self, root: Path) -> Path:
        """The folder of the test images."""
        return root / self.images.format(self.val)

    def _dataset(self, split: str, pipeline: list[dict[str, Any]]) -> dict[str, Any]:
        return dict(
            data_prefix=dict(
                img_path=self.images.format(split), seg_map_path=self.labels.format(split)
            ),
            seg_map_suffix='.png',
            metainfo=dict(classes=self.classes),
            pipeline=pipeline,
            **self.dataset,
        )
