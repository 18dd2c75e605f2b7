"""Whole models on fake CUDA tensors: ViLT, distillation, sliding windows."""

from __future__ import annotations

import contextlib

import pytest
import timm
import tiny_vqa
import torch
from fake_cuda import (
    CUDA,
    SECOND_DEVICE,
    AllSelected,
    counted,
    move_to_fake,
    tensors_in,
)
from mmengine.config import ConfigDict
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import BaseDataElement
from tool import config_file
from torch import nn

from cb_mm.apis.gpu_check.fake_device import cuda_autocast
from cb_mm.config.loading import load_config
from cb_mm.models.broadcast.token_layout import MODALITIES

LABELS = 5


def losses_on_cuda(model: nn.Module, inputs, samples, half) -> list[torch.Tensor]:
    """The losses of a model whose inputs are made by a function of the device."""
    with counted(), AllSelected():
        move_to_fake(model, CUDA)
        with cuda_autocast(half) if half else contextlib.nullcontext():
            return list(tensors_in(model(inputs(CUDA), samples(CUDA), mode='loss')))


def step_of_second(model: nn.Module, inputs, samples) -> set[torch.device]:
    """The devices of the gradients of a training step."""
    with counted(), AllSelected():
        move_to_fake(model, SECOND_DEVICE)
        losses = model(inputs(SECOND_DEVICE), samples(SECOND_DEVICE), mode='loss')
        sum(one.sum() for name, one in losses.items() if 'loss' in name).backward()
    return {p.grad.device for p in model.parameters() if p.grad is not None}


def words_and_images(device: str) -> dict[str, torch.Tensor]:
    words = torch.ones(2, tiny_vqa.ARCH['max_position_embeddings'], dtype=torch.long, device=device)
    images = torch.empty(2, 3, 64, 96, device=device)
    return dict(
        input_ids=words, attention_mask=words, token_type_ids=words, pixel_values=images,
        pixel_mask=torch.ones(2, 64, 96, dtype=torch.long, device=device),
    )  # fmt: skip


def questions(device: str) -> list[BaseDataElement]:
    answers = dict(question_id=1, answer_labels=[0, 2], answer_scores=[1.0, 0.3])
    return [BaseDataElement(metainfo=answers) for _ in range(2)]


def all_patches(embeddings: nn.Module, images, mask, max_image_length=200):
    """Take all, as transformers does without padding; otherwise its choice depends on values."""
    x = embeddings.patch_embeddings(images).flatten(2).transpose(1, 2)
    x = torch.cat([embeddings.cls_token.expand(len(x), -1, -1), x], dim=1)
    return x, torch.ones(x.shape[:2], dtype=torch.long, device=x.device), None


@pytest.mark.parametrize('tokens', MODALITIES)
@pytest.mark.parametrize('padding_in_mean', [False, True])
def test_vilt(tokens, padding_in_mean, monkeypatch):
    pytest.importorskip('transformers')
    from transformers.models.vilt.modeling_vilt import ViltEmbeddings

    import cb_mm.evaluation.vqa  # noqa: F401  (importing registers)

    monkeypatch.setattr(ViltEmbeddings, 'visual_embed', all_patches)
    init_default_scope('mmengine')
    backbone = dict(
        type='ViltCB', arch=tiny_vqa.ARCH, broadcast='cb_s', tokens=tokens,
        padding_in_mean=padding_in_mean,
    )  # fmt: skip
    head = dict(type='VQAHead', num_classes=LABELS)
    model = MODELS.build(dict(type='ViltVQA', backbone=backbone, head=head)).train()
    for half in (None, torch.float16):
        (loss,) = losses_on_cuda(model, words_and_images, questions, half)
        assert (loss.device, loss.dtype) == (torch.device(CUDA), torch.float32)
    assert step_of_second(model, words_and_images, questions) == {torch.device(SECOND_DEVICE)}


def test_distillation():
    pytest.importorskip('mmpretrain')
    from mmpretrain.structures import DataSample

    import cb_mm.evaluation.classification  # noqa: F401  (importing registers)

    def images(device: str) -> torch.Tensor:
        return torch.empty(2, 3, 32, 32, device=device)

    def samples(device: str) -> list[DataSample]:
        return [DataSample().set_gt_score(torch.ones(LABELS, device=device)) for _ in range(2)]

    init_default_scope('mmpretrain')
    settings = load_config(config_file('distilled_vit_ti_cb')).model.to_dict()
    settings['backbone'] |= {'arch_changes': {'depth': 2}, 'img_size': 32}
    settings['head']['num_classes'] = settings['data_preprocessor']['num_classes'] = LABELS
    model = MODELS.build(settings).train()
    for device in (CUDA, SECOND_DEVICE):
        # As after its first `labels`, which moves it to where the images are.
        teacher = timm.create_model('test_resnet', num_classes=LABELS).requires_grad_(False)
        model._teacher._model = move_to_fake(teacher.eval(), device)
        if device == SECOND_DEVICE:
            assert step_of_second(model, images, samples) == {torch.device(device)}
            continue
        for half in (None, torch.float16):
            losses = losses_on_cuda(model, images, samples, half)
            assert {one.device for one in losses} == {torch.device(device)}


def test_sliding_windows():
    init_default_scope('mmseg')
    config = dict(
        type='SlidingEncoderDecoder',
        backbone=dict(
            type='ViTCB', arch=dict(embed_dim=24, depth=2, num_heads=3), out_indices=(0, 1),
            pyramid=False,
        ),
        decode_head=dict(
            type='FastFCNHead', in_channels=24, in_index=1, channels=8, num_convs=1,
            num_classes=LABELS, norm_cfg=dict(type='BN'), align_corners=False,
        ),
        test_cfg=dict(mode='slide', crop_size=(64, 64), stride=(43, 43)),
    )  # fmt: skip
    model = MODELS.build(ConfigDict(config)).eval()
    with counted():
        move_to_fake(model, CUDA)
        facts = [dict(img_shape=(96, 128), ori_shape=(96, 128), pad_shape=(96, 128))]
        with torch.no_grad():
            logits = model.inference(torch.empty(1, 3, 96, 128, device=CUDA), facts)
    assert (logits.shape, logits.device) == ((1, LABELS, 96, 128), torch.device(CUDA))
