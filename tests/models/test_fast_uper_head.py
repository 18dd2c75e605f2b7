"""FastUPerHead gives what UPerHead gives, for less work, with the same checkpoints."""

from __future__ import annotations

from pathlib import Path

import forked
import pytest
import torch
import torch.nn.functional as F
from mmengine.registry import init_default_scope
from mmseg.registry import MODELS
from torch.utils.flop_counter import FlopCounterMode

from cb_mm.engine.optim.precision import Precision
from cb_mm.models.ops import upsampled_conv, winograd
from cb_mm.models.ops.upsampled_conv import conv_upsampled, shifted_upsampling
from cb_mm.models.ops.winograd import winograd_conv2d

TESTS = Path(__file__).resolve().parent

#: Heights and widths of four levels: halves, odd ones, rounded halves, thirds, tiny ones, equal
#: ones, and levels that grow.
PYRAMIDS = {
    'halves': [(32, 32), (16, 16), (8, 8), (4, 4)],
    'wide': [(16, 48), (8, 24), (4, 12), (2, 6)],
    'odd': [(27, 35), (14, 18), (7, 9), (4, 5)],
    'rounded_down': [(29, 23), (14, 11), (7, 5), (3, 2)],
    'thirds': [(30, 21), (10, 7), (4, 3), (1, 1)],
    'tiny': [(4, 3), (2, 2), (1, 1), (1, 1)],
    'one_pixel': [(1, 1), (1, 1), (1, 1), (1, 1)],
    'one_row': [(1, 40), (1, 20), (1, 10), (1, 5)],
    'equal': [(12, 12), (12, 12), (6, 6), (6, 6)],
    'growing': [(8, 8), (16, 16), (5, 20), (3, 3)],
}


def build(kind: str, channels: int = 48, **options):
    init_default_scope('mmseg')
    torch.manual_seed(0)
    cfg = dict(
        type=kind, in_channels=[24] * 4, in_index=[0, 1, 2, 3], channels=channels, num_classes=5
    )
    head = MODELS.build({**cfg, 'norm_cfg': dict(type='BN'), 'align_corners': False, **options})
    for module in head.modules():  # statistics as after training, none of them 0 or 1
        if isinstance(module, torch.nn.BatchNorm2d):
            for values in (module.weight, module.bias, module.running_mean, module.running_var):
                torch.nn.init.uniform_(values.data, 0.2, 1.0)
    torch.nn.init.normal_(head.conv_seg.weight, std=0.1)
    return head


def pair(**options):
    slow, fast = build('UPerHead', **options), build('FastUPerHead', **options)
    fast.load_state_dict(slow.state_dict())
    return slow, fast


def images(sizes, batch: int = 2, channels: int = 24, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(batch, channels, *size, generator=generator).to(dtype).requires_grad_()
        for size in sizes
    ]


def relative(ours: torch.Tensor, theirs: torch.Tensor, floor: float = 1e-12) -> float:
    return float((ours - theirs).norm() / theirs.norm().clamp_min(floor))


@pytest.mark.parametrize('align_corners', [False, True])
@pytest.mark.parametrize('sizes', PYRAMIDS.values(), ids=PYRAMIDS)
def test_outputs_equal(sizes, align_corners):
    slow, fast = pair(align_corners=align_corners)
    maps = images(sizes)
    with torch.inference_mode():
        difference = (fast.eval()(maps) - slow.eval()(maps)).abs().max()
    assert difference < 1e-4


@pytest.mark.parametrize('align_corners', [False, True])
@pytest.mark.parametrize('name', ['halves', 'odd', 'rounded_down', 'thirds', 'growing'])
def test_training_equals(name, align_corners):
    slow, fast = pair(align_corners=align_corners, dropout_ratio=0)
    ours, theirs = images(PYRAMIDS[name]), images(PYRAMIDS[name])
    results = []
    for head, maps in ((fast, ours), (slow, theirs)):
        logits = head.train()(maps)
        logits.square().mean().backward()
        results.append(logits.detach())
    assert (results[0] - results[1]).abs().max() < 1e-4
    gradients = {key: parameter.grad for key, parameter in slow.named_parameters()}
    # A norm over two values has no gradient but rounding; that is not compared with itself.
    floor = 1e-5 * max(gradient.norm() for gradient in gradients.values())
    for key, parameter in fast.named_parameters():
        assert relative(parameter.grad, gradients[key], floor) < 1e-3, key
    for our_map, their_map in zip(ours, theirs, strict=True):
        assert relative(our_map.grad, their_map.grad) < 1e-3
    buffers = dict(slow.named_buffers())  # the running statistics
    for key, values in fast.named_buffers():
        torch.testing.assert_close(values, buffers[key], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('kernel', [1, 3, 5])
@pytest.mark.parametrize('bias', [True, False])
def test_convolution_in_double(kernel, bias):
    """In double precision nothing but the identity itself can make a difference."""
    maps = images([(13, 10), (7, 5), (3, 4), (1, 1)], dtype=torch.float64)
    generator = torch.Generator().manual_seed(2)
    weight = torch.randn(
        6, 96, kernel, kernel, generator=generator, dtype=torch.float64, requires_grad=True
    )
    offset = torch.randn(6, generator=generator, dtype=torch.float64) if bias else None
    for align_corners in (False, True):
        ours = conv_upsampled(maps, weight, offset, align_corners)
        stack = torch.cat(
            [
                F.interpolate(m, (13, 10), mode='bilinear', align_corners=align_corners)
                for m in maps
            ],
            dim=1,
        )
        theirs = F.conv2d(stack, weight, offset, padding=kernel // 2)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11)
        leaves = [weight, *maps]
        direction = torch.randn(ours.shape, generator=generator, dtype=torch.float64)
        for ours_grad, their_grad in zip(
            torch.autograd.grad(ours, leaves, direction),
            torch.autograd.grad(theirs, leaves, direction),
            strict=True,
        ):
            torch.testing.assert_close(ours_grad, their_grad, rtol=0, atol=1e-10)


def test_interpolation_weights():
    weights = shifted_upsampling(2, 4, 3, False, torch.zeros(()))
    assert weights.shape == (4, 2, 3)
    middle = torch.tensor([[1, 0], [0.75, 0.25], [0.25, 0.75], [0, 1]])
    torch.testing.assert_close(weights[:, :, 1], middle)
    torch.testing.assert_close(weights[1:, :, 0], middle[:-1])
    assert not torch.stack([weights[0, :, 0], weights[-1, :, 2]]).any()  # the padding


def test_weights_of_inference_serve_training():
    upsampled_conv._cached_upsampling.cache_clear()
    head = build('FastUPerHead')
    maps = images(PYRAMIDS['halves'])
    with torch.inference_mode():
        head.eval()(maps)
    head.train()(maps).sum().backward()
    assert head.fpn_bottleneck.conv.weight.grad.abs().sum() > 0


def test_less_work_at_the_paper_size():
    """Multiplications at 512 x 512 pixels, 512 channels, counted on tensors without data."""
    counts = {}
    for kind in ('UPerHead', 'FastUPerHead'):
        with torch.device('meta'):
            head = build(kind, channels=512, in_channels=[384] * 4, num_classes=150).eval()
            maps = [torch.empty(1, 384, size, size) for size in (128, 64, 32, 16)]
        # As on a GPU whose products are as fast as its convolutions.
        with FlopCounterMode(display=False) as counter, Precision('tf32', 'cuda').products():
            head(maps)
        counts[kind] = counter.get_total_flops() / 2e9
    assert counts['UPerHead'] == pytest.approx(215, rel=0.03)
    assert counts['FastUPerHead'] < 0.55 * counts['UPerHead']


def test_small_maps_are_not_upsampled(monkeypatch):
    """Resized are the sums on the way down, and a pooled map that is larger than its level."""
    resized = []
    original = F.interpolate

    def watch(x, *args, **kwargs):
        if x.dim() == 4:
            resized.append(tuple(x.shape[2:]))
        return original(x, *args, **kwargs)

    monkeypatch.setattr(F, 'interpolate', watch)
    build('FastUPerHead').eval()(images(PYRAMIDS['halves']))
    assert resized == [(6, 6), (4, 4), (8, 8), (16, 16)]


@pytest.mark.parametrize('size', [(8, 8), (9, 14), (3, 5), (1, 1), (17, 4)])
@pytest.mark.parametrize('bias', [True, False])
def test_winograd(size, bias):
    """In double precision but for the points themselves, and within float32's rounding."""
    x, generator = images([size], channels=7)[0].detach(), torch.Generator().manual_seed(3)
    weight = torch.randn(5, 7, 3, 3, generator=generator)
    offset = torch.randn(5, generator=generator) if bias else None
    for dtype, error in ((torch.float64, 1e-12), (torch.float32, 1e-4)):
        numbers = [None if n is None else n.to(dtype) for n in (x, weight, offset)]
        expected = F.conv2d(*numbers, padding=1)
        torch.testing.assert_close(winograd_conv2d(*numbers), expected, rtol=0, atol=error)


@pytest.mark.parametrize('size', [(8, 8), (9, 14), (3, 5), (1, 1), (130, 136)])
@pytest.mark.parametrize('which', ['both', 'input', 'weight'])
def test_winograd_gradients(size, which):
    generator = torch.Generator().manual_seed(3)
    x, weight = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((2, 7, *size), (5, 7, 3, 3))
    )
    leaves = {'both': [x, weight], 'input': [x], 'weight': [weight]}[which]
    for leaf in leaves:
        leaf.requires_grad_()
    ours, theirs = winograd_conv2d(x, weight), F.conv2d(x, weight, padding=1)
    direction = torch.randn(ours.shape, generator=generator, dtype=torch.float64)
    for our_grad, their_grad in zip(
        torch.autograd.grad(ours, leaves, direction),
        torch.autograd.grad(theirs, leaves, direction),
        strict=True,
    ):
        torch.testing.assert_close(our_grad, their_grad, rtol=0, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(('channels', 'batch', 'size'), [(512, 1, (64, 68)), (128, 4, (28, 30))])
def test_outputs_equal_where_every_shorter_way_is_taken(channels, batch, size):
    """The paper's 512 channels, and the smallest that the Winograd algorithm is used for."""
    slow, fast = pair(channels=channels)
    maps = images([tuple(-(-side // 2**level) for side in size) for level in range(4)], batch=batch)
    with torch.no_grad():
        conv = fast.fpn_convs[0].conv
        assert winograd._pays(torch.zeros(batch, channels, *size), conv.weight)
        assert not winograd._pays(torch.zeros(1, channels, 28, 30), conv.weight)
        assert not winograd._pays(torch.zeros(batch, 64, *size), conv.weight[:64, :64])
        ours, theirs = fast.eval()(maps), slow.eval()(maps)
    assert 1 < theirs.std() < 100
    assert (ours - theirs).abs().max() < 1e-4 * theirs.abs().max()
    gradients = []
    for head in (fast, slow):
        head.eval()(maps).square().mean().backward()
        gradients.append({key: p.grad for key, p in head.named_parameters()})
    for key, gradient in gradients[1].items():
        assert relative(gradients[0][key], gradient) < 1e-3, key


def test_checkpoints_fit_both_ways():
    slow, fast = build('UPerHead'), build('FastUPerHead')
    assert slow.load_state_dict(fast.state_dict()) == fast.load_state_dict(slow.state_dict())
    assert list(slow.state_dict()) == list(fast.state_dict())
    assert isinstance(fast, type(slow))


def test_other_convolutions_run_as_they_are():
    slow, fast = pair(conv_cfg=dict(type='Conv2dAdaptivePadding'))
    maps = images(PYRAMIDS['odd'])
    torch.testing.assert_close(fast.eval()(maps), slow.eval()(maps))


@pytest.mark.slow
def test_bfloat16_autocast():
    """As near to float32 as UPerHead is. In a process of its own, for a virtual machine's sake."""
    code = (
        'import sys; sys.path.append("..")\n'
        'import torch, cb_mm\n'
        'from test_fast_uper_head import PYRAMIDS, images, pair, relative\n'
        'slow, fast = pair(dropout_ratio=0)\n'
        "maps = images(PYRAMIDS['halves'])\n"
        'exact = slow.train()(maps)\n'
        "with torch.autocast('cpu', torch.bfloat16):\n"
        '    theirs, ours = slow(maps), fast.train()(maps)\n'
        'assert ours.dtype == theirs.dtype == torch.bfloat16\n'
        'ours.float().square().mean().backward()\n'
        'assert all(p.grad.isfinite().all() for p in fast.parameters() if p.grad is not None)\n'
        'print(relative(ours.float(), exact), relative(theirs.float(), exact))\n'
    )
    done = forked.run('-c', code, cwd=TESTS, env=forked.WITHOUT_AMX)
    assert done.code == 0, done.err
    ours, theirs = map(float, done.out.splitlines()[-1].split())
    assert ours < 0.05
    assert ours < 2 * theirs


def test_compiles():
    """As one graph; turning that into machine code is slow, and not what could fail here."""
    slow, fast = pair(channels=16)
    maps = images(PYRAMIDS['odd'])
    compiled = torch.compile(fast.eval(), fullgraph=True, backend='aot_eager')
    with torch.no_grad():
        assert (compiled(maps) - slow.eval()(maps)).abs().max() < 1e-4


def test_trained_weights():
    """Train one head until it knows its classes; the other then gives the same logits."""
    slow, fast = pair(dropout_ratio=0)
    maps = [m.detach() for m in images(PYRAMIDS['odd'])]
    labels = sum(m.mean(dim=1)[:, :3, :3].abs().argmax(dim=2).sum(dim=1) for m in maps) % 5
    target = labels[:, None, None].expand(-1, 27, 35)
    optimizer = torch.optim.Adam(fast.parameters(), lr=3e-3)
    for _ in range(20):
        loss = F.cross_entropy(fast.train()(maps), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1
    slow.load_state_dict(fast.state_dict())
    with torch.no_grad():
        ours, theirs = fast.eval()(maps), slow.eval()(maps)
    assert (ours - theirs).abs().max() < 1e-4 * max(1, theirs.abs().max())
    assert torch.equal(ours.argmax(1), theirs.argmax(1))
