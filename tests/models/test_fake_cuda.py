"""Every part of a model stays on its device, in every precision: on fake CUDA tensors, no GPU.

A tensor that is made or kept on the CPU fails here as it would on a GPU.
"""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest
import torch
from fake_cuda import (
    CUDA,
    SECOND_DEVICE,
    AllSelected,
    counted,
    forward_on_cuda,
    move_to_fake,
    step_on_second,
    tensors_in,
)
from mmengine.registry import init_default_scope
from mmengine.structures import PixelData
from mmseg.registry import MODELS
from mmseg.structures import SegDataSample
from timm_systems import SYSTEMS
from torch import nn

from cb_mm.apis.gpu_check.fake_device import SecondDeviceAutocast, cuda_autocast
from cb_mm.engine.optim.precision import Precision
from cb_mm.models import TimmCB, ViTCB
from cb_mm.models.attention.sparse_pattern import COMBINATIONS
from cb_mm.models.attention.uniform import UNIFORM_KINDS
from cb_mm.models.broadcast.context_broadcast import BROADCASTS, POSITIONS
from cb_mm.models.necks.simple_pyramid import SimplePyramid
from cb_mm.models.ops.upsampled_loss import UpsampledCrossEntropy

ARCH = dict(embed_dim=24, depth=2, num_heads=3)
#: Hosts beyond those of the papers, made small.
HOSTS: dict[str, tuple[str, dict, int | None]] = {
    'XCiT': ('xcit_nano_12_p16_224', dict(embed_dim=32, depth=4, num_heads=2), None),
    'CaiT': ('cait_xxs24_224', dict(embed_dim=32, depth=4, num_heads=2), 64),
    'PoolFormer': ('poolformer_s12', dict(layers=(1, 1, 1, 1), embed_dims=(8, 8, 8, 8)), None),
    'PoolFormerV2': ('poolformerv2_s12', {}, None),
    'VOLO': ('volo_d1_224', {}, 64),
    'BEiT': ('beit_base_patch16_224', dict(embed_dim=24, depth=2, num_heads=2), 64),
    **{
        name: (name, dict(embed_dim=48, depth=4, num_heads=2), None)
        for name in (
            'vit_small_patch14_reg4_dinov2', 'vit_small_plus_patch16_dinov3',
            'eva02_tiny_patch14_224', 'vit_base_patch16_siglip_224',
            'vit_small_patch16_rope_mixed_ape_224', 'vit_pe_spatial_tiny_patch16_512',
        )
    },
}  # fmt: skip


def vit(**options) -> ViTCB:
    options = {'out_indices': (0, 1), 'pyramid': False, 'drop_path_rate': 0.1, **options}
    return ViTCB(ARCH, layers='all', **options)


def timm_host(name: str, arguments: dict, size: int | None) -> TimmCB:
    fixed = {'img_size': size} if size else {}
    return TimmCB(name, 'cb', model_kwargs=arguments, **fixed)


def with_cb() -> nn.Module:
    backbone = dict(
        type='mmdet.PyramidVisionTransformer', num_layers=[1, 1, 1, 1], embed_dims=8,
        num_heads=[1, 1, 2, 2],
    )  # fmt: skip
    return MODELS.build(dict(type='WithCB', backbone=backbone))


BACKBONES = {
    'pyramid': lambda: vit(out_indices=(0, 1), pyramid=[4, 0.5]),
    **{f'broadcast {kind}': lambda kind=kind: vit(broadcast=kind) for kind in BROADCASTS},
    **{
        f'position {place}': lambda place=place: vit(broadcast='cb', position=place)
        for place in POSITIONS
    },
    **{
        f'attention {kind}': lambda kind=kind: vit(attention=kind)
        for kind in (*UNIFORM_KINDS, *COMBINATIONS)
    },
    'registers': lambda: vit(broadcast='cb', prefix_in_mean=False, norm_out=True),
    'class token': lambda: ViTCB(ARCH, out_type='cls'),
    'windows': lambda: vit(broadcast='cb', window=3, global_blocks=[1]),
    'simple pyramid': lambda: nn.Sequential(vit(), SimplePyramid(24, 8)),
    'WithCB': with_cb,
    **{name: lambda s=system: timm_host(*s) for name, system in (SYSTEMS | HOSTS).items()},
}


#: With blocks that are computed again in the backward pass.
RECOMPUTED = {
    'ViTCB': lambda: vit(broadcast='cb', with_cp=True),
    'windows': lambda: vit(broadcast='cb', window=3, global_blocks=[1], with_cp=True),
    'TimmCB': lambda: TimmCB(
        'deit_small_distilled_patch16_224', 'cb', with_cp=True,
        model_kwargs=dict(embed_dim=24, depth=4, num_heads=2),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ('name', 'again'), [*((n, False) for n in BACKBONES), *((n, True) for n in RECOMPUTED)]
)
def test_backbones(name, again):
    init_default_scope('mmseg')
    model = (RECOMPUTED if again else BACKBONES)[name]().train()
    for half in (None, torch.float16):
        maps = list(tensors_in(forward_on_cuda(model, (2, 3, 64, 64), half)))
        assert maps
        assert {x.device for x in maps} == {torch.device(CUDA)}
    step_on_second(model, (2, 3, 64, 64), again)
    grads = {p.grad.device for p in model.parameters() if p.grad is not None}
    assert grads == {torch.device(SECOND_DEVICE)}


class PlantedAttribute(nn.Module):
    """A constant that ``model.to`` does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.scale = torch.ones(4, 1, 1)

    def forward(self, x):
        return self.conv(x) * self.scale


class PlantedResult(PlantedAttribute):
    """A constant made in the forward pass, without a device."""

    def forward(self, x):
        return self.conv(x) * torch.ones(4, 1, 1)


@pytest.mark.parametrize('kind', [PlantedAttribute, PlantedResult])
def test_a_planted_constant_is_caught(kind):
    """The test of the test."""
    with pytest.raises((RuntimeError, AssertionError), match=r'device|FakeTensor'):
        forward_on_cuda(kind(), (1, 3, 4, 4), None)
    with pytest.raises((RuntimeError, AssertionError), match=r'device|FakeTensor'):
        step_on_second(kind(), (1, 3, 4, 4))


def head(kind: str, channels: int = 16, labels: int = 7, sampler=None, **loss) -> nn.Module:
    init_default_scope('mmseg')
    options = dict(in_channels=[8] * 4, in_index=[0, 1, 2, 3], pool_scales=(1, 2))
    if 'FCN' in kind:
        options = dict(in_channels=8, in_index=2, num_convs=1, concat_input=False)
    return MODELS.build(
        dict(type=kind, channels=channels, num_classes=labels, norm_cfg=dict(type='BN'),
             align_corners=False, sampler=sampler,
             loss_decode={'type': 'CrossEntropyLoss', 'loss_name': 'loss_ce', **loss}, **options)
    )  # fmt: skip


def features(device: str, width: int = 8, finest: int = 16, batch: int = 2) -> list[torch.Tensor]:
    return [
        torch.empty(batch, width, finest >> i, finest >> i, device=device, requires_grad=True)
        for i in range(4)
    ]


def samples(device: str, side: int = 64, batch: int = 2) -> list[SegDataSample]:
    labels = torch.empty(batch, 1, side, side, dtype=torch.long, device=device)
    return [SegDataSample(gt_sem_seg=PixelData(data=label)) for label in labels]


@pytest.mark.parametrize('kind', ['FastUPerHead', 'FastFCNHead'])
@pytest.mark.parametrize(
    'loss',
    [
        {},
        {'avg_non_ignore': True},
        {'class_weight': [1.0] * 7},
        # Shapes that depend on values: what may be selected is, which keeps every tensor in use.
        {'sampler': dict(type='OHEMPixelSampler', thresh=0.7, min_kept=100)},
        {'sampler': dict(type='OHEMPixelSampler', min_kept=100)},
        {'use_sigmoid': True},
        {'type': 'LovaszLoss', 'classes': 'all', 'reduction': 'none'},
        {'type': 'DiceLoss'},
    ],
    ids=str,
)
def test_heads_and_losses(kind, loss):
    model = head(kind, **loss).train()
    for half in (None, torch.float16, torch.bfloat16):
        with counted(), AllSelected():
            move_to_fake(model, CUDA)
            with cuda_autocast(half) if half else contextlib.nullcontext():
                losses = model.loss(features(CUDA), samples(CUDA), {})
        assert {x.device for x in tensors_in(losses)} == {torch.device(CUDA)}
        assert losses['loss_ce'].dtype == torch.float32
    with counted(), AllSelected():
        move_to_fake(model, SECOND_DEVICE)
        model.loss(features(SECOND_DEVICE), samples(SECOND_DEVICE), {})['loss_ce'].sum().backward()
    assert {p.grad.device for p in model.parameters()} == {torch.device(SECOND_DEVICE)}


def operations(device: str, half: torch.dtype) -> list[tuple[str, int]]:
    """Names and sizes of numbers of the operations of a segmentor's forward pass."""
    parts = nn.ModuleList([vit(broadcast='cb'), head('FastUPerHead'), head('FastFCNHead')]).eval()
    with counted() as counter:
        move_to_fake(parts, device)
        cast = cuda_autocast(half) if device == CUDA else SecondDeviceAutocast(half)
        with cast:
            parts[0](torch.empty(2, 3, 64, 64, device=device))
            for one in parts[1:]:
                one.loss(features(device), samples(device), {})
    found = [(cost.name.replace('cudnn', 'native'), cost.itemsize) for cost in counter.costs]
    assert len(found) > 100
    return found


def test_the_second_device_casts_as_cuda_does():
    """The cost model counts under an autocast of our own, since CUDA's backward needs a GPU."""
    ours, theirs = (operations(device, torch.float16) for device in (SECOND_DEVICE, CUDA))
    assert Counter(ours) == Counter(theirs)


def kernels(kind: str, precision: str) -> int:
    """Kernels of a head of the paper's size and its loss, forward and backward."""
    half = torch.bfloat16 if precision == 'bf16' else None
    model = head(kind, channels=512, labels=150)
    with Precision(precision, 'cuda').products(), counted() as counter:
        move_to_fake(model, SECOND_DEVICE)
        for _ in range(2):  # the first one fills caches
            counter.costs.clear()
            with SecondDeviceAutocast(half) if half else contextlib.nullcontext():
                maps, truth = features(SECOND_DEVICE, finest=128), samples(SECOND_DEVICE, 512)
                loss = model.loss(maps, truth, {})['loss_ce']
            loss.sum().backward()
    return counter.kernels


@pytest.mark.parametrize('precision', ['tf32', 'bf16'])
def test_kernels_of_heads_and_losses_are_bounded(precision):
    """The loss in chunks of a CPU's cache took 1,700 of them for each head."""
    fcn = kernels('FCNHead', precision)
    assert kernels('FastFCNHead', precision) <= fcn + 15
    assert kernels('FastUPerHead', precision) <= kernels('UPerHead', precision) + 100
    assert fcn < 120


def test_memory_bounds_the_chunks_of_a_gpu():
    """Sixteen images of 512 × 512 with 150 classes are 2.5 GB upsampled: not at once."""
    with counted() as counter:
        logits = torch.empty(16, 150, 128, 128, device=SECOND_DEVICE, requires_grad=True)
        labels = torch.empty(16, 512, 512, dtype=torch.long, device=SECOND_DEVICE)
        UpsampledCrossEntropy.apply(logits, labels, 255, False)[0].sum().backward()
    assert sum(cost.name == '_log_softmax' for cost in counter.costs) == 3
    assert counter.kernels < 120


def test_where_torch_multiplies_more_slowly_than_it_convolves_the_head_only_convolves():
    """By torch's default, products are in float32 and convolutions in TF32, eight times faster."""
    model = head('FastUPerHead', channels=512, labels=150).eval()
    names = {}
    for device, precision in ((CUDA, None), (CUDA, 'tf32'), (CUDA, 'fp32')):
        setting = Precision(precision, 'cuda').products() if precision else contextlib.nullcontext()
        with setting, counted() as counter:
            move_to_fake(model, device)
            model(features(device, finest=128))
        names[precision] = {cost.name for cost in counter.costs}
    assert 'baddbmm' not in names[None]
    assert 'baddbmm' in names['tf32']
    assert 'baddbmm' in names['fp32']
