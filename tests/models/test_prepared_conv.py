"""Convolutions with weights that were transformed once: the same results, and never stale ones."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest
import torch
import torch.nn.functional as F
from mmengine.registry import init_default_scope
from mmseg.registry import MODELS
from torch import nn

from cb_mm.models.heads import fast_uper_head
from cb_mm.models.heads.fast_uper_head import evaluated
from cb_mm.models.ops import prepared as prepared_module
from cb_mm.models.ops.finish import Finish
from cb_mm.models.ops.prepared import prepared
from cb_mm.models.ops.prepared_conv import conv_prepared
from cb_mm.models.ops.upsampled_conv import conv_upsampled, taps_of
from cb_mm.models.ops.winograd import winograd_kernel

CHANNELS = 128


@pytest.fixture
def weight() -> nn.Parameter:
    return nn.Parameter(torch.randn(CHANNELS, CHANNELS, 3, 3) / 34)


def image(height: int = 33, width: int = 34, channels: int = CHANNELS, batch: int = 1):
    return torch.randn(batch, channels, height, width)


@pytest.mark.parametrize('threads', [1, 2])
@pytest.mark.parametrize('size', [(33, 34), (8, 130), (32, 32), (130, 9)])
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
            ours = conv_prepared([x], weight, end)
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
        ours = conv_prepared(maps, weight, Finish(), align_corners)
        theirs = conv_upsampled([m.double() for m in maps], weight.double(), None, align_corners)
    assert {make for make, *_ in prepared(weight)._made} == {winograd_kernel, taps_of}
    torch.testing.assert_close(ours, theirs.float(), rtol=0, atol=2e-5)


def test_one_by_one():
    weight, scale, shift = (torch.randn(n) for n in ((40, 24, 1, 1), (40,), (40,)))
    x = image(channels=24)
    with torch.no_grad():
        ours = conv_prepared([x], nn.Parameter(weight), Finish(scale, shift, relu=True))
    theirs = (F.conv2d(x, weight) * scale[:, None, None] + shift[:, None, None]).relu()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5)


def swap_data(weight):
    weight.data = torch.randn_like(weight.data)


def load(weight):
    module = nn.Conv2d(CHANNELS, CHANNELS, 3, bias=False)
    module.weight = weight
    module.load_state_dict({'weight': torch.randn_like(weight)})


def load_by_assignment(weight):
    module = nn.Conv2d(CHANNELS, CHANNELS, 3, bias=False)
    module.weight = weight
    module.double().float()
    with torch.no_grad():
        module.weight.mul_(2)


def one_step(weight):
    weight.grad = torch.ones_like(weight)
    torch.optim.SGD([weight], lr=0.1).step()
    weight.grad = None


def one_number(weight):
    """The least change there is, in a place that no counter of changes sees."""
    flat = weight.data.view(-1)
    flat[1234] = torch.nextafter(flat[1234], torch.tensor(9.0))


CHANGES = {
    'in place': lambda w: w.mul_(2),
    'in place, uncounted': lambda w: w.data.mul_(2),
    'swapped in, as averaged weights are': lambda w: w.data.copy_(torch.randn_like(w)),
    'through numpy': lambda w: w.detach().numpy().__imul__(2),
    'other data': swap_data,
    'state dict': load,
    'other precision and back': load_by_assignment,
    'optimizer': one_step,
    'one number': one_number,
}


@pytest.mark.parametrize('name', CHANGES)
def test_never_stale(weight, name):
    x = image()
    with torch.no_grad():
        before = conv_prepared([x], weight, Finish())
        CHANGES[name](weight)
        ours = conv_prepared([x], weight, Finish())
        fresh = conv_prepared([x], nn.Parameter(weight.detach().clone()), Finish())
    assert torch.equal(ours, fresh)
    assert not torch.equal(ours, before)


def test_computed_once_while_nothing_changes(weight):
    x = image()
    with torch.no_grad():
        first = conv_prepared([x], weight, Finish())
        kept = prepared(weight)._made[winograd_kernel, 0, CHANNELS]
        again = conv_prepared([x], weight, Finish())
    assert prepared(weight)._made[winograd_kernel, 0, CHANNELS] is kept
    assert torch.equal(first, again)


def test_goes_with_its_weight():
    weight = nn.Parameter(torch.randn(CHANNELS, CHANNELS, 3, 3))
    with torch.no_grad():
        conv_prepared([image()], weight, Finish())
    kept = weakref.ref(prepared_module._kept[weight])
    del weight
    gc.collect()
    assert kept() is None


def test_forgets(weight):
    with torch.no_grad():
        conv_prepared([image()], weight, Finish())
    assert weight in prepared_module._kept
    prepared_module.forget_all()
    assert weight not in prepared_module._kept


def test_weights_of_inference_serve_other_modes(weight):
    x = image()
    with torch.inference_mode():
        first = conv_prepared([x], weight, Finish())
    with torch.no_grad():
        again = conv_prepared([x], weight, Finish())
    assert torch.equal(first, again)
    weight.requires_grad_(False)
    assert torch.equal(conv_prepared([x], weight, Finish()), first)


def test_leaves_everything_else_alone(weight):
    x = image()
    assert conv_prepared([x], weight, Finish()) is None  # a gradient is wanted
    with torch.no_grad():
        assert conv_prepared([x.double()], nn.Parameter(weight.double()), Finish()) is None
        assert conv_prepared([x], weight.detach(), Finish()) is None  # no parameter
        assert conv_prepared([x[:, :, :9, :9]], weight, Finish()) is None  # too small
        meta = nn.Parameter(weight.to('meta'))
        assert conv_prepared([x.to('meta')], meta, Finish()) is None
        with torch.autocast('cpu', torch.bfloat16):
            assert conv_prepared([x], weight, Finish()) is None
    weight.requires_grad_(False)
    assert conv_prepared([x], weight, Finish(shift=nn.Parameter(torch.ones(CHANNELS)))) is None
    assert conv_prepared([x.requires_grad_()], weight, Finish()) is None


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
    """Logits with and without prepared weights."""
    with torch.no_grad():
        ours = model(maps)
        with monkeypatch.context() as patch:
            patch.setattr(fast_uper_head, 'conv_prepared', lambda *_: None)
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
    real = fast_uper_head.conv_prepared
    monkeypatch.setattr(
        fast_uper_head, 'conv_prepared', lambda *a: calls.append(real(*a)) or calls[-1]
    )
    maps = levels()
    ours, theirs = ways(model, maps, monkeypatch)
    # Those at stride 4: lateral, 3×3, bottleneck.
    assert sum(one is not None for one in calls) == 3
    assert (ours - theirs).abs().max() < 1e-4 * theirs.abs().max()
    assert not torch.equal(ours, theirs)


def test_statistics_of_the_norm_are_not_kept():
    model, maps = head(), levels()
    with torch.no_grad():
        before = model(maps)
        norm = model.fpn_bottleneck.norm
        norm.running_mean.data.add_(1)
        norm.weight.data.mul_(2)
        after = model(maps)
        fresh = copy.deepcopy(model)(maps)
    assert (after - before).abs().max() > 1e-3
    assert torch.equal(after, fresh)


def test_after_training_the_new_weights_count():
    """A step, then evaluation, as a validation in the middle of a run."""
    model, maps = head(dropout_ratio=0), [m.repeat(2, 1, 1, 1) for m in levels()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with torch.no_grad():
        model(maps)
    assert prepared_module._kept.get(model.fpn_bottleneck.conv.weight) is not None
    model.train()(maps).square().mean().backward()
    # Training needs the memory for other things.
    assert prepared_module._kept.get(model.fpn_bottleneck.conv.weight) is None
    optimizer.step()
    with torch.no_grad():
        ours = model.eval()(maps)
        assert torch.equal(ours, copy.deepcopy(model)(maps))


def test_copies_pickles_and_state_dicts_know_nothing_of_it():
    model, maps = head(), levels()
    keys, size = list(model.state_dict()), len(pickle.dumps(model.state_dict()))
    whole = len(pickle.dumps(model.fpn_bottleneck.conv))
    with torch.no_grad():
        expected = model(maps)
    assert list(model.state_dict()) == keys
    assert len(pickle.dumps(model.state_dict())) == size
    assert len(pickle.dumps(model.fpn_bottleneck.conv)) == whole
    with torch.no_grad():
        assert torch.equal(copy.deepcopy(model)(maps), expected)


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


def test_compiles_without_breaks():
    model, maps = head(), levels()
    with torch.no_grad():
        expected = model(maps)
        compiled = torch.compile(model, fullgraph=True, backend='aot_eager')
        torch.testing.assert_close(compiled(maps), expected, rtol=1e-4, atol=1e-4)
