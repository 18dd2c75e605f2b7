"""AttentionHook: what it logs, from which image, and what it leaves as it was."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cb_mm.attention.hook import AttentionHook
from cb_mm.errors import UserError
from cb_mm.models import ViTCB


class Log:
    """The calls of a visualizer."""

    def __init__(self) -> None:
        self.images, self.scalars = {}, {}

    def add_image(self, name, image, step) -> None:
        self.images[name, step] = image

    def add_scalars(self, values, step) -> None:
        self.scalars.update({(name, step): value for name, value in values.items()})


def run(hook: AttentionHook, batch: dict) -> SimpleNamespace:
    torch.manual_seed(0)
    arch = dict(patch_size=8, embed_dim=12, depth=3, num_heads=2)
    model = ViTCB(arch, 'cb', out_indices=(2,), pyramid=False, img_size=(16, 24)).train()
    runner = SimpleNamespace(model=model, iter=4, visualizer=Log(), logger=None)
    hook.before_train(runner)
    before = torch.get_rng_state()
    hook.after_train_iter(runner, 4, batch)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    return runner


def test_chosen_layers_are_drawn_and_all_are_measured():
    inputs = torch.arange(3 * 16 * 24, dtype=torch.int64).reshape(3, 16, 24).remainder(251).byte()
    hook = AttentionHook(interval=5, layers=[0, -1])
    log = run(hook, {'inputs': [inputs]}).visualizer
    name = 'attention/first_training_image'
    assert set(log.images) == {(f'{name}/layer_00', 5), (f'{name}/layer_02', 5)}
    assert all(image.shape == (16, 24, 3) for image in log.images.values())
    # mmcv's BGR as RGB, by row and column
    (kept,) = hook._images.values()
    assert np.array_equal(kept, inputs.numpy()[::-1].transpose(1, 2, 0))
    entropies = {key[0] for key in log.scalars if 'attention/entropy/' in key[0]}
    assert entropies == {f'attention/entropy/layer_0{i}' for i in range(3)}
    assert all(np.isfinite(value) for value in log.scalars.values())


def test_nothing_is_logged_between_and_no_image_is_an_error():
    log = run(AttentionHook(interval=4), {'inputs': []}).visualizer
    assert (log.images, log.scalars) == ({}, {})
    for inputs in ([], [torch.zeros(3, 16, 24)], None):
        with pytest.raises(UserError, match='no 8-bit images'):
            run(AttentionHook(interval=5), {'inputs': inputs})
