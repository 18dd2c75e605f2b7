"""Layer-wise learning-rate decay, for mmseg and mmdet configs alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mmengine.logging import print_log
from mmengine.optim import DefaultOptimWrapperConstructor
from mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS
from timm.models._manipulate import group_with_matcher
from torch import nn

from ...errors import UserError

_OPTIONS = ('layer_decay', 'custom_keys')
_NO_DECAY = ('norm_decay_mult', 'bias_decay_mult', 'flat_decay_mult')
# A name that no layer has: timm then places it after the last one.
_BEHIND = '~behind the last layer'


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class ViTLayerDecayConstructor(DefaultOptimWrapperConstructor):
    """Learning rate × ``layer_decay`` for every layer between a parameter and the head.

    With L blocks, block i gets ``layer_decay ** (L - i)``, the embeddings ``layer_decay ** (L+1)``
    and everything after the last block (pyramid, neck, heads) the full rate. Norms, biases,
    position embedding, prefix tokens, layer scale and CB_S scales have no weight decay.

    The layers are those of timm's ``group_matcher``, which ViTCB and most timm models have::

        optim_wrapper = dict(
            optimizer=dict(type='AdamW', lr=1e-4, weight_decay=0.05),
            constructor='ViTLayerDecayConstructor',
            paramwise_cfg=dict(layer_decay=0.75))

    Args:
        optim_wrapper_cfg: As in mmengine; the optimizer must have an ``lr``.
        paramwise_cfg: ``layer_decay`` (0.75 by default), and ``custom_keys`` as in mmengine:
            ``{'decode_head': dict(lr_mult=10., decay_mult=1.)}``, multiplied with the above.
    """

    def __init__(self, optim_wrapper_cfg: dict, paramwise_cfg: dict | None = None) -> None:
        paramwise_cfg = {'layer_decay': 0.75, **(paramwise_cfg or {})}
        super().__init__(optim_wrapper_cfg, paramwise_cfg)
        # A config that inherits a recipe also inherits these; they request what is done anyway.
        same = {key for key in _NO_DECAY if paramwise_cfg.get(key) == 0}
        unknown = [key for key in paramwise_cfg if key not in {*_OPTIONS, *same}]
        if unknown:
            raise UserError(
                f'paramwise_cfg has {unknown[0]!r}; ViTLayerDecayConstructor takes '
                f'{" and ".join(_OPTIONS)}.'
            )
        if not 0 < paramwise_cfg['layer_decay'] <= 1:
            raise UserError(f'layer_decay={paramwise_cfg["layer_decay"]} is not in (0, 1].')
        if self.base_lr is None:
            raise UserError('ViTLayerDecayConstructor needs an lr in optim_wrapper.optimizer.')

    def add_params(self, params: list[dict], module: nn.Module, **_: Any) -> None:
        """Append the parameter groups of ``module``, one for each pair of rate and weight decay."""
        powers = dict(layer_powers(module))
        undecayed = set(_undecayed(module))
        groups: dict[tuple, dict] = {}
        for name, parameter in module.named_parameters():
            if not parameter.requires_grad:
                continue
            custom = self._custom(name)
            power = powers.get(name, 0)
            scale = self.paramwise_cfg['layer_decay'] ** power * custom.get('lr_mult', 1.0)
            decay = self.base_wd
            if parameter.ndim <= 1 or name.endswith('.bias') or name in undecayed:
                decay = 0.0
            elif decay is not None:
                decay *= custom.get('decay_mult', 1.0)
            settings = {'lr': self.base_lr * scale}
            if decay is not None:
                settings['weight_decay'] = decay
            group = groups.setdefault((-scale, decay), {'params': [], **settings})
            group['params'].append(parameter)
        # The full rate comes first: it is the one that mmengine logs.
        params += [groups[key] for key in sorted(groups, key=lambda key: (key[0], key[1] or 0))]
        print_log(self._describe(params), logger='current')

    def _custom(self, name: str) -> dict:
        keys = self.paramwise_cfg.get('custom_keys', {})
        longest = max((key for key in sorted(keys) if key in name), key=len, default=None)
        return keys[longest] if longest else {}

    def _describe(self, groups: list[dict]) -> str:
        counts: dict[float, list[int]] = {}
        for group in groups:
            decayed_and_not = counts.setdefault(group['lr'], [0, 0])
            decayed_and_not[group.get('weight_decay') == 0] += len(group['params'])
        lines = [
            f'lr {rate:.3g} for {sum(both)} tensors ({both[1]} without weight decay)'
            for rate, both in counts.items()
        ]
        title = f'layer-wise lr decay {self.paramwise_cfg["layer_decay"]}:'
        return '\n  '.join([title, *lines])


def _layered_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the outermost modules that know their layers, with their parameter prefix."""
    if hasattr(model, 'group_matcher'):
        yield '', model
        return
    for name, child in model.named_children():
        for path, module in _layered_modules(child):
            yield f'{name}.{path}', module


def layer_powers(model: nn.Module) -> Iterator[tuple[str, int]]:
    """Yield the name of each backbone parameter, and how many layers follow it, head included."""
    backbones = list(_layered_modules(model))
    if not backbones:
        raise UserError(
            'layer-wise decay needs a backbone that knows its layers by a group_matcher, as ViTCB '
            f'and most timm models do; {type(model).__name__} has none.'
        )
    for prefix, backbone in backbones:
        # Blocks that do not train are not layers here: those after the last output never run.
        names = [(name, None) for name, p in backbone.named_parameters() if p.requires_grad]
        layers = group_with_matcher(
            iter([*names, (_BEHIND, None)]), backbone.group_matcher(coarse=False), reverse=True
        )
        for name, _ in names:
            yield prefix + name, layers[_BEHIND] - layers[name]


def _undecayed(model: nn.Module) -> Iterator[str]:
    """Yield the full names of the parameters that timm's models exempt from weight decay."""
    for path, module in model.named_modules():
        if hasattr(module, 'no_weight_decay'):
            yield from (f'{path}.{name}'.lstrip('.') for name in module.no_weight_decay())
