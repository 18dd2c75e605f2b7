"""Projected gradient ascent: many small steps, each followed by a return to within ε.

BIM, PGD, SegPGD and CosPGD are this loop with another start or another objective. With one step of
ε from the image itself it is FGSM, to the last bit.

The image that is returned is the one with the highest loss among all that the steps reached, in all
restarts; the start does not count. It need not be the last one: a step can overshoot.

Only the current image and the best one are kept, so memory does not grow with the steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .losses import TRAINING_LOSS, objective
from .norms import LINF, NORMS


@dataclass(frozen=True)
class Attack:
    """How images are attacked, whatever ε is.

    Attributes:
        title: Its name in tables.
        objective: What it climbs: 'loss', 'segpgd' or 'cospgd'.
        norm: The distance that ε bounds: 'linf' or 'l2'.
        random_start: Begin at a random image within ε, not at the image itself.
        steps: How many.
        step_size: Length of a step as a share of ε; None for 2.5 / steps, at most 1.
        restarts: Random starts; the best one counts.
    """

    title: str = 'PGD'
    objective: str = TRAINING_LOSS
    norm: str = LINF
    random_start: bool = True
    steps: int = 20
    step_size: float | None = None
    restarts: int = 1

    @property
    def share(self) -> float:
        """Length of a step as a share of ε: by default Madry et al.'s, which can cross the ball."""
        return min(2.5 / self.steps, 1.0) if self.step_size is None else self.step_size

    @property
    def starts(self) -> int:
        """How often it begins: once, where every start is the same."""
        return self.restarts if self.random_start else 1


@dataclass(frozen=True)
class Trace:
    """What an attack did to one image.

    Attributes:
        losses: Restart by restart, the loss at the start and after every step.
        restart: The restart whose image was kept.
        step: The step after which it was kept.
        linf: Its L∞ distance from the original, in grey levels.
        l2: Its L2 distance.
    """

    losses: tuple[tuple[float, ...], ...]
    restart: int
    step: int
    linf: float
    l2: float

    @property
    def loss(self) -> float:
        """The loss of the image that was kept."""
        return self.losses[self.restart][self.step]


def pgd(
    model: nn.Module,
    image: Tensor,
    truth: Any,
    epsilon: float,
    attack: Attack | None = None,
    *,
    seed: int = 0,
    rng: np.random.Generator | None = None,
) -> tuple[Tensor, Trace]:
    """Attack one image.

    Args:
        model: A segmentor, detector or classifier, in evaluation mode.
        image: 3 x H x W in grey levels, in the channel order of the pipeline, not normalised.
        truth: Data sample with the labels on the pixels of ``image``.
        epsilon: Largest distance from the image, in grey levels; see `norms`.
        attack: How; PGD with 20 steps from a random start by default.
        seed: Of random draws in the loss (detectors sample boxes); the same in every step.
        rng: Of the random starts; by default made from the seed.

    Returns:
        The attacked image (float32, 3 x H x W, within [0, 255] and ``epsilon`` of the image), and
        what happened.
    """
    attack = attack or Attack()
    norm = NORMS[attack.norm]
    rng = np.random.default_rng(seed) if rng is None else rng
    clean = image.detach().float()
    best, highest, kept = clean, -np.inf, (0, 0)
    losses: list[tuple[float, ...]] = []
    for restart in range(attack.starts):
        current, curve = _start(clean, epsilon, attack, rng), []
        for step in range(attack.steps + 1):
            moves = step < attack.steps
            current.requires_grad_(moves)
            with torch.set_grad_enabled(moves):
                climbed, loss = objective(
                    attack.objective, model, current, truth, seed, step / attack.steps
                )
            curve.append(loss.item())
            if step and (best is clean or curve[-1] > highest):
                best, highest, kept = current.detach(), curve[-1], (restart, step)
            if moves:
                (gradient,) = torch.autograd.grad(climbed, current)
                moved = current.detach() + attack.share * epsilon * norm.direction(gradient)
                # The image is in [0, 255], so clipping brings every value nearer to it.
                current = norm.project(moved, clean, epsilon).clamp_(0, 255)
        losses.append(tuple(curve))
    change = best - clean
    distances = {name: one.length(change).item() for name, one in NORMS.items()}
    return best, Trace(tuple(losses), *kept, **distances)


def _start(clean: Tensor, epsilon: float, attack: Attack, rng: np.random.Generator) -> Tensor:
    """Return a copy of the image, or a random one within ε of it."""
    if not attack.random_start:
        return clean.clone()
    norm = NORMS[attack.norm]
    change = torch.from_numpy(norm.start(tuple(clean.shape), epsilon, rng)).to(clean)
    return norm.project(clean + change, clean, epsilon).clamp_(0, 255)
