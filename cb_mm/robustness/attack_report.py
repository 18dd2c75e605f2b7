"""What the report says of attacks: a table, ``attack_loss.csv`` and a figure of the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..fileio.figures import new_figure, save_figure
from ..fileio.result_files import write_csv
from ..fileio.safe_text import figure_text
from .attacks.catalogue import ATTACKS, FGSM
from .attacks.losses import TRAINING_LOSS
from .jobs import count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = 'attack_loss'
#: In the identity; the last two matter to attacks with a random start.
SETTINGS = ('attack_steps', 'attack_step_size', 'attack_restarts', 'random_start')
_TITLES = {TRAINING_LOSS: 'training loss', 'pixels': 'cross-entropy of the decode head'}


def write_attack_files(folder: Path, results: Mapping[str, Any], formats: Sequence[str]) -> None:
    """Write the mean loss by step of every attack, if there are any."""
    cells = [cell for cell in results['cells'] if cell.get('attack')]
    if not cells:
        return
    rows = [
        [cell['key'], _kind(cell), step, loss]
        for cell in cells
        for step, loss in enumerate(cell['attack']['loss'])
    ]
    write_csv(folder / f'{NAME}.csv', ['attack', 'loss_of', 'step', 'loss'], rows)
    save_figure(_figure(cells, results['model']), folder / NAME, formats, dpi=130)


def attack_rows(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the table of attacks: losses, and how far the images are from the originals."""
    head = ['attack', 'loss, start', 'loss, attacked', 'L∞, largest', 'L2, largest']
    rows = []
    for cell in results['cells']:
        attack = cell.get('attack')
        if attack:
            values = attack['loss'][0], attack['kept_loss']
            losses = ['–' if value is None else f'{value:.4f}' for value in values]
            rows.append([cell['title'], *losses, f'{attack["linf"]:.3f}', f'{attack["l2"]:.2f}'])
    return head, rows


def attack_notes(identity: Mapping[str, Any]) -> list[str]:
    """Return how the attacks were done, in a sentence each."""
    settings = identity.get('attack_settings')
    if not settings:
        return []
    alike: dict[str, list[str]] = {}
    for name in dict.fromkeys(map(_name, identity['cells'])):
        if name in ATTACKS and name != FGSM:
            text = _how(settings, ATTACKS[name].random_start and settings['random_start'])
            alike.setdefault(text, []).append(ATTACKS[name].title)
    return [
        *(f'{", ".join(titles)}: {text}.' for text, titles in alike.items()),
        'Of all steps, the image with the highest loss is tested. The loss of SegPGD and CosPGD is '
        'the cross-entropy of the decode head, that of other attacks the training loss of all '
        'heads; distances are in grey levels of the image that the model gets.',
    ]


def _how(settings: Mapping[str, Any], random_start: bool) -> str:
    steps, restarts = settings['attack_steps'], settings['attack_restarts']
    text = f'{count(steps, "step")} of {settings["attack_step_size"]:.4g} ε from '
    if not random_start:
        return f'{text}the image itself'
    return text + ('a random start' if restarts == 1 else f'{restarts} random starts, the best one')


def check_same_attacks(
    identity: Mapping[str, Any], other: Mapping[str, Any], option: str = 'compare'
) -> None:
    """Refuse to compare scores under attacks of one name with different settings."""
    here, there = (one.get('attack_settings') or {} for one in (identity, other['identity']))
    if not here or not there:
        return
    theirs = {cell['key'] for cell in other['cells']}
    for name in (_name(key) for key in identity['cells'] if key in theirs):
        if name not in ATTACKS or name == FGSM:
            continue
        starts = ATTACKS[name].random_start
        for setting in SETTINGS if starts else SETTINGS[:2]:
            if here[setting] != there[setting]:
                raise UserError(
                    f'`{option}`: {other["model"]} was attacked with another {name}: {setting} is '
                    f'{there[setting]} there and {here[setting]} here. Test both with the same '
                    'settings.'
                )


def _name(key: str) -> str:
    return key.partition('=')[0]


def _kind(cell: Mapping[str, Any]) -> str:
    attack = ATTACKS[cell['corruption']]
    return TRAINING_LOSS if attack.objective == TRAINING_LOSS else 'pixels'


def _figure(cells: Sequence[Mapping[str, Any]], model: str) -> Figure:
    kinds = list(dict.fromkeys(_kind(cell) for cell in cells))
    figure = new_figure(4.6 * len(kinds), 3.4)
    figure.suptitle(f'{figure_text(model)}: mean loss of the images, by step', fontsize=9)
    for axis, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        for cell in (one for one in cells if _kind(one) == kind):
            losses = [float('nan') if loss is None else loss for loss in cell['attack']['loss']]
            axis.plot(losses, marker='o', ms=2.5, lw=1.2, label=figure_text(cell['title']))
        axis.set_xlabel('step', fontsize=8)
        axis.set_ylabel(_TITLES[kind], fontsize=8)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.25, lw=0.6)
        axis.spines[['top', 'right']].set_visible(False)
        axis.legend(fontsize=7, frameon=False)
    return figure
