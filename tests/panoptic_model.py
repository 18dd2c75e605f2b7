"""A very small panoptic model of mmdet, and a made-up panoptic folder labelled by the model."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import DATASETS, MODELS, init_default_scope

CLASSES = ('cat', 'dog', 'grass', 'sky')
THINGS = 2

CONFIG = """
custom_imports = dict(imports=['cb_mm'])
default_scope = 'mmdet'
metainfo = dict(classes=('cat', 'dog', 'grass', 'sky'), thing_classes=('cat', 'dog'),
                stuff_classes=('grass', 'sky'))
roi = dict(type='SingleRoIExtractor', out_channels=16, featmap_strides=[4, 8, 16, 32])
coder = dict(type='DeltaXYWHBBoxCoder')
model = dict(
    type='PanopticFPN',
    data_preprocessor=dict(type='DetDataPreprocessor', mean=[127.5] * 3, std=[60.0] * 3,
                           bgr_to_rgb=True, pad_size_divisor=32),
    backbone=dict(type='ResNet', depth=18, base_channels=8, norm_cfg=dict(type='BN')),
    neck=dict(type='FPN', in_channels=[8, 16, 32, 64], out_channels=16, num_outs=5),
    rpn_head=dict(
        type='RPNHead', in_channels=16, feat_channels=16,
        anchor_generator=dict(type='AnchorGenerator', scales=[8], ratios=[0.5, 1.0, 2.0],
                              strides=[4, 8, 16, 32, 64]),
        bbox_coder=coder,
        loss_cls=dict(type='CrossEntropyLoss', use_sigmoid=True),
        loss_bbox=dict(type='L1Loss')),
    roi_head=dict(
        type='StandardRoIHead',
        bbox_roi_extractor=dict(roi_layer=dict(type='RoIAlign', output_size=7), **roi),
        bbox_head=dict(type='Shared2FCBBoxHead', in_channels=16, fc_out_channels=32,
                       roi_feat_size=7, num_classes=2, bbox_coder=coder,
                       loss_cls=dict(type='CrossEntropyLoss'), loss_bbox=dict(type='L1Loss')),
        mask_roi_extractor=dict(roi_layer=dict(type='RoIAlign', output_size=14), **roi),
        mask_head=dict(type='FCNMaskHead', num_convs=1, in_channels=16, conv_out_channels=16,
                       num_classes=2, loss_mask=dict(type='CrossEntropyLoss', use_mask=True))),
    semantic_head=dict(
        type='PanopticFPNHead', num_things_classes=2, num_stuff_classes=2, in_channels=16,
        inner_channels=16, start_level=0, end_level=4,
        norm_cfg=dict(type='GN', num_groups=4),
        loss_seg=dict(type='CrossEntropyLoss', ignore_index=255)),
    panoptic_fusion_head=dict(type='HeuristicFusionHead', num_things_classes=2,
                              num_stuff_classes=2),
    test_cfg=dict(
        rpn=dict(nms_pre=50, max_per_img=50, nms=dict(type='nms', iou_threshold=0.7),
                 min_bbox_size=0),
        rcnn=dict(score_thr=0.0, nms=dict(type='nms', iou_threshold=0.3, class_agnostic=True),
                  max_per_img=4, mask_thr_binary=0.5),
        panoptic=dict(mask_overlap=0.5, stuff_area_limit=50)))
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(128, 96), keep_ratio=True),
    dict(type='LoadPanopticAnnotations'),
    dict(type='PackDetInputs',
         meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'))]
test_dataloader = dict(
    batch_size=1, num_workers=0, sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type='CocoPanopticDataset', data_root='{root}', metainfo=metainfo,
                 ann_file='panoptic.json', data_prefix=dict(img='images/', seg='panoptic/'),
                 test_mode=True, pipeline=test_pipeline))
test_evaluator = dict(type='CocoPanopticMetric', ann_file='{root}/panoptic.json',
                      seg_prefix='{root}/panoptic/')
test_cfg = dict(type='TestLoop')
"""


def make(root: Path, images: int = 4) -> tuple[Path, Path]:
    """Write images, truth, a config and a checkpoint; return the last two."""
    rng = np.random.default_rng(0)
    (root / 'images').mkdir(parents=True)
    (root / 'panoptic').mkdir()
    infos = []
    for number in range(1, images + 1):
        image = cv2.resize(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8), (128, 96))
        cv2.imwrite(str(root / f'images/{number}.jpg'), image)
        infos.append({'id': number, 'file_name': f'{number}.jpg', 'height': 96, 'width': 128})
    categories = [
        {'id': 10 + place, 'name': name, 'isthing': int(place < THINGS)}
        for place, name in enumerate(CLASSES)
    ]
    write = lambda annotations: (root / 'panoptic.json').write_text(  # noqa: E731
        json.dumps({'images': infos, 'annotations': annotations, 'categories': categories})
    )
    write([{'image_id': one['id'], 'file_name': f'{one["id"]}.png', 'segments_info': []}
           for one in infos])  # fmt: skip
    file = root / 'panoptic.py'
    file.write_text(CONFIG.replace('{root}', str(root)))
    config = Config.fromfile(file)
    init_default_scope('mmdet')
    torch.manual_seed(0)
    model = MODELS.build(config.model).eval()
    for layer in model.modules():  # random weights would predict one class and empty masks
        if isinstance(layer, torch.nn.Conv2d) and layer.kernel_size == (1, 1):
            torch.nn.init.normal_(layer.weight, std=0.3)
    torch.save({'state_dict': model.state_dict(), 'meta': {}}, root / 'panoptic.pth')
    settings = config.test_dataloader.dataset
    settings.pipeline = [step for step in settings.pipeline if 'Panoptic' not in step['type']]
    annotations = []
    for sample in DATASETS.build(settings):
        with torch.no_grad():
            (found,) = model.test_step(pseudo_collate([sample]))
        segments = found.pred_panoptic_seg.sem_seg[0].numpy()
        annotations.append(truth_from(root, found.img_id, segments))
    write(annotations)
    return file, root / 'panoptic.pth'


def truth_from(root: Path, number: int, segments: np.ndarray) -> dict:
    """Make a prediction, moved by a few pixels and with a crowd, the truth of an image."""
    moved = np.roll(segments, (2, 3), (0, 1))
    moved[:8] = len(CLASSES)  # not labelled
    ids, infos = np.zeros(moved.shape, np.int64), []
    for place, segment in enumerate(np.unique(moved), 1):
        label = int(segment % 1000)
        if label >= len(CLASSES):
            continue
        ids[moved == segment] = place * 300  # more than one byte
        infos.append({'id': place * 300, 'category_id': 10 + label, 'iscrowd': 0,
                      'area': int((moved == segment).sum()), 'bbox': [0, 0, 1, 1]})  # fmt: skip
    if infos and number == 2:
        infos[-1]['iscrowd'] = 1
    picture = np.stack([ids // 65536, ids // 256 % 256, ids % 256], axis=-1).astype(np.uint8)
    cv2.imwrite(str(root / f'panoptic/{number}.png'), picture)
    return {'image_id': number, 'file_name': f'{number}.png', 'segments_info': infos}
