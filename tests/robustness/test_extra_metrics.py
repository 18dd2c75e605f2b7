"""Metrics that a sweep adds: the same as computed from the model's own outputs."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from mmengine.registry import DATASETS, init_default_scope
from robustness_models import SmallModel, records
from scipy.special import softmax

from cb_mm.apis import evaluate_robustness
from cb_mm.checkpoints.load_model import load_model
from cb_mm.errors import UserError
from cb_mm.robustness.console_log import quiet_console
from cb_mm.robustness.extra_metrics import split_names, with_extra_metrics
from cb_mm.robustness.reliability import reliability_figure

QUICK = ['test_dataloader.num_workers=0', 'test_dataloader.persistent_workers=False']


def run(model: SmallModel, **more):
    options = {'data_root': model.data, 'cfg_options': QUICK, **more}
    return evaluate_robustness(str(model.config), model.checkpoint, **options)


@pytest.fixture(scope='module')
def report(seg, tmp_path_factory):
    out = tmp_path_factory.mktemp('extra')
    return run(seg, out=out, metrics=['calibration', 'boundary'], corruptions=['gaussian_blur=3'])


def outputs(model: SmallModel):
    """Logits, predictions and labels of all images, by the model itself."""
    with quiet_console():
        config = model.prepared(*QUICK)
        init_default_scope('mmseg')
        built = load_model(config, model.checkpoint).eval()
        dataset = DATASETS.build(config.test_dataloader.dataset)
        for sample in dataset:
            batch = {'inputs': [sample['inputs']], 'data_samples': [sample['data_samples']]}
            with torch.no_grad():
                (found,) = built.test_step(batch)
            parts = found.seg_logits.data, found.pred_sem_seg.data[0], found.gt_sem_seg.data[0]
            yield [part.numpy() for part in parts]


def test_calibration_is_that_of_the_models_outputs(seg, report):
    confidence, right, brier = [], [], []
    for logits, predicted, truth in outputs(seg):
        known = truth != 255
        probability = softmax(logits.astype(np.float64), axis=0)[:, known]
        label = truth[known].astype(int)
        confidence.append(probability.max(axis=0))
        right.append(predicted[known] == label)
        one_hot = np.eye(len(probability))[label].T
        brier.append(((probability - one_hot) ** 2).sum(axis=0))
    confidence, right, brier = map(np.concatenate, (confidence, right, brier))
    place = np.minimum((confidence * 15).astype(int), 14)
    error = sum(
        abs(right[place == k].sum() - confidence[place == k].sum()) for k in range(15)
    ) / len(confidence)
    found = report.cells[0].metrics
    assert found['ECE']['mean'] == pytest.approx(100 * error, abs=1e-3)
    assert found['confidence']['mean'] == pytest.approx(100 * confidence.mean(), abs=1e-3)
    assert found['Brier']['mean'] == pytest.approx(100 * brier.mean(), abs=1e-3)
    curve = report.results['cells'][0]['curves']['reliability']
    assert sum(curve['count']) == len(confidence)
    assert sum(curve['correct']) == right.sum()


def test_it_is_in_every_file(seg, report):
    record = records(report.folder)['clean']
    assert set(record['curves']['reliability']) == {'count', 'correct', 'confidence'}
    assert set(record['per_class']) >= {'IoU', 'boundary_IoU', 'classwise_ECE'}
    assert {'reliability.csv', 'reliability.png', 'reliability.svg'} <= set(report.files)
    text = report.table()
    assert '| boundary IoU |' in text
    assert '### Calibration' in text
    assert f'| {record["metrics"]["ECE"]:.2f} ' in text
    assert 'Worst case of mIoU' in text
    rows = report.files['reliability.csv'].decode().splitlines()
    assert rows[0] == 'cell,low,high,share,confidence,accuracy'
    assert len(rows) == 1 + 2 * 15
    assert ',ECE,' in report.files['results.csv'].decode()


def test_a_panel_of_the_reliability_is_named_as_in_the_tables():
    curve = {'count': [4], 'correct': [3], 'confidence': [2.0]}
    figure = reliability_figure(
        {
            'model': 'm',
            'identity': {'images': 1},
            'cells': [
                {'key': f'{name}={level}', 'corruption': name, 'level': level, 'severity': severity,
                 'metrics': {'ECE': {'mean': 25.0}}, 'curves': {'reliability': curve}}
                for name, level, severity in (('pgd_l2', 90.0, None), ('jpeg_compression', 25.0, 1),
                                              ('gaussian_noise', 5.0, None))
            ],
        }
    )  # fmt: skip
    panels = [axis for axis in figure.axes if axis.get_title()]
    assert [axis.get_title() for axis in panels] == ['PGD L2', 'JPEG compression', 'Gaussian noise']
    labels = [axis.get_legend().get_texts()[0].get_text() for axis in panels]
    assert labels == [f'{what}: ECE 25.0' for what in ('ε=90', 'severity 1', 'level 5')]


def test_other_metrics_are_another_test(seg, report):
    with pytest.raises(UserError, match='config'):
        run(seg, out=report.folder, metrics='boundary', corruptions=['gaussian_blur=3'])


def test_against_a_reference_and_another_model(seg, report, tmp_path):
    second = SmallModel(tmp_path, 'seg', seg.data, seed=1, own_labels=False)
    other = run(
        second, metrics=['calibration'], corruptions=['gaussian_blur=3'], data_root=seg.data,
        compare=report.folder, reference=report.folder, detect=0.5,
    )  # fmt: skip
    means = [
        [cell['metrics']['mIoU']['mean'] for cell in one.results['cells']]
        for one in (other, report)
    ]
    error = other.mce['metrics']['mIoU']
    assert error['mce'] == pytest.approx(100 * (100 - means[0][1]) / (100 - means[1][1]))
    lost = [clean - blurred for clean, blurred in means]
    if lost[1] > 0:
        assert error['relative_mce'] == pytest.approx(100 * lost[0] / lost[1])
    assert other.worst_case['mIoU']['mean'] == means[0][1]
    rows = other.results['comparison']['rows']
    assert {row['metric'] for row in rows} == {'mIoU', 'ECE', 'Brier'}, 'boundary is not in both'
    assert other.results['comparison']['detect'] == 0.5
    assert 'mCE of mIoU' in other.table()
    text = other.files['comparison_per_class.csv'].decode().splitlines()
    assert text[0].startswith('cell,metric,class,')
    json.dumps(other.results, allow_nan=False)


def test_names_and_configs_can_be_mixed():
    assert split_names(None) == ([], None)
    assert split_names('boundary') == (['boundary'], None)
    iou = {'type': 'IoUMetric'}
    assert split_names(['boundary', iou]) == (['boundary'], [iou])
    assert split_names(iou) == ([], iou)
    given = [{'type': 'mmseg.IoUMetric', 'ignore_index': 11}]
    added = with_extra_metrics(given, ['boundary', 'calibration'])[1:]
    assert [one['ignore_index'] for one in added] == [11, 11]
    assert with_extra_metrics([{'type': 'BoundaryIoUMetric'}], ['boundary']) == [
        {'type': 'BoundaryIoUMetric'}
    ]


def test_what_has_no_calibration_is_refused(det):
    with pytest.raises(UserError, match='not measured here'):
        run(det, metrics=['calibration'], limit=1)
    with pytest.raises(UserError, match='ImageNet-ReaL'):
        with_extra_metrics([{'type': 'LabelSetAccuracy'}], ['calibration'])
