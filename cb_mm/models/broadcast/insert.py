"""Context Broadcasting added to any torch model in one line, and removed again.

    from cb_mm import add_context_broadcast

    added = add_context_broadcast(model)                    # CB in the upper half of the MLPs
    added = add_context_broadcast(model, 'cb_s', 'all', pattern='encoder.*.output.dropout')
    added.remove()

The model's own code is unchanged: forward hooks do it, so a state dict changes only by the
parameters of those variants that have any (``<name of the MLP>.broadcast.scale`` for CB_S).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn

from ...errors import UserError
from .context_broadcast import (
    BROADCASTS,
    ContextBroadcast,
    build_broadcast,
    check_choice,
    resolve_layers,
)
from .context_broadcast import _change_input as _place_input
from .context_broadcast import _change_output as _place_output
from .token_layout import MODALITIES, Modalities, TokenLayout

#: Names of modules whose output is the end of an MLP, before the residual sum.
_MLP_ENDS = (
    re.compile(r'(^|\.)(mlp|mlp_channels)$'),  # timm, torchvision; not Mixer's MLP over tokens
    re.compile(r'(^|\.)ffn\.layers$'),  # OpenMMLab: the FFN around it adds the residual itself
)
_LAST_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True, repr=False)
class Insertion:
    """What `add_context_broadcast` put into a model. As a context manager it removes it at the end.

    Attributes:
        model: The model.
        names: Names of the modules that now broadcast, in the order of the model.
        found: Number of modules that the pattern found, of which ``layers`` chose.
    """

    model: nn.Module
    names: tuple[str, ...]
    found: int

    def remove(self) -> None:
        """Restore the model as it was."""
        for name in self.names:
            _detach(self.model.get_submodule(name))
        if not any(_hosts(self.model)):
            Modalities.forget(self.model)

    def __enter__(self) -> Insertion:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f'Insertion({len(self.names)} of {self.found}: {", ".join(self.names)})'


def add_context_broadcast(
    model: nn.Module,
    broadcast: str = 'cb',
    layers: str | Iterable[int] | None = None,
    pattern: str | re.Pattern | None = None,
    *,
    where: str = 'output',
    tokens: slice | str | None = None,
    padding_in_mean: bool = False,
    channels_first: bool | None = None,
    skip_tokens: int = 0,
    scale_init: float = 0.0,
) -> Insertion:
    """Let layers of ``model`` broadcast the mean of their tokens.

    Tokens are (B, N, C) or (B, H, W, C); with ``channels_first``, (B, C, N) or (B, C, H, W).

    Args:
        model: Any torch model: from timm, torchvision, OpenMMLab, Hugging Face, or custom.
        broadcast: 'cb', 'cb_s', 'cb_blend', 'cb_gate', 'cb_hybrid', 'se', or another of
            `BROADCASTS`.
        layers: Which of the modules found: 'upper' half, 'all', or their numbers. None: all for
            CB_S, upper for the others.
        pattern: Names of the modules, as a glob (``'blocks.*.mlp'``; a star matches dots too) or a
            compiled regular expression, searched in the name. None finds the ends of the MLPs of
            timm's, torchvision's, OpenMMLab's, torch's and Hugging Face's (BERT-like) layers.
        where: 'output' changes what the modules return, 'input' what they get.
        tokens: The tokens of a sequence that take part, a slice: only they contribute to the mean
            and receive it. For a ViLT, 'image', 'text' or 'both'. None: all.
        padding_in_mean: Let a ViLT's padding count in the mean too; by default it stays out.
        channels_first: None finds it by the width of the module's last layer; where the shape fits
            both ways, a convolution's map has its channels first, everything else last.
        skip_tokens: Tokens at the start that stay out of the mean but receive it.
        scale_init: Initial value of the scales of CB_S and cb_blend.

    Returns:
        What was done; ``.remove()`` undoes it.

    Raises:
        UserError: A name that does not exist, a pattern that finds nothing, or a module that
            broadcasts already. The model is then as it was.
    """
    check_choice('broadcast', broadcast, BROADCASTS)
    check_choice('where', where, ('output', 'input'))
    if isinstance(tokens, str):
        check_choice('tokens', tokens, MODALITIES)
    found = find_mlp_ends(model) if pattern is None else _matching(model, pattern)
    chosen = sorted(set(resolve_layers(layers, len(found), broadcast)))
    wanted = [list(found)[i] for i in chosen]
    measured = {_host(model, name, where): _width(model, name, where) for name in wanted}
    names = list(measured)
    hosts = [model.get_submodule(name) for name in names]
    taken = [name for name, host in zip(names, hosts, strict=True) if hasattr(host, 'broadcast')]
    if taken:
        raise UserError(
            f'{taken[0]} already broadcasts; remove_context_broadcast(model) removes it.'
        )
    unknown = [name for name in names if measured[name] is None]
    if BROADCASTS[broadcast].needs_width and unknown:
        raise UserError(
            f'the number of channels of {unknown[0]} is not known, since it has no linear layer; '
            f'{broadcast!r} needs it. Choose a pattern for the module around it.'
        )
    modalities = None
    if isinstance(tokens, str):
        modalities = Modalities()
        modalities.watch(model)
    for name, host in zip(names, hosts, strict=True):
        width, conv = measured[name] or (None, False)
        module = build_broadcast(broadcast, width or 0, scale_init, skip_tokens)
        reference = next(host.parameters(), next(model.parameters(), None))
        if reference is not None:
            module.to(reference.device)
        module.train(host.training)
        module.layout = TokenLayout(
            name, width, channels_first, conv, tokens, modalities, padding_in_mean
        )
        host.add_module('broadcast', module)
        if where == 'input':
            host.register_forward_pre_hook(_change_input)
        else:
            host.register_forward_hook(_change_output)
    return Insertion(model, tuple(names), len(found))


def remove_context_broadcast(model: nn.Module) -> int:
    """Remove every broadcast from ``model``, or a copy of one; return how many there were."""
    hosts = list(_hosts(model))
    for host in hosts:
        _detach(host)
    Modalities.forget(model)
    return len(hosts)


def find_mlp_ends(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules whose output ends an MLP, by name; a UserError if there are none."""
    modules = dict(model.named_modules())
    found = {name: module for name, module in modules.items() if _is_mlp_end(name, modules)}
    if found:
        return found
    examples = [name for name, module in modules.items() if isinstance(module, nn.Linear)][-2:]
    raise UserError(
        f'{type(model).__name__} has no MLP of a known kind. Give pattern=..., a glob for names '
        'of the modules whose output is to be broadcast'
        + (f'; its last linear layers are {" and ".join(examples)}.' if examples else '.')
    )


def _is_mlp_end(name: str, modules: dict[str, nn.Module]) -> bool:
    if name.endswith('attn_pool.mlp'):  # SigLIP's pooling of all tokens into one is not a layer
        return False
    if any(pattern.search(name) for pattern in _MLP_ENDS):
        return True
    parent, _, last = name.rpartition('.')
    if last == 'dropout2':  # the layer adds the residual right after it
        return isinstance(modules[parent], nn.TransformerEncoderLayer)
    if last == 'dropout' and parent.rpartition('.')[2] == 'output':
        # Hugging Face's BERT-like layers: intermediate (first linear), output (second, residual).
        layer = modules[parent.rpartition('.')[0]]
        return hasattr(layer, 'intermediate') and hasattr(modules[parent], 'dense')
    return False


def _matching(model: nn.Module, pattern: str | re.Pattern) -> dict[str, nn.Module]:
    modules = {name: module for name, module in model.named_modules() if name}

    def fits(name: str) -> bool:
        if isinstance(pattern, re.Pattern):
            return pattern.search(name) is not None
        return fnmatchcase(name, pattern)

    found = {name: module for name, module in modules.items() if fits(name)}
    if not found:
        examples = ', '.join(list(modules)[-3:])
        raise UserError(
            f'pattern={pattern!r} matches no module of {type(model).__name__}, which has e.g. '
            f'{examples}.'
        )
    return found


def _host(model: nn.Module, name: str, where: str) -> str:
    """Return the module itself or, for a sequence, its last (first) member, which is what runs.

    A member that occurs twice (one dropout for both layers of mmdet's FFN) is skipped.
    """
    host = model.get_submodule(name)
    while isinstance(host, nn.Sequential):
        members = list(host._modules.items())
        once = [key for key, member in members if [m for _, m in members].count(member) == 1]
        if not once:
            break
        key = once[-1 if where == 'output' else 0]
        name, host = f'{name}.{key}', host._modules[key]
    return name


def _width(model: nn.Module, name: str, where: str) -> tuple[int, bool] | None:
    """Return the channels of a module's output or input, and whether they are a convolution's."""
    layers = [m for m in model.get_submodule(name).modules() if isinstance(m, _LAST_LAYERS)]
    if not layers and '.' in name and where == 'output':
        # A dropout keeps the width of the layer before it, which is its sibling.
        beside = list(model.get_submodule(name.rpartition('.')[0]).named_children())
        before = beside[: [key for key, _ in beside].index(name.rpartition('.')[2])]
        layers = [module for _, module in before if isinstance(module, _LAST_LAYERS)]
    if not layers:
        return None
    layer = layers[-1] if where == 'output' else layers[0]
    if isinstance(layer, nn.Linear):
        return (layer.out_features if where == 'output' else layer.in_features), False
    return (layer.out_channels if where == 'output' else layer.in_channels), True


def _change_input(host: nn.Module, args: tuple) -> tuple:
    return (host.broadcast.layout.apply(host.broadcast, args[0]), *args[1:])


def _change_output(host: nn.Module, args: tuple, output: Any) -> Tensor:
    return host.broadcast.layout.apply(host.broadcast, output)


def _hosts(model: nn.Module) -> Iterator[nn.Module]:
    for module in model.modules():
        if isinstance(getattr(module, 'broadcast', None), ContextBroadcast):
            yield module


def _detach(host: nn.Module) -> None:
    for hooks in (host._forward_hooks, host._forward_pre_hooks):
        for key, hook in list(hooks.items()):
            if hook in (_change_input, _change_output, _place_input, _place_output):
                del hooks[key]
    del host.broadcast
