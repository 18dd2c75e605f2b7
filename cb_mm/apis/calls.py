"""Common parts of all functions of the Python interface."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from torch import nn

from ..checkpoints.mmengine_files import safe_files
from ..compat.wrappers import unwrap
from ..config import restricted
from ..errors import UserError
from ..fileio.atomic import write_atomically
from ..robustness.console_log import quiet_console
from .arguments import check_arguments
from .host_process import unchanged_modes, unchanged_process, unchanged_settings

P = ParamSpec('P')
R = TypeVar('R')
T = TypeVar('T')


def api(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function of the Python interface: silent, and the process is then as it was before.

    ``verbose`` lets it print; ``safe_config`` lets it refuse configs that hold more than data.
    """
    return _call(function, unchanged_process)


def training_api(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function as `api` does, whose Runner lives on with what mmengine keeps for it."""
    return _call(function, unchanged_settings)


def _call(
    function: Callable[P, R], unchanged: Callable[[], contextlib.AbstractContextManager]
) -> Callable[P, R]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> R:
        args = tuple(map(_without_wrapper, args))
        kwargs = {name: _without_wrapper(value) for name, value in kwargs.items()}
        with contextlib.ExitStack() as stack:
            stack.enter_context(unchanged())
            if not kwargs.get('verbose'):
                stack.enter_context(quiet_console(keep=False))
            stack.enter_context(restricted.only_data(bool(kwargs.get('safe_config'))))
            stack.enter_context(safe_files())
            stack.enter_context(unchanged_modes([*args, *kwargs.values()]))
            check_arguments(function, args, kwargs)
            return function(*args, **kwargs)

    return call


def _without_wrapper(value: Any) -> Any:
    return unwrap(value) if isinstance(value, nn.Module) else value


def options_from(kind: Callable[..., T], given: Mapping[str, Any], **more: Any) -> T:
    """Return the options of a library call: those of ``given`` that it knows, and ``more``.

    Args:
        kind: A dataclass whose fields have the names of parameters.
        given: The parameters of a function, as ``locals()`` has them at its start.
        more: What has no parameter of its name, or another value.
    """
    names = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    chosen = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in given.items()
        if name in names and name not in more
    }
    return kind(**chosen, **more)


def files_in(folder: Path) -> dict[str, bytes]:
    """Return the content of every file in a folder, by its path there."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob('*'))
        if file.is_file() and not file.name.startswith('.')
    }


def save_files(files: dict[str, bytes], folder: str | Path) -> list[Path]:
    """Write files into a folder and return their paths."""
    return [write_atomically(Path(folder) / name, content) for name, content in files.items()]


def loaded_files(given: T, name: str, data_loader: Any) -> T | list[Path]:
    """Return what was given, or the image files of a data loader or data set of mmengine."""
    if data_loader is None:
        return given
    if given != ():
        raise UserError(f'`{name}` and `data_loader`: give one of them.')
    dataset = getattr(data_loader, 'dataset', data_loader)
    if not hasattr(dataset, 'get_data_info'):
        raise UserError(
            f'`data_loader`: {type(dataset).__name__} is not a data set of mmengine, which could '
            f'name its images. Give them as `{name}`.'
        )
    return [Path(dataset.get_data_info(i)['img_path']) for i in range(len(dataset))]
