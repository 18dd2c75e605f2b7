"""One line for an op that has no stand-in: which it is, who needs it, where to get it."""

from __future__ import annotations

import inspect
from typing import NoReturn

import torch

from ...errors import UserError
from ..families import current_family


class MissingOp(UserError, NotImplementedError):
    """An mmcv op without a stand-in here was called."""


def raise_missing(name: str) -> NoReturn:
    """Raise the error for a call of the op ``name``."""
    raise MissingOp(
        f"{_calling_part()} needs the op {name} of mmcv's compiled extension, which is not "
        f'installed, and cb_mm has no stand-in for it. Install {_source()} '
        '(docs/installation.md), or configure a model without this part.'
    )


def _calling_part() -> str:
    """Return the running part of the model, from the stack: 'backbone.conv (DeformConv2d)'."""
    running = []
    frame = inspect.currentframe()
    while frame is not None:
        owner = frame.f_locals.get('self')
        if isinstance(owner, torch.nn.Module):
            running.append(owner)
        frame = frame.f_back
    if not running:  # called by hand, or in a backward pass
        return 'this call'
    names = {module: name for name, module in running[-1].named_modules()}
    kind = type(running[0]).__name__
    return f'{names[running[0]]} ({kind})' if names.get(running[0]) else kind


def _source() -> str:
    if current_family() == 'openmmlab':
        return 'mmcv with its ops, built for your torch, instead of mmcv-lite'
    return 'one of the prebuilt CUDA wheels of onedl-mmcv that the onedl project publishes'
