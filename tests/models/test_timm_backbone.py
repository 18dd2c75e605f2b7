"""TimmCB: every other system of the papers as a backbone; it builds, trains, loads and refuses."""

from __future__ import annotations

import copy
import re

import pytest
import timm
import torch
from detection_sample import sample
from mmdet.structures import DetDataSample
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, DefaultScope
from mmengine.structures import InstanceData, PixelData
from mmseg.structures import SegDataSample
from timm_systems import SWIN, SYSTEMS
from tool import CONFIGS
from torch import Tensor, nn

from cb_mm.attention import capture
from cb_mm.checkpoints.backbone_weights import load_weights
from cb_mm.config.loading import load_config, replace_sync_bn
from cb_mm.engine.optim.layer_decay import layer_powers
from cb_mm.errors import UserError
from cb_mm.models import TimmCB, ViTCB


def seeded(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


def small(system: str, broadcast: str | None = 'cb', **options) -> TimmCB:
    name, arguments, size = SYSTEMS[system]
    torch.manual_seed(0)
    if size:
        options = {'img_size': size, **options}
    return TimmCB(name, broadcast, model_kwargs=arguments, **options)


@pytest.mark.parametrize(
    ('name', 'paper', 'exact'),
    [
        ('pit_b_224', 73.8, 73.765),
        ('mixer_s16_224', 18.5, 18.528),
        # Its tables have no parameters for these; the first two are those of the models' papers.
        ('pvt_v2_b1', None, 14.009),
        (SWIN, None, 28.288),
        ('localvit_tiny_patch16_224', None, 5.909),
        ('deit_tiny_distilled_patch16_224', 5.9, 5.911),
        ('deit_small_distilled_patch16_224', 22.4, 22.436),
    ],
)
def test_parameters_with_the_classifier_as_the_papers_count(name, paper, exact):
    backbone = TimmCB(name, 'cb')
    whole = timm.create_model(name, num_classes=1000)
    classifier = whole.get_classifier()
    heads = classifier if isinstance(classifier, tuple) else (classifier,)
    count = sum(p.numel() for part in (backbone.model, *heads) for p in part.parameters())
    assert count == sum(p.numel() for p in whole.parameters())
    assert count / 1e6 == pytest.approx(exact, abs=5e-4)
    if paper is not None:
        assert round(count / 1e6, 1) == paper


def test_what_timm_is_told_of_localvit():
    cfg = timm.get_pretrained_cfg('localvit_tiny_patch16_224')
    like = timm.get_pretrained_cfg('deit_tiny_patch16_224')
    for name in ('num_classes', 'input_size', 'mean', 'std', 'first_conv', 'classifier'):
        assert getattr(cfg, name) == getattr(like, name), name
    assert not cfg.has_weights


def segmentor(system: str, **options) -> nn.Module:
    name, arguments, size = SYSTEMS[system]
    backbone = dict(type='TimmCB', model_name=name, model_kwargs=arguments, **options)
    if size:
        backbone['img_size'] = size
    channels = list(small(system).out_channels)
    head = dict(
        type='FastUPerHead', in_channels=channels, in_index=list(range(len(channels))), channels=8,
        num_classes=4, norm_cfg=dict(type='BN'), align_corners=False, pool_scales=(1, 2),
        loss_decode=dict(type='CrossEntropyLoss'),
    )  # fmt: skip
    with DefaultScope.overwrite_default_scope('mmseg'):
        torch.manual_seed(0)
        config = dict(type='EncoderDecoder', backbone=backbone, decode_head=head)
        return MODELS.build(Config({**config, 'test_cfg': dict(mode='whole')}))


@pytest.mark.parametrize('system', SYSTEMS)
def test_trains_a_step_in_a_segmentor(system):
    model = segmentor(system, broadcast='cb_s', layers='all', drop_path_rate=0.1).train()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
    labels = torch.randint(0, 4, (1, 64, 64), generator=torch.Generator().manual_seed(0))
    samples = [SegDataSample(gt_sem_seg=PixelData(data=labels)) for _ in range(2)]
    with DefaultScope.overwrite_default_scope('mmseg'):
        losses = model(seeded(2, 3, 64, 64), samples, mode='loss')
    losses['decode.loss_ce'].backward()
    optimizer.step()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
        assert parameter.isfinite().all(), name
    scales = [p for n, p in model.named_parameters() if n.endswith('mlp.broadcast.scale')
              or n.endswith('mlp_channels.broadcast.scale')]  # fmt: skip
    assert len(scales) == model.backbone.depth == len(model.backbone.broadcast_layers)
    assert any(scale.abs().sum() > 0 for scale in scales)


def test_trains_a_step_in_mask_rcnn():
    """The config itself, with a smaller Swin."""
    config = load_config(CONFIGS / 'mask_rcnn_swin_t_cb.py')
    replace_sync_bn(config)
    config.model.backbone.model_kwargs = SYSTEMS['Swin-Ti'][1]
    config.model.neck.in_channels = [8, 16, 32, 64]
    for part in (config.model.train_cfg.rpn_proposal, config.model.test_cfg.rpn):
        part.update(nms_pre=50, max_per_img=20)
    with DefaultScope.overwrite_default_scope('mmdet'):
        torch.manual_seed(0)
        model = MODELS.build(config.model).train()
        assert model.backbone.out_strides == tuple(
            config.model.rpn_head.anchor_generator.strides[:4]
        )
        batch = model.data_preprocessor(sample(), training=True)
        total, _ = model.parse_losses(model(**batch, mode='loss'))
        total.backward()
    assert total.isfinite()
    for name, parameter in model.backbone.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
    assert isinstance(batch['data_samples'][0], DetDataSample)
    assert isinstance(batch['data_samples'][0].gt_instances, InstanceData)


@pytest.mark.parametrize('system', SYSTEMS)
def test_features_are_those_of_timm(system):
    """Without CB, and without a pyramid."""
    name, arguments, size = SYSTEMS[system]
    ours = small(system, None, pyramid=False).eval()
    options = {'img_size': size} if size else {}
    theirs = timm.create_model(name, num_classes=0, **arguments, **options).eval()
    theirs.load_state_dict(ours.model.state_dict())
    side = 64 if size else 224
    with torch.no_grad():
        found = ours(seeded(1, 3, side, side))
        expected = theirs.forward_intermediates(
            seeded(1, 3, side, side), indices=list(ours.out_indices), intermediates_only=True
        )
    for a, b, channels in zip(found, expected, ours.out_channels, strict=True):
        assert a.shape[1] == channels
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize('system', SYSTEMS)
def test_strides_are_those_of_the_maps(system):
    model = small(system).eval()
    side = model.fixed_size[0] if model.fixed_size else 96
    with torch.no_grad():
        maps = model(seeded(1, 3, side, side))
    assert len(maps) == len(model.out_strides) == len(model.out_channels)
    for found, stride in zip(maps, model.out_strides, strict=True):
        # PiT's patches overlap and have no margin: a cell less at the border.
        assert side / stride - 1.5 <= found.shape[-1] <= side / stride + 1
    if system != 'PiT-B':
        assert model.out_strides == (4, 8, 16, 32)


@pytest.mark.parametrize('system', [s for s, (_, _, size) in SYSTEMS.items() if not size])
@pytest.mark.parametrize('size', [(64, 96), (75, 130)])
def test_any_image_size(system, size):
    with torch.no_grad():
        maps = small(system).eval()(seeded(1, 3, *size))
    for found, stride in zip(maps, (4, 8, 16, 32), strict=True):
        assert found.isfinite().all()
        for cells, pixels in zip(found.shape[2:], size, strict=True):
            assert abs(cells * stride - pixels) < max(stride, 16)


def test_cb_stays_out_of_the_blocks_that_feed_the_neck():
    options = dict(model_kwargs=SYSTEMS['Swin-Ti'][1] | dict(depths=(2, 2, 6, 2)))
    assert TimmCB(SWIN, 'cb', **options).broadcast_layers == (6, 7, 8, 9, 10, 11)
    model = TimmCB(SWIN, 'cb', 'all', skip_out_layers=True, **options)
    assert model.broadcast_layers == (0, 2, 4, 5, 6, 7, 8, 10)
    assert not hasattr(model.model.layers[2].blocks[5].mlp, 'broadcast')
    assert hasattr(model.model.layers[2].blocks[4].mlp, 'broadcast')


def test_a_swin_shifts_all_windows_when_built_for_large_images():
    small_image, large = (TimmCB(SWIN, img_size=size) for size in (224, 512))
    shifts = [m.model.layers[3].blocks[1].shift_size for m in (small_image, large)]
    assert shifts == [(0, 0), (3, 3)]


def test_norms_on_the_maps():
    model = small('Swin-Ti', norm_out=True)
    assert [norm.weight.numel() for norm in model.norms] == [8, 16, 32, 64]
    for found in model(seeded(2, 3, 64, 64)):
        torch.testing.assert_close(
            found.mean(1), torch.zeros(2, *found.shape[2:]), atol=1e-4, rtol=0
        )


def test_part_of_the_maps_in_any_order():
    model = small('Swin-Ti', out_indices=(2, 0))
    maps = model(seeded(1, 3, 64, 64))
    assert [m.shape[1] for m in maps] == [32, 8]
    assert model.out_strides == (16, 4)
    sum(m.mean() for m in maps).backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
    assert not any(p.requires_grad for p in model.model.layers[3].parameters())


@pytest.mark.parametrize('system', SYSTEMS)
def test_frozen_stages(system):
    model = small(system, frozen_stages=1, drop_path_rate=0.2).train()
    frozen = {name for name, p in model.model.named_parameters() if not p.requires_grad}
    stem = [n for n in frozen if n.startswith(('patch_embed', 'stem', 'patch_embeds.0'))]
    first = [n for n in frozen if re.match(r'(layers|stages|blocks|transformers)\.0\.', n)]
    assert stem
    assert first
    assert not any(re.match(r'(layers|stages|blocks|transformers)\.[12]\.', n) for n in frozen)
    stage = model.model.get_submodule(first[0].rpartition('.0.')[0].split('.')[0] + '.0')
    assert not any(module.training for module in stage.modules())
    assert model.model.training


@pytest.mark.parametrize('system', SYSTEMS)
def test_layer_wise_decay(system):
    model = segmentor(system, broadcast='cb_s')
    powers = dict(layer_powers(model))
    wrapper = build_optim_wrapper(
        model,
        Config(dict(o=dict(
            type='OptimWrapper', optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.05),
            constructor='ViTLayerDecayConstructor', paramwise_cfg=dict(layer_decay=0.5),
        ))).o,
    )  # fmt: skip
    names = {id(p): name for name, p in model.named_parameters()}
    rates = {
        names[id(p)]: group['lr']
        for group in wrapper.param_groups
        for p in group['params']
        if id(p) in names  # mmengine adds a placeholder that carries the base lr
    }
    assert set(rates) == {name for name, p in model.named_parameters() if p.requires_grad}
    assert {rate for name, rate in rates.items() if name.startswith('decode_head')} == {1e-3}
    slowest = min(rates, key=rates.get)
    assert re.search(r'stem|patch_embed|_token|pos_embed', slowest), slowest
    assert max(powers.values()) >= 4
    scale = [name for name in names.values() if name.endswith('broadcast.scale')][-1]
    assert rates[scale] == pytest.approx(5e-4)  # one layer below the head


@pytest.mark.parametrize('system', ['Swin-Ti', 'PVTv2-B1', 'distilled ViT', 'LocalViT-Ti'])
def test_recomputing_gives_the_same_gradients(system):
    gradients = []
    for with_cp in (False, True):
        model = small(system, 'cb_s', with_cp=with_cp).train()
        sum(m.square().mean() for m in model(seeded(2, 3, 64, 64))).backward()
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.requires_grad})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, atol=1e-5, rtol=1e-3, msg=name)


# --- weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize('system', SYSTEMS)
def test_weights_of_a_local_file(system, tmp_path):
    """A classifier of timm, saved; the scales of CB_S and the norms of the maps are not in it."""
    name, arguments, size = SYSTEMS[system]
    torch.manual_seed(1)
    options = {'img_size': size} if size else {}
    source = timm.create_model(name, num_classes=7, **arguments, **options)
    file = tmp_path / 'model.pth'
    torch.save({'model': source.state_dict()}, file)
    init = dict(type='Pretrained', checkpoint=str(file))
    model = small(system, 'cb_s', norm_out=True, init_cfg=init)
    model.init_weights()
    report = model.weights_report
    assert not report.missing, report
    assert not report.unexpected, report
    assert all('broadcast' in key for key in report.expected_missing)
    own = model.model.state_dict()
    for key, value in source.state_dict().items():
        if key in own:
            assert torch.equal(own[key], value), key


def test_weights_of_a_whole_segmentor_come_back(tmp_path):
    model = segmentor('Swin-Ti', broadcast='cb_s')
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    torch.save({'state_dict': model.state_dict()}, tmp_path / 'model.pth')
    fresh = small('Swin-Ti', 'cb_s')
    report = load_weights(fresh, tmp_path / 'model.pth')
    assert not report.missing
    assert 'backbone.model.' in report.where
    for key, value in fresh.model.state_dict().items():
        assert torch.equal(value, model.backbone.model.state_dict()[key]), key


def test_original_swin_checkpoint_is_renamed_by_timm(tmp_path):
    """In the authors' files a stage ends with the downsampling that starts timm's next one."""
    source = small('Swin-Ti', None).model.state_dict()
    theirs = {
        re.sub(
            r'layers\.(\d)\.downsample', lambda m: f'layers.{int(m[1]) - 1}.downsample', key
        ): value
        for key, value in source.items()
    } | {'head.weight': torch.zeros(5, 64), 'head.bias': torch.zeros(5)}
    torch.save({'model': theirs}, tmp_path / 'swin.pth')
    torch.manual_seed(3)
    fresh = TimmCB(SWIN, 'cb', model_kwargs=SYSTEMS['Swin-Ti'][1])
    report = load_weights(fresh, tmp_path / 'swin.pth')
    assert not report.missing, report
    assert not report.unexpected, report
    for key, value in fresh.model.state_dict().items():
        assert torch.equal(value, source[key]), key


def test_position_embedding_of_pit_is_resized(tmp_path):
    torch.save(small('PiT-B', None).model.state_dict(), tmp_path / 'pit.pth')
    larger = small('PiT-B', None, img_size=96)
    report = load_weights(larger, tmp_path / 'pit.pth')
    assert report.loaded == report.total


def test_real_weights_give_the_features_of_vitcb(shared):
    init = dict(
        type='Pretrained',
        checkpoint=str(shared / 'weights' / 'vit_tiny_patch16_224_in1k.safetensors'),
    )
    options = dict(broadcast='cb', pyramid=False, out_indices=(5, 11), init_cfg=init)
    ours = TimmCB('vit_tiny_patch16_224', **options).eval()
    theirs = ViTCB('tiny', **options).eval()
    sparse = ViTCB('tiny', attention=dict(random=99), **options).eval()
    for model in (ours, theirs, sparse):
        model.init_weights()
        assert not model.weights_report.missing
    with torch.no_grad():
        maps = [model(seeded(1, 3, 150, 230)) for model in (ours, theirs, sparse)]
    for a, b, c in zip(*maps, strict=True):
        torch.testing.assert_close(a, b)
        torch.testing.assert_close(c, b, atol=1e-3, rtol=1e-3)


def test_weights_of_another_model_are_refused(tmp_path):
    torch.save(small('PVTv2-B1', None).model.state_dict(), tmp_path / 'pvt.pth')
    for system in SYSTEMS:
        if system != 'PVTv2-B1':
            with pytest.raises(UserError, match='does not fit this'):
                load_weights(small(system), tmp_path / 'pvt.pth')


# --- attention and refusals ---------------------------------------------------------------------


@pytest.mark.parametrize('system', ['distilled ViT', 'LocalViT-Ti'])
def test_attention_of_plain_models_is_captured(system):
    model = small(system).eval()
    with torch.no_grad(), capture(model, keep=True) as maps:
        model(seeded(1, 3, 64, 96))
    prefix = 2 if system == 'distilled ViT' else 1
    assert {tuple(m.shape) for m in maps.values()} == {(1, 2, prefix + 24, prefix + 24)}


@pytest.mark.parametrize(
    ('system', 'message'),
    [
        ('Swin-Ti', 'Windowed, pooled and channel attention'),
        ('PVTv2-B1', 'cannot be read'),
        ('PVT-S, nearest in timm', 'cannot be read'),
        ('PiT-B', 'pooled tokens'),
        ('Mixer-S/16', 'has no attention'),
    ],
)
def test_attention_of_other_models_is_refused(system, message):
    model = small(system).eval()
    side = model.fixed_size[0] if model.fixed_size else 64
    with pytest.raises(UserError, match=message), torch.no_grad(), capture(model):
        model(seeded(1, 3, side, side))


def test_fixed_sizes_say_what_to_do():
    for system in ('PiT-B', 'Mixer-S/16'):
        with pytest.raises(UserError, match=r'only images of 64 x 64, but got 64 x 96.*slide'):
            small(system)(seeded(1, 3, 64, 96))


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        (dict(model_name='swin_tiny_patch4_windo7_224'), f'Did you mean "{SWIN}'),
        (dict(model_name='pvt_v2_b0', broadcast='cbs'), 'Did you mean "cb_s"'),
        (dict(model_name='pvt_v2_b0', broadcast='cb_gate'), 'needs a class token'),
        (dict(model_name='pvt_v2_b0', out_indices=(4,)), 'out_indices=(4,)'),
        (dict(model_name='pvt_v2_b0', img_size=64), 'leave img_size out'),
        (dict(model_name='pvt_v2_b0', frozen_stages=5), 'frozen_stages=5'),
        (dict(model_name='pvt_v2_b0', pyramid=True), 'the same width in all'),
        (dict(model_name='pit_ti_224', with_cp=True), 'no gradient checkpointing'),
        (dict(model_name='resnet18', broadcast='cb'), 'no MLP of a known kind'),
        (dict(model_name='pvt_v2_b0', model_kwargs=dict(depth=3)), 'cannot be built'),
    ],
)
def test_wrong_options_say_what_is_wrong(options, message):
    with pytest.raises(UserError, match=re.escape(message)):
        TimmCB(**options)


def test_a_model_that_drops_no_paths():
    """timm's GhostNet takes no drop_path_rate: that is fine unless one is wanted."""
    model = TimmCB('ghostnet_050')
    assert len(model.eval()(seeded(1, 3, 64, 64))) == len(model.out_channels) == 5
    with pytest.raises(UserError, match=r'cannot be built with these options: .*drop_path_rate'):
        TimmCB('ghostnet_050', drop_path_rate=0.1)


def test_without_cb_no_layer_is_counted():
    plain = TimmCB('pvt_v2_b0')
    assert (plain.depth, plain.broadcast_layers) == (0, ())
    with_cb = TimmCB('pvt_v2_b0', broadcast='cb', layers='all')
    assert (with_cb.depth, with_cb.broadcast_layers) == (8, tuple(range(8)))


def test_copies_broadcast_by_themselves():
    model = small('Swin-Ti', 'cb_s', scale_init=0.5).eval()
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for a, b in zip(model(seeded(1, 3, 64, 64)), twin(seeded(1, 3, 64, 64)), strict=True):
            assert torch.equal(a, b)


def test_weights_without_a_record_of_cb_are_told(tmp_path):
    """Plain weights fit without a complaint, and CB then makes another function of them."""
    plain = TimmCB('pvt_v2_b0')
    torch.save(plain.model.state_dict(), tmp_path / 'plain.pth')
    for broadcast, told in (('cb', True), ('cb_s', False), (None, False)):
        report = load_weights(TimmCB('pvt_v2_b0', broadcast=broadcast), tmp_path / 'plain.pth')
        assert ('CAUTION' in str(report)) == told, broadcast
