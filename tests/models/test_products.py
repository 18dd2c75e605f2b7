"""Products by MKL and by oneDNN: the same numbers, and the same bound on rounding."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from cb_mm.apis.benchmark_report import count_multiplications
from cb_mm.models.backbones import fast_products
from cb_mm.models.ops import attention, products, upsampled_conv, winograd
from cb_mm.models.ops.attention import attend


@pytest.fixture(params=['MKL', 'oneDNN'])
def library(request, monkeypatch):
    """Compute with one of the two, whatever the processor prefers."""
    onednn = request.param == 'oneDNN'
    if onednn and not hasattr(torch.ops.mkldnn, '_linear_pointwise'):
        pytest.skip('this torch has no oneDNN')
    for module in (attention, fast_products, products, upsampled_conv, winograd):
        monkeypatch.setattr(module, 'mkl_is_slow', lambda: onednn)
    return request.param


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def watched(monkeypatch) -> list:
    """Return a list that gets the shapes of all products of oneDNN."""
    seen, original = [], products._onednn

    def watch(x, weight, bias):
        seen.append((*x.shape, *weight.shape))
        return original(x, weight, bias)

    monkeypatch.setattr(products, '_onednn', watch)
    return seen


def test_a_product(library, monkeypatch):
    seen = watched(monkeypatch)
    x, weight, bias = torch.randn(2, 40, 24), torch.randn(16, 24), torch.randn(16)
    found = products.product(x, weight, bias)
    exact = F.linear(x.double(), weight.double(), bias.double())
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=1e-5)
    torch.testing.assert_close(products.product(x[:, :2], weight), F.linear(x[:, :2], weight))
    assert seen == ([(2, 40, 24, 16, 24)] if library == 'oneDNN' else [])  # not for few rows


@pytest.mark.parametrize('add', [False, True])
@pytest.mark.parametrize('channels', [[24], [16, 8]])
def test_products_of_parts_of_the_channels(library, add, channels, monkeypatch):
    seen = watched(monkeypatch)
    x = torch.randn(3, 81, 24)[:, :80]  # between two matrices is room
    weights = [torch.randn(3, 16, size).transpose(1, 2) for size in channels]
    before = torch.randn(3, 80, 16)
    out = before.clone()
    products.products(x, weights, out, add)
    exact = x.double() @ torch.cat(weights, 1).double() + (before if add else 0)
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=1e-5)
    calls = [(80, size, 16, size) for size in channels for _ in range(3)]
    assert seen == (calls if library == 'oneDNN' else [])


def test_weights_in_another_order_are_left_to_mkl(library, monkeypatch):
    seen = watched(monkeypatch)
    x, weight, out = torch.randn(2, 64, 24), torch.randn(2, 24, 16), torch.empty(2, 64, 16)
    products.products(x, [weight], out)
    torch.testing.assert_close(out, x @ weight)
    assert not seen


def test_what_is_added_up_at_a_time(library):
    assert products.longest_sum(512) == (256 if library == 'oneDNN' else 512)
    assert products.longest_sum(128) == 128


def test_the_winograd_algorithm_and_its_gradients(library, monkeypatch):
    seen = watched(monkeypatch)
    x = torch.randn(1, 300, 33, 35, requires_grad=True)
    weight = torch.randn(280, 300, 3, 3, requires_grad=True)
    out = winograd.winograd_conv2d(x, weight)
    grad = torch.randn_like(out)
    found = torch.autograd.grad(out, (x, weight), grad)
    own = x.detach().double().requires_grad_(), weight.detach().double().requires_grad_()
    wanted = F.conv2d(*own, padding=1)
    exact = (wanted, *torch.autograd.grad(wanted, own, grad.double()))
    for one, other in zip((out, *found), exact, strict=True):
        assert float((one - other).detach().norm() / other.detach().norm()) < 4e-6
    # Forward, and backward for the image: sums of at most 256 channels each; for the weights: of
    # the 81 tiles.
    sizes = {shape[1:] for shape in seen}
    expected = {(256, 280, 256), (44, 280, 44), (256, 300, 256), (24, 300, 24), (81, 300, 81)}
    assert sizes == (expected if library == 'oneDNN' else set())


def test_counted_as_the_work_that_it_is(library):
    x, weight = torch.randn(2, 40, 24), torch.randn(16, 24)
    found = count_multiplications(lambda: products.product(x, weight, torch.randn(16)))
    assert found == 2 * 40 * 24 * 16


@pytest.mark.parametrize('channels', [24, 200])  # above 192, its gradients are oneDNN's too
def test_gradients_of_a_product(library, channels, monkeypatch):
    seen = watched(monkeypatch)
    x = torch.randn(2, 40, channels, requires_grad=True)
    weight = torch.randn(channels + 8, channels, requires_grad=True)
    bias = torch.randn(channels + 8, requires_grad=True)
    given = x, weight, bias
    found = torch.autograd.grad(products.product(*given).square().sum(), given)
    exact = [one.detach().double().requires_grad_() for one in given]
    wanted = torch.autograd.grad(F.linear(*exact).square().sum(), exact)
    for one, other in zip(found, wanted, strict=True):
        assert float((one - other).norm() / other.norm()) < 1e-6
    count = {24: 2, 200: 3}[channels]  # forward, the input, and the weights where it pays
    assert len(seen) == (count if library == 'oneDNN' else 0)


def test_the_gradient_of_a_sum(library):
    """It comes as one number, expanded."""
    x, weight = torch.randn(80, 24, requires_grad=True), torch.randn(16, 24)
    products.product(x, weight).sum().backward()
    torch.testing.assert_close(x.grad, weight.sum(0).expand(80, -1))


def test_what_is_frozen_gets_no_gradient(library):
    x, weight = torch.randn(80, 24), torch.randn(16, 24, requires_grad=True)
    products.product(x, weight, torch.randn(16)).sum().backward()
    torch.testing.assert_close(weight.grad, x.sum(0).expand(16, -1))


def test_autocast_and_other_numbers_are_torchs(library, monkeypatch):
    seen = watched(monkeypatch)
    x, weight = torch.randn(3, 80, 24), torch.randn(16, 24)
    with torch.autocast('cpu'):
        assert products.product(x, weight).dtype == torch.bfloat16
    assert products.product(x.double(), weight.double()).dtype == torch.float64
    assert not seen


@pytest.mark.filterwarnings('ignore:There is a performance drop')
def test_transforms_of_functions(library):
    x, weight = torch.randn(3, 80, 24), torch.randn(16, 24)
    mapped = torch.vmap(lambda one: products.product(one, weight))(x)
    torch.testing.assert_close(mapped, F.linear(x, weight))

    def gradient(multiply):
        return torch.func.grad(lambda w: multiply(x, w).square().sum())(weight)

    torch.testing.assert_close(gradient(products.product), gradient(F.linear))


def test_a_backbone_computes_the_same_in_training(library, monkeypatch):
    from cb_mm.models import ViTCB

    arch = dict(patch_size=8, embed_dim=192, depth=2, num_heads=3, img_size=64)
    torch.manual_seed(0)
    seen = watched(monkeypatch)
    ours = ViTCB(arch, 'cb', out_indices=(0, 1), pyramid=False)
    plain = ViTCB(arch, 'cb', out_indices=(0, 1), pyramid=False)
    plain.load_state_dict(ours.state_dict())
    fast_products.use_fast_products(torch.nn.Sequential(ours))
    images = torch.randn(2, 3, 64, 64)
    for model in (ours, plain):
        sum(each.square().mean() for each in model(images)).backward()
        if model is ours:
            # Of 8 layers: forward, the image's gradient, the weights'.
            assert len(seen) == (3 * 8 if library == 'oneDNN' else 0)
            seen.clear()
    assert not seen
    for one, other in zip(ours.parameters(), plain.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None:
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-6)


def test_other_backbones_keep_torchs_layers(library):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.TransformerEncoderLayer(8, 2))
    fast_products.use_fast_products(model)
    assert not any(type(module) is fast_products.FastLinear for module in model.modules())


def test_convolution_over_maps_of_several_sizes(library):
    maps = [torch.randn(1, 16, 32, 32), torch.randn(1, 24, 16, 16), torch.randn(1, 8, 8, 8)]
    weight = torch.randn(32, 48, 3, 3)
    found = upsampled_conv.conv_upsampled(maps, weight)
    resized = [upsampled_conv.resize(x, (32, 32), False) for x in maps]
    wanted = F.conv2d(torch.cat(resized, 1).double(), weight.double(), padding=1)
    assert float((found - wanted).norm() / wanted.norm()) < 1e-6


def test_it_is_a_rule_of_the_processor():
    products.mkl_is_slow.cache_clear()
    assert products.mkl_is_slow() is products.mkl_is_slow()
    if torch.backends.cpu.get_cpu_capability() != 'AVX512':
        assert not products.mkl_is_slow()


def tokens_of(options: dict, tokens: int) -> tuple:
    from timm.layers import Attention

    torch.manual_seed(0)
    layer = Attention(96, num_heads=3, qkv_bias=True, norm_layer=torch.nn.LayerNorm, **options)
    return layer.eval(), 3 * torch.randn(2, tokens, 96)


@pytest.mark.parametrize('options', [{}, dict(qk_norm=True), dict(scale_norm=True)])
@pytest.mark.parametrize('tokens', [401, 512, 300])
def test_attention(library, options, tokens, monkeypatch, one_thread):
    layer, x = tokens_of(options, tokens)
    with torch.no_grad():
        exact = copy.deepcopy(layer).double()(x.double())
        layer.__class__ = fast_products.FastAttention
        called = []
        monkeypatch.setattr(fast_products, 'attend', lambda *a: called.append(1) or attend(*a))
        found = layer(x)
    assert float((found - exact).norm() / exact.norm()) < 1e-6
    assert bool(called) == (library == 'oneDNN' and tokens > 400)


def test_attention_that_is_masked_gated_or_trained_is_timms(library, monkeypatch, one_thread):
    monkeypatch.setattr(fast_products, 'attend', None)  # a call would fail
    layer, x = tokens_of({}, 401)
    gated, _ = tokens_of(dict(gated=True), 401)
    mask = torch.ones(401, 401, dtype=torch.bool).tril()
    with torch.no_grad():
        wanted = layer(x, attn_mask=mask), gated(x)
    plain = torch.autograd.grad(layer(x).square().sum(), layer.qkv.weight)[0]
    for each in (layer, gated):
        each.__class__ = fast_products.FastAttention
    with torch.no_grad():
        assert torch.equal(layer(x, attn_mask=mask), wanted[0])
        assert torch.equal(layer(x, mask), wanted[0])
        assert torch.equal(gated(x), wanted[1])
    assert torch.equal(torch.autograd.grad(layer(x).square().sum(), layer.qkv.weight)[0], plain)
