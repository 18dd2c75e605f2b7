"""Entry point to the checks of data sets, by name, as train and test use them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ...errors import UserError, did_you_mean
from .ade20k import check_ade20k
from .coco import check_coco
from .imagenet import check_imagenet
from .report import KINDS, Problem, Report, require

__all__ = [
    'CHECKS',
    'KINDS',
    'Problem',
    'Report',
    'check',
    'check_ade20k',
    'check_coco',
    'check_imagenet',
    'require',
]

#: data set -> its check
CHECKS: dict[str, Callable[..., Report]] = {
    'ade20k': check_ade20k,
    'coco': check_coco,
    'imagenet': check_imagenet,
}


def check(dataset: str, root: str | os.PathLike, **options: Any) -> Report:
    """Check a data set by name; ``options`` are those of its check.

    Before a run: ``require(check('ade20k', root, quick=True))``.

    Raises:
        UserError: If the data set has no check or ``root`` is not a folder.
    """
    if dataset not in CHECKS:
        hint = did_you_mean(dataset, CHECKS)
        raise UserError(f'no check for data set {dataset!r}: use {" or ".join(CHECKS)}.{hint}')
    return CHECKS[dataset](root, **options)
