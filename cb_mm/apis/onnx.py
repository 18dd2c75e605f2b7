"""Export to ONNX from Python."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mmengine.config import Config
from torch import nn

from ..checkpoints.load_model import load_model
from ..checkpoints.normalization import set_normalization
from ..config.loading import load_config
from ..errors import UserError
from ..fileio.atomic import draft_of
from .calls import api
from .onnx_export import Difference, write_onnx


@dataclass
class OnnxExport:
    """A file that gives the same output as torch.

    Attributes:
        file: Where it is.
        differences: Height and width -> how far onnxruntime is from torch there.
    """

    file: Path
    differences: dict[tuple[int, int], Difference]

    def save(self, folder: str | Path) -> list[Path]:
        """Copy the file into a folder."""
        copied = Path(folder) / self.file.name
        with draft_of(copied) as draft:
            shutil.copyfile(self.file, draft)
        return [copied]


@api
def export_onnx(
    model_or_config: nn.Module | Config | str | Path,
    checkpoint: str | Path | None = None,
    *,
    out: str | Path,
    check_sizes: Sequence[tuple[int, int]] = ((256, 256), (200, 328)),
    tolerance: float = 1e-4,
    cfg_options: Sequence[str] = (),
    normalization: str | None = None,
    trust_checkpoint: bool = False,
    allow_mismatch: bool = False,
    safe_config: bool = False,
    verbose: bool = False,
) -> OnnxExport:
    """Export a trained segmentor for any batch and image size, and check it with onnxruntime.

    Args:
        model_or_config: Path of a config, a ``Config``, or a built segmentor with its weights.
            Neither is changed.
        checkpoint: Weights of exactly this model; none for a built one.
        out: The file to write; it is written only if all differences are within the tolerance.
        check_sizes: Heights and widths to check at.
        tolerance: Largest difference that is accepted, as a share of the largest logit.
        cfg_options: Changes to the config, such as 'model.decode_head.num_classes=11'.
        normalization: Mean and std of the images: 'imagenet', 'half', 'clip' or 'weights'.
        trust_checkpoint: Open a checkpoint with more than weights inside, which can run any code.
        allow_mismatch: Take weights that say that they were trained with something else.
        safe_config: Refuse a config that holds more than data.
        verbose: Let torch and mmengine print what they print.

    Returns:
        The file, and how far it is from torch.

    Raises:
        UserError: Something that the caller can fix; it names the parameter or the file.
    """
    if isinstance(model_or_config, nn.Module):
        for name, value in (('checkpoint', checkpoint), ('normalization', normalization)):
            if value is not None:
                raise UserError(f'`{name}`: the model is built, and keeps what it has.')
        segmentor = copy.deepcopy(model_or_config).cpu()
    elif checkpoint is None:
        raise UserError('`checkpoint` is missing: a config has no weights.')
    else:
        config = load_config(model_or_config, cfg_options)
        set_normalization(config, normalization, str(checkpoint), trust_checkpoint)
        segmentor = load_model(
            config,
            checkpoint,
            trust=trust_checkpoint,
            allow_mismatch=allow_mismatch,
            scope='mmseg',
        )
    return OnnxExport(Path(out), write_onnx(segmentor, out, check_sizes, tolerance))
