"""Where a training run resumes: from the last complete checkpoint, or from a named one.

The first process decides, reads the file, and sends its content to the others: a file is read once,
and machines whose disks are not shared start from the same state.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.dist import broadcast_object_list, is_main_process

from ..checkpoints.match import require_finite, weights_in
from ..checkpoints.read import holding, read_checkpoint
from ..checkpoints.training_state import require_resumable
from ..errors import UserError, in_users_words
from .hooks.checkpoint import checkpoints_in
from .processes import failing_together


def last_whole_checkpoint(folder: str | Path) -> Path | None:
    """Return the newest checkpoint that can be read to the end; says which ones it skipped."""
    return _last_whole(folder)[0]


def _last_whole(folder: str | Path) -> tuple[Path | None, dict[str, Any]]:
    for file in checkpoints_in(folder):
        try:
            return file, _sound_content(file)
        except UserError as error:
            print(in_users_words(f'skipped: {error}'))
    return None, {}


@contextlib.contextmanager
def chosen_start(config: Config, resume: str | None) -> Iterator[None]:
    """Choose where all processes start: from scratch, or from a complete training checkpoint.

    Within the block, each of them has what the file holds, whether or not it has the file.
    """
    start: list[Any] = [None, {}]
    with failing_together():
        if is_main_process():
            start = [*_start(config, resume)]
    broadcast_object_list(start)
    file, content = start
    del start
    if file is None:
        yield
        return
    config.resume, config.load_from = True, str(file)
    held = holding(file, content)
    del content  # whoever loads it is the last to have it
    with held:
        yield


def _start(config: Config, resume: str | None) -> tuple[Path | None, dict[str, Any]]:
    """Return the checkpoint to resume from and its content; None to start from scratch."""
    found = checkpoints_in(config.work_dir)
    if resume is None:
        if found:
            raise UserError(
                f'{config.work_dir} already holds checkpoints, the last one {found[0].name}. Pass '
                '`resume` to resume from there, or another `work_dir`.'
            )
        return None, {}
    if resume != 'auto':
        return Path(resume), _sound_content(Path(resume))
    file, content = _last_whole(config.work_dir)
    if file is None and found:
        raise UserError(
            f'`resume`: none of the {len(found)} checkpoints in {config.work_dir} can be read.'
        )
    if file is None:
        notice = f'`resume`: nothing to resume in {config.work_dir}; starting from scratch.'
        print(in_users_words(notice))
    return file, content


def _sound_content(file: Path) -> dict[str, Any]:
    content = read_checkpoint(file)
    require_resumable(content, file)
    require_finite(weights_in(content), file)
    return content
