"""What the study compares, as registered in docs/study.md, and how it is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cb_mm.robustness.significance import LEVEL, holm, t_test
from cb_mm.robustness.statistics import Summary, summarize

from .study_plan import STARTS, WAYS

#: key of a run -> its record
Runs = Mapping[str, Mapping[str, Any]]
#: A number from the scores of a run.
Measure = Callable[[Mapping[str, Any]], float]
TABLE_9 = (
    *('shot_noise=255', 'gaussian_noise=5', 'gaussian_noise=10'),
    *('gaussian_blur=1', 'gaussian_blur=2'),
)


def mean(values: Sequence[float]) -> float:
    """Return the mean of numbers."""
    return sum(values) / len(values)


def clean(scores: Mapping[str, Any]) -> float:
    """Return the score on clean images."""
    return scores['clean']


def corrupted(scores: Mapping[str, Any]) -> float:
    """Return the mean score over Table 9's five corruptions."""
    return mean([scores[cell] for cell in TABLE_9])


def upper_entropy(scores: Mapping[str, Any]) -> float:
    """Return the entropy of the attention, mean over the upper half of the layers."""
    layers = scores['entropy']
    return mean(layers[len(layers) // 2 :])


class Comparison(NamedTuple):
    """What is subtracted: two keys of runs without their seeds, or two pairs of them.

    Attributes:
        title: What is compared.
        what: The measure, in words.
        measure: The measure.
        seeds: How many seeds are registered.
        plus: Runs that count positively.
        minus: Runs that count negatively.
    """

    title: str
    what: str
    measure: Measure
    seeds: int
    plus: tuple[str, ...]
    minus: tuple[str, ...]

    def differences(self, runs: Runs) -> list[float]:
        """Return the difference of every seed whose runs are all done."""
        found = []
        for seed in range(self.seeds):
            sides = [
                [runs.get(f'{key}/{seed}') for key in side] for side in (self.plus, self.minus)
            ]
            if all(record for side in sides for record in side):
                plus, minus = (sum(self.measure(record['scores']) for record in side if record)
                               for side in sides)  # fmt: skip
                found.append(plus - minus)
        return found


class Family(NamedTuple):
    """Comparisons that are judged together."""

    question: str
    title: str
    comparisons: tuple[Comparison, ...]


def _against_none(
    title: str, what: str, measure: Measure, seeds: int = 5, arm: str = 'cb'
) -> Comparison:
    return Comparison(title, what, measure, seeds, (f'cifar/{arm}',), ('cifar/none',))


def _way(start: str, way: str) -> Comparison:
    return Comparison(
        f'{WAYS[way].title} − plain', 'mIoU, whole images', clean, 3,
        (f'weights/{start}_{way}',), (f'weights/{start}_plain',),
    )  # fmt: skip


def _gain(heads: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if heads == 3:
        return ('cifar/cb',), ('cifar/none',)
    return (f'heads/cb_{heads}',), (f'heads/none_{heads}',)


def _gains(few: int, many: int) -> Comparison:
    (plus, minus), (other_plus, other_minus) = _gain(few), _gain(many)
    return Comparison(
        f'gain of CB with {few} head − with {many}', 'top-1, clean', clean, 3,
        plus + other_minus, minus + other_plus,
    )  # fmt: skip


_CB = 'CB upper − none'
FAMILIES = (
    Family('cifar', 'primary', (_against_none(_CB, 'top-1, clean', clean),)),
    Family(
        'cifar',
        'secondary, together',
        (
            _against_none(_CB, 'entropy of the upper half, nats', upper_entropy),
            _against_none(_CB, 'top-1, centre hidden', lambda s: s['occlusion=0.5']),
            _against_none(_CB, 'top-1, FGSM ε = 2', lambda s: s['fgsm']['fgsm=2']),
            _against_none(_CB, "top-1, mean of Table 9's corruptions", corrupted),
            _against_none('CB all − none', 'top-1, clean', clean, 3, 'cb_all'),
            _against_none('CB_S − none', 'top-1, clean', clean, 3, 'cb_s'),
        ),
    ),
    Family(
        'dense',
        'primary',
        (
            Comparison('CB − none', 'mIoU in windows', lambda s: s['windows'], 5,
                       ('dense/cb',), ('dense/none',)),
        ),
    ),
    *(
        Family('weights', f'{title}, together', tuple(_way(start, way) for way in ways[1:]))
        for start, (title, ways) in STARTS.items()
    ),
    Family(
        'sparse',
        'together',
        tuple(
            Comparison(f'{title} − dense', 'top-1', clean, 3, (f'sparse/{arm}',), ('sparse/dense',))
            for arm, title in (('w_g', 'W+G'), ('r_w_g', 'R+W+G'))
        ),
    ),
    Family('heads', 'together', (_gains(1, 3), _gains(1, 6))),
)  # fmt: skip


class Judged(NamedTuple):
    """A comparison with what was found.

    Attributes:
        comparison: It.
        found: The differences, summarized; None without any.
        p: Of no difference; None unless all registered seeds are done.
        adjusted: By Holm's method; None unless the whole family is done.
    """

    comparison: Comparison
    found: Summary | None
    p: float | None
    adjusted: float | None

    @property
    def verdict(self) -> str:
        """Say whether the difference counts as shown."""
        if self.found is None:
            return 'not run yet'
        if self.found.n < self.comparison.seeds:
            return f'{self.found.n} of {self.comparison.seeds} seeds'
        if self.adjusted is None:
            return 'the others are missing'
        if self.adjusted >= LEVEL:
            return 'not shown'
        return 'higher' if self.found.mean > 0 else 'lower'


def judge(family: Family, runs: Runs) -> list[Judged]:
    """Judge a family: nothing counts before all of it is done."""
    rows = []
    for comparison in family.comparisons:
        differences = comparison.differences(runs)
        found = summarize(differences) if differences else None
        p = None
        if found and found.n == comparison.seeds and found.std is not None:
            p = t_test(found.mean, found.std / found.n**0.5, found.n - 1)
        rows.append((comparison, found, p))
    whole = all(p is not None for _, _, p in rows)
    adjusted = holm([p for _, _, p in rows]) if whole else [None] * len(rows)
    return [Judged(*row, value) for row, value in zip(rows, adjusted, strict=True)]
