"""One message for what goes wrong when a config is turned into objects."""

from __future__ import annotations

import contextlib
import inspect
import re
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmengine import registry
from mmengine.config import Config

from ..errors import SHOW_TRACEBACK, UserError, cannot_write, did_you_mean
from .parts import part_at_work, source_line

_LONGEST_REASON = 300


@contextlib.contextmanager
def explaining_build_errors(config: Config | str) -> Iterator[None]:
    """Turn every error within the block into a UserError about the config."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # any class may refuse its arguments in any way
        if isinstance(error, OSError) and (error.filename or cannot_write(error)):
            raise
        if isinstance(config, str):
            name, part = config, ''
        else:
            name, part = config.filename, part_at_work(error, config)
        raise UserError(f'config {name}: {explain(error, part)}') from error


def require_keys(config: Config, *keys: str) -> None:
    """Raise a UserError that names the keys the config lacks."""
    missing = [key for key in keys if not config.get(key)]
    if missing:
        hint = did_you_mean(missing[0], [key for key in config if key not in keys])
        raise UserError(f'config {config.filename}: it has no {" and no ".join(missing)}.{hint}')


def explain(error: Exception, part: str = '') -> str:
    """Return what an error of mmengine or of Python means for someone who wrote a config.

    Args:
        error: The error.
        part: The part of the config that was at work; see `part_at_work`.
    """
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    found = re.search(r'(\S+) is not in the (?:\w+::)?(.+?) registry', text)
    if found:
        name, kind = found[1].strip('"\''), found[2]
        return (
            f'type "{name}" is not known among the parts for "{kind}".'
            f'{did_you_mean(name.split(".")[-1], _registered(kind))} A custom class must be '
            'listed in custom_imports.'
        )
    found = re.search(r"(\w+)\.?\w*\(\) got an unexpected keyword argument '(\w+)'", text)
    if found:
        known = _arguments(found[1])
        return f'{found[1]} has no argument "{found[2]}".{did_you_mean(found[2], known)}'
    found = re.search(r'(\w+)\.?\w*\(\) missing \d+ required .*?arguments?: (.*)', text)
    if found:
        return f'{found[1]} lacks {found[2]}.'
    if 'stack expects each tensor to be equal size' in text:
        return (
            f'the images of a batch have different sizes ({text.partition("but got ")[2]}). Make '
            'the pipeline end with one size for all: a crop_size that no resized image is smaller '
            'than, a Pad step, or model.data_preprocessor.size.'
        )
    if 'need at least one array to concatenate' in text:  # mmengine, for an empty list of samples
        return f'{part or "a data set"} has no samples{_what_is_there(error)}.'
    first = text.strip().splitlines()[0].rstrip('.:') if text.strip() else ''
    if isinstance(error, KeyError):
        first = f'the key "{first}" is missing' if re.fullmatch(r'\w+', first) else first
    if isinstance(error, AttributeError) and 'ConfigDict' in text:
        first = re.sub(r".*has no attribute '(\w+)'.*", r'the key "\1" is missing', text)
    reason = (first or source_line(error))[:_LONGEST_REASON]
    return (
        f'{part or "it"} cannot be used: {reason} ({type(error).__name__}). Correct its values; '
        f'{SHOW_TRACEBACK}=1 shows where in the program it failed.'
    )


def _what_is_there(error: Exception) -> str:
    """Say what the image folder of the data set that failed holds, as far as that is known."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        dataset = frame.f_locals.get('self')
        ending, prefix = (getattr(dataset, key, None) for key in ('img_suffix', 'data_prefix'))
        folder = prefix.get('img_path') if isinstance(prefix, dict) else None
        if ending and folder and Path(folder).is_dir():
            names = (path.suffix for path in Path(folder).rglob('*') if path.is_file())
            counts = Counter(names).most_common(3)
            held = ', '.join(f'{count} {kind or "without an ending"}' for kind, count in counts)
            return (
                f': no file below {folder} ends in {ending} (img_suffix); '
                + (f'it has {held}' if held else 'it is empty')
            )  # fmt: skip
    return ': its folder or list is empty'


def _registries() -> Iterator[registry.Registry]:
    waiting = [root for root in vars(registry).values() if isinstance(root, registry.Registry)]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += one.children.values()


def _registered(kind: str) -> set[str]:
    """Return the names known in the registries of that kind, or in all of them."""
    named = [one for one in _registries() if one.name == kind]
    return {name for one in named or _registries() for name in one.module_dict}


def _arguments(name: str) -> set[str]:
    found: set[str] = set()
    for one in _registries():
        built: Any = one.module_dict.get(name)
        for base in inspect.getmro(built) if inspect.isclass(built) else ():
            if '__init__' in vars(base):
                found |= set(inspect.signature(vars(base)['__init__']).parameters) - {'self'}
    return found
