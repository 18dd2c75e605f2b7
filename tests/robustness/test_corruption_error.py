"""mCE by the formula of ImageNet-C, written out."""

from __future__ import annotations

import pytest

from cb_mm.robustness.corruption_error import corruption_error, worst_case

OURS = {'fog': {'1': 70.0, '2': 60.0}, 'snow': {'1': 50.0, '2': 40.0}}
THEIRS = {'fog': {'1': 60.0, '2': 40.0}, 'snow': {'1': 60.0, '2': 20.0}}


def test_written_out():
    found = corruption_error(OURS, THEIRS, 80.0, 75.0)
    fog, snow = (30 + 40) / (40 + 60), (50 + 60) / (40 + 80)
    assert found.by_corruption == pytest.approx({'fog': 100 * fog, 'snow': 100 * snow})
    assert found.mce == pytest.approx(100 * (fog + snow) / 2)
    fog = (30 - 20 + 40 - 20) / (40 - 25 + 60 - 25)
    snow = (50 - 20 + 60 - 20) / (40 - 25 + 80 - 25)
    assert found.relative_mce == pytest.approx(100 * (fog + snow) / 2)
    assert found.levels == 4


def test_a_model_against_itself_is_100():
    found = corruption_error(OURS, OURS, 80.0, 80.0)
    assert (found.mce, found.relative_mce) == pytest.approx((100, 100))


def test_only_what_both_have_counts():
    found = corruption_error(OURS, {'fog': {'2': 40.0}, 'frost': {'1': 10.0}}, 80.0, 75.0)
    assert found.by_corruption == pytest.approx({'fog': 100 * 40 / 60})
    assert found.levels == 1
    assert corruption_error(OURS, {'frost': {'1': 10.0}}) is None
    assert corruption_error({}, {}) is None


def test_without_a_loss_of_the_reference_there_is_no_relative_figure():
    assert corruption_error(OURS, THEIRS).relative_mce is None
    assert corruption_error(OURS, THEIRS, 80.0, 20.0).relative_mce is None
    assert corruption_error({'fog': {'1': 50.0}}, {'fog': {'1': 100.0}}) is None


def test_the_worst_case():
    assert worst_case({'a': 3.0, 'b': 1.0, 'c': 2.0}) == ('b', 1.0)
    assert worst_case({}) is None
