"""Attacks and metrics of tensors stay on the model's device: on fake CUDA tensors, no GPU."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from fake_cuda import CUDA, SECOND_DEVICE, AllSelected, counted, move_to_fake
from mmengine.config import ConfigDict
from mmengine.registry import init_default_scope
from mmengine.structures import PixelData
from mmseg.registry import MODELS
from mmseg.structures import SegDataSample

from cb_mm.evaluation import calibration
from cb_mm.robustness.attacks import losses
from cb_mm.robustness.attacks.catalogue import ATTACKS
from cb_mm.robustness.attacks.pgd import pgd

CLASSES = 5


def segmentor() -> torch.nn.Module:
    init_default_scope('mmseg')
    config = dict(
        type='EncoderDecoder',
        data_preprocessor=dict(
            type='SegDataPreProcessor', mean=[127.5] * 3, std=[127.5] * 3, size_divisor=16,
            bgr_to_rgb=True,
        ),
        backbone=dict(
            type='ViTCB', arch=dict(embed_dim=24, depth=2, num_heads=3), broadcast='cb',
            out_indices=(0, 1), pyramid=False,
        ),
        decode_head=dict(
            type='FastFCNHead', in_channels=24, in_index=1, channels=8, num_convs=1,
            num_classes=CLASSES, norm_cfg=dict(type='BN'), align_corners=False,
        ),
    )  # fmt: skip
    return MODELS.build(ConfigDict(config)).eval()


@pytest.mark.parametrize('name', ATTACKS)
def test_attacks(name, monkeypatch):
    # Fake tensors of one mode cannot be copied deeply.
    monkeypatch.setattr(losses, 'copy', SimpleNamespace(deepcopy=SegDataSample.clone))
    model = segmentor()
    with counted(), AllSelected():
        move_to_fake(model, SECOND_DEVICE)
        model.data_preprocessor._device = torch.device(SECOND_DEVICE)  # as `model.to` sets it
        labels = torch.zeros(1, 40, 56, dtype=torch.long)  # loaded, on the CPU
        truth = SegDataSample(metainfo=dict(img_shape=(40, 56), ori_shape=(40, 56)))
        truth.gt_sem_seg = PixelData(data=labels)
        image = torch.zeros(3, 40, 56, dtype=torch.uint8).to(SECOND_DEVICE)
        attacked, _ = pgd(model, image, truth, 4.0, replace(ATTACKS[name], steps=2))
    assert attacked.device == torch.device(SECOND_DEVICE)
    assert attacked.shape == image.shape


@pytest.mark.parametrize('outputs', calibration.OUTPUTS)
def test_calibration(outputs):
    with counted(), AllSelected():
        scores = torch.empty(CLASSES, 30, device=CUDA)
        truth = torch.empty(30, dtype=torch.long, device=CUDA)
        probability = calibration.probabilities(scores, outputs)
        counts = calibration._counts(probability, truth, truth, bins=15)
    assert {one.device for one in counts.values()} == {torch.device(CUDA)}
