"""DINOv2, DINOv3, EVA-02, SigLIP and register tokens: timm's own classes, with random weights."""

from __future__ import annotations

import math
import re

import pytest
import timm
import torch
from detection_sample import sample
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, DefaultScope
from mmengine.structures import PixelData
from mmseg.structures import SegDataSample
from tool import CONFIGS, REPO
from torch import Tensor, nn

from cb_mm import add_context_broadcast
from cb_mm.attention import capture
from cb_mm.config.loading import load_config, replace_sync_bn
from cb_mm.engine.optim.layer_decay import layer_powers
from cb_mm.errors import UserError
from cb_mm.models import TimmCB, ViTCB
from cb_mm.models.broadcast.insert import find_mlp_ends

SMALL = dict(embed_dim=48, depth=4, num_heads=2)
#: model -> prefix tokens, patch size
PLAIN: dict[str, tuple[tuple[str, ...], int]] = {
    'vit_small_patch14_dinov2': (('cls',), 14),
    'vit_small_patch14_reg4_dinov2': (('cls', 'reg0', 'reg1', 'reg2', 'reg3'), 14),
    'vit_small_patch16_dinov3': (('cls', 'reg0', 'reg1', 'reg2', 'reg3'), 16),
    'vit_small_plus_patch16_dinov3': (('cls', 'reg0', 'reg1', 'reg2', 'reg3'), 16),
    'eva02_tiny_patch14_224': (('cls',), 14),
    'eva02_base_patch16_clip_224': (('cls',), 16),
    'vit_base_patch16_siglip_224': ((), 16),
    'vit_medium_patch16_reg4_gap_256': (('reg0', 'reg1', 'reg2', 'reg3'), 16),
    'vit_base_patch16_rope_reg1_gap_256': (('reg0',), 16),
    'vit_small_patch16_rope_mixed_ape_224': (('cls',), 16),  # learned rotary frequencies
    'vit_pe_spatial_tiny_patch16_512': (('cls',), 16),  # a norm before the blocks
}
each_model = pytest.mark.parametrize('name', PLAIN)


def small(name: str, broadcast: str | None = None, **options) -> TimmCB:
    torch.manual_seed(0)
    options = {'out_indices': (0, 1, 2, 3), **options}
    return TimmCB(name, broadcast, model_kwargs=SMALL, **options).eval()


def image(height: int = 70, width: int = 100, batch: int = 1) -> Tensor:
    return torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(1))


@each_model
def test_maps_are_timms(name):
    """For an image that is not whole patches, too: it is padded with zeros at the end."""
    patch = PLAIN[name][1]
    model = small(name, pyramid=False)
    rows, columns = (math.ceil(side / patch) for side in (70, 100))
    padded = torch.zeros(1, 3, rows * patch, columns * patch)
    padded[..., :70, :100] = image()
    with torch.no_grad():
        maps = model(image())
        expected = model.model.forward_intermediates(padded, intermediates_only=True)
    assert model.out_strides == (patch,) * 4
    for found, wanted in zip(maps, expected, strict=True):
        assert found.shape == (1, 48, rows, columns)
        torch.testing.assert_close(found, wanted)


@each_model
@pytest.mark.parametrize('prefix_in_mean', [True, False])
def test_cb_averages_all_tokens_or_the_patches_alone(name, prefix_in_mean):
    prefix = len(PLAIN[name][0])
    model = small(name, 'cb', layers=[2], prefix_in_mean=prefix_in_mean)
    assert model.broadcast_layers == (2,)
    mlp, seen = model.model.blocks[2].mlp, {}
    mlp.register_forward_hook(lambda _, args, out: seen.update(before=out), prepend=True)
    mlp.register_forward_hook(lambda _, args, out: seen.update(after=out))
    with torch.no_grad():
        model(image())
    before = seen['before']
    mean = before[:, 0 if prefix_in_mean else prefix :].mean(1, keepdim=True)
    torch.testing.assert_close(seen['after'], (before + mean) / 2)


@each_model
def test_cb_s_starts_as_the_plain_model_and_everything_trains(name):
    model = small(name, 'cb_s', layers='all', pyramid=False)
    plain = small(name, pyramid=False)
    assert model.broadcast_layers == (0, 1, 2, 3)
    with torch.no_grad():
        for found, wanted in zip(model(image()), plain(image()), strict=True):
            assert torch.equal(found, wanted)
    sum(found.square().mean() for found in model(image())).backward()
    for key, parameter in model.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, key
    stem = [key for key, p in model.named_parameters() if p.requires_grad and 'blocks' not in key]
    assert {'model.patch_embed.proj.weight'} <= set(stem)
    for part in ('norm_pre.weight', 'rope.freqs'):  # used from the first block on
        own = [key for key, _ in model.named_parameters() if key.endswith(part)]
        assert set(own) <= set(stem)


@each_model
def test_layer_decay_knows_the_layer_of_every_parameter(name):
    model = small(name, 'cb_s', layers='all')
    powers = dict(layer_powers(model))
    trained = {key for key, p in model.model.named_parameters() if p.requires_grad}
    assert {f'model.{key}' for key in trained} == set(powers)
    for key in trained:
        block = re.match(r'blocks\.(\d)\.', key)
        assert powers[f'model.{key}'] == (4 - int(block[1]) if block else 5), key
    cfg = dict(
        type='OptimWrapper',
        optimizer=dict(type='AdamW', lr=1.0, weight_decay=0.1),
        constructor='ViTLayerDecayConstructor',
        paramwise_cfg=dict(layer_decay=0.5),
    )
    wrapper = build_optim_wrapper(model, Config(dict(cfg=cfg)).cfg)
    names = {id(p): key for key, p in model.named_parameters()}
    for group in wrapper.param_groups:
        for parameter in group['params']:
            key = names.get(id(parameter))
            if key is None:  # mmengine adds a placeholder that carries the base lr
                continue
            assert group['lr'] == pytest.approx(0.5 ** powers.get(key, 0)), key
            tokens = ('cls_token', 'reg_token', 'pos_embed', 'rope.freqs')
            if key.endswith(tokens) or parameter.ndim == 1:
                assert group['weight_decay'] == 0, key


@each_model
def test_attention_is_captured(name):
    """The capture itself compares the rows with the real output of every layer."""
    prefix, patch = PLAIN[name]
    model, seen = small(name, 'cb', pyramid=False), []

    def look(layer) -> None:
        rows = layer.full()
        assert torch.allclose(rows.sum(-1), torch.ones(rows.shape[:-1]), atol=1e-5)
        seen.append((layer.tokens.prefix, layer.tokens.grid, layer.tokens.patch))

    with torch.no_grad(), capture(model, look):
        model(image())
    grid = tuple(math.ceil(side / patch) for side in (70, 100))
    assert seen == [(prefix, grid, (patch, patch))] * 4


@pytest.mark.parametrize('name', ['vit_small_patch14_reg4_dinov2', 'vit_base_patch16_siglip_224'])
def test_plain_ones_are_vitcb_too_with_timms_keys(name):
    """The pooling head of SigLIP stays in the state dict and is not a layer."""
    with torch.device('meta'):  # no memory, no time for random numbers
        model = ViTCB(name, 'cb_s', layers='all', out_indices=(1, 3), pyramid=False).eval()
        theirs = timm.create_model(name, num_classes=0)
    scales = {key for key in model.state_dict() if key.endswith('broadcast.scale')}
    assert set(model.state_dict()) - scales == set(theirs.state_dict())
    assert len(scales) == 12
    powers = dict(layer_powers(model))
    assert {powers[key] for key in powers if 'blocks' not in key} == {5}
    assert powers['blocks.3.mlp.fc1.weight'] == 1
    maps = model(torch.empty(1, 3, 56, 70, device='meta'))
    patch = PLAIN[name][1]
    assert maps[0].shape[-2:] == (math.ceil(56 / patch), math.ceil(70 / patch))


def test_the_pooling_of_siglip_is_not_a_layer():
    """It has an MLP on one token: "the upper half" would count it, and CB_S would change it."""
    model = timm.create_model('vit_base_patch16_siglip_224', num_classes=0, **SMALL)
    assert list(find_mlp_ends(model)) == [f'blocks.{i}.mlp' for i in range(4)]
    assert add_context_broadcast(model).names == ('blocks.2.mlp', 'blocks.3.mlp')


def test_the_error_of_vitcb_names_the_class_to_use():
    with pytest.raises(UserError, match='it is a Eva') as caught:
        ViTCB('vit_small_patch16_dinov3')
    advice = re.search(r"dict\(type='TimmCB', model_name='([^']+)', \.\.\.\)", str(caught.value))
    assert advice[1] == 'vit_small_patch16_dinov3'
    assert TimmCB(advice[1], model_kwargs=SMALL).out_strides == (4, 8, 16, 32)
    with pytest.raises(UserError, match="type='TimmCB', model_name='swin_tiny_patch4_window7_224'"):
        ViTCB('swin_tiny_patch4_window7_224')
    with pytest.raises(UserError, match='cannot be built by timm') as caught:
        ViTCB('vit_small_patch14_dinov2.unknown')
    assert 'TimmCB' not in str(caught.value)


def test_a_gate_needs_a_class_token():
    with pytest.raises(UserError, match='needs a class token'):
        small('vit_base_patch16_rope_reg1_gap_256', 'cb_gate')


FILES = sorted((CONFIGS / 'modern').glob('*.py'))


@pytest.mark.parametrize('file', FILES, ids=lambda file: file.stem)
def test_configs(file):
    config = load_config(file)
    replace_sync_bn(config)
    with DefaultScope.overwrite_default_scope(config.default_scope), torch.device('meta'):
        model = MODELS.build(config.model)
    backbone, detector = model.backbone, 'mask_rcnn' in file.stem
    assert backbone.broadcast == 'cb_s'
    skipped = {3, 5, 7, 11} if detector else set()
    if 'vitdet' in file.stem:
        skipped = {11}
        assert backbone.out_strides == (16,)
        assert [type(b.attn).__name__ for b in backbone.blocks].count('WindowAttention') == 8
    else:
        patch = 14 if re.search('dinov2|eva02', file.stem) else 16
        strides = (patch / 4, patch / 2, patch, patch * 2)
        assert backbone.out_strides == strides
        if detector:
            assert tuple(config.model.roi_head.bbox_roi_extractor.featmap_strides) == strides
            assert tuple(config.model.roi_head.mask_roi_extractor.featmap_strides) == strides
            anchors = config.model.rpn_head.anchor_generator.strides
            assert tuple(anchors) == (*strides, 4 * patch)
    assert set(backbone.broadcast_layers) == set(range(12)) - skipped
    name = config.model.backbone.get('arch') or config.model.backbone.get('model_name')
    weights = re.search(r'WEIGHTS: (\S+) \(timm\)', file.read_text())[1]
    cfg = timm.get_pretrained_cfg(weights)
    assert name in (weights.split('.')[0], 'base')
    prepare = config.model.data_preprocessor
    assert list(prepare.mean) == pytest.approx([255 * value for value in cfg.mean])
    assert list(prepare.std) == pytest.approx([255 * value for value in cfg.std])
    assert f'tools/train.py {file.relative_to(REPO)}' in file.read_text()
    assert 'Measured by us: not yet' in file.read_text()


def shrunk(name: str) -> nn.Module:
    """The model of a config, with a small backbone and few channels."""
    config = load_config(CONFIGS / 'modern' / f'{name}.py')
    replace_sync_bn(config)
    model, depth = config.model, (0, 1, 2, 3)
    if model.backbone.type == 'TimmCB':
        model.backbone.update(model_kwargs=SMALL, out_indices=depth)
    elif 'vitdet' in name:
        model.backbone.update(arch=SMALL, out_indices=(3,), global_blocks=(3,), window=2)
        model.neck.in_channels = 48
    else:
        model.backbone.update(arch={**SMALL, 'patch_size': 14, 'reg_tokens': 4, 'img_size': 70})
        model.backbone.out_indices = depth
    if 'upernet' in name:
        model.decode_head.update(in_channels=[48] * 4, channels=8, num_classes=5)
        model.auxiliary_head.update(in_channels=48, channels=8, num_classes=5)
        model.data_preprocessor.size = (70, 70)
    else:
        model.train_cfg.rcnn.sampler.num = 16
        model.train_cfg.rpn_proposal.max_per_img = model.test_cfg.rpn.max_per_img = 16
        model.roi_head.bbox_head.fc_out_channels = 16
        if model.neck.type == 'FPN':
            model.neck.in_channels = [48] * 4
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope(config.default_scope):
        return MODELS.build(model)


@pytest.mark.parametrize('name', ['mask_rcnn_eva02_s_cb_s', 'mask_rcnn_vitdet_b_cb_s'])
def test_a_detector_trains_a_step_and_predicts(name):
    """Strides of 3.5 pixels among them."""
    model = shrunk(name).train()
    with DefaultScope.overwrite_default_scope('mmdet'):
        losses = model(**model.data_preprocessor(sample(), True), mode='loss')
        total = sum(sum(part) if isinstance(part, list) else part
                    for key, part in losses.items() if 'loss' in key)  # fmt: skip
        total.backward()
        assert torch.isfinite(total)
        missing = [k for k, p in model.named_parameters() if p.requires_grad and p.grad is None]
        assert missing == []
        with torch.no_grad():
            found = model.eval().test_step(sample())[0].pred_instances
    assert found.bboxes.shape[1] == 4


def test_a_segmentor_of_patch_14_keeps_its_pixels_in_place():
    """Tested images are padded to whole patches and cut off again; labels stay where they are."""
    model = shrunk('upernet_dinov2_s_cb_s').eval()
    seen = {}
    model.backbone.register_forward_pre_hook(lambda _, args: seen.update(size=args[0].shape[-2:]))
    picture = torch.randint(0, 256, (3, 50, 60), dtype=torch.uint8)
    meta = dict(ori_shape=(50, 60), img_shape=(50, 60), pad_shape=(50, 60))
    data = SegDataSample(metainfo=meta, gt_sem_seg=PixelData(data=torch.zeros(1, 50, 60).long()))
    with torch.no_grad(), DefaultScope.overwrite_default_scope('mmseg'):
        result = model.test_step(dict(inputs=[picture], data_samples=[data]))[0]
    assert seen['size'] == (56, 70)
    logits = result.seg_logits.data
    assert logits.shape[-2:] == (50, 60)
    with torch.no_grad():
        whole = model.data_preprocessor(dict(inputs=[picture], data_samples=[data]), False)
        full = model.encode_decode(whole['inputs'], [dict(img_shape=(56, 70))])
    torch.testing.assert_close(logits, full[0, :, :50, :60])
