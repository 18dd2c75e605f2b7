"""The peers of the speed benchmarks do the same work; their tables say what was measured."""

from __future__ import annotations

import sys
import types

import pytest
import torch
from tool import REPO

sys.path.insert(0, str(REPO / 'benchmarks'))
import large_images
import sweep_parts
from parts.in_turns import cells, measure
from parts.upernet_models import OfHuggingFace, OfOpenMMLab

from cb_mm.apis.benchmark_models import build_subject
from cb_mm.config.loading import load_config


def test_hugging_faces_upernet_is_ours_with_the_same_weights():
    config = load_config(REPO / 'configs/upernet_vit_ti_cb.py')
    config.model.decode_head.channels = 32
    config.model.backbone.arch_changes = dict(depth=4)
    config.model.backbone.out_indices = (0, 1, 2, 3)
    ours = build_subject(config, 'ours', (64, 64), batch=2)
    theirs = OfHuggingFace(ours)
    expected = OfOpenMMLab(ours).forward()
    assert expected.shape == (2, 150, 64, 64)
    torch.testing.assert_close(theirs.forward(), expected, rtol=1e-4, atol=1e-5)
    theirs.train_step()
    assert ours.train_step() is None


def test_memory_and_ratio_come_from_the_turns_themselves():
    held = []

    def large() -> None:
        held.append(torch.ones(8 * 2**20))  # 32 MiB, touched
        held.clear()

    rows = measure({'small': lambda: sum(range(1000)), 'large': large}, repeats=3)
    assert rows['large']['peak_bytes'] > 24 * 2**20 > rows['small']['peak_bytes']
    assert rows['small']['first_to_this']['ratio'] == 1.0
    assert cells(None) == ['–'] * 3
    assert rows['large']['turns'] == 3


def rows(**seconds: float) -> dict:
    return {'rows': {name: {'cpu_median_s': s, 'peak_bytes': 2**20} for name, s in seconds.items()}}


def test_an_exponent_is_over_pixels_and_the_fastest_is_named():
    runs = {str(side): rows(whole=side**4, sparse=9e5 * side**2) for side in (512, 1024, 2048)}
    found = large_images.exponents(runs)
    assert found == pytest.approx({'whole': 2.0, 'sparse': 1.0})
    lines = large_images.table(runs | {'slide': {'peak_bytes': 2**31, 'cpu_s': 9.0}}).splitlines()
    assert [line.split(' | ')[-1] for line in lines[2:5]] == ['whole |', 'sparse |', 'sparse |']
    assert lines[-1] == '| slide | 2,048 | 0.50 | 9 |'


def test_the_table_of_a_sweep_extrapolates_from_its_fastest_run():
    parts = {'decoding': 1.0, 'corruption': 2.0, 'model': 6.0, 'metric': 1.0, 'all': 10.0}
    run = dict(images=2, passes=3, parts=parts, workers={'1': 8.0}, to_larger={'1': 8 / 7})
    line = sweep_parts.table({'small, table9': run}).splitlines()[-1]
    assert line == (
        '| small, table9 | 2 × 3 | 10.0 | 10.0 % | 20.0 % | 0.0 % | 60.0 % | 10.0 % '
        '| 8.0 (1.14) | 404 |'
    )
    assert len(sweep_parts.jobs_of('table9', None)) == 18
    assert len(sweep_parts.jobs_of('imagenet-c', 3)) == 16


def test_parts_of_a_mask_rcnn_sum_to_the_whole():
    from parts.mask_rcnn_models import seconds_of_parts
    from torch import nn

    vit, neck, roi = nn.Identity(), nn.Identity(), nn.Identity()
    vit.pyramid = nn.Identity()
    head = types.SimpleNamespace(
        bbox_roi_extractor=roi, mask_roi_extractor=roi, bbox_head=roi, mask_head=roi
    )
    rpn = types.SimpleNamespace(rpn_conv=nn.Identity())
    model = types.SimpleNamespace(backbone=vit, neck=neck, roi_head=head, rpn_head=rpn)
    found = seconds_of_parts(model, lambda: (neck(vit(1)), sum(range(10**6))))
    assert set(found) == {'ViT', 'FPN', 'proposals, NMS, pasting masks', 'all'}
    whole = found.pop('all')
    assert sum(found.values()) == pytest.approx(whole)
