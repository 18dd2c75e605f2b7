"""CB_S in Hugging Face's ViLT: on image tokens, on text tokens, on both."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from cb_mm import add_context_broadcast, remove_context_broadcast

transformers = pytest.importorskip('transformers')

TEXT = 5


def vilt() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.ViltConfig(
        hidden_size=32, num_hidden_layers=4, num_attention_heads=2, intermediate_size=64,
        image_size=64, patch_size=16, vocab_size=50, max_position_embeddings=20, num_labels=7,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return transformers.ViltForQuestionAnswering(config).eval()


def batch() -> dict[str, Tensor]:
    """Two questions, one of three words; two images, one half as wide."""
    ids = torch.tensor([[2, 5, 6, 0, 0], [3, 4, 5, 6, 7]])
    pixels = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    pixel_mask = torch.ones(2, 64, 64, dtype=torch.long)
    pixel_mask[0, :, 32:] = 0
    return dict(
        input_ids=ids, attention_mask=(ids > 0).long(), pixel_values=pixels, pixel_mask=pixel_mask
    )


def run(model: nn.Module) -> Tensor:
    torch.manual_seed(1)  # the model chooses its patches, and its padding, at random
    return model(**batch()).logits


def spy(model: nn.Module, name: str) -> dict[str, Tensor]:
    """Output of a layer, with the broadcast and before it."""
    seen: dict[str, Tensor] = {}
    host = model.get_submodule(name)
    host.register_forward_hook(lambda m, args, out: seen.update(before=out), prepend=True)
    host.register_forward_hook(lambda m, args, out: seen.update(after=out))
    model.vilt.embeddings.register_forward_hook(
        lambda m, args, out: seen.update(real=out[1].bool())
    )
    return seen


@pytest.mark.parametrize('tokens', ['image', 'text', 'both'])
def test_mean_of_the_real_tokens_goes_to_the_chosen_ones(tokens):
    model = vilt()
    added = add_context_broadcast(model, 'cb_s', 'upper', tokens=tokens, scale_init=0.7)
    assert added.names == tuple(f'vilt.encoder.layer.{i}.output.dropout' for i in (2, 3))
    seen = spy(model, added.names[0])
    run(model)
    before, after, real = seen['before'], seen['after'], seen['real']
    assert before.shape == (2, TEXT + 1 + 16, 32)
    assert not real[0].all()  # there is padding in both parts
    assert not real[0, TEXT:].all()
    assert real[1].all()
    span = {'image': slice(TEXT, None), 'text': slice(0, TEXT), 'both': slice(None)}[tokens]
    expected = before.clone()
    for i in range(2):
        mean = before[i, span][real[i, span]].mean(0)
        expected[i, span] += 0.7 * mean
    torch.testing.assert_close(after, expected)


@pytest.mark.parametrize('tokens', ['image', 'text', 'both'])
def test_trains_a_step_and_goes_again(tokens):
    model = vilt()
    with torch.no_grad():
        plain, keys = run(model), list(model.state_dict())
        added = add_context_broadcast(model, 'cb_s', 'upper', tokens=tokens)
        assert torch.equal(run(model), plain)  # the scales start at zero
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    scales = [p for name, p in model.named_parameters() if name.endswith('broadcast.scale')]
    assert [tuple(scale.shape) for scale in scales] == [(32,), (32,)]
    labels = torch.zeros(2, 7)
    labels[:, 3] = 1
    loss = model(**batch(), labels=labels).loss
    loss.backward()
    optimizer.step()
    assert loss.isfinite()
    # The answer is read from the first text token: image tokens behind the last layer reach it not.
    assert [bool(scale.abs().sum() > 0) for scale in scales] == [True, tokens != 'image']
    added.remove()
    assert list(model.state_dict()) == keys
    assert not model.vilt.embeddings._forward_hooks
    assert not model.vilt.embeddings.text_embeddings._forward_hooks


def test_a_copy_has_its_own_modalities():
    model = vilt()
    add_context_broadcast(model, 'cb_s', 'upper', tokens='text', scale_init=0.7)
    with torch.no_grad():
        twin = copy.deepcopy(model)
        assert torch.equal(run(twin), run(model))
        remove_context_broadcast(twin)
        assert not torch.allclose(run(twin), run(model))
        layer = model.vilt.encoder.layer[2].output.dropout
        assert layer.broadcast.layout.modalities.text_length == TEXT
