"""Weights of exactly one model: every name, every size, every value a finite number."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import UserError


def weights_in(content: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return the state dict of a checkpoint, without the prefix that data parallelism leaves."""
    state = content.get('state_dict', content)
    if not isinstance(state, Mapping):
        return {}
    return {
        re.sub(r'^module\.', '', str(key)): value
        for key, value in state.items()
        if isinstance(value, torch.Tensor)
    }


def require_fit(model: nn.Module, weights: Mapping[str, torch.Tensor], file: str | Path) -> None:
    """Compare names, sizes and values; nothing is loaded.

    Raises:
        UserError: The weights are not of this model, to the last name and size, or not all finite.
            mmengine's own loading takes whatever fits and continues with a half-random model.
    """
    own = {
        key: value for key, value in model.state_dict().items() if isinstance(value, torch.Tensor)
    }
    other = [key for key in own if key in weights and own[key].shape != weights[key].shape]
    if other:
        shown = '; '.join(
            f'{key} is {list(weights[key].shape)} there, {list(own[key].shape)} here'
            for key in other[:3]
        )
        raise UserError(
            f'checkpoint {file} does not belong to the model of the config: {len(other)} of its '
            f'tensors have other sizes ({shown}).'
        )
    missing = [k for k in own if k not in weights and not k.endswith('num_batches_tracked')]
    unknown = [key for key in weights if key not in own]
    if missing or unknown:
        raise UserError(
            f'checkpoint {file} does not belong to the model of the config: '
            + ' and '.join(
                f'{len(keys)} tensors are {word} (such as {", ".join(keys[:3])})'
                for word, keys in (('missing from it', missing), ('unknown here', unknown))
                if keys
            )
            + '.'
        )
    require_finite(weights, file)


def require_finite(weights: Mapping[str, torch.Tensor], file: str | Path) -> None:
    """Refuse tensors with NaN or infinity; the UserError names them."""
    broken = [
        key
        for key, value in weights.items()
        if (value.is_floating_point() or value.is_complex())
        # A tensor can have more numbers than the file holds, by repeating them.
        and not bool(torch.isfinite(_distinct(value)).all())
    ]
    if broken:
        more = f' and {len(broken) - 3} more' if len(broken) > 3 else ''
        raise UserError(
            f'checkpoint {file}: the values of {", ".join(broken[:3])}{more} are not all finite '
            '(NaN or infinity). Take an earlier checkpoint.'
        )


def _distinct(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor with repeated axes once."""
    index = tuple(
        slice(0, 1) if stride == 0 else slice(None)
        for stride in (tensor.stride() if tensor.layout == torch.strided else ())
    )
    return tensor[index] if index else tensor


def weights_digest(model: nn.Module) -> str:
    """Tells models apart by every value in them, wherever their weights came from."""
    return tensors_digest(model.state_dict())


def tensors_digest(tensors: Mapping[str, torch.Tensor]) -> str:
    """Return 16 digits of every name and value."""
    digest = hashlib.sha256()
    for name, tensor in tensors.items():
        digest.update(f'{name} {tensor.dtype} {tuple(tensor.shape)}'.encode())
        flat = tensor.detach().cpu().contiguous().flatten()
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
