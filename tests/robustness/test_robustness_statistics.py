"""Statistics against scipy's own tests, by hand, and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from cb_mm.robustness.statistics import (
    WHAT_REPEATS_MEASURE,
    difference,
    mean_performance,
    retention,
    summarize,
)


def test_summary_by_hand():
    """Five values with standard deviation sqrt(2.5); t for 4 degrees of freedom is 2.7764."""
    summary = summarize([1, 2, 3, 4, 5])
    assert (summary.n, summary.mean) == (5, 3.0)
    assert summary.std == pytest.approx(2.5**0.5)
    assert summary.half_width == pytest.approx(2.7764451 * 2.5**0.5 / 5**0.5, rel=1e-7)
    assert summary.high - summary.mean == pytest.approx(summary.mean - summary.low)


def test_summary_equals_scipy():
    values = np.random.default_rng(0).normal(40, 0.1, 7)
    expected = stats.t.interval(0.95, 6, loc=values.mean(), scale=stats.sem(values))
    summary = summarize(values)
    assert (summary.low, summary.high) == pytest.approx(expected, rel=1e-12)


def test_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(2000):
        summary = summarize(rng.normal(10, 2, 5))
        hits += summary.low <= 10 <= summary.high
    assert 0.935 < hits / 2000 < 0.965


def test_one_measurement_has_no_interval():
    summary = summarize([41.5])
    assert (summary.n, summary.mean) == (1, 41.5)
    assert summary.std is summary.low is summary.high is summary.half_width is None


def test_equal_measurements_have_an_interval_of_no_width():
    summary = summarize([7.0] * 5)
    assert (summary.std, summary.low, summary.high) == (0, 7, 7)


def test_nothing_cannot_be_summarized():
    with pytest.raises(ValueError, match='no measurement'):
        summarize([])


def test_retention():
    assert retention(30, 40) == 0.75
    assert retention(45, 40) == 1.125
    assert retention(0, 40) == 0
    assert retention(1, 0) is None
    assert retention(float('nan'), 40) is None


def test_mpc_is_a_mean_over_corruptions_of_means_over_severities():
    scores = {('fog', s): 10.0 * s for s in range(1, 6)} | {('snow', s): 5.0 for s in range(1, 6)}
    result = mean_performance(scores, clean=40)
    assert result.mpc == pytest.approx((30 + 5) / 2)
    assert result.rpc == pytest.approx(17.5 / 40)
    assert (result.corruptions, result.severities, result.complete) == (2, (1, 2, 3, 4, 5), True)


def test_mpc_of_few_severities_says_so():
    result = mean_performance({('fog', 3): 20.0, ('snow', 3): 10.0, ('snow', 5): 0.0})
    assert result.mpc == pytest.approx((20 + 5) / 2)
    assert result.rpc is None
    assert (result.severities, result.complete) == ((3, 5), False)
    all_but_one = {(name, s): 1.0 for name in ('fog', 'snow') for s in range(1, 6)}
    del all_but_one['snow', 2]
    assert not mean_performance(all_but_one).complete
    with pytest.raises(ValueError, match='at least one'):
        mean_performance({})


def by_repeat(values) -> dict[int, float]:
    return dict(enumerate(map(float, values)))


def test_paired_difference_equals_scipy():
    rng = np.random.default_rng(2)
    noise = rng.normal(0, 1, 5)  # what the noise does to both models alike
    a, b = 41 + noise + rng.normal(0, 0.05, 5), 40 + noise + rng.normal(0, 0.05, 5)
    gap = difference(by_repeat(a), by_repeat(b), same_noise=True)
    expected = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (gap.low, gap.high) == pytest.approx((expected.low, expected.high), rel=1e-10)
    assert (gap.method, gap.n, gap.clear) == ('paired', (5, 5), True)
    apart = difference(by_repeat(a), by_repeat(b), same_noise=False)
    assert apart.mean == pytest.approx(gap.mean)
    assert apart.half_width > 5 * gap.half_width  # pairing is what shows the difference


def test_welch_difference_equals_scipy():
    rng = np.random.default_rng(3)
    a, b = rng.normal(41, 1, 5), rng.normal(40, 3, 8)
    gap = difference(by_repeat(a), by_repeat(b), same_noise=False)
    expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert (gap.low, gap.high) == pytest.approx((expected.low, expected.high), rel=1e-10)
    assert (gap.method, gap.n) == ('Welch', (5, 8))
    assert gap.std == pytest.approx(np.hypot(np.std(a, ddof=1), np.std(b, ddof=1)))


def test_pairs_are_made_by_the_number_of_the_repeat():
    gap = difference({2: 5.0, 0: 1.0, 1: 3.0}, {0: 0.0, 1: 2.0, 2: 4.0, 3: 99.0}, same_noise=True)
    assert (gap.mean, gap.low, gap.high, gap.n) == (1, 1, 1, (3, 3))


def test_single_measurements_have_a_difference_without_an_interval():
    for first, second in (({0: 3.0}, {0: 1.0}), ({0: 3.0}, {0: 0.0, 1: 2.0})):
        gap = difference(first, second, same_noise=True)
        assert (gap.mean, gap.low, gap.high, gap.clear) == (2, None, None, None)
        assert gap.method == 'single'


def test_welch_without_any_spread():
    gap = difference(by_repeat([2, 2]), by_repeat([1, 1, 1]), same_noise=False)
    assert (gap.mean, gap.low, gap.high) == (1, 1, 1)


def test_it_says_what_repeats_do_not_measure():
    assert 'not of training' in WHAT_REPEATS_MEASURE
