"""The switches that make a model faster keep its result."""

from __future__ import annotations

import copy

import pytest
import torch
from mmengine.registry import init_default_scope
from tool import SMALL_UPERNET, write_config

from cb_mm.config.loading import load_config
from cb_mm.engine.acceleration import compile_parts, use_channels_last
from cb_mm.errors import UserError


@pytest.fixture(scope='module')
def segmentor(tmp_path_factory):
    from mmengine.registry import MODELS

    config = load_config(write_config(tmp_path_factory.mktemp('speed'), SMALL_UPERNET))
    init_default_scope('mmseg')
    torch.manual_seed(0)
    return MODELS.build(config.model).eval()


def logits(model) -> torch.Tensor:
    images = torch.randn(2, 3, 48, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return model(images, mode='tensor')


def test_channels_last(segmentor):
    model = copy.deepcopy(segmentor)
    use_channels_last(model)
    assert model.state_dict().keys() == segmentor.state_dict().keys()
    weight = model.auxiliary_head.convs[0].conv.weight
    assert weight.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(logits(model), logits(segmentor), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_compile(segmentor, monkeypatch):
    """Graphs are made but not turned into C++, so that no compiler is needed here."""
    model, real, made = copy.deepcopy(segmentor), torch.compile, []

    def compiled(function):
        made.append(function)
        return real(function, backend='aot_eager')

    monkeypatch.setattr(torch, 'compile', compiled)
    monkeypatch.setattr('cb_mm.engine.acceleration.require_compiler', lambda: None)
    compile_parts(model)
    assert len(made) == 3
    assert model.state_dict().keys() == segmentor.state_dict().keys()
    torch.testing.assert_close(logits(model), logits(segmentor), rtol=1e-4, atol=1e-5)


def test_compile_without_a_compiler(segmentor, monkeypatch):
    monkeypatch.setenv('CXX', '/bin/false')
    monkeypatch.setattr('torch._inductor.config.cpp.cxx', (None, '/bin/false'))
    with pytest.raises(UserError, match=r'C\+\+ compiler'):
        compile_parts(copy.deepcopy(segmentor))
