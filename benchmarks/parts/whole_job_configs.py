"""The configs of whole_jobs.py: a model of ours and one of mmseg or mmdet, on the same data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mmengine.config import Config

from .camvid import CLASSES, find_camvid
from .options import BENCHMARKS

#: What is compared: the tool that runs it, and what it runs.
OURS, BARE, PEER = 'cb_mm', "our model in the host's tool", 'the host'


def write_config(
    arm: str, file: Path, data: Path, crop: int, iterations: int, images: int = 10
) -> Path:
    """Write the config of an arm, for training and testing.

    Args:
        arm: OURS, BARE or PEER.
        file: Written.
        data: CamVid.
        crop: Side of the crops that are trained on; images are tested at their own size.
        iterations: Of training, with a checkpoint at the end.
        images: How many are tested.
    """
    config = Config.fromfile(BENCHMARKS.parent / 'configs' / 'upernet_vit_s_cb.py')
    for key in ('train_dataloader', 'val_dataloader', 'test_dataloader', 'val_evaluator',
                'test_evaluator', 'schedules', 'schedule'):  # fmt: skip
        config.pop(key, None)
    config.merge_from_dict(find_camvid(data).config(crop, scale=(480, 360), batch=2))
    for loader in (config.train_dataloader, config.test_dataloader):
        loader.dataset.data_root = str(data.resolve())
    _short_run(config, file, iterations, images)
    _few_classes(config.model, crop)
    if arm != OURS:
        _as_mmengine_does(config)
    if arm == PEER:
        config.custom_imports.imports.remove('cb_mm')
        _model_of_mmseg(config.model, crop)
    config.dump(file)
    return file


def write_detection_config(
    arm: str, file: Path, data: Path, side: int, iterations: int, images: int = 10
) -> Path:
    """Write the config of an arm for Mask R-CNN ViT-Ti on COCO.

    mmdet's arm has timm's ViT. Its operators are our stand-ins where mmcv was installed without
    compiled ones; mmdet could not run then.

    Args:
        arm: OURS, BARE or PEER.
        file: Written.
        data: COCO 2017 or a part of it, in its layout.
        side: Short side of the images.
        iterations: Of training, with a checkpoint at the end.
        images: How many are tested.
    """
    from cb_mm.apis.gpu_check.detection_step import with_timm_backbone

    name = 'mask_rcnn_vit_ti.py' if arm == PEER else 'mask_rcnn_vit_ti_cb.py'
    config = Config.fromfile(BENCHMARKS.parent / 'configs' / name)
    resize = dict(type='Resize', scale=(side * 5 // 3, side), keep_ratio=True)
    train, test = config.train_dataloader.dataset, config.test_dataloader.dataset
    load, annotations, flip, _, pack = train.pipeline
    train.pipeline = [load, annotations, flip, resize, pack]
    test.pipeline[1] = resize
    train.data_root = test.data_root = f'{data.resolve()}/'
    config.train_dataloader.sampler.type = 'ReplayInfiniteSampler'
    config.test_evaluator.ann_file = str(data.resolve() / test.ann_file)
    config.param_scheduler = []
    _short_run(config, file, iterations, images)
    if arm != OURS:
        _as_mmengine_does(config)
    if arm == PEER:
        config = with_timm_backbone(config)
        config.custom_imports.imports.append('mmseg.models')
    config.dump(file)
    return file


def _short_run(config: Any, file: Path, iterations: int, images: int) -> None:
    """Train that long, with a checkpoint at the end; test so many images; note all times."""
    config.val_dataloader = config.val_evaluator = config.val_cfg = None
    config.test_dataloader.dataset.indices = images
    config.train_cfg = dict(type='IterBasedTrainLoop', max_iters=iterations)
    config.default_hooks.checkpoint.update(interval=iterations, by_epoch=False, save_best=None)
    config.default_hooks.logger.interval = 1
    times = dict(type='StepTimes', file=str(file.with_name('test_times.txt')))
    config.test_evaluator = [config.test_evaluator, times]
    config.log_processor = dict(by_epoch=False, window_size=1)
    config.custom_imports.imports.append('parts.step_times')


def _few_classes(model: Any, crop: int) -> None:
    model.data_preprocessor.update(size=(crop, crop), seg_pad_val=11)
    model.backbone.pyramid_norm_cfg = dict(type='BN', requires_grad=True)
    for head in (model.decode_head, model.auxiliary_head):
        head.update(num_classes=len(CLASSES), ignore_index=11, norm_cfg=dict(type='BN'))


def _as_mmengine_does(config: Any) -> None:
    """Replace what cb_mm adds to a run: replay, provenance, safe files."""
    imports = ['cb_mm', 'parts.step_times']
    config.custom_imports = dict(imports=imports, allow_failed_imports=False)
    config.custom_hooks = []
    config.default_hooks.checkpoint.type = 'CheckpointHook'
    config.train_dataloader.sampler.type = 'InfiniteSampler'


def _model_of_mmseg(model: Any, crop: int) -> None:
    """Put mmseg's own ViT, neck and heads there, as in its ViT configs."""
    model.backbone = dict(
        type='VisionTransformer', img_size=(crop, crop), patch_size=16, embed_dims=384,
        num_layers=12, num_heads=6, out_indices=(3, 5, 7, 11), drop_path_rate=0.05,
    )  # fmt: skip
    model.neck = dict(
        type='MultiLevelNeck', in_channels=[384] * 4, out_channels=384, scales=[4, 2, 1, 0.5]
    )
    model.decode_head.type, model.auxiliary_head.type = 'UPerHead', 'FCNHead'
