"""Convolutions in evaluation: the same results in place, and other cases left alone."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from mmengine.registry import init_default_scope
from mmseg.registry import MODELS
from torch import nn

from cb_mm.models.heads import fast_uper_head
from cb_mm.models.heads.fast_uper_head import evaluated
from cb_mm.models.ops import winograd
from cb_mm.models.ops.evaluated_conv import conv_evaluated
from cb_mm.models.ops.finish import Finish
from cb_mm.models.ops.upsampled_conv import conv_upsampled
from cb_mm.models.ops.winograd import winograd_conv2d

CHANNELS = 128


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def weight() -> nn.Parameter:
    return nn.Parameter(torch.randn(CHANNELS, CHANNELS, 3, 3) / 34)


def image(height: int = 33, width: int = 34, channels: int = CHANNELS, batch: int = 1):
    return torch.randn(batch, channels, height, width)


@pytest.mark.parametrize('threads', [1, 2])
@pytest.mark.parametrize('size', [(33, 34), (8, 130), (32, 32), (130, 9), (50, 51)])
@pytest.mark.parametrize('finish', ['none', 'bias', 'norm', 'norm and activation'])
def test_equals_the_convolution(weight, size, finish, threads):
    scale, shift = torch.rand(CHANNELS) + 0.5, torch.randn(CHANNELS)
    end = {
        'none': Finish(), 'bias': Finish(None, shift), 'norm': Finish(scale, shift),
        'norm and activation': Finish(scale, shift, relu=True),
    }[finish]  # fmt: skip
    x = image(*size)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            ours = conv_evaluated([x], weight, end)
    finally:
        torch.set_num_threads(before)
    theirs = F.conv2d(x, weight, padding=1)
    if end.scale is not None:
        theirs = theirs * scale[:, None, None]
    if end.shift is not None:
        theirs = theirs + shift[:, None, None]
    theirs = theirs.relu() if end.relu else theirs
    assert theirs.abs().max() > 1
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5)


@pytest.mark.parametrize('align_corners', [False, True])
@pytest.mark.parametrize('first', [(32, 36), (35, 33)])
def test_several_maps(first, align_corners):
    """Some are upsampled before and some after, in one sum."""
    sizes = [first, *((-(-first[0] // n), -(-first[1] // n)) for n in (2, 4, 8))]
    maps = [image(*size, channels=CHANNELS + 8 * i) for i, size in enumerate(sizes)]
    channels = sum(x.shape[1] for x in maps)
    weight = nn.Parameter(torch.randn(CHANNELS, channels, 3, 3) / 70)
    with torch.no_grad():
        ours = conv_evaluated(maps, weight, Finish(), align_corners)
        theirs = conv_upsampled([m.double() for m in maps], weight.double(), None, align_corners)
    torch.testing.assert_close(ours, theirs.float(), rtol=0, atol=2e-5)


def test_one_by_one():
    weight, scale, shift = (torch.randn(n) for n in ((40, 24, 1, 1), (40,), (40,)))
    x = image(channels=24)
    with torch.no_grad():
        ours = conv_evaluated([x], nn.Parameter(weight), Finish(scale, shift, relu=True))
    theirs = (F.conv2d(x, weight) * scale[:, None, None] + shift[:, None, None]).relu()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5)


def test_nothing_is_kept(weight):
    """Weights change without notice, as averaged ones are swapped in."""
    x = image()
    with torch.no_grad():
        before = conv_evaluated([x], weight, Finish())
        weight.data.copy_(torch.randn_like(weight))
        ours = conv_evaluated([x], weight, Finish())
    assert not torch.equal(ours, before)
    torch.testing.assert_close(ours, F.conv2d(x, weight.detach(), padding=1), rtol=0, atol=1e-3)


def test_inference_mode_serves_training(weight):
    """Constants that were made in inference mode take part in gradients later."""
    winograd._transforms.cache_clear()
    x = image(64, 64)
    with torch.inference_mode():
        first = conv_evaluated([x], weight, Finish())
    winograd_conv2d(x, weight).sum().backward()
    assert weight.grad.abs().sum() > 0
    weight.requires_grad_(False)
    assert torch.equal(conv_evaluated([x], weight, Finish()), first)


def test_rounding_error_at_the_paper_width():
    """9e-6 for outputs up to 5; the usual points 0, ±1, ±2 have four times that."""
    weight = torch.randn(512, 512, 3, 3) / 68
    x = image(32, 32, channels=512)
    with torch.no_grad():
        ours = conv_evaluated([x], weight, Finish())
        exact = F.conv2d(x[:, :, :9, :9].double(), weight.double(), padding=1)[:, :, :8, :8]
    assert 4 < exact.abs().max() < 6
    assert (ours[:, :, :8, :8] - exact).abs().max() < 1.5e-5


def test_leaves_everything_else_alone(weight):
    x = image()
    assert conv_evaluated([x], weight, Finish()) is None  # a gradient is wanted
    with torch.no_grad():
        assert conv_evaluated([x.double()], nn.Parameter(weight.double()), Finish()) is None
        assert conv_evaluated([x[:, :, :9, :9]], weight, Finish()) is None  # too small
        meta = nn.Parameter(weight.to('meta'))
        assert conv_evaluated([x.to('meta')], meta, Finish()) is None
        with torch.autocast('cpu', torch.bfloat16):
            assert conv_evaluated([x], weight, Finish()) is None
    weight.requires_grad_(False)
    assert conv_evaluated([x], weight, Finish(shift=nn.Parameter(torch.ones(CHANNELS)))) is None
    assert conv_evaluated([x.requires_grad_()], weight, Finish()) is None


def head(**options) -> nn.Module:
    init_default_scope('mmseg')
    torch.manual_seed(0)
    built = MODELS.build(
        dict(type='FastUPerHead', in_channels=[16] * 4, in_index=[0, 1, 2, 3], channels=CHANNELS,
             num_classes=5, norm_cfg=dict(type='BN'), align_corners=False, pool_scales=(1, 2),
             **options)
    )  # fmt: skip
    for module in built.modules():  # statistics as after training, none of them 0 or 1
        if isinstance(module, nn.BatchNorm2d):
            for values in (module.weight, module.bias, module.running_mean, module.running_var):
                nn.init.uniform_(values.data, 0.2, 1.0)
    return built.eval()


def levels():
    return [torch.randn(1, 16, 36 >> i, 40 >> i) for i in range(4)]


def ways(model, maps, monkeypatch):
    """Logits with and without what is done in place."""
    with torch.no_grad():
        ours = model(maps)
        with monkeypatch.context() as patch:
            patch.setattr(fast_uper_head, 'conv_evaluated', lambda *_: None)
            theirs = model(maps)
    return ours, theirs


@pytest.mark.parametrize('norm', [dict(type='BN'), None], ids=['norm', 'bias'])
def test_head(norm, monkeypatch):
    model = head()
    if norm is None:
        model = head(act_cfg=dict(type='ReLU'))
        for module in model.modules():
            if getattr(module, 'with_norm', False):
                module.norm_name, module.with_norm = None, False
                module.conv.bias = nn.Parameter(torch.randn(CHANNELS))
    calls = []
    real = fast_uper_head.conv_evaluated
    monkeypatch.setattr(
        fast_uper_head, 'conv_evaluated', lambda *a: calls.append(real(*a)) or calls[-1]
    )
    maps = levels()
    ours, theirs = ways(model, maps, monkeypatch)
    # Those at stride 4: lateral, 3×3, bottleneck, classifier.
    assert sum(one is not None for one in calls) == 4
    assert (ours - theirs).abs().max() < 1e-4 * theirs.abs().max()
    assert not torch.equal(ours, theirs)


class Recorder:
    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def __call__(self, _module, _inputs, output) -> None:
        self.seen.append(output)


@pytest.mark.parametrize('part', ['norm', 'activate'])
def test_hooks_are_called(part, monkeypatch):
    model, maps, record = head(), levels(), Recorder()
    getattr(model.fpn_bottleneck, part).register_forward_hook(record)
    ours, theirs = ways(model, maps, monkeypatch)
    assert len(record.seen) == 2
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_other_norms_and_activations_run_as_they_are(monkeypatch):
    for options in ({'act_cfg': dict(type='GELU')}, {}):
        model = head(**options)
        if not options:
            model.fpn_bottleneck.norm.track_running_stats = False
            model.fpn_bottleneck.norm.running_mean = None
            model.fpn_bottleneck.norm.running_var = None
        assert evaluated(model.fpn_bottleneck) is None
        ours, theirs = ways(model, levels(), monkeypatch)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert evaluated(head().train().fpn_bottleneck) is None
