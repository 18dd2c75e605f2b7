"""The paper's ablations: one row per model, as changes to a recipe, with the paper's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..models.broadcast.context_broadcast import check_choice

_WIDTHS = {'tiny': 192, 'small': 384, 'base': 768}
_SHORT = {'tiny': 'ti', 'small': 's', 'base': 'b'}
#: Of ViTCB, where not None.
_DEFAULTS = {'model.backbone.position': 'end'}


@dataclass(frozen=True)
class Row:
    """A model of an ablation.

    Attributes:
        label: Its name in the table.
        options: Changes to any config, as ``cfg_options`` of `train` takes them.
        recipe: The config of the full-scale run.
        arch: Size of the model, where the rows of an ablation differ in it.
        paper: The paper's figures: 'top1', 'top5', 'parameters' (M).
    """

    label: str
    options: tuple[str, ...]
    recipe: str
    arch: str | None = None
    paper: Mapping[str, float] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """Return its folder below the folder of the ablation."""
        words = ''.join(c.lower() if c.isalnum() else ' ' for c in self.label.replace('†', ' all'))
        return '_'.join(words.split())

    @property
    def values(self) -> dict[str, str]:
        """Return the options as keys and values."""
        return dict(option.split('=', 1) for option in self.options)


@dataclass(frozen=True)
class Ablation:
    """A table or figure of the paper: its title, its rows, and what is our reading."""

    title: str
    rows: tuple[Row, ...]
    reading: str = ''


def _row(
    label: str,
    paper: Mapping[str, float] | float,
    size: str = 'small',
    several: bool = False,
    **backbone: Any,
) -> Row:
    """Make a row; ``backbone`` are the options of ViTCB that differ, '__' for '.'."""
    ours = bool(backbone.get('broadcast') or backbone.get('attention'))
    recipe = f'imagenet_vit_{_SHORT[size]}{"_cb" if ours else ""}'
    if ours:  # the recipe has CB in the upper layers
        backbone = {'broadcast': None, **backbone}
    options = tuple(
        f'model.backbone.{key.replace("__", ".")}={value}' for key, value in backbone.items()
    )
    figures = paper if isinstance(paper, Mapping) else {'top1': paper}
    return Row(label, options, recipe, size if several else None, figures)


def _both(top1: float, top5: float) -> dict[str, float]:
    return {'top1': top1, 'top5': top5}


_PLAIN = _row('ViT-S', 79.9)
_PLAIN_5 = _row('ViT-S', _both(79.9, 95.0))
_NAMES = {'cb': 'CB', 'cb_gate': 'CB_gate', 'cb_hybrid': 'CB_hybrid'}


def _grid(places: Mapping[str, str], figures: Mapping[str, list]) -> tuple[Row, ...]:
    """Make a row for each broadcast and position, in all layers."""
    rows = [_PLAIN_5]
    for kind, pairs in figures.items():
        for (title, position), pair in zip(places.items(), pairs, strict=True):
            rows.append(
                _row(
                    f'{_NAMES[kind]}, {title}', _both(*pair) if pair else {},
                    broadcast=kind, layers='all', position=position,
                )
            )  # fmt: skip
    return tuple(rows)


_BLOCKS = {'MLP': 'end', 'MSA': 'attn', 'both': 'mlp+attn'}
_PLACES = {'Front': 'front', 'Mid': 'mid', 'End': 'end'}
#: The paper does not list the numbers of heads of Figure 9.
HEADS = (1, 2, 3, 6, 12)

ABLATIONS = {
    'table1': Ablation(
        'Table 1: uniform attention in ViT-S',
        (
            _row('ViT-S', {'top1': 79.9, 'parameters': 22}),
            _row('(A)', {'top1': 80.1, 'parameters': 21}, attention='uniform_a'),
            _row('(B)', {'top1': 80.3, 'parameters': 22}, attention='uniform_b'),
            _row('(C)', {'top1': 80.6, 'parameters': 29}, attention='uniform_c'),
            _row('CB', {'top1': 80.8, 'parameters': 22}, broadcast='cb'),
            _row('CB_S', {'top1': 80.4, 'parameters': 22}, broadcast='cb_s', layers='all'),
        ),
        'How (B) and (C) get their parameters; (A), (B) and (C) without repeated augmentation, '
        'like CB.',
    ),
    'table2': Ablation(
        'Table 2: CB in all layers (CB†) and in the upper ones',
        tuple(
            row
            for size, name, (none, dagger, upper) in (
                ('tiny', 'ViT-Ti', (72.2, 73.2, 73.4)),
                ('small', 'ViT-S', (79.9, 80.5, 80.8)),
                ('base', 'ViT-B', (81.8, 82.0, 82.1)),
            )
            for row in (
                _row(name, none, size, True),
                _row(f'{name} + CB†', dagger, size, True, broadcast='cb', layers='all'),
                _row(f'{name} + CB', upper, size, True, broadcast='cb'),
            )
        ),
        'Upper layers are the upper half.',
    ),
    'table3': Ablation(
        'Table 3: SE and CB in ViT-S',
        (_PLAIN, _row('SE', 80.3, broadcast='se'), _row('CB', 80.8, broadcast='cb')),
        'SE is in the layers and the place of CB, with reduction 16, and without repeated '
        'augmentation, like CB.',
    ),
    'table4': Ablation(
        'Table 4: position of CB in ViT-S',
        (
            _PLAIN,
            *(
                _row(f'CB, {name}', score, broadcast='cb', layers='all', position=position)
                for name, position, score in (
                    ('MLP', 'end', 80.5), ('MSA', 'attn', 80.1), ('both', 'mlp+attn', 80.1),
                    ('Front', 'front', 79.9), ('Mid', 'mid', 80.5), ('End', 'end', 80.5),
                )
            ),
        ),
        '"CB, MLP" and "CB, End" are one model.',
    ),
    'table_s16': Ablation(
        'Table S16: CB, CB_gate and CB_hybrid at MLP and MSA of ViT-S',
        _grid(
            _BLOCKS,
            {
                'cb': [(80.5, 95.3), (80.1, 95.0), (80.1, 95.0)],
                'cb_gate': [(80.4, 95.1), (80.0, 95.0), (80.0, 95.0)],
                'cb_hybrid': [(80.5, 95.0), (80.4, 95.3), None],
            },
        ),
        'The paper gives no score for CB_hybrid at both: it did not train.',
    ),
    'table_s17': Ablation(
        'Table S17: CB, CB_gate and CB_hybrid in the MLP of ViT-S',
        _grid(
            _PLACES,
            {
                'cb': [(79.9, 94.8), (80.5, 95.2), (80.5, 95.3)],
                'cb_gate': [(80.3, 94.9), (80.2, 95.1), (80.4, 95.1)],
                'cb_hybrid': [(80.5, 95.0), (80.1, 95.1), (80.3, 95.0)],
            },
        ),
    ),
    'figure9': Ablation(
        'Figure 9: number of heads of ViT-Ti',
        tuple(
            row
            for heads in HEADS
            for row in (
                _row(f'{heads} heads', {}, 'tiny', arch_changes__num_heads=heads),
                _row(
                    f'{heads} heads + CB', {}, 'tiny', broadcast='cb',
                    arch_changes__num_heads=heads,
                ),
            )
        ),
        'The paper draws the scores and does not list them, nor the numbers of heads.',
    ),
    'figure3': Ablation(
        'Figure 3: one extra layer behind an eight-layer ViT-S',
        tuple(
            row
            for row in (
                _row('8 layers', {}, arch_changes__depth=8),
                _row('8 layers + MSA', {}, arch_changes__depth=8, extra_layer='attn'),
                _row('8 layers + MLP', {}, arch_changes__depth=8, extra_layer='mlp'),
            )
        ),
        'The size is not stated: ViT-S. The extra MLP has ratio 2, so that both extra layers add '
        'nearly the same parameters, as the paper says.',
    ),
}  # fmt: skip


def row_changes(name: str, row: Row, own_config: bool) -> list[str]:
    """Return what a row of an ablation changes in its recipe, or in a config of the user's own.

    The user's config may have CB, in layers and a place of its own. So whatever the rows of the
    ablation differ in has its default in the rows that do not name it.
    """
    if not own_config:
        return list(row.options)
    changes = list(row.options)
    if row.arch is not None:
        size = f'model.backbone.arch={row.arch}', f'model.head.in_channels={_WIDTHS[row.arch]}'
        changes = [*size, *changes]
    differing = dict.fromkeys(key for other in ABLATIONS[name].rows for key in other.values)
    absent = [key for key in differing if key not in row.values]
    return [*changes, *(f'{key}={_DEFAULTS.get(key)}' for key in absent)]


def chosen_rows(name: str, labels: Sequence[str] | None = None) -> list[Row]:
    """Return the rows of an ablation with these labels, in its order; by default all."""
    check_choice('name', name, ABLATIONS)
    rows = list(ABLATIONS[name].rows)
    if labels is None:
        return rows
    for label in labels:
        check_choice('rows', label, [row.label for row in rows])
    return [row for row in rows if row.label in labels]
