"""Holm's method on known values, its error rate by simulation, and the power formula."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from cb_mm.robustness.significance import holm, needed_number, power_of, t_test
from cb_mm.robustness.statistics import difference


def test_holm_by_hand():
    # 0.005 x 4, 0.01 x 3, 0.03 x 2, 0.04 x 1; the last may not be smaller than the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.01, None, 0.02]) == [0.02, None, 0.02]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
    assert holm([None]) == [None]


def test_holm_as_its_definition_rejects():
    """Step down: reject while the k-th smallest is at most level / (m - k)."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        values = rng.random(8) ** 4
        rejected = set()
        for rank, place in enumerate(np.argsort(values)):
            if values[place] > 0.05 / (8 - rank):
                break
            rejected.add(place)
        assert {place for place, p in enumerate(holm(list(values))) if p <= 0.05} == rejected


def test_p_agrees_with_scipy_and_with_the_interval():
    rng = np.random.default_rng(1)
    for _ in range(30):
        a, b = rng.normal(0.6, 1, 6), rng.normal(0, 2, 6)
        first, second = dict(enumerate(a)), dict(enumerate(b))
        paired, welch = (difference(first, second, same) for same in (True, False))
        assert paired.p == pytest.approx(stats.ttest_rel(a, b).pvalue)
        assert welch.p == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue)
        for one in (paired, welch):
            assert one.clear == (one.p < 0.05)
        assert paired.std == pytest.approx(np.std(a - b, ddof=1))


def test_p_without_any_spread():
    same = {0: 1.0, 1: 1.0}
    assert difference(same, same, True).p == 1
    assert difference({0: 2.0, 1: 2.0}, same, True).p == 0
    assert difference({0: 2.0}, {0: 1.0}, True).p is None
    assert t_test(0.0, 0.0, 4) == 1


def test_a_suite_without_any_difference_is_cleared_of_false_findings():
    """Ten rows of five repeats: uncorrected, two suites in five have a false one."""
    rng = np.random.default_rng(2)
    suites, plain, corrected = 2000, 0, 0
    for rows in rng.normal(size=(suites, 10, 5)):
        values = stats.ttest_1samp(rows, 0, axis=1).pvalue
        plain += (values < 0.05).any()
        corrected += min(holm(list(values))) < 0.05
    assert plain / suites == pytest.approx(1 - 0.95**10, abs=0.03)
    assert corrected / suites == pytest.approx(0.05, abs=0.015)


@pytest.mark.parametrize(('deviation', 'gap'), [(1.0, 1.0), (0.5, 0.4), (3.0, 1.0)])
def test_the_number_that_is_needed_has_the_power_in_a_simulation(deviation, gap):
    number = needed_number(deviation, gap)
    rng = np.random.default_rng(3)
    for n, at_least in ((number, True), (number - 1, False)):
        pairs = rng.normal(gap, deviation, (100_000, n))
        found = (stats.ttest_1samp(pairs, 0, axis=1).pvalue < 0.05).mean()
        assert found == pytest.approx(power_of(n, deviation, gap), abs=0.006)
        assert (power_of(n, deviation, gap) >= 0.8) == at_least


def test_numbers_that_are_known():
    assert needed_number(1.0, 1.0) == 10  # of textbooks: effect 1, power 0.8, paired
    assert needed_number(0.0, 1.0) == 2
    assert needed_number(1e-6, 1.0) == 2
    # Of statsmodels' TTestPower.solve_power, rounded up.
    assert needed_number(10.0, 1.0) == 787
    assert needed_number(20.0, 1.0) == 3142
    assert needed_number(100.0, 1.0) == 78491
    # (1.96 + 0.84)² = 7.8489 times the squared ratio, where t and normal agree
    assert needed_number(1e4, 1.0) == 784887974
    with pytest.raises(ValueError, match='above 0'):
        needed_number(1.0, 0.0)
