"""Import of mmpretrain, and with it mmdet, beside a new transformers.

mmdet imports mmpretrain if it is installed, and mmpretrain its language models if transformers is.
These need a function that newer versions of transformers no longer have, and then mmdet cannot be
imported at all. In that case mmpretrain is told that there are no language models.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

_REMOVED = 'find_pruneable_heads_and_indices'


def install() -> None:
    """Switch mmpretrain's language models off where they could not be imported."""
    mmpretrain, transformers = _folder('mmpretrain'), _folder('transformers')
    if mmpretrain and transformers and not _fit(mmpretrain, transformers):
        from mmpretrain.utils import dependency

        dependency.WITH_MULTIMODAL = False


def _folder(package: str) -> Path | None:
    spec = find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None


def _fit(mmpretrain: Path, transformers: Path) -> bool:
    """Return whether transformers has the function where mmpretrain looks for it.

    Read from the files, because importing transformers takes seconds.
    """
    user = mmpretrain / 'models' / 'multimodal' / 'blip' / 'language_model.py'
    if not user.exists():
        return True
    moved = 'transformers.pytorch_utils' in user.read_text(encoding='utf-8')
    home = transformers / ('pytorch_utils.py' if moved else 'modeling_utils.py')
    return home.exists() and _REMOVED in home.read_text(encoding='utf-8')
