"""FGSM on real small models of both tasks, through their real preprocessors."""

from __future__ import annotations

import copy
import inspect

import numpy as np
import pytest
import torch
from mmengine.registry import DATASETS, init_default_scope
from robustness_models import SCOPES

from cb_mm.errors import UserError
from cb_mm.robustness.attacks.fgsm import attack_loss, fgsm, truth_dataset_cfg
from cb_mm.robustness.attacks.truth import pad_truth
from cb_mm.robustness.console_log import quiet_console
from cb_mm.robustness.jobs import AttackCell, Job
from cb_mm.robustness.tester import ModelUnderTest


@pytest.fixture(scope='module', params=['seg', 'det'])
def case(request):
    """A tester, and the first image with its truth."""
    model = request.getfixturevalue(request.param)
    with quiet_console():
        tester = ModelUnderTest(model.prepared(), model.checkpoint, attacks=True)
    sample = tester.dataset[(0, Job(AttackCell('fgsm', 2.0)))]
    return model, tester, sample['inputs'], sample['truth']


def test_a_tester_is_exact_and_careful_unless_asked(case):
    assert case[1].precision is None
    options = inspect.signature(ModelUnderTest).parameters
    assert [
        options[name].default for name in ('trust', 'precision', 'attacks', 'allow_mismatch')
    ] == ([False, None, False, False])


def test_truth_lies_on_the_pixels_of_the_image(case):
    """The test pipeline loads labels at the size of the file; the attack needs the other one."""
    model, tester, image, truth = case
    if model.task == 'seg':
        assert tuple(truth.gt_sem_seg.data.shape[-2:]) == tuple(image.shape[-2:])
        normal = tester.dataset[(0, Job(AttackCell('fgsm', 2.0)))]['data_samples']
        assert tuple(normal.gt_sem_seg.data.shape[-2:]) == normal.ori_shape
    else:
        masks, boxes = truth.gt_instances.masks, truth.gt_instances.bboxes
        assert (masks.height, masks.width) == tuple(image.shape[-2:])
        drawn = masks.get_bboxes('hbox').tensor
        assert (boxes.tensor - drawn).abs().max() < 3, 'boxes are around their masks'


@pytest.mark.parametrize('epsilon', [0.5, 2, 8])
def test_loss_rises_within_epsilon(case, epsilon):
    _, tester, image, truth = case
    attacked = fgsm(tester.model, image, truth, epsilon, seed=5)
    change = (attacked - image.float()).abs()
    assert 0 < change.max() <= epsilon
    assert (change == epsilon).float().mean() > 0.8, 'nearly every value moves the whole step'
    assert attacked.min() >= 0
    assert attacked.max() <= 255
    before, after = (
        attack_loss(tester.model, x, truth, seed=5).item() for x in (image.float(), attacked)
    )
    assert after > before
    noise = image.float() + epsilon * torch.sign(torch.rand_like(image.float()) - 0.5)
    random = attack_loss(tester.model, noise.clamp(0, 255), truth, seed=5).item()
    assert after > random, 'it is the direction that does it'


def test_epsilon_zero_is_the_image(case):
    _, tester, image, truth = case
    assert torch.equal(fgsm(tester.model, image, truth, 0), image.float())


def test_gradient_is_that_of_the_loss_in_grey_levels(case):
    """Through the preprocessor: colours in the pipeline's order, divided by the deviation."""
    _, tester, image, truth = case
    variable = image.float().requires_grad_()
    (gradient,) = torch.autograd.grad(attack_loss(tester.model, variable, truth, 3), variable)
    seen = []

    def cut(module, args):
        seen.append(args[0].detach().requires_grad_())
        return (seen[0], *args[1:])

    handle = tester.model.register_forward_pre_hook(cut)
    try:
        loss = attack_loss(tester.model, image.float(), truth, 3)
    finally:
        handle.remove()
    (inner,) = torch.autograd.grad(loss, seen[0])
    height, width = image.shape[-2:]
    std = tester.model.data_preprocessor.std
    expected = (inner[0] / std)[[2, 1, 0], :height, :width]
    assert torch.allclose(gradient, expected, rtol=1e-4, atol=1e-9)


def test_gradient_is_the_slope_of_the_loss(case):
    """Measured without any gradient."""
    model, tester, image, truth = case
    if model.task == 'det':
        pytest.skip("a detector's choice of boxes makes its loss jump")
    variable = image.float().requires_grad_()
    (gradient,) = torch.autograd.grad(attack_loss(tester.model, variable, truth), variable)
    up, down = (
        attack_loss(tester.model, image.float() + step * gradient.sign(), truth).item()
        for step in (0.01, -0.01)
    )
    assert (up - down) / 0.02 == pytest.approx(gradient.abs().sum().item(), rel=0.01)


def test_the_model_and_the_random_state_stay_as_they_were(case):
    _, tester, image, truth = case
    before = {key: value.clone() for key, value in tester.model.state_dict().items()}
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first = fgsm(tester.model, image, truth, 4, seed=7)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(first, fgsm(tester.model, image, truth, 4, seed=7))
    assert all(torch.equal(before[key], v) for key, v in tester.model.state_dict().items())
    assert all(parameter.grad is None for parameter in tester.model.parameters())
    assert not tester.model.training


def test_a_training_model_is_refused(case):
    _, tester, image, truth = case
    tester.model.train()
    try:
        with pytest.raises(ValueError, match='evaluation mode'):
            fgsm(tester.model, image, truth, 1)
    finally:
        tester.model.eval()


def test_padding_of_the_image_is_padding_of_the_labels(case):
    """A model that pads its test images must not be attacked for what is in the padding."""
    model, tester, image, truth = case
    if model.task == 'det':
        pytest.skip('detectors of mmdet always pad, so the other tests have seen it')
    preprocessor = tester.model.data_preprocessor
    height, width = image.shape[1] + 32, image.shape[2] + 48
    preprocessor.test_cfg = dict(size=(height, width))
    try:
        padded = attack_loss(tester.model, image.float(), truth)
        attacked = fgsm(tester.model, image, truth, 2)
    finally:
        preprocessor.test_cfg = None
    assert attacked.shape == image.shape
    # The same by hand: normalised, then padded with 0, and labels that count for nothing there.
    data = preprocessor({'inputs': [image.float()], 'data_samples': [copy.deepcopy(truth)]}, False)
    inputs = torch.nn.functional.pad(data['inputs'], (0, 48, 0, 32))
    framed = truth.new()
    framed.gt_sem_seg = type(truth.gt_sem_seg)(
        data=torch.nn.functional.pad(truth.gt_sem_seg.data, (0, 48, 0, 32), value=255)
    )
    expected = tester.model.parse_losses(tester.model(inputs, [framed], mode='loss'))[0]
    assert padded.item() == pytest.approx(expected.item(), rel=1e-5)


def test_an_image_without_objects(case):
    model, tester, image, truth = case
    if model.task == 'seg':
        empty = truth.clone()
        empty.gt_sem_seg.data = torch.full_like(truth.gt_sem_seg.data, 255)
    else:
        empty = truth.clone()
        empty.gt_instances = truth.gt_instances[:0]
    attacked = fgsm(tester.model, image, empty, 2)
    assert np.isfinite(attacked.numpy()).all()
    assert (attacked - image.float()).abs().max() <= 2


def test_where_the_labels_come_from(case):
    model, *_ = case
    config = model.prepared()
    test, train = config.test_dataloader.dataset, config.train_dataloader.dataset
    kinds = [step['type'] for step in truth_dataset_cfg(test, train)['pipeline']]
    assert kinds[:3] == ['LoadImageFromFile', 'LoadAnnotations', 'Resize']
    assert [step['type'] for step in test['pipeline']][1] == 'Resize', 'the original is unchanged'
    bare = {**test, 'pipeline': [s for s in test['pipeline'] if s['type'] != 'LoadAnnotations']}
    assert truth_dataset_cfg(bare, train)['pipeline'][1]['type'] == 'LoadAnnotations'
    with pytest.raises(UserError, match='LoadAnnotations'):
        truth_dataset_cfg(bare, None)
    assert SCOPES[model.task] == config.default_scope


def test_edges_that_a_loss_needs_are_made_from_the_labels(case):
    """PIDNet's training pipeline makes them; they have the padding of the labels."""
    model, tester, *_ = case
    if model.task == 'det':
        pytest.skip('a segmentation model alone learns edges')
    config = model.prepared()
    train = copy.deepcopy(config.train_dataloader.dataset)
    train['pipeline'].insert(-1, dict(type='GenerateEdge', edge_width=4))
    test = truth_dataset_cfg(config.test_dataloader.dataset, train)
    init_default_scope('mmseg')
    truth = DATASETS.build(test)[0]['data_samples']
    height, width = truth.gt_sem_seg.shape
    assert truth.gt_edge_map.shape == (height, width)
    assert 0 < truth.gt_edge_map.data.float().mean() < 1
    pad_truth(tester.model.data_preprocessor, truth, (height + 4, width + 6))
    assert truth.gt_edge_map.shape == truth.gt_sem_seg.shape == (height + 4, width + 6)
    assert not truth.gt_edge_map.data[:, height:].any()
