"""What a sweep measures: cells (a corruption at a level), and jobs (one repeat of a cell)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..corruption import Cell, cells_for, find_corruption
from ..corruption.registry import words
from ..errors import UserError
from .attacks.catalogue import ATTACKS, FGSM, AttackSettings, check_epsilon, parse_attack
from .attacks.pgd import Attack

CLEAN = 'clean'

_TITLES = {
    'gaussian_noise': 'Gaussian noise σ={:g}',
    'gaussian_blur': 'Gaussian blur σ={:g}',
    'shot_noise': 'shot noise, {:g} counts at white',
    **{name: f'{attack.title} ε={{:g}}' for name, attack in ATTACKS.items()},
}


@dataclass(frozen=True)
class AttackCell(Cell):
    """A cell whose images come from the model's own gradient; ``level`` is ε.

    Attributes:
        attack: How they are attacked.
    """

    attack: Attack = ATTACKS[FGSM]

    @property
    def random(self) -> bool:
        """Whether repeated measurements differ: if the attack starts at random."""
        return self.attack.random_start

    def transform_cfg(self, seed: int = 0, repeat: int = 0) -> dict[str, Any] | None:
        """Return None: the data pipeline does nothing."""
        return None


@dataclass(frozen=True)
class Job:
    """One pass over the images: a cell, and which repeat of it."""

    cell: Cell
    repeat: int = 0

    @property
    def key(self) -> str:
        """Unique within a sweep, and good as a file name: 'gaussian_noise=5_2'."""
        return f'{self.cell.key}_{self.repeat}' if self.cell.random else self.cell.key


def plan_cells(
    suite: str | None,
    corruptions: Sequence[str],
    severity: int | None,
    epsilons: Sequence[float] = (),
    attacks: Sequence[str] = (),
    settings: AttackSettings | None = None,
) -> list[Cell]:
    """Return the cells of a sweep, clean images first; see ``cb_mm.corruption.cells_for``.

    Args:
        suite: a named set of corruptions.
        corruptions: names with levels.
        severity: of corruptions without a level.
        epsilons: strengths of FGSM.
        attacks: texts for ``parse_attack``.
        settings: of the attacks.
    """
    settings = settings or AttackSettings()
    cells = {cell.key: cell for cell in cells_for(suite, corruptions, severity)}
    for epsilon in epsilons:
        check_epsilon(FGSM, epsilon, f'`fgsm` {epsilon:g}')
    wanted = [(FGSM, float(epsilon)) for epsilon in epsilons]
    wanted += [one for text in attacks for one in parse_attack(text)]
    settings.check([name for name, _ in wanted])
    for name, epsilon in wanted:
        cell = AttackCell(name, epsilon, attack=settings.of(name))
        cells.setdefault(cell.key, cell)
    return list(cells.values())


def plan_jobs(cells: Sequence[Cell], repeats: int) -> list[Job]:
    """Plan clean and deterministic cells once, random ones ``repeats`` times."""
    if repeats < 1:
        raise UserError(f'`repeats` {repeats}: at least 1 is needed.')
    return [Job(cell, k) for cell in cells for k in range(repeats if cell.random else 1)]


def title(name: str, level: float | None, severity: int | None = None) -> str:
    """Return a title: 'clean', 'Gaussian noise σ=5', 'motion blur, severity 3'."""
    if level is None:
        return 'clean'
    if severity is not None:
        return f'{words(name)}, severity {severity}'
    if name in _TITLES:
        return _TITLES[name].format(level)
    unit = find_corruption(name).unit
    if unit.startswith('severity'):
        return f'{words(name)}, severity {level:g}'
    return f'{words(name)} {level:g} ({unit})'


def count(number: int, noun: str) -> str:
    """Return '1 image', '2 images'."""
    return f'{number} {noun}' if number == 1 else f'{number} {noun}s'
