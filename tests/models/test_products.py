"""Products by MKL and by oneDNN: the same numbers, and the same bound on rounding."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cb_mm.apis.benchmark_report import count_multiplications
from cb_mm.models.ops import products, winograd


@pytest.fixture(params=['MKL', 'oneDNN'])
def library(request, monkeypatch):
    """Compute with one of the two, whatever the processor prefers."""
    onednn = request.param == 'oneDNN'
    if onednn and not hasattr(torch.ops.mkldnn, '_linear_pointwise'):
        pytest.skip('this torch has no oneDNN')
    for module in (products, winograd):
        monkeypatch.setattr(module, 'mkl_is_slow', lambda: onednn)
    return request.param


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
    # Forward, and backward for the image: sums of at most 256 channels each.
    sizes = {shape[1:] for shape in seen}
    expected = {(256, 280, 256), (44, 280, 44), (256, 300, 256), (24, 300, 24)}
    assert sizes == (expected if library == 'oneDNN' else set())


def test_counted_as_the_work_that_it_is(library):
    x, weight = torch.randn(2, 40, 24), torch.randn(16, 24)
    found = count_multiplications(lambda: products.product(x, weight, torch.randn(16)))
    assert found == 2 * 40 * 24 * 16


def test_it_is_a_rule_of_the_processor():
    products.mkl_is_slow.cache_clear()
    assert products.mkl_is_slow() is products.mkl_is_slow()
    if torch.backends.cpu.get_cpu_capability() != 'AVX512':
        assert not products.mkl_is_slow()
