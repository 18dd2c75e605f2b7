"""Figures are in per cent where they say so: known for each metric, tested against upstream."""

from __future__ import annotations

import importlib
import json
import sys

import numpy as np
import pytest
import torch
from mmengine.evaluator import BaseMetric
from robustness_models import records
from written_records import record, table9

from cb_mm.robustness import SweepOptions, sweep, write_report
from cb_mm.robustness.metrics import JobEvaluator
from cb_mm.robustness.units import _FRACTIONS, _PERCENT, in_percent

PACKAGES = {'cb_mm': 'cb_mm.evaluation.vqa_accuracy', 'mmdet': 'mmdet.evaluation',
            'mmseg': 'mmseg.evaluation', 'mmpretrain': 'mmpretrain.evaluation'}  # fmt: skip
#: Not in every release.
NEW = {'mmdet.FasterCocoMetric'}


def metric_class(name: str) -> type:
    package, _, kind = name.partition('.')
    module = pytest.importorskip(PACKAGES[package])
    if name in NEW and not hasattr(module, kind):
        pytest.skip('not in this release')
    return getattr(module, kind)


@pytest.mark.parametrize('name', sorted(_FRACTIONS | _PERCENT))
def test_each_class_that_is_known_computes_by_itself(name):
    assert 'compute_metrics' in vars(metric_class(name)), 'else the class above it is known'
    assert name not in _FRACTIONS & _PERCENT


def boxes(scale: float) -> dict:
    box = np.array([[0, 0, 10 * scale, 10]], np.float32)
    return dict(bboxes=box, labels=np.array([0]), bboxes_ignore=np.zeros((0, 4), np.float32),
                labels_ignore=np.array([], int))  # fmt: skip


def perfect() -> dict[str, tuple[BaseMetric, list]]:
    """Metrics with the results of a model that makes no mistake."""
    detection = importlib.import_module('mmdet.evaluation')
    classes = pytest.importorskip('mmpretrain.evaluation')
    voc = detection.VOCMetric()
    voc.dataset_meta = dict(classes=('thing',))
    found = [np.array([[0, 0, 10, 10, 0.9]], np.float32)]
    scores = torch.eye(3)
    results = [
        dict(pred_score=scores[i], pred_label=torch.tensor([i]), gt_label=torch.tensor([i]),
             gt_score=scores[i])
        for i in range(3)
    ]  # fmt: skip
    return {
        'VOCMetric': (voc, [(boxes(1), found)] * 2),
        'SingleLabelMetric': (classes.SingleLabelMetric(items=('precision', 'recall')), results),
        'MultiLabelMetric': (classes.MultiLabelMetric(thr=0.5), results),
        'AveragePrecision': (classes.AveragePrecision(), results),
    }


@pytest.mark.parametrize(
    'name',
    ['VOCMetric', 'SingleLabelMetric', 'MultiLabelMetric', 'AveragePrecision'],
)
def test_no_mistakes_are_a_hundred_per_cent(name):
    metric, results = perfect()[name]
    values, units = in_percent(metric, metric.compute_metrics(results))
    assert values
    assert {float(value) for value in values.values()} == {100.0}
    assert set(units.values()) == {'%'}


class OwnMetric(BaseMetric):
    """Somebody's metric, of which nothing is known."""

    def process(self, batch, samples):
        self.results += [0.25] * len(samples)

    def compute_metrics(self, results):
        return {'error': sum(results), 'matrix': np.eye(2)}


def test_an_unknown_unit_is_left_as_it_is_and_not_called_per_cent(tmp_path):
    evaluator = JobEvaluator([OwnMetric()], {}, False)
    evaluator.process(0, {}, [{}, {}])
    scores = evaluator.evaluate(True)
    assert (scores.metrics, scores.units) == ({'error': 0.5}, {'error': None})
    header, _ = table9()
    header['identity']['cells'] = ['clean']
    row = {**record('clean'), 'metrics': scores.metrics, 'units': scores.units}
    text = write_report(tmp_path, header, [row])
    assert 'per cent' not in text
    assert 'Figures of error as the metric gives them' in text


def test_a_subclass_that_computes_by_itself_may_have_any_unit():
    kind = metric_class('mmdet.VOCMetric')

    class Own(kind):
        def compute_metrics(self, results):
            return {'mAP': 50.0}

    class Renamed(kind):
        pass

    assert in_percent(Own(), {'mAP': 50.0}) == ({'mAP': 50.0}, {'mAP': None})
    assert in_percent(Renamed(), {'mAP': 0.5}) == ({'mAP': 50.0}, {'mAP': '%'})


def test_counts_are_no_per_cent():
    metric = metric_class('mmpretrain.SingleLabelMetric')()
    values, units = in_percent(metric, {'single-label/support': 40, 'single-label/recall': 90})
    assert values == {'single-label/support': 40, 'single-label/recall': 90}
    assert units == {'single-label/support': None, 'single-label/recall': '%'}


@pytest.fixture
def coco_evaluator(tmp_path):
    """Two classes, in another order than their ids, and one object of each in an image."""
    boxes = {7: [0, 0, 100, 100], 3: [200, 0, 100, 100]}
    content = {
        'images': [{'id': 1, 'file_name': 'a.jpg', 'height': 400, 'width': 400}],
        'categories': [{'id': 7, 'name': 'well found'}, {'id': 3, 'name': 'badly found'}],
        'annotations': [
            {'id': i, 'image_id': 1, 'category_id': kind, 'bbox': box, 'area': 1e4, 'iscrowd': 0}
            for i, (kind, box) in enumerate(boxes.items(), 1)
        ],
    }
    (tmp_path / 'truth.json').write_text(json.dumps(content))
    metric = metric_class('mmdet.CocoMetric')(ann_file=str(tmp_path / 'truth.json'))
    return JobEvaluator([metric], {'classes': ('well found', 'badly found')}, False)


def test_a_model_that_detects_nothing_has_an_ap_of_zero(coco_evaluator):
    """Strong corruption or few images may leave no detection; upstream then returns no figure."""
    none = dict(bboxes=torch.zeros(0, 4), scores=torch.zeros(0), labels=torch.zeros(0).long())
    coco_evaluator.process(0, {}, [dict(img_id=1, ori_shape=(400, 400), pred_instances=none)])
    scores = coco_evaluator.evaluate(True)
    assert scores.upstream == {}
    assert scores.metrics['bbox_mAP'] == 0
    assert scores.per_class['bbox_AP'] == {'well found': 0, 'badly found': 0}
    assert scores.per_image == {'bbox_AP': [0]}


def test_figures_of_coco_stand_under_their_own_names(coco_evaluator):
    """Boxes that are good enough for 0.5 alone."""
    # Label 0 is the first category of the file, whose id is the larger one. IoU: 1 and 0.7.
    found = dict(bboxes=torch.tensor([[0.0, 0, 100, 100], [200, 0, 300, 70]]),
                 scores=torch.tensor([0.9, 0.8]), labels=torch.tensor([0, 1]))  # fmt: skip
    coco_evaluator.process(0, {}, [dict(img_id=1, ori_shape=(400, 400), pred_instances=found)])
    scores = coco_evaluator.evaluate(True)
    assert scores.per_class['bbox_AP'] == pytest.approx({'well found': 100, 'badly found': 50})
    expected = {'mAP': 75, 'mAP_50': 100, 'mAP_75': 50, 'mAP_s': None, 'mAP_m': None, 'mAP_l': 75}
    for item, value in expected.items():
        upstream, own = scores.upstream[f'coco/bbox_{item}'], scores.metrics[f'bbox_{item}']
        if value is None:
            assert upstream == -1
            assert np.isnan(own)
        else:
            assert own == pytest.approx(value) == pytest.approx(100 * upstream)
    assert scores.per_image == {'bbox_AP': [pytest.approx(75)]}


def test_a_sweep_with_vocs_metric(det, tmp_path, capsys):
    """The table says per cent, so it holds a hundred times what upstream says."""
    config = tmp_path / 'voc.py'
    config.write_text(
        det.config.read_text()
        + "test_evaluator = dict(_delete_=True, type='VOCMetric', metric='mAP')\n"
    )
    words = ['test_dataloader.num_workers=0', 'test_dataloader.persistent_workers=False']
    where = dict(checkpoint=str(det.checkpoint), data_root=str(det.data), out=str(tmp_path / 'o'))
    sweep(SweepOptions(str(config), cfg_options=words, **where), sys.stdout)
    found = records(tmp_path / 'o')['clean']
    upstream = found['upstream']['pascal_voc/mAP']
    assert 0 < upstream < 1
    assert found['metrics']['pascal_voc/mAP'] == pytest.approx(100 * upstream)
    shown = capsys.readouterr().out
    assert f'| {100 * upstream:.2f} ' in shown
    assert 'All figures in per cent.' in shown
