"""The configs of whole_jobs.py: one model of ours and one of mmseg's, on the same CamVid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mmengine.config import Config

from .camvid import CLASSES, find_camvid
from .options import BENCHMARKS

#: What is compared: the tool that runs it, and what it runs.
OURS, BARE, PEER = 'cb_mm', "our model in mmseg's tool", 'mmseg'


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
    config.val_dataloader = config.val_evaluator = config.val_cfg = None
    config.test_dataloader.dataset.indices = images
    config.train_cfg = dict(type='IterBasedTrainLoop', max_iters=iterations)
    config.default_hooks.checkpoint.update(interval=iterations, save_best=None)
    config.default_hooks.logger.interval = 1
    times = dict(type='StepTimes', file=str(file.with_name('test_times.txt')))
    config.test_evaluator = [config.test_evaluator, times]
    config.log_processor = dict(by_epoch=False, window_size=1)
    _few_classes(config.model, crop)
    if arm != OURS:
        _as_mmengine_does(config)
    config.custom_imports.imports.append('parts.step_times')
    if arm == PEER:
        config.custom_imports.imports.remove('cb_mm')
        _model_of_mmseg(config.model, crop)
    config.dump(file)
    return file


def _few_classes(model: Any, crop: int) -> None:
    model.data_preprocessor.update(size=(crop, crop), seg_pad_val=11)
    model.backbone.pyramid_norm_cfg = dict(type='BN', requires_grad=True)
    for head in (model.decode_head, model.auxiliary_head):
        head.update(num_classes=len(CLASSES), ignore_index=11, norm_cfg=dict(type='BN'))


def _as_mmengine_does(config: Any) -> None:
    """Replace what cb_mm adds to a run: replay, provenance, safe files."""
    config.custom_imports = dict(imports=['cb_mm'], allow_failed_imports=False)
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
