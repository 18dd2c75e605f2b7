"""mmdet's own Mask R-CNN R-50, untouched, on the ops that cb_mm supplies."""

from __future__ import annotations

from pathlib import Path

import mmdet
import pytest
import torch
from detection_sample import sample
from mmdet.registry import MODELS
from mmengine.config import Config
from mmengine.registry import init_default_scope

CONFIG = Path(mmdet.__file__).parent / '.mim/configs/mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py'


@pytest.fixture(scope='module')
def model():
    config = Config.fromfile(CONFIG)
    config.model.backbone.init_cfg = None  # no download
    init_default_scope('mmdet')
    torch.manual_seed(0)
    return MODELS.build(config.model)


def test_trains_one_step(model):
    model.train()
    batch = model.data_preprocessor(sample(), training=True)
    losses = model(**batch, mode='loss')
    total, _ = model.parse_losses(losses)
    assert total.isfinite()
    assert {'loss_rpn_cls', 'loss_bbox', 'loss_mask'} <= set(losses)
    total.backward()
    for part in (model.backbone.layer4, model.rpn_head, model.roi_head.mask_head):
        gradients = [p.grad for p in part.parameters() if p.requires_grad]
        assert all(g is not None and g.isfinite().all() for g in gradients)
        assert sum(float(g.abs().sum()) for g in gradients) > 0


def test_predicts(model):
    model.eval()
    with torch.no_grad():
        batch = model.data_preprocessor(sample(), training=False)
        model.roi_head.test_cfg.score_thr = 0.0  # random weights are sure of nothing
        (result,) = model(**batch, mode='predict')
    found = result.pred_instances
    assert 0 < len(found) <= 100
    assert found.masks.shape == (len(found), 128, 160)
    assert found.bboxes.isfinite().all()
