"""Recipes: the configs that come with the package, found by name from any folder.

In our tools a config may name one as its base, ``_base_ = ['cb_mm::upernet_vit_s_cb.py']``.
mmengine has this syntax for a fixed list of packages (``MODULE2PACKAGE``) and for files in folders
only, so `names_are_known` adds ours while a config is read.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import yaml
from mmengine.config import Config

from ..errors import MissingFile, did_you_mean

SCOPE = 'cb_mm::'
_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Recipe:
    """A config of the package: its name, what it trains, and the scores that the paper gives."""

    name: str
    file: Path
    what: str
    paper: dict[str, str] = field(default_factory=dict)  # schedule -> 'mIoU 43.9'


def folder() -> Path:
    """Return the folder of the recipes: in the installed package, or in the checkout."""
    installed = _PACKAGE / '.mim' / 'configs'
    return installed if installed.is_dir() else _PACKAGE.parent / 'configs'


def files() -> dict[str, Path]:
    """Return the recipes' files by name."""
    found = sorted(folder().rglob('*.py'), key=lambda file: (len(file.parts), file))
    return {file.stem: file for file in found if '_base_' not in file.parts}


def recipes() -> list[Recipe]:
    """Return all recipes, with their descriptions."""
    scores = _paper_scores()
    return [
        Recipe(name, file, _first_line(file), scores.get(name, {}))
        for name, file in files().items()
    ]


def recipe_file(name: str) -> Path | None:
    """Return the file of a recipe by its name, with or without ``.py`` or ``cb_mm::``."""
    short = name.removeprefix(SCOPE)
    if re.fullmatch(r'\w+(\.py)?', short):
        return files().get(short.removesuffix('.py'))
    inside = folder() / short
    known = inside.is_file() and inside.resolve().is_relative_to(folder().resolve())
    return inside if name.startswith(SCOPE) and known else None


def names_config(name: str | Path) -> bool:
    """Return whether this is a config: a file, even one that is missing, or a recipe."""
    return Path(name).suffix == '.py' or Path(name).exists() or recipe_file(str(name)) is not None


def base_file(name: str) -> Path:
    """Return the file of a base that is named ``cb_mm::NAME``."""
    found = recipe_file(name)
    if found is None:
        raise MissingFile(
            f'base {name}: cb_mm has no such recipe.'
            f'{did_you_mean(Path(name.removeprefix(SCOPE)).stem, files())} '
            '"cb-mm configs" lists them.'
        )
    return found


@contextlib.contextmanager
def names_are_known() -> Iterator[None]:
    """Let mmengine find bases that are named ``cb_mm::NAME``, within the block."""
    original = Config.__dict__['_get_cfg_path']

    def get_cfg_path(cfg_path: str, filename: str) -> tuple[str, str | None]:
        if cfg_path.startswith(SCOPE):
            return str(base_file(cfg_path)), None  # its parts are in the recipe's own scope
        return original.__func__(cfg_path, filename)

    Config._get_cfg_path = staticmethod(get_cfg_path)
    try:
        yield
    finally:
        Config._get_cfg_path = original


def _first_line(file: Path) -> str:
    text = ast.get_docstring(ast.parse(file.read_text(encoding='utf-8'))) or ''
    return text.partition('\n')[0].rstrip('.')


@lru_cache(maxsize=1)
def _paper_scores() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for metafile in sorted(folder().rglob('metafile*.yml')):
        for model in yaml.safe_load(metafile.read_text(encoding='utf-8')).get('Models') or ():
            given: dict[str, float] = {}  # of several test sets, the first counts
            for result in model.get('Results') or ():
                for name, score in result['Metrics'].items():
                    if name.startswith('Paper '):
                        given.setdefault(name.removeprefix('Paper '), score)
            if given:
                schedule = str((model.get('Metadata') or {}).get('Schedule', ''))
                text = ', '.join(f'{name} {score}' for name, score in given.items())
                found.setdefault(Path(model['Config']).stem, {})[schedule] = text
    return found
