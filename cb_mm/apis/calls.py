"""Common parts of all functions of the Python interface."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from torch import nn

from ..config import restricted
from ..errors import UserError
from ..fileio.atomic import write_atomically
from ..robustness.console_log import quiet

P = ParamSpec('P')
R = TypeVar('R')

#: Options of the tools that have another name in Python.
_PARAMETERS = {
    'corruption': 'corruptions',
    'format': 'formats',
    'reference': 'references',
    'allow_broadcast_mismatch': 'allow_mismatch',
}


def api(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function of the Python interface: silent, with errors that name its parameters.

    ``verbose`` lets it print; ``safe_config`` lets it refuse configs that hold more than data.
    """
    names = inspect.signature(function).parameters.keys()

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        silence = contextlib.nullcontext() if kwargs.get('verbose') else quiet(keep=False)
        if kwargs.get('safe_config'):
            restricted.enable()
        with naming_parameters(names), silence, unchanged_modes([*args, *kwargs.values()]):
            return function(*args, **kwargs)

    return call


@contextlib.contextmanager
def naming_parameters(names: Any) -> Iterator[None]:
    """Let a UserError within the block name parameters, where a tool would name options."""
    try:
        yield
    except UserError as error:
        error.on_command_line = str(error)
        error.args = (for_python(str(error), names),)
        raise


@contextlib.contextmanager
def unchanged_modes(values: Sequence[Any]) -> Iterator[None]:
    """Put every part of the models among the values back into training or evaluation mode."""
    models = [value for value in values if isinstance(value, nn.Module)]
    before = {part: part.training for model in models for part in model.modules()}
    try:
        yield
    finally:
        for part, training in before.items():
            part.training = training


def for_python(message: str, names: Any) -> str:
    """Replace '--work-dir' by 'work_dir', for every parameter in ``names``; keep commands."""

    def parameter(found: re.Match[str]) -> str:
        name = found[1].replace('-', '_')
        name = _PARAMETERS.get(name, name)
        return name if name in names and 'tools/' not in message[: found.start()] else found[0]

    return re.sub(r'(?<![\w-])--([a-z][a-z-]*[a-z])', parameter, message)


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
