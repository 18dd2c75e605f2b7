"""The runs of the study, in their registered order (docs/study.md). Imports little: options use it.

A run is a question, an arm and a seed. What an arm changes is in `Arm.changes`: keys of the config
of its question.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Arm:
    """Its name in tables, and what it changes in the config of its question."""

    title: str
    changes: dict[str, Any] = field(default_factory=dict)


class Question(NamedTuple):
    """What is asked, the arms, and about how many minutes one run takes on a free core."""

    title: str
    arms: dict[str, Arm]
    minutes: int


@dataclass(frozen=True)
class Run:
    """Identifies a run."""

    question: str
    arm: str
    seed: int

    @property
    def key(self) -> str:
        """The name of the run in the results, and of its folder."""
        return f'{self.question}/{self.arm}/{self.seed}'


def _backbone(**options: Any) -> dict[str, Any]:
    return {f'model.backbone.{name}': value for name, value in options.items()}


NONE = _backbone(broadcast=None)
UPPER = _backbone(broadcast='cb', layers='upper')
CB_S = _backbone(broadcast='cb_s', layers='all')


def _scaled(factor: float) -> dict[str, Any]:
    return {**CB_S, 'rates': {'broadcast.scale': factor}}


def _last(number: int) -> dict[str, Any]:
    return _backbone(broadcast='cb', layers=list(range(12 - number, 12)))


WAYS = {
    'plain': Arm('plain', NONE),
    'cb_s': Arm('CB_S', _scaled(1)),
    'cb_s_10': Arm('CB_S, lr of Λ × 10', _scaled(10)),
    'cb_s_100': Arm('CB_S, lr of Λ × 100', _scaled(100)),
    'last_1': Arm('CB in the last layer', _last(1)),
    'last_2': Arm('CB in the last 2 layers', _last(2)),
    'last_3': Arm('CB in the last 3 layers', _last(3)),
    'blend': Arm(
        'blend, α learned per layer',
        {**_backbone(broadcast='cb_blend', layers='all'), 'rates': {'broadcast.scale': 10}},
    ),
}
STARTS = {
    'deit': ('DeiT-Ti', tuple(WAYS)),
    'augreg': ('AugReg ViT-Ti', ('plain', 'cb_s_10', 'last_1', 'blend')),
}
#: Arm of `cifar` -> the name of its seed 0 among the weights that come with cb_mm.
PUBLISHED = {'none': 'vit_micro_cifar10', 'cb': 'vit_micro_cifar10_cb'}
QUESTIONS = {
    'baseline': Question(
        "The paper's baseline on real ImageNet images", {'deit_ti': Arm('DeiT-Ti')}, 80
    ),
    'cifar': Question(
        'CB from scratch: classification',
        {
            'none': Arm('none', NONE),
            'cb': Arm('CB, upper layers', UPPER),
            'cb_all': Arm('CB, all layers', _backbone(broadcast='cb', layers='all')),
            'cb_s': Arm('CB_S', CB_S),
        },
        45,
    ),
    'dense': Question(
        'Then dense prediction', {'none': Arm('none', NONE), 'cb': Arm('CB', UPPER)}, 20
    ),
    'weights': Question(
        'CB from plain weights',
        {
            f'{start}_{way}': Arm(f'{title}: {WAYS[way].title}', WAYS[way].changes)
            for start, (title, ways) in STARTS.items()
            for way in ways
        },
        25,
    ),
    'sparse': Question(
        'Sparse attention',
        {
            'dense': Arm('dense', {'base': 'imagenette_vit_tiny'}),
            'w_g': Arm('W+G', {'base': 'imagenette_bbvit_tiny_w_g'}),
            'r_w_g': Arm('R+W+G', {'base': 'imagenette_bbvit_tiny'}),
        },
        35,
    ),
    'heads': Question(
        'Few heads against many',
        {
            f'{name}_{heads}': Arm(
                f'{title}, {heads} head{"s" if heads > 1 else ""}',
                {**changes, **_backbone(**{'arch.num_heads': heads})},
            )
            for heads in (1, 6)
            for name, title, changes in (('none', 'none', NONE), ('cb', 'CB, upper layers', UPPER))
        },
        45,
    ),
}


def registered() -> list[Run]:
    """Return all runs of the study in the order in which they are done."""
    return list(_registered())


def _registered() -> Iterator[Run]:
    weights = {start: [f'{start}_{way}' for way in ways] for start, (_, ways) in STARTS.items()}
    yield from _seed_by_seed('baseline', ['deit_ti'], [0])
    for seed in range(5):
        yield from _seed_by_seed('cifar', ['none', 'cb'], [seed])
        yield from _seed_by_seed('dense', ['none', 'cb'], [seed])
    yield from _seed_by_seed('weights', weights['deit'])
    yield from _seed_by_seed('cifar', ['cb_all', 'cb_s'])
    yield from _seed_by_seed('sparse', ['dense', 'w_g', 'r_w_g'])
    yield from _seed_by_seed('heads', ['none_1', 'cb_1'])
    yield from _seed_by_seed('heads', ['none_6', 'cb_6'])
    yield from _seed_by_seed('weights', weights['augreg'])


def _seed_by_seed(
    question: str, arms: Iterable[str], seeds: Iterable[int] = range(3)
) -> Iterator[Run]:
    arms = list(arms)
    for seed in seeds:
        for arm in arms:
            yield Run(question, arm, seed)
