"""The model whose attention is studied: from a config and a checkpoint, or from timm by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from mmengine.config import Config
from mmengine.logging import print_log
from torch import nn

from ..checkpoints.backbone_weights import load_weights
from ..checkpoints.load_model import load_model
from ..checkpoints.normalization import (
    NORMALIZATIONS,
    named_normalization,
    normalization_of,
    set_normalization,
)
from ..checkpoints.provenance import channel_order
from ..config.explain import require_keys
from ..config.loading import load_config
from ..config.recipes import names_config
from ..errors import UserError, did_you_mean, in_users_words
from ..fileio.images import resize, to_tensor
from .capture import Consumer, capture, choose, find_attention
from .tokens import patch_module

#: A grid with more than this factor between its side and the pre-training's is worth a warning.
#: Fine-tuning at 512² from 224² is 2.3.
FAR = 3.0


@dataclass
class Subject:
    """A model in eval mode, and how images are prepared for it.

    Attributes:
        name: What it is called in figures and tables.
        model: Takes normalised images (B, 3, H, W).
        mean: Of each channel, on the scale 0 to 255.
        std: Of each channel.
        to_rgb: Whether it sees RGB; otherwise BGR.
        size: Height and width that it takes; None for any.
        segmentor: The whole model around it, where it was asked for and is a segmentor.
    """

    name: str
    model: nn.Module
    mean: tuple[float, ...]
    std: tuple[float, ...]
    to_rgb: bool = True
    size: tuple[int, int] | None = None
    segmentor: nn.Module | None = None

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

    def grid_warning(self, grids: Iterable[tuple[int, int]]) -> str | None:
        """Say that a grid is far from the one that the position embedding was made for.

        Args:
            grids: Rows and columns of the patches of some images; the farthest is named.
        """
        trained, patch = _trained_grid(self.model)
        if trained is None:
            return None

        def factor_of(grid: tuple[int, int]) -> float:
            return max(max(a / b, b / a) for a, b in zip(grid, trained, strict=True))

        grid = max(sorted(grids), key=factor_of)
        factor = factor_of(grid)
        if factor <= FAR:
            return None
        rows, columns = trained
        height, width = rows * patch[0], columns * patch[1]
        return (
            f'{self.name} sees {grid[0]} × {grid[1]} patches, but its positions are for {rows} × '
            f'{columns}: a factor of {factor:.1f}. Unless it was trained at such sizes, its '
            f'attention is not what it would be at `size` {height}x{width}.'
        )

    def fit(self, image: np.ndarray, size: tuple[int, int] | None) -> np.ndarray:
        """Return the image at the wanted size, or at the only one that the model takes."""
        if self.size is not None and size not in (None, self.size):
            raise UserError(
                f'`size` {size[0]}x{size[1]}: {self.name} takes only {self.size[0]}x{self.size[1]}.'
            )
        return resize(image, size or self.size)


def load_subject(
    source: str | Path | Config | nn.Module,
    checkpoint: str | Path | None = None,
    name: str | None = None,
    device: str | None = None,
    trust: bool = False,
    normalization: str | None = None,
    allow_mismatch: bool = False,
    whole: bool = False,
) -> Subject:
    """Build a model and load its weights.

    Args:
        source: A config, or its file, of a segmentor or detector; the name of a timm model; or a
            built model of either kind with its weights.
        checkpoint: The weights: for a config, of a whole model trained with it; for a timm model,
            anything that `cb_mm.checkpoints.backbone_weights.load_weights` takes; none for a built
            model.
        name: What to call it; by default after the config.
        device: Where it runs; by default a GPU if there is one.
        trust: Let the checkpoint be unpickled without limits.
        normalization: Name of a mean and std, see `set_normalization`. By default those of the
            config; for a timm model those that the checkpoint records, or else timm's.
        allow_mismatch: Also take a checkpoint that says that it was trained with another
            broadcast or other settings.
        whole: Keep the heads of a segmentor, as ``segmentor``.
    """
    if isinstance(source, nn.Module):
        subject = _from_model(source, checkpoint, normalization)
        device = device or str(next(source.parameters()).device)
    elif checkpoint is None:
        raise UserError('`checkpoint` is missing: a config or a name has no weights.')
    elif isinstance(source, Config) or names_config(source):
        config = load_config(source)
        subject = _from_config(config, str(checkpoint), trust, normalization, allow_mismatch, whole)
    else:
        subject = _from_timm(str(source), str(checkpoint), trust, normalization, allow_mismatch)
    subject.name = name or subject.name
    find_attention(subject.model)
    device = device or ('cuda' if torch.cuda.is_available() else 'cpu')
    try:
        (subject.segmentor or subject.model).to(device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f'`device` {device} cannot be used: {error}') from error
    (subject.segmentor or subject.model).eval()
    return subject


def _from_model(model: nn.Module, checkpoint: object, normalization: str | None) -> Subject:
    if checkpoint is not None:
        raise UserError('`checkpoint`: the model is built, and keeps the weights that it has.')
    prepare: Any = getattr(model, 'data_preprocessor', None)
    cfg = getattr(model, 'pretrained_cfg', None)
    mean, std = NORMALIZATIONS['imagenet']
    if getattr(prepare, 'mean', None) is not None:
        mean, std = (tuple(part.flatten().tolist()) for part in (prepare.mean, prepare.std))
    elif cfg:
        mean, std = (tuple(255 * value for value in cfg[key]) for key in ('mean', 'std'))
    if normalization is not None:
        mean, std = named_normalization(normalization)
    to_rgb = channel_order(prepare) != 'BGR'
    patches: Any = getattr(model, 'patch_embed', None) if cfg else None
    fixed = patches is not None and getattr(patches, 'strict_img_size', False)
    size = tuple(patches.img_size) if fixed else None
    body = getattr(model, 'backbone', model)
    segmentor = model if hasattr(model, 'decode_head') else None
    return Subject(type(body).__name__, body, mean, std, to_rgb, size, segmentor)


def _from_timm(
    name: str, checkpoint: str, trust: bool, normalization: str | None, allow_mismatch: bool
) -> Subject:
    if not timm.is_model(name):
        hint = did_you_mean(name.split('.')[0], timm.list_models())
        raise UserError(f'{name} is neither a config file nor the name of a timm model.{hint}')
    # Any image size if the model allows it; some take only the size they were made for.
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
    find_attention(model)  # before the weights: a model without attention is useless
    load_weights(model, checkpoint, trust=trust, allow_broadcast_mismatch=allow_mismatch)
    cfg = model.pretrained_cfg
    usual = tuple(tuple(255 * value for value in cfg[key]) for key in ('mean', 'std'))
    mean, std = _normalization(normalization, checkpoint, trust) or usual
    return Subject(name, model, mean, std, size=size)


def _from_config(
    config: Config,
    checkpoint: str,
    trust: bool,
    normalization: str | None,
    allow_mismatch: bool,
    whole: bool,
) -> Subject:
    require_keys(config, 'model')
    # The heads do not affect the backbone's attention: without them it builds and runs faster.
    whole = whole and 'decode_head' in config.model
    part = 'backbone' if 'backbone' in config.model and not whole else None
    prepare = config.model.get('data_preprocessor') or config.get('data_preprocessor')
    if prepare:
        config.model.data_preprocessor = prepare
        set_normalization(config, normalization, checkpoint, trust)
        prepare = config.model.data_preprocessor
        mean, std = prepare.get('mean') or (0.0,) * 3, prepare.get('std') or (1.0,) * 3
        # Either name swaps what mmcv has loaded as BGR; mmpretrain has a third one.
        to_rgb = any(prepare.get(name) for name in ('bgr_to_rgb', 'rgb_to_bgr', 'to_rgb'))
    else:
        found, to_rgb = _normalization(normalization, checkpoint, trust), True
        mean, std = found or NORMALIZATIONS['imagenet']
        if not found:
            notice = (
                f'images: neither {config.filename} nor {checkpoint} says how they are '
                "normalised; ImageNet's mean and std are used (`normalization` NAME)"
            )
            print_log(in_users_words(notice), logger='current')
    model = load_model(config, checkpoint, part, trust=trust, allow_mismatch=allow_mismatch)
    name = Path(config.filename).stem
    if whole:
        return Subject(name, model.backbone, tuple(mean), tuple(std), to_rgb, segmentor=model)
    return Subject(name, model, tuple(mean), tuple(std), to_rgb)


def _trained_grid(model: nn.Module) -> tuple[tuple[int, int] | None, tuple[int, int]]:
    """Return the grid that a model's positions were made for, and the patch size, if recorded."""
    for module in model.modules():
        patches: Any = patch_module(module)
        grid = getattr(patches, 'grid_size', None) or getattr(patches, 'init_out_size', None)
        size = getattr(patches, 'patch_size', None) or getattr(patches, 'stride', None)
        if grid is not None and size is not None:
            height, width = size if isinstance(size, (tuple, list)) else (size, size)
            return (int(grid[0]), int(grid[1])), (int(height), int(width))
    return None, (1, 1)


def _normalization(
    name: str | None, checkpoint: str, trust: bool
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return mean and std of that name, or else those that the checkpoint records."""
    if name is not None:
        return named_normalization(name, checkpoint, trust)
    return normalization_of(checkpoint, trust)
