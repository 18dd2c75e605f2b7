"""Attacks of many steps on real small models of all three tasks, through their preprocessors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from fake_cuda import CUDA, fake
from mmengine.registry import MODELS, init_default_scope
from query_heads import class_scores, labelled_image, query_segmentor
from torch.nn import functional

from cb_mm.errors import UserError
from cb_mm.robustness.attacks.catalogue import ATTACKS, AttackSettings, check_model, parse_attack
from cb_mm.robustness.attacks.fgsm import attack_loss, fgsm
from cb_mm.robustness.attacks.losses import PIXEL_WEIGHTS, objective, pixel_logits
from cb_mm.robustness.attacks.norms import NORMS
from cb_mm.robustness.attacks.pgd import Attack, pgd
from cb_mm.robustness.console_log import quiet_console
from cb_mm.robustness.jobs import AttackCell, Job
from cb_mm.robustness.tester import ModelUnderTest

ONE_STEP = Attack(random_start=False, steps=1, step_size=1.0)
SHORT = {name: replace(attack, steps=2) for name, attack in ATTACKS.items() if name != 'fgsm'}


def classifier():
    """A ViT with a class token of mmpretrain's kind, and an image with a label."""
    from mmpretrain.structures import DataSample

    import cb_mm.evaluation.classification  # noqa: F401  (brings mmpretrain)

    init_default_scope('mmpretrain')
    torch.manual_seed(0)
    model = MODELS.build(
        dict(
            type='ImageClassifier',
            data_preprocessor=dict(
                type='mmpretrain.ClsDataPreprocessor', mean=[120.0] * 3, std=[60.0] * 3,
                to_rgb=True, num_classes=5,
            ),
            backbone=dict(type='ViTCB', arch=dict(embed_dim=24, depth=2, num_heads=3),
                          img_size=32, out_type='cls'),
            head=dict(type='VisionTransformerClsHead', num_classes=5, in_channels=24),
        )
    ).eval()  # fmt: skip
    torch.nn.init.normal_(model.head.layers.head.weight)  # zeros would have no gradient
    image = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (3, 32, 32), dtype=np.uint8))
    return model, image, DataSample().set_gt_label(3)


def first_image(small):
    """The model of a task, and its first image with its truth."""
    with quiet_console():
        tester = ModelUnderTest(small.prepared(), small.checkpoint, attacks=True)
    sample = tester.dataset[(0, Job(AttackCell('fgsm', 2.0)))]
    return tester.model, sample['inputs'], sample['truth']


@pytest.fixture(scope='module')
def segmentor(seg):
    """Model, image and truth."""
    return first_image(seg)


@pytest.fixture(scope='module', params=['seg', 'det', 'cls'])
def case(request):
    """Task, model, image and truth."""
    if request.param == 'seg':
        return 'seg', *request.getfixturevalue('segmentor')
    if request.param == 'det':
        return 'det', *first_image(request.getfixturevalue('det'))
    return 'cls', *classifier()


def names_for(task):
    return [name for name in SHORT if task == 'seg' or SHORT[name].objective == 'loss']


@pytest.mark.parametrize('epsilon', [0.3, 4, 60])
def test_one_step_of_epsilon_without_a_start_is_fgsm(case, epsilon):
    _, model, image, truth = case
    found, trace = pgd(model, image, truth, epsilon, ONE_STEP, seed=5)
    assert torch.equal(found, fgsm(model, image, truth, epsilon, seed=5))
    assert (trace.restart, trace.step) == (0, 1)
    losses = [attack_loss(model, x, truth, 5).item() for x in (image.float(), found)]
    assert list(trace.losses[0]) == pytest.approx(losses, rel=1e-6)  # with and without gradient


def test_images_stay_within_epsilon_and_the_range_of_grey_levels(case):
    task, model, image, truth = case
    clean = image.double().numpy()
    for name in names_for(task):
        epsilon = 90.0 if name.endswith('_l2') else 3.0
        found, trace = pgd(model, image, truth, epsilon, SHORT[name], seed=1)
        change = found.double().numpy() - clean
        measured = {'linf': np.abs(change).max(), 'l2': np.sqrt((change**2).sum())}
        assert found.min() >= 0, name
        assert found.max() <= 255, name
        # A grey level in single precision is known to 1e-5; the original is a whole number.
        assert 0.5 * epsilon < measured[SHORT[name].norm] <= epsilon + 1e-4, name
        assert (trace.linf, trace.l2) == pytest.approx((measured['linf'], measured['l2'])), name


def test_many_steps_beat_one(case):
    """In each task: the loss of PGD's image is above that of FGSM's."""
    _, model, image, truth = case
    one = pgd(model, image, truth, 2, ONE_STEP)[1].loss
    many = pgd(model, image, truth, 2, Attack(random_start=False, steps=6))[1]
    assert many.loss > one
    assert many.loss == max(many.losses[0][1:])


def test_the_best_of_all_steps_and_restarts_is_kept(case):
    _, model, image, truth = case
    attack = Attack(steps=2, restarts=3, step_size=1.5)
    found, trace = pgd(model, image, truth, 4, attack, rng=np.random.default_rng(3))
    assert len(trace.losses) == 3
    assert len({losses[0] for losses in trace.losses}) == 3, 'three different starts'
    after = [losses[1:] for losses in trace.losses]  # a start is no result of an attack
    assert trace.loss == max(max(losses) for losses in after)
    assert trace.losses[trace.restart][trace.step] == trace.loss
    assert attack_loss(model, found, truth, 0).item() == trace.loss


def test_nothing_within_epsilon_zero(case):
    task, model, image, truth = case
    for name in names_for(task):
        assert torch.equal(pgd(model, image, truth, 0, SHORT[name])[0], image.float()), name


def test_the_start_depends_on_the_generator_alone(case):
    _, model, image, truth = case
    attack = Attack(steps=1)
    torch.manual_seed(1)
    expected = torch.rand(3)
    runs = []
    for number in (0, 0, 1):
        torch.manual_seed(1)
        runs.append(pgd(model, image, truth, 4, attack, rng=np.random.default_rng(number))[0])
        assert torch.equal(torch.rand(3), expected), "torch's generator is as it was"
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_the_model_stays_as_it_was(case):
    task, model, image, truth = case
    frozen = next(model.parameters())
    frozen.requires_grad_(False)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    needed = [parameter.requires_grad for parameter in model.parameters()]
    try:
        with torch.no_grad():  # a test has no gradients; an attack makes its own
            for name in names_for(task):
                assert not pgd(model, image, truth, 2, SHORT[name])[0].requires_grad
        assert [parameter.requires_grad for parameter in model.parameters()] == needed
    finally:
        frozen.requires_grad_(True)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert not model.training


class _Held:
    """A tensor that a backward pass needs, counted as long as it lives."""

    alive = peak = 0

    def __init__(self, tensor):
        self.tensor = tensor
        _Held.alive += 1
        _Held.peak = max(_Held.peak, _Held.alive)

    def __del__(self):
        _Held.alive -= 1


def test_memory_does_not_grow_with_the_steps(case):
    task, model, image, truth = case
    for name in (one for one in names_for(task) if not one.endswith('_l2')):
        peaks = []
        for steps in (1, 4):
            _Held.alive = _Held.peak = 0
            attack = replace(SHORT[name], steps=steps, random_start=False)
            # A detector chooses other boxes as its image changes; with ε = 0 it does not.
            with torch.autograd.graph.saved_tensors_hooks(_Held, lambda held: held.tensor):
                pgd(model, image, truth, 0, attack)
            assert _Held.alive == 0, name
            peaks.append(_Held.peak)
        assert peaks[0] == peaks[1] > 10, name


def test_a_training_model_is_refused(case):
    task, model, image, truth = case
    model.train()
    try:
        for name in names_for(task):
            with pytest.raises(ValueError, match='evaluation mode'):
                pgd(model, image, truth, 1, SHORT[name])
    finally:
        model.eval()


def test_pixel_attacks_need_a_segmentor(case):
    task, model, *_ = case
    check_model(['fgsm', 'pgd', 'bim_l2'], model)
    if task == 'seg':
        check_model(list(ATTACKS), model)
        return
    for name in ('segpgd', 'cospgd_l2'):
        with pytest.raises(UserError, match=f'{name}: .* is for segmentation models of mmseg'):
            check_model([name], model)


@pytest.mark.parametrize(('kind', 'done'), [('segpgd', 0.0), ('segpgd', 0.6), ('cospgd', 0.6)])
def test_pixel_losses_by_an_independent_computation(segmentor, kind, done):
    """Logits by mmseg's own prediction, losses and weights in numpy, pixel by pixel."""
    model, image, truth = segmentor
    truth = truth.clone()
    truth.gt_sem_seg.data = truth.gt_sem_seg.data.clone()
    truth.gt_sem_seg.data[:, :7] = 255
    data = model.data_preprocessor({'inputs': [image], 'data_samples': [truth.clone()]}, False)
    with torch.no_grad():
        features = model.decode_head(model.extract_feat(data['inputs']))
    size = image.shape[-2:]
    logits = functional.interpolate(features, size, mode='bilinear', align_corners=False)[0]
    logits, labels = logits.double().numpy(), truth.gt_sem_seg.data[0].numpy()
    climbed, plain, count = 0.0, 0.0, 0
    for y, x in np.ndindex(*labels.shape):
        label = labels[y, x]
        if label == 255:
            continue
        chances = np.exp(logits[:, y, x] - logits[:, y, x].max())
        chances /= chances.sum()
        loss = -np.log(chances[label])
        one_hot = np.eye(len(chances))[label]
        if kind == 'cospgd':
            weight = chances @ one_hot / np.linalg.norm(chances) / np.linalg.norm(one_hot)
        else:  # λ = t / 2T for wrong pixels
            weight = 1 - done / 2 if chances.argmax() == label else done / 2
        climbed, plain, count = climbed + weight * loss, plain + loss, count + 1
    found = objective(kind, model, image.float(), truth, done=done)
    assert 0 < count < labels.size
    assert found.loss.item() == pytest.approx(plain / count, rel=1e-5)
    assert found.climbed.item() == pytest.approx(climbed / count, rel=1e-5)
    assert climbed != pytest.approx(plain, rel=0.01)


def detector_of_one_stage(kind):
    """A tiny one-stage detector of mmdet, and an image with two boxes."""
    from mmdet.structures import DetDataSample
    from mmengine.structures import InstanceData

    init_default_scope('mmdet')
    torch.manual_seed(0)
    model = MODELS.build(
        dict(
            type=kind,
            data_preprocessor=dict(type='DetDataPreprocessor', mean=[120.0] * 3, std=[60.0] * 3),
            backbone=dict(type='ResNet', depth=18, base_channels=8),
            neck=dict(type='FPN', in_channels=[8, 16, 32, 64], out_channels=16, num_outs=5),
            bbox_head=dict(type=f'{kind}Head', num_classes=3, in_channels=16, feat_channels=16,
                           stacked_convs=1, norm_cfg=dict(type='GN', num_groups=4))
            | (dict(norm_on_bbox=True) if kind == 'FCOS' else {}),
            train_cfg=dict(assigner=dict(type='ATSSAssigner', topk=9), allowed_border=-1,
                           pos_weight=-1),
        )
    )  # fmt: skip
    truth = DetDataSample(metainfo={'img_shape': (64, 64), 'scale_factor': (1.0, 1.0)})
    boxes = torch.tensor([[4.0, 6.0, 40.0, 50.0], [20.0, 8.0, 60.0, 30.0]])
    truth.gt_instances = InstanceData(bboxes=boxes, labels=torch.tensor([0, 2]))
    return model, truth


def real_time_segmentor():
    """PIDNet, whose backbone and head have more outputs in training."""
    from mmengine.structures import PixelData
    from mmseg.structures import SegDataSample

    init_default_scope('mmseg')
    torch.manual_seed(0)
    pixels = dict(type='OhemCrossEntropy', thres=0.9, min_kept=100)
    losses = [dict(type='CrossEntropyLoss'), pixels, dict(type='BoundaryLoss'), pixels]
    model = MODELS.build(
        dict(
            type='EncoderDecoder',
            data_preprocessor=dict(type='SegDataPreProcessor', mean=[120.0] * 3, std=[60.0] * 3),
            backbone=dict(type='PIDNet', channels=8, ppm_channels=8, num_stem_blocks=1,
                          num_branch_blocks=1),
            decode_head=dict(type='PIDHead', in_channels=32, channels=32, num_classes=4,
                             dropout_ratio=0, loss_decode=losses),
        )
    )  # fmt: skip
    labels = PixelData(data=torch.randint(0, 4, (1, 64, 64)))
    edges = PixelData(data=torch.randint(0, 2, (1, 64, 64)))
    truth = SegDataSample(gt_sem_seg=labels, gt_edge_map=edges)
    truth.set_metainfo({'img_shape': (64, 64), 'ori_shape': (64, 64)})
    return model, truth


@pytest.mark.parametrize('kind', ['FCOS', 'VFNet', 'PIDNet'])
def test_models_whose_outputs_differ_in_training(kind):
    """Their loss is that of training, but for normalisation; their prediction is as it was."""
    model, truth = real_time_segmentor() if kind == 'PIDNet' else detector_of_one_stage(kind)
    image = torch.randint(0, 256, (3, 64, 64), dtype=torch.uint8)
    model.train()
    for part in model.modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            part.eval()
    data = model.data_preprocessor({'inputs': [image], 'data_samples': [truth.clone()]}, False)
    with torch.no_grad():
        expected = model.parse_losses(model(**data, mode='loss'))[0].item()
    model.eval()
    assert attack_loss(model, image.float(), truth).item() == pytest.approx(expected, rel=1e-6)
    assert not any(part.training for part in model.modules())
    trace = pgd(model, image, truth, 4, Attack(steps=2, random_start=False))[1]
    assert 0 < trace.linf <= 4 + 1e-4
    assert trace.loss > trace.losses[0][0]
    assert torch.equal(pgd(model, image, truth, 4, ONE_STEP)[0], fgsm(model, image, truth, 4))


def test_a_head_with_queries_is_attacked_by_its_probabilities():
    """Its outputs are probabilities but for their sum: to softmax them would level them."""
    model = query_segmentor('MaskFormerHead')
    image, truth = labelled_image()
    scores = class_scores(model, image, truth)[:, 5:].flatten(1)
    chance = scores / scores.sum(0)
    true = chance.gather(0, truth.gt_sem_seg.data[0, 5:].flatten()[None])[0]
    found = objective('cospgd', model, image.float(), truth)
    assert found.loss.item() == pytest.approx(-true.log().mean().item(), rel=1e-5)
    weighted = (true / chance.norm(dim=0) * -true.log()).mean().item()
    assert found.climbed.item() == pytest.approx(weighted, rel=1e-5)
    for name in ('pgd', 'segpgd', 'cospgd'):
        attack = replace(SHORT[name], random_start=False)
        trace = pgd(model, image, truth, 4, attack, seed=1)[1]
        assert 0 < trace.linf <= 4 + 1e-4
    assert torch.equal(pgd(model, image, truth, 4, ONE_STEP)[0], fgsm(model, image, truth, 4))


@pytest.mark.parametrize('kind', PIXEL_WEIGHTS)
def test_weights_are_constants_for_the_gradient(segmentor, kind):
    """As in both papers: the gradient is that of the cross-entropy, weighted."""
    model, image, truth = segmentor
    variable = image.float().requires_grad_()
    (found,) = torch.autograd.grad(objective(kind, model, variable, truth, done=0.5)[0], variable)
    logits, labels, counted = pixel_logits(model, variable, truth)
    weights = PIXEL_WEIGHTS[kind](logits.detach(), labels, 0.5) * counted
    losses = functional.nll_loss(logits.log_softmax(0)[None], labels[None], reduction='none')[0]
    total = (weights * losses).sum() / counted.sum()
    (expected,) = torch.autograd.grad(total, variable)
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-9)


def test_an_image_without_labels_is_left_alone(segmentor):
    model, image, truth = segmentor
    empty = truth.clone()
    empty.gt_sem_seg.data = torch.full_like(truth.gt_sem_seg.data, 255)
    for name in ('segpgd', 'cospgd_l2'):
        attack = replace(SHORT[name], random_start=False)
        found, trace = pgd(model, image, empty, 4, attack)
        assert torch.equal(found, image.float())
        assert trace.losses == ((0.0,) * 3,)


@pytest.mark.parametrize('name', NORMS)
def test_norms(name):
    norm, rng = NORMS[name], np.random.default_rng(0)
    order = np.inf if name == 'linf' else 2
    clean = torch.from_numpy(rng.uniform(0, 255, (3, 8, 9))).float()
    lengths = []
    for _ in range(50):
        change = norm.start((3, 8, 9), 2.0, rng)
        lengths.append(np.linalg.norm(change.ravel(), order))
        far = clean + 5 * torch.from_numpy(change).float()
        near = norm.project(far, clean, 2.0)
        assert np.linalg.norm((near - clean).numpy().ravel(), order) <= 2 + 1e-4
        inside = clean + 0.5 * torch.from_numpy(change).float()
        assert torch.allclose(norm.project(inside, clean, 2.0), inside)
    assert max(lengths) <= 2
    assert min(lengths) > 1.9, 'most of a ball of many dimensions is near its surface'
    gradient = torch.randn(3, 8, 9)
    direction = norm.direction(gradient)
    assert norm.length(direction).item() == pytest.approx(1, rel=1e-5)
    dual = 1 if name == 'linf' else 2  # no change of length 1 gains more
    gain = (direction * gradient).sum().item()
    assert gain == pytest.approx(np.linalg.norm(gradient.numpy().ravel(), dual), rel=1e-4)
    assert torch.equal(norm.direction(torch.zeros(3, 2, 2)), torch.zeros(3, 2, 2))


def test_every_step_stays_on_its_device():
    """On fake CUDA tensors: a constant of the CPU would fail."""
    with fake():
        clean, gradient = (torch.empty(3, 8, 8, device=CUDA) for _ in range(2))
        made = [
            x
            for norm in NORMS.values()
            for x in (norm.project(gradient, clean, 2.0), norm.direction(gradient))
        ]
        logits = torch.empty(5, 8, 8, device=CUDA)
        labels = torch.zeros(8, 8, dtype=torch.long, device=CUDA)
        made += [weigh(logits, labels, 0.5) for weigh in PIXEL_WEIGHTS.values()]
        assert {x.device for x in made} == {torch.device(CUDA)}
        assert {x.dtype for x in made} == {torch.float32}


def test_names_and_settings():
    assert parse_attack('pgd=2,0.5') == [('pgd', 2.0), ('pgd', 0.5)]
    assert parse_attack('segpgd_l2=1000') == [('segpgd_l2', 1000.0)]
    settings = AttackSettings(attack_steps=7, attack_step_size=0.5, attack_restarts=3)
    attack = settings.of('pgd')
    assert (attack.steps, attack.share, attack.starts) == (7, 0.5, 3)
    assert settings.of('bim').starts == 1
    assert settings.of('fgsm') == ATTACKS['fgsm']
    assert AttackSettings().of('pgd').share == 2.5 / 20
    assert AttackSettings(attack_steps=1).of('bim').share == 1
    assert not AttackSettings(random_start=False).of('pgd').random_start
