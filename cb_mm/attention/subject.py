"""The model whose attention is studied: from a config and a checkpoint, or from timm by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import nn

from ..building import building
from ..checkpoint import read_checkpoint
from ..checkpoint_fit import require_finite
from ..config import did_you_mean, load_config, replace_sync_bn
from ..errors import UserError
from ..provenance import check_exact
from ..weights import load_weights, summary
from .capture import Consumer, capture, choose, find_attention
from .pictures import resize, to_tensor


@dataclass
class Subject:
    """A model in eval mode, and how images are brought to it.

    Attributes:
        name: What it is called in figures and tables.
        model: Takes normalised images (B, 3, H, W).
        mean: Of each channel, on the scale 0 to 255.
        std: Of each channel.
        to_rgb: Whether it sees RGB; otherwise BGR.
        size: Height and width that it takes; None for any.
    """

    name: str
    model: nn.Module
    mean: tuple[float, ...]
    std: tuple[float, ...]
    to_rgb: bool = True
    size: tuple[int, int] | None = None

    @property
    def layers(self) -> int:
        """Number of attention layers that run: a backbone may stop before its end."""
        unused = tuple(f'{part}.' for part in getattr(self.model, 'unused_parts', ()))
        return len([name for name in find_attention(self.model) if not name.startswith(unused)])

    @torch.no_grad()
    def run(
        self, image: np.ndarray, consume: Consumer, layers: Sequence[int] | None = None
    ) -> None:
        """Run an RGB image (H, W, 3) of the model's size through it, and capture the attention."""
        device = next(self.model.parameters()).device
        inputs = to_tensor(image, self.mean, self.std, self.to_rgb).to(device)
        chosen = choose('layer', layers, self.layers, f'attention layers of {self.name},')
        with capture(self.model, consume, layers=chosen):
            self.model(inputs)

    def fit(self, image: np.ndarray, size: tuple[int, int] | None) -> np.ndarray:
        """The image at the wanted size, or at the only one that the model takes."""
        if self.size is not None and size not in (None, self.size):
            raise UserError(
                f'--size {size[0]}x{size[1]}: {self.name} takes only {self.size[0]}x{self.size[1]}.'
            )
        return resize(image, size or self.size)


def load_subject(
    config: str,
    checkpoint: str,
    name: str | None = None,
    device: str | None = None,
    trust: bool = False,
) -> Subject:
    """Build a model and load its weights.

    Args:
        config: A config file of a segmentor or detector, or the name of a timm model.
        checkpoint: The weights: for a config, of a whole model trained with it; for a timm model,
            anything that `cb_mm.weights.load_weights` takes.
        name: What to call it; by default after the config.
        device: Where it runs; by default a GPU if there is one.
        trust: Let the checkpoint be unpickled without limits.
    """
    if Path(config).suffix != '.py' and not Path(config).exists():
        subject = _from_timm(config, checkpoint, trust)
    else:
        subject = _from_config(load_config(config), checkpoint, trust)
    subject.name = name or subject.name
    find_attention(subject.model)
    device = device or ('cuda' if torch.cuda.is_available() else 'cpu')
    try:
        subject.model.to(device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f'--device {device} cannot be used: {error}') from error
    subject.model.eval()
    return subject


def _from_timm(name: str, checkpoint: str, trust: bool) -> Subject:
    if not timm.is_model(name):
        hint = did_you_mean(name.split('.')[0], timm.list_models())
        raise UserError(f'{name} is neither a config file nor the name of a timm model.{hint}')
    # Any image size where the model can; some take only the one that they were made for.
    size: tuple[int, int] | None = None
    try:
        model = timm.create_model(
            name, pretrained=False, num_classes=0, dynamic_img_size=True, dynamic_img_pad=True
        )
    except RuntimeError as error:
        raise UserError(f'timm cannot make {name}: {error}') from error
    except TypeError:
        model = timm.create_model(name, pretrained=False, num_classes=0)
        size = tuple(model.pretrained_cfg['input_size'][1:])
    find_attention(model)  # before the weights: a model without attention is no use
    load_weights(model, checkpoint, trust=trust)
    cfg = model.pretrained_cfg
    mean, std = (tuple(255 * value for value in cfg[key]) for key in ('mean', 'std'))
    return Subject(name, model, mean, std, size=size)


def _from_config(config: Config, checkpoint: str, trust: bool) -> Subject:
    if 'model' not in config:
        raise UserError(f'config {config.filename} describes no model.')
    replace_sync_bn(config)
    init_default_scope(config.get('default_scope', 'mmengine'))
    # The heads have no part in the backbone's attention: without them it is built and run faster.
    whole = config.model
    part = 'backbone' if 'backbone' in whole else None
    description = whole.backbone if part else whole
    with building(config):
        model = MODELS.build(description)
    find_attention(model)
    load_part(model, part, checkpoint, trust)
    prepare: Mapping[str, Any] = whole.get('data_preprocessor') or {}
    return Subject(
        Path(config.filename).stem,
        model,
        tuple(prepare.get('mean') or (0.0,) * 3),
        tuple(prepare.get('std') or (1.0,) * 3),
        # mmpretrain calls it otherwise.
        to_rgb=bool(prepare.get('bgr_to_rgb') or prepare.get('to_rgb')),
    )


def load_part(model: nn.Module, part: str | None, checkpoint: str, trust: bool = False) -> None:
    """Load what a checkpoint of a whole model holds for one part of it: all of it, no more."""
    content = read_checkpoint(checkpoint, trust=trust)
    check_exact(checkpoint, content, model, option='')
    weights = content.get('state_dict', content)
    weights = {key.removeprefix('module.'): value for key, value in weights.items()}
    if part is not None:
        start = f'{part}.'
        inside = {key[len(start) :]: weights[key] for key in weights if key.startswith(start)}
        if not inside:
            raise UserError(
                f'checkpoint {checkpoint} has no {start}* weights (it has '
                f'{summary(weights, 3)}), so it was not trained with this config. For the bare '
                'weights of a ViT, give the name of its timm model in place of the config.'
            )
        weights = inside
    require_finite({k: v for k, v in weights.items() if isinstance(v, torch.Tensor)}, checkpoint)
    try:
        missing, unexpected = model.load_state_dict(weights, strict=False)
    except RuntimeError as error:  # torch lists every tensor of another shape
        first = str(error).strip().splitlines()[1:2] or [str(error)]
        raise UserError(
            f'checkpoint {checkpoint} is not of this config: {first[0].strip()}'
        ) from error
    if missing or unexpected:
        raise UserError(
            f'checkpoint {checkpoint} is not of this config.'
            + (f' Missing in the file: {summary(missing, 3)}.' if missing else '')
            + (f' Only in the file: {summary(unexpected, 3)}.' if unexpected else '')
        )
