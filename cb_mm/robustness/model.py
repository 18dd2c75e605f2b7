"""The model to be tested, with exactly the weights of a checkpoint."""

from __future__ import annotations

from pathlib import Path

from mmengine.config import Config
from mmengine.device import get_device
from mmengine.registry import MODELS
from torch import nn

from ..building import building
from ..checkpoint import read_checkpoint
from ..checkpoint_fit import require_fit, weights_in
from ..provenance import check_exact


def build_model(
    config: Config, checkpoint: str | Path, trust: bool = False, allow_mismatch: bool = False
) -> nn.Module:
    """Build the model, load its weights and put it in evaluation mode on its device.

    Raises:
        UserError: the checkpoint is not of this model, to the last key and shape, or not finite;
            or it was trained with another broadcast, unless ``allow_mismatch``.
    """
    content = read_checkpoint(checkpoint, trust=trust)
    weights = weights_in(content)
    with building(config):
        model = MODELS.build(config.model)
    require_fit(model, weights, checkpoint)
    model.load_state_dict(weights, strict=False)  # older files do not count batches
    check_exact(str(checkpoint), content, model, allow_mismatch)
    return model.to(get_device()).eval()
