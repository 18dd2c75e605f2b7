"""Calibration against a computation by hand, in float64, one bin and one class after another."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from mmengine.evaluator import Evaluator
from mmengine.registry import METRICS
from query_heads import class_scores, labelled_image, query_segmentor
from scipy.special import expit, softmax

from cb_mm.errors import UserError
from cb_mm.evaluation import calibration
from cb_mm.evaluation.calibration import CalibrationMetric, outputs_of

IGNORED = 255


def expected(probability, predicted, truth, bins=15):
    """ECE, class-wise ECE, Brier score and confidence in per cent; probability is (N, C)."""
    edges = np.linspace(0, 1, bins + 1)
    number, classes = probability.shape

    def error(confidence, right):
        total = 0.0
        for low, high in itertools.pairwise(edges):
            inside = (confidence > low) & (confidence <= high)
            if low == 0:
                inside |= confidence == 0
            if inside.any():
                total += (
                    inside.sum() / number * abs(right[inside].mean() - confidence[inside].mean())
                )
        return 100 * total

    chosen = probability[np.arange(number), predicted]
    one_hot = np.eye(classes)[truth]
    by_class = [error(probability[:, c], one_hot[:, c]) for c in range(classes)]
    return {
        'ECE': error(chosen, predicted == truth),
        'classwise_ECE': np.mean(by_class),
        'Brier': 100 * ((probability - one_hot) ** 2).sum(axis=1).mean(),
        'confidence': 100 * chosen.mean(),
    }, by_class


def sample(values, predicted, truth):
    """As mmseg hands it over."""
    return {
        'seg_logits': {'data': torch.as_tensor(values, dtype=torch.float32)},
        'pred_sem_seg': {'data': torch.as_tensor(predicted)[None]},
        'gt_sem_seg': {'data': torch.as_tensor(truth)[None]},
    }


def segmentation(images=3, classes=5, size=(17, 23), seed=0, sharpness=3.0):
    """Logits with some relation to the truth, of which a tenth is not known."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(images):
        truth = rng.integers(0, classes, size)
        logits = rng.normal(size=(classes, *size)) * sharpness
        logits += 2 * (np.arange(classes)[:, None, None] == truth)
        truth[rng.random(size) < 0.1] = IGNORED
        made.append((logits, logits.argmax(axis=0), truth))
    return made


def flat(made, probabilities):
    """All known pixels of all images."""
    parts = [[], [], []]
    for values, predicted, truth in made:
        known = truth != IGNORED
        parts[0].append(probabilities(values)[:, known].T)
        parts[1].append(predicted[known])
        parts[2].append(truth[known])
    return [np.concatenate(part) for part in parts]


def run(metric, samples):
    metric.dataset_meta = {'classes': tuple('abcdefghij')}
    for one in samples:
        metric.process({}, [one])
    return metric.figures(metric.state())


@pytest.mark.parametrize('bins', [1, 10, 15])
@pytest.mark.parametrize('classes', [2, 5])
def test_a_segmentation_by_hand(bins, classes):
    made = segmentation(classes=classes)
    figures = run(CalibrationMetric(bins=bins), [sample(*one) for one in made])
    by_hand, by_class = expected(*flat(made, lambda v: softmax(v, axis=0)), bins)
    assert figures.metrics == pytest.approx(by_hand, abs=1e-4)
    assert figures.per_class['classwise_ECE'] == pytest.approx(by_class, abs=1e-4)
    assert by_hand['ECE'] > 1  # it has something to find


def test_one_channel_is_the_probability_of_the_second_class():
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 2, (20, 30))
    probability = expit(rng.normal(size=(20, 30)) * 2 + truth)
    predicted = (probability > 0.3).astype(np.float32)  # mmseg's threshold, and its dtype
    figures = run(CalibrationMetric(), [sample(probability[None], predicted, truth)])
    both = np.stack([1 - probability.ravel(), probability.ravel()], axis=1)
    by_hand, _ = expected(both, predicted.ravel().astype(int), truth.ravel())
    assert figures.metrics == pytest.approx(by_hand, abs=1e-4)


@pytest.mark.parametrize('outputs', ['sigmoid', 'scores', 'probabilities'])
def test_other_outputs_than_logits(outputs):
    made = segmentation(sharpness=1.0)
    if outputs != 'sigmoid':
        made = [(np.exp(values), predicted, truth) for values, predicted, truth in made]
    if outputs == 'probabilities':
        made = [(v / v.sum(axis=0), predicted, truth) for v, predicted, truth in made]
    turn = {'sigmoid': expit, 'scores': lambda v: v / v.sum(axis=0), 'probabilities': lambda v: v}
    figures = run(CalibrationMetric(outputs=outputs), [sample(*one) for one in made])
    by_hand, _ = expected(*flat(made, turn[outputs]))
    assert figures.metrics == pytest.approx(by_hand, abs=1e-4)


def test_a_classification_by_hand():
    rng = np.random.default_rng(2)
    truth = rng.integers(0, 10, 300)
    scores = softmax(rng.normal(size=(300, 10)) * 2 + 2 * np.eye(10)[truth], axis=1)
    samples = [
        {'pred_score': torch.tensor(row, dtype=torch.float32), 'gt_label': torch.tensor([label])}
        for row, label in zip(scores, truth, strict=True)
    ]
    figures = run(CalibrationMetric(), samples)
    by_hand, _ = expected(scores, scores.argmax(axis=1), truth)
    assert figures.metrics == pytest.approx(by_hand, abs=1e-4)


def test_the_reliability_has_all_predictions():
    made = segmentation()
    curve = run(CalibrationMetric(), [sample(*one) for one in made]).curves['reliability']
    probability, predicted, truth = flat(made, lambda v: softmax(v, axis=0))
    chosen = probability.max(axis=1)
    count, _ = np.histogram(chosen, np.linspace(0, 1, 16))
    assert curve['count'] == count.tolist()
    assert sum(curve['correct']) == (predicted == truth).sum()
    assert sum(curve['confidence']) == pytest.approx(chosen.sum(), abs=1e-4)


def test_pieces_orders_and_merging_change_no_bit(monkeypatch):
    samples = [sample(*one) for one in segmentation(images=4)]
    whole = run(CalibrationMetric(), samples)
    assert run(CalibrationMetric(), samples[::-1]).metrics == whole.metrics
    monkeypatch.setitem(calibration._AT_ONCE, 'cpu', 100)
    assert run(CalibrationMetric(), samples).metrics == whole.metrics


def test_memory_does_not_grow_with_the_images():
    samples = [sample(*one) for one in segmentation(images=5)]
    sizes = set()
    for images in (2, 5, 50):
        metric = CalibrationMetric()
        run(metric, samples[:2] * (images // 2) + samples[: images % 2])
        held = [*metric._state.values(), *metric._last.values()]
        sizes.add(sum(array.nbytes for array in held))
        assert not metric.results
    assert len(sizes) == 1


def test_by_its_name_in_the_evaluator_of_mmengine():
    samples = [sample(*one) for one in segmentation()]
    evaluator = Evaluator([METRICS.build(dict(type='CalibrationMetric', prefix='test'))])
    evaluator.dataset_meta = {'classes': tuple('abcde')}
    for _ in range(2):  # a second run starts from nothing
        for one in samples:
            evaluator.process([one])
        found = evaluator.evaluate(len(samples))
        metrics = run(CalibrationMetric(), samples).metrics
        assert found == {f'test/{name}': value for name, value in metrics.items()}


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        ({'pred_instances': {}}, 'A detection has neither'),
        (
            {'pred_score': torch.ones(3) / 3, 'gt_label': torch.tensor([0, 2])},
            'exactly one true class',
        ),
        (sample(np.zeros((2, 3, 3)), np.zeros((3, 3)), np.full((3, 3), IGNORED)), 'no pixel'),
    ],
)
def test_what_cannot_be_measured_is_refused(given, message):
    with pytest.raises(UserError, match=message):
        run(CalibrationMetric(), [given])


def test_what_a_real_binary_head_gives():
    """mmseg's own post-processing of one channel: a sigmoid, and a threshold."""
    from mmengine.config import ConfigDict
    from mmengine.registry import init_default_scope
    from mmengine.structures import PixelData
    from mmseg.registry import MODELS
    from mmseg.structures import SegDataSample

    init_default_scope('mmseg')
    torch.manual_seed(0)
    model = MODELS.build(
        dict(
            type='EncoderDecoder',
            data_preprocessor=dict(type='SegDataPreProcessor'),
            backbone=dict(type='ResNetV1c', depth=18, base_channels=8),
            decode_head=dict(
                type='FCNHead', in_channels=64, channels=64, num_convs=0, concat_input=False,
                num_classes=2, out_channels=1, threshold=0.6,
                loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=True),
            ),
            test_cfg=ConfigDict(mode='whole'),
        )
    ).eval()  # fmt: skip
    truth = torch.randint(0, 2, (1, 40, 56))
    truth[:, :5] = IGNORED
    data = SegDataSample(gt_sem_seg=PixelData(data=truth))
    data.set_metainfo({'img_shape': (64, 64), 'ori_shape': (40, 56)})
    with torch.no_grad():
        image = torch.randn(1, 3, 64, 64)
        (output,) = model.predict(image, [data])
        logit = model.encode_decode(image, [data.metainfo])
    metric = CalibrationMetric(outputs=outputs_of(model))
    figures = run(metric, [output.to_dict()])
    logit = torch.nn.functional.interpolate(logit, (40, 56), mode='bilinear')[0, 0, 5:].double()
    probability = expit(logit.numpy().ravel())
    both = np.stack([1 - probability, probability], axis=1)
    label = truth[0, 5:].numpy().ravel()
    by_hand, _ = expected(both, (probability > 0.6).astype(int), label)
    assert figures.metrics == pytest.approx(by_hand, abs=1e-2)


@pytest.mark.parametrize('kind', ['MaskFormerHead', 'Mask2FormerHead'])
def test_what_a_real_head_with_queries_gives(kind):
    """Sums over queries, made probabilities by their sum; not softmaxed once more."""
    model = query_segmentor(kind)
    image, truth = labelled_image()
    with torch.no_grad():
        (output,) = model.test_step({'inputs': [image], 'data_samples': [truth.clone()]})
    figures = run(CalibrationMetric(outputs=outputs_of(model)), [output.to_dict()])
    scores = class_scores(model, image, truth)[:, 5:].flatten(1).T.numpy()
    label = truth.gt_sem_seg.data[0, 5:].numpy().ravel()
    by_hand, _ = expected(scores / scores.sum(1, keepdims=True), scores.argmax(1), label)
    assert figures.metrics == pytest.approx(by_hand, abs=1e-2)
    flattened = expected(softmax(scores, axis=1), scores.argmax(1), label)[0]
    assert figures.metrics['confidence'] > flattened['confidence'] + 1


def test_outputs_follow_from_the_head():
    from mmengine.registry import init_default_scope
    from mmseg.registry import MODELS

    init_default_scope('mmseg')
    base = dict(type='FCNHead', in_channels=4, channels=4, num_convs=0, concat_input=False)

    def outputs(sigmoid, **more):
        loss = dict(type='CrossEntropyLoss', use_sigmoid=sigmoid)
        head = MODELS.build({**base, 'loss_decode': loss, **more})
        return outputs_of(torch.nn.ModuleDict({'decode_head': head}))

    assert outputs(False, num_classes=3) == 'logits'
    assert outputs(True, num_classes=3) == 'sigmoid'
