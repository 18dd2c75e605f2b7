"""The attacks by name, and what a command line may change about them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...errors import UserError, did_you_mean
from .losses import PIXEL_WEIGHTS
from .norms import L2, LINF
from .pgd import Attack

FGSM = 'fgsm'
_ITERATED = {
    'bim': Attack('BIM', random_start=False),
    'pgd': Attack('PGD'),
    'segpgd': Attack('SegPGD', objective='segpgd'),
    'cospgd': Attack('CosPGD', objective='cospgd'),
}
#: Name -> attack. A name that ends in '_l2' bounds the L2 distance, the others L∞.
ATTACKS: dict[str, Attack] = {
    FGSM: Attack('FGSM', random_start=False, steps=1),
    **_ITERATED,
    **{
        f'{name}_{L2}': replace(attack, title=f'{attack.title} L2', norm=L2)
        for name, attack in _ITERATED.items()
    },
}


@dataclass(frozen=True)
class AttackSettings:
    """What all attacks of a test share, FGSM aside; None for the default of `Attack`.

    Attributes:
        attack_steps: Number of steps.
        attack_step_size: Length of a step as a share of ε.
        attack_restarts: Random starts of each image; the best one counts.
        random_start: Begin at a random image within ε, where the attack does so.
    """

    attack_steps: int | None = None
    attack_step_size: float | None = None
    attack_restarts: int | None = None
    random_start: bool = True

    def check(self, names: Sequence[str]) -> None:
        """Refuse values that make no sense, and those that no attack of these names reads."""
        for option in ('attack_steps', 'attack_restarts'):
            number = getattr(self, option)
            if number is not None and (not isinstance(number, int) or number < 1):
                raise UserError(f'`{option}` {number}: at least 1 is needed.')
        size = self.attack_step_size
        if size is not None and not (math.isfinite(size) and 0 < size <= 2):
            raise UserError(
                f'`attack_step_size` {size:g}: a step is a share of ε, above 0 and at most 2.'
            )
        iterated = any(name != FGSM for name in names)
        starts = any(ATTACKS[name].random_start for name in names)
        given = {name: value for name, value in asdict(self).items() if value is not None}
        if self.random_start:
            del given['random_start']
        if given and not iterated:
            raise UserError(
                f'`{next(iter(given))}` has nothing to set: it is for `attacks` such as pgd=4'
            )
        if not self.random_start and not starts:
            raise UserError('`random_start` has nothing to set: no attack here starts at random.')
        if (self.attack_restarts or 1) > 1 and not (starts and self.random_start):
            raise UserError(
                f'`attack_restarts` {self.attack_restarts}: without a random start, every restart '
                'would be the same.'
            )

    def of(self, name: str) -> Attack:
        """Return the attack of a name with these settings; FGSM has none."""
        attack = ATTACKS[name]
        if name == FGSM:
            return attack
        return replace(
            attack,
            random_start=attack.random_start and self.random_start,
            steps=self.attack_steps or attack.steps,
            step_size=self.attack_step_size,
            restarts=self.attack_restarts or attack.restarts,
        )


def parse_attack(text: str) -> list[tuple[str, float]]:
    """Return the names and strengths that NAME=EPS or NAME=EPS,EPS,... stands for."""
    name, _, levels = text.partition('=')
    if name not in ATTACKS:
        hint = did_you_mean(name.lower(), ATTACKS)
        raise UserError(f'`attacks` {text}: unknown attack.{hint} Known are {", ".join(ATTACKS)}.')
    try:
        found = [(name, float(level)) for level in levels.split(',')]
    except ValueError:
        raise UserError(
            f'`attacks` {text}: after "=" comes ε in grey levels, as in {name}=4 or {name}=2,4'
        ) from None
    for _, epsilon in found:
        check_epsilon(name, epsilon, f'`attacks` {text}')
    return found


def check_epsilon(name: str, epsilon: float, where: str) -> None:
    """Refuse a strength that no image can have; the L2 distance has no common upper limit."""
    linf = ATTACKS[name].norm == LINF
    if not (math.isfinite(epsilon) and epsilon >= 0 and (epsilon <= 255 or not linf)):
        limits = 'from 0 to 255' if linf else '0 or more, the root of the sum of squared changes'
        raise UserError(f'{where}: ε is in grey levels, {limits}.')


def check_model(names: Sequence[str], model: Any) -> None:
    """Refuse attacks on the pixels of a model that does not label pixels."""
    for name in names:
        kind = ATTACKS[name].objective
        if kind in PIXEL_WEIGHTS and not hasattr(model, 'encode_decode'):
            raise UserError(
                f'`attacks` {name}: {ATTACKS[name].title} is for segmentation models of mmseg, and '
                f'{type(model).__name__} is not one. Use pgd.'
            )
