"""TimmCB: any timm model as an OpenMMLab backbone, with Context Broadcasting."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch.nn.functional as F
from mmengine.model import BaseModule
from mmengine.registry import MODELS
from timm.layers import LayerNorm2d
from timm.models._manipulate import group_with_matcher
from torch import Tensor, nn

from ...checkpoints.backbone_weights import WeightsReport
from ...errors import UserError
from ..broadcast.context_broadcast import (
    BROADCASTS,
    check_choice,
    resolve_indices,
    resolve_layers,
)
from ..broadcast.insert import add_context_broadcast, find_mlp_ends
from ..necks.feature_pyramid import FeaturePyramid
from .timm_build import build_timm_model, fixed_size, strides_of
from .used_parameters import used_parameters
from .vit import ViTCB


@MODELS.register_module()
class TimmCB(BaseModule):
    """A timm model that returns its feature maps (B, C, h, w), with CB at the end of its MLPs.

    The model is ``self.model``, its code and keys untouched: Swin, PVT v2, Twins, PiT, Mixer,
    ConvNeXt, ViT, LocalViT (of this package), ... CB goes where `add_context_broadcast` finds the
    end of an MLP; a layer is one such MLP.

    Images may have any size where the model allows it: PVT v2, Twins, ConvNeXt, and also Swin and
    ViT, which are built so. PiT and Mixer take only images of ``img_size``: train on crops of that
    size and test with ``test_cfg=dict(mode='slide', crop_size=..., stride=...)``.

    Args:
        model_name: Name of the model in timm, such as 'swin_tiny_patch4_window7_224'.
        broadcast: None, 'cb', 'cb_s', 'cb_blend', 'cb_gate', 'cb_hybrid' or 'se'.
        layers: 'upper' half of all layers, 'all', or a list of indices. None: all for CB_S, upper
            for the others.
        skip_out_layers: No CB in the last layer before each output (as the paper does for
            detection).
        out_indices: Which of timm's feature maps: the stages of a pyramid, the blocks of a plain
            model. None is all stages, or four blocks spread over a plain model.
        pyramid: None brings four maps of one stride, as those of a ViT or Mixer, to strides in the
            proportion 4, 8, 16, 32 and leaves others as they are; a list of factors or False as in
            ViTCB. See `FeaturePyramid`.
        norm_out: A separate LayerNorm for every map, as Swin has for dense prediction.
        img_size: Image size that the model is built for; None is its own. A Swin shifts the
            windows of a stage only if the map of such an image is larger than a window: give the
            size of the training crops.
        drop_path_rate: Of the last block, rising linearly from 0 in the first.
        with_cp: Recompute in the backward pass, where the model can.
        frozen_stages: -1 trains all, 0 freezes the stem, k also the first k stages (of a plain
            model: blocks). Frozen parts stay in eval mode.
        init_cfg: ``dict(type='Pretrained', checkpoint=...)`` loads a local file, an address or the
            weights of a timm model by its name; see
            `cb_mm.checkpoints.backbone_weights.load_weights`.
        scale_init: Initial value of the scales of CB_S and cb_blend.
        prefix_in_mean: Whether class, distillation and register tokens take part in CB's mean.
        pyramid_norm_cfg: Norm in the pyramid; BN by default.
        model_kwargs: Further arguments for timm's model.
        out_type: 'maps', or 'cls' for classification: what the model itself classifies from, its
            class token or the mean of its tokens, as a tuple of one (B, C) tensor.
            ``out_indices``, ``pyramid`` and ``norm_out`` are ignored then.

    Attributes:
        out_channels: Channels of every map.
        out_strides: Pixels per cell of every map.
        broadcast_layers: Numbers of the layers with CB.
        depth: Number of layers that CB can be in; 0 without CB.
        weights_report: What ``init_cfg`` loaded, or None.
    """

    def __init__(
        self,
        model_name: str,
        broadcast: str | None = None,
        layers: str | Iterable[int] | None = None,
        skip_out_layers: bool = False,
        out_indices: Sequence[int] | None = None,
        pyramid: bool | Sequence[float] | None = None,
        norm_out: bool = False,
        img_size: int | Sequence[int] | None = None,
        drop_path_rate: float = 0.0,
        with_cp: bool = False,
        frozen_stages: int = -1,
        init_cfg: dict | list[dict] | None = None,
        *,
        scale_init: float = 0.0,
        prefix_in_mean: bool = True,
        pyramid_norm_cfg: dict | None = None,
        model_kwargs: Mapping[str, Any] | None = None,
        out_type: str = 'maps',
    ) -> None:
        super().__init__(init_cfg)
        check_choice('out_type', out_type, ('maps', 'cls'))
        self.out_type = out_type
        if out_type == 'cls':
            out_indices, pyramid, norm_out = (-1,), False, False
        self.model_name = model_name
        self.model = build_timm_model(model_name, img_size, drop_path_rate, model_kwargs)
        self.fixed_size = fixed_size(self.model)
        self.weights_report: WeightsReport | None = None

        count = len(self.model.feature_info)
        self.out_indices = resolve_indices('out_indices', out_indices or _spread(self.model), count)
        infos = [self.model.feature_info[i] for i in self.out_indices]
        self.out_channels = tuple(info['num_chs'] for info in infos)
        strides = strides_of(self.model)
        self.out_strides: tuple[float, ...] = tuple(strides[i] for i in self.out_indices)
        self.pyramid = self._build_pyramid(pyramid, pyramid_norm_cfg)
        self.norms = nn.ModuleList(map(LayerNorm2d, self.out_channels)) if norm_out else None

        self.broadcast, self.position, self.scale_init = broadcast, 'end', scale_init
        self.depth = 0
        self.broadcast_layers: tuple[int, ...] = ()
        if broadcast is not None:
            skip_tokens = 0 if prefix_in_mean else getattr(self.model, 'num_prefix_tokens', 0)
            self._place_broadcast(broadcast, layers, skip_out_layers, scale_init, skip_tokens)
        if with_cp:
            self._recompute()
        self._freeze(frozen_stages)

    def _build_pyramid(
        self, pyramid: bool | Sequence[float] | None, norm_cfg: dict | None
    ) -> FeaturePyramid | None:
        if pyramid is None:
            pyramid = len(self.out_strides) == 4 and len(set(self.out_strides)) == 1
        if not pyramid:
            return None
        scales = (4, 2, 1, 0.5) if pyramid is True else tuple(pyramid)
        if len(scales) != len(self.out_indices) or len(set(self.out_channels)) != 1:
            raise UserError(
                f'pyramid={pyramid}: a pyramid needs one scale per map and the same width in all; '
                f'out_indices={self.out_indices} of {self.model_name} gives maps of '
                f'{self.out_channels} channels at strides {self.out_strides}.'
            )
        strides = (stride / scale for stride, scale in zip(self.out_strides, scales, strict=True))
        self.out_strides = tuple(int(s) if s == int(s) else s for s in strides)
        return FeaturePyramid(self.out_channels[0], scales, norm_cfg)

    def _place_broadcast(
        self,
        kind: str,
        layers: str | Iterable[int] | None,
        skip_out_layers: bool,
        scale_init: float,
        skip_tokens: int,
    ) -> None:
        check_choice('broadcast', kind, BROADCASTS)
        if BROADCASTS[kind].needs_class_token and getattr(self.model, 'cls_token', None) is None:
            raise UserError(f'broadcast={kind!r} needs a class token; {self.model_name} has none.')
        ends = list(find_mlp_ends(self.model))
        chosen = set(resolve_layers(layers, len(ends), kind))
        if skip_out_layers:
            stages = [self._stage_name(i) for i in self.out_indices]
            chosen -= {max(i for i, name in enumerate(ends) if _inside(name, s)) for s in stages}
        self.depth, self.broadcast_layers = len(ends), tuple(sorted(chosen))
        if chosen:
            add_context_broadcast(
                self.model,
                kind,
                self.broadcast_layers,
                scale_init=scale_init,
                skip_tokens=skip_tokens,
            )

    def _stage_name(self, index: int) -> str:
        """Name of the module that gives a feature map."""
        name = self.model.feature_info[index]['module']
        # timm writes 'block.0' for the 'blocks.0' of Twins.
        return name if _has(self.model, name) else name.replace('block.', 'blocks.')

    def _recompute(self) -> None:
        try:
            self.model.set_grad_checkpointing(True)
        except (AssertionError, AttributeError):
            raise UserError(
                f'with_cp=True: {self.model_name} has no gradient checkpointing in timm.'
            ) from None

    def _freeze(self, frozen_stages: int) -> None:
        names = [name for name, _ in self.model.named_parameters()]
        stages = dict.fromkeys(names, 0)
        grouped = True
        try:
            matcher = self.model.group_matcher(coarse=True)
            stages = group_with_matcher(((n, None) for n in names), matcher, reverse=True)
        except (AttributeError, AssertionError):  # timm has none for it, or not by stages
            grouped = False
        last = max(self.out_indices) + 1
        if not -1 <= frozen_stages <= last or (frozen_stages >= 0 and not grouped):
            raise UserError(f'frozen_stages={frozen_stages} is not between -1 and {last}.')
        # A parameter that never gets a gradient would stop DistributedDataParallel.
        unused = set(names) - used_parameters(self, self.model)
        frozen = {name for name in names if stages[name] <= frozen_stages}
        for name in unused | frozen:
            self.model.get_parameter(name).requires_grad_(False)
        self.frozen_stages = frozen_stages
        self._frozen_parts = [
            path
            for path, module in self.model.named_modules()
            if path
            and list(module.parameters())
            and all(f'{path}.{name}' in frozen for name, _ in module.named_parameters())
        ]

    def train(self, mode: bool = True) -> TimmCB:
        """Set training mode for everything but the frozen parts."""
        super().train(mode)
        for path in self._frozen_parts:
            self.model.get_submodule(path).eval()
        return self

    #: Weights are loaded into the timm model itself, by its own keys, just as ViTCB does.
    init_weights = ViTCB.init_weights

    @property
    def weights_target(self) -> nn.Module:
        """What `load_weights` fills."""
        return self.model

    def adapt_weights(self, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        """Convert a checkpoint of the model's authors to timm's layout, with timm's own filter."""
        module = sys.modules[type(self.model).__module__]
        change = getattr(module, 'checkpoint_filter_fn', None)
        state_dict = dict(state_dict) if change is None else change(dict(state_dict), self.model)
        own: Any = getattr(self.model, 'pos_embed', None)
        given = state_dict.get('pos_embed')
        if given is not None and given.ndim == own.ndim == 4:  # PiT keeps it as a map
            state_dict['pos_embed'] = F.interpolate(given, own.shape[2:], mode='bicubic')
        return state_dict

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Compute one (B, C, h, w) map for each of ``out_indices`` from images (B, 3, H, W).

        With ``out_type='cls'``: what the model classifies from instead, (B, C).
        """
        size = tuple(images.shape[-2:])
        if self.fixed_size is not None and size != self.fixed_size:
            height, width = self.fixed_size
            raise UserError(
                f'{self.model_name} takes only images of {height} x {width}, but got '
                f'{size[0]} x {size[1]}. Set img_size to the size of the training crops, and '
                f"test_cfg=dict(mode='slide', crop_size=({height}, {width}), stride=...)."
            )
        if self.out_type == 'cls':
            tokens = self.model.forward_features(images)
            return (self.model.forward_head(tokens, pre_logits=True),)
        wanted = sorted(set(self.out_indices))
        found = self.model.forward_intermediates(
            images, indices=wanted, stop_early=True, output_fmt='NCHW', intermediates_only=True
        )
        by_index = dict(zip(wanted, found, strict=True))
        maps = [by_index[i] for i in self.out_indices]
        if self.norms is not None:
            maps = [norm(x) for norm, x in zip(self.norms, maps, strict=True)]
        return tuple(maps) if self.pyramid is None else self.pyramid(maps)


def _spread(model: nn.Module) -> tuple[int, ...]:
    """Return all stages of a pyramid, or four evenly spaced blocks of a plain model."""
    infos = model.feature_info
    if len({info['reduction'] for info in infos}) > 1 or len(infos) < 4:
        return tuple(range(len(infos)))
    return tuple(round((i + 1) * len(infos) / 4) - 1 for i in range(4))


def _inside(name: str, stage: str) -> bool:
    return name == stage or name.startswith(f'{stage}.')


def _has(model: nn.Module, name: str) -> bool:
    try:
        model.get_submodule(name)
    except AttributeError:
        return False
    return True
