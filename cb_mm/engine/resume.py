"""Where a training run resumes: from the last complete checkpoint, or from a named one."""

from __future__ import annotations

from pathlib import Path

from mmengine.config import Config

from ..checkpoints.match import require_finite, weights_in
from ..checkpoints.read import read_checkpoint
from ..checkpoints.training_state import require_resumable
from ..errors import UserError
from .hooks.checkpoint import checkpoints_in


def last_whole_checkpoint(folder: str | Path) -> Path | None:
    """Return the newest checkpoint that can be read to the end; says which ones it skipped."""
    for file in checkpoints_in(folder):
        try:
            _require_sound(file)
        except UserError as error:
            print(f'skipped: {error}')
        else:
            return file
    return None


def choose_start(config: Config, resume: str | None) -> None:
    """Choose where a run starts: from scratch, or from a complete training checkpoint."""
    found = checkpoints_in(config.work_dir)
    if resume is None:
        if found:
            raise UserError(
                f'{config.work_dir} already holds checkpoints, the last one {found[0].name}. Pass '
                '--resume to resume from there, or another --work-dir.'
            )
        return
    if resume == 'auto':
        file = last_whole_checkpoint(config.work_dir)
        if file is None and found:
            raise UserError(
                f'--resume: none of the {len(found)} checkpoints in {config.work_dir} can be read.'
            )
        if file is None:
            print(f'--resume: nothing to resume in {config.work_dir}; starting from scratch.')
            return
    else:
        file = Path(resume)
        _require_sound(file)
    config.resume, config.load_from = True, str(file)


def _require_sound(file: Path) -> None:
    content = read_checkpoint(file)
    require_resumable(content, file)
    require_finite(weights_in(content), file)
