"""The model to be tested, with exactly the weights of a checkpoint."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.registry import MODELS
from torch import nn

from ..checkpoint import read_checkpoint
from ..errors import UserError
from ..provenance import check_exact


def build_model(
    config: Config, checkpoint: str | Path, trust: bool = False, allow_mismatch: bool = False
) -> nn.Module:
    """Build the model, load its weights and put it in evaluation mode on its device.

    Raises:
        UserError: the checkpoint is not of this model, to the last key and shape. mmengine's own
            loading goes on with whatever fits, and tests a half-random model. Or it says that it
            was trained with another broadcast, unless ``allow_mismatch``.
    """
    content = read_checkpoint(checkpoint, trust=trust)
    state = content.get('state_dict', content)
    tensors = {
        re.sub(r'^module\.', '', str(key)): value
        for key, value in state.items()
        if isinstance(value, torch.Tensor)
    }
    model = MODELS.build(config.model)
    try:
        # Not strict in torch's sense, which would report sizes and names in one long text.
        missing, unexpected = model.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        sizes = re.findall(r'size mismatch for (\S+): .*?(\[[^\]]*\]).*?(\[[^\]]*\])', str(error))
        lines = [f'{key} is {old} there, {new} here' for key, old, new in sizes[:3]]
        shown = '; '.join(lines) or str(error).splitlines()[0]
        raise UserError(
            f'checkpoint {checkpoint} is not of the model of the config: {len(sizes)} of its '
            f'tensors have other sizes ({shown.replace("torch.Size", "")}).'
        ) from error
    missing = [key for key in missing if not key.endswith('num_batches_tracked')]
    if missing or unexpected:
        raise UserError(
            f'checkpoint {checkpoint} is not of the model of the config: '
            + ' and '.join(
                f'{len(keys)} tensors are {word} (such as {", ".join(keys[:3])})'
                for word, keys in (('missing from it', missing), ('unknown here', unexpected))
                if keys
            )
            + '.'
        )
    check_exact(str(checkpoint), content, model, allow_mismatch)
    return model.to(get_device()).eval()
