"""ViTCB: timm's Vision Transformer as an OpenMMLab backbone, with Context Broadcasting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from mmengine.model import BaseModule
from mmengine.registry import MODELS
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ...checkpoints.backbone_weights import WeightsReport
from ...checkpoints.layouts import fit_position_embedding
from ...errors import UserError
from ..broadcast.context_broadcast import (
    BROADCASTS,
    check_choice,
    place_broadcast,
    resolve_indices,
    resolve_layers,
)
from ..necks.feature_pyramid import FeaturePyramid
from .init_weights import initialize_once
from .timm_build import group_vit
from .vit_arch import set_constant_drop_path
from .vit_attention import build_vit, place_windows
from .vit_extra import add_extra_layer


@MODELS.register_module()
class ViTCB(VisionTransformer, BaseModule):
    """A timm Vision Transformer that returns feature maps, with CB in the chosen layers.

    With ``broadcast=None`` and ``pyramid=False`` the state-dict keys are timm's, and the maps
    equal ``forward_intermediates(norm=False)``. The keys stay timm's whatever ``out_indices`` are:
    the final norm and the blocks behind the last output are kept, but do not run or train.

    Images may have any size. Those that are not whole patches are padded with zeros at the
    right and the bottom, so that the maps of an H × W image have ceil(H / patch) × ceil(W / patch)
    cells before the pyramid. The position embedding is resampled to that grid, as timm does.

    Args:
        arch: 'tiny', 'small', 'base' or 'large' (patch 16), any timm name of a ViT (DeiT, also
            distilled, AugReg, DINO, DINOv2 with registers, MAE, ...), or a dict of the arguments
            of timm's VisionTransformer.
        broadcast: None, 'cb', 'cb_s', 'cb_blend', 'cb_gate', 'cb_hybrid' or 'se'; see
            `BROADCASTS`.
        layers: 'upper' (>= depth / 2), 'all', or a list of indices. None: all for CB_S and
            cb_blend, upper for the others.
        position: 'end', 'mid' or 'front' of the MLP, 'attn', or 'mlp+attn'; see `place_broadcast`.
        skip_out_layers: No CB in the blocks of ``out_indices`` (as the paper does for detection).
        out_indices: Blocks whose output is returned, one map each; from 0, negative ones count
            from the end.
        pyramid: True brings four maps to the strides 4, 8, 16, 32; a list of factors does so for
            any number of maps; False leaves all at the patch size. See `FeaturePyramid`.
        img_size: Image size that the position embedding is for; None is that of ``arch``, 224 for
            the four named sizes.
        drop_path_rate: Of the last block, rising linearly from 0 in the first.
        drop_path_mode: 'linear', or 'constant' for the same rate in every block, as XCiT has it.
        with_cp: Recompute the blocks in the backward pass, to save memory.
        frozen_stages: -1 trains all, 0 freezes the embeddings, k also the first k blocks. Frozen
            parts stay in eval mode.
        init_cfg: ``dict(type='Pretrained', checkpoint=...)`` loads weights of any layout, see
            `cb_mm.checkpoints.backbone_weights.load_weights`; other kinds as in mmengine.
        scale_init: Initial value of the scales of CB_S and cb_blend.
        prefix_in_mean: Whether class, distillation and register tokens take part in CB's mean.
        norm_out: Apply the final norm to every map, as DINOv2's users do.
        pyramid_norm_cfg: Norm in the pyramid; BN by default.
        attention: None is timm's; 'uniform_a', 'uniform_b' or 'uniform_c' has one uniform head, as
            in the paper's Table 1; 'R', 'W', 'G' or a sum of them ('R+W+G'), or a dict such as
            ``dict(random=3, window=3, global_tokens=16, block=4)``, is sparse: see
            `SparsePattern`. Sparse attention has timm's keys, and takes the same weights, unless it
            adds tokens or leaves out the projection.
        window: Side in patches of the windows that attention is limited to, as in ViTDet; None: no
            windows. CB's mean still runs over all tokens of the image. See `WindowAttention`.
        global_blocks: Blocks without windows; None is the last of each quarter, as in ViTDet.
        arch_changes: Arguments of timm's VisionTransformer that differ from those of ``arch``, such
            as ``dict(num_heads=6, depth=8)``.
        extra_layer: 'attn' or 'mlp' adds one such layer behind the last block, as in the paper's
            Figure 3; see `ExtraLayer`. It counts as a block.
        out_type: 'maps', or 'cls' for classification: the class token of the last block after the
            final norm, as a tuple of one (B, embed_dims) tensor, or for a distilled model of the
            pair of class and distillation token. 'mean' is the mean of all tokens, class token
            included, and then the norm. ``out_indices`` and ``pyramid`` are ignored for both.

    Attributes:
        broadcast: As given.
        position: As given.
        skip_out_layers: As given.
        scale_init: As given.
        embed_dims: Channels of every map.
        out_strides: Pixels per cell of every map.
        broadcast_layers: Blocks with CB.
        weights_report: What ``init_cfg`` loaded, or None.
    """

    def __init__(
        self,
        arch: str | Mapping[str, Any] = 'small',
        broadcast: str | None = None,
        layers: str | Iterable[int] | None = None,
        position: str = 'end',
        skip_out_layers: bool = False,
        out_indices: Sequence[int] = (3, 5, 7, 11),
        pyramid: bool | Sequence[float] = True,
        img_size: int | Sequence[int] | None = None,
        drop_path_rate: float = 0.0,
        with_cp: bool = False,
        frozen_stages: int = -1,
        init_cfg: dict | list[dict] | None = None,
        *,
        scale_init: float = 0.0,
        prefix_in_mean: bool = True,
        norm_out: bool = False,
        pyramid_norm_cfg: dict | None = None,
        drop_path_mode: str = 'linear',
        attention: str | Mapping[str, Any] | None = None,
        window: int | None = None,
        global_blocks: Sequence[int] | None = None,
        arch_changes: Mapping[str, Any] | None = None,
        extra_layer: str | None = None,
        out_type: str = 'maps',
    ) -> None:
        check_choice('out_type', out_type, ('maps', 'cls', 'mean'))
        check_choice('drop_path_mode', drop_path_mode, ('linear', 'constant'))
        vit = build_vit(arch, img_size, drop_path_rate, attention, arch_changes)
        if drop_path_mode == 'constant':
            set_constant_drop_path(vit, drop_path_rate)
        place_windows(vit, window, global_blocks)
        add_extra_layer(vit, extra_layer)
        BaseModule.__init__(self, init_cfg)
        # This module becomes the model that timm built: parameters, parts and settings. Holding
        # it as a child instead would put a prefix before every key.
        self.__dict__.update(vars(vit))
        self._timm_class = type(vit)
        # A list, since `forward` calls the blocks one by one. Of a Sequential, FSDP would shard the
        # whole, and a block that is called past it would find no weights. The keys are the same.
        self.blocks = nn.ModuleList(vit.blocks)

        depth = len(self.blocks)
        self.out_type = out_type
        if out_type != 'maps':
            if out_type == 'cls' and not self.has_class_token:
                raise UserError("out_type='cls' needs a class token, and this model has none.")
            out_indices, pyramid, norm_out = (depth - 1,), False, True
        self.out_indices = resolve_indices('out_indices', out_indices, depth)
        if not self.out_indices:
            raise UserError('out_indices is empty: name at least one block.')
        if not -1 <= frozen_stages <= depth:
            raise UserError(f'frozen_stages={frozen_stages} is not between -1 and {depth}.')
        self.frozen_stages = frozen_stages
        self.norm_out = norm_out
        self.weights_report: WeightsReport | None = None
        self.set_grad_checkpointing(with_cp)

        self.embed_dims = self.embed_dim
        self.broadcast, self.position = broadcast, position
        self.skip_out_layers, self.scale_init = skip_out_layers, scale_init
        self.broadcast_layers = self._place_broadcast(
            broadcast, layers, position, skip_out_layers, scale_init, prefix_in_mean
        )
        self.pyramid = self._build_pyramid(pyramid, pyramid_norm_cfg)
        scales = self.pyramid.scales if self.pyramid else [1] * len(self.out_indices)
        patch: Any = self.feature_info[0]['reduction']
        strides = (patch / scale for scale in scales)
        self.out_strides = tuple(int(s) if s == int(s) else s for s in strides)
        self._freeze()

    def _place_broadcast(
        self,
        kind: str | None,
        layers: str | Iterable[int] | None,
        position: str,
        skip_out_layers: bool,
        scale_init: float,
        prefix_in_mean: bool,
    ) -> tuple[int, ...]:
        if kind is None:
            return ()
        check_choice('broadcast', kind, BROADCASTS)
        if BROADCASTS[kind].needs_class_token and not self.has_class_token:
            raise UserError(f'broadcast={kind!r} needs a class token, and this model has none.')
        skipped = self.out_indices if skip_out_layers else ()
        chosen = sorted(set(resolve_layers(layers, len(self.blocks), kind)) - set(skipped))
        for i in chosen:
            skip_tokens = 0 if prefix_in_mean else self.num_prefix_tokens
            place_broadcast(self.blocks[i], kind, position, scale_init, skip_tokens)
        return tuple(chosen)

    def _build_pyramid(
        self, pyramid: bool | Sequence[float], norm_cfg: dict | None
    ) -> FeaturePyramid | None:
        if not pyramid:
            return None
        scales = (4, 2, 1, 0.5) if pyramid is True else tuple(pyramid)
        if len(scales) != len(self.out_indices):
            raise UserError(
                f'pyramid has {len(scales)} scales but out_indices={self.out_indices} gives '
                f'{len(self.out_indices)} maps. Set pyramid=False or one scale per map.'
            )
        return FeaturePyramid(self.embed_dim, scales, norm_cfg)

    @property
    def unused_parts(self) -> tuple[str, ...]:
        """Names of the parts that timm's model has and `forward` does not run."""
        used = {'patch_embed', 'pos_drop', 'patch_drop', 'norm_pre', 'blocks', 'pyramid'}
        used |= {'norm'} if self.norm_out else set()
        tail = range(max(self.out_indices) + 1, len(self.blocks))
        children = [name for name, _ in self.named_children() if name not in used]
        return (*children, *(f'blocks.{i}' for i in tail))

    def _frozen_parts(self) -> list[nn.Module]:
        if self.frozen_stages < 0:
            return []
        embeddings = [self.patch_embed, self.pos_drop, self.patch_drop, self.norm_pre]
        return [*embeddings, *self.blocks[: self.frozen_stages]]

    def _freeze(self) -> None:
        # A parameter that never gets a gradient would stop DistributedDataParallel.
        for name in self.unused_parts:
            self.get_submodule(name).requires_grad_(False)
        for part in self._frozen_parts():
            part.requires_grad_(False)
        if self.frozen_stages >= 0:
            for parameter in self.parameters(recurse=False):  # position embedding and tokens
                parameter.requires_grad_(False)

    def train(self, mode: bool = True) -> ViTCB:
        """Set training mode for everything but the frozen parts."""
        super().train(mode)
        for part in self._frozen_parts():
            part.eval()
        return self

    def init_weights(self) -> None:  # type: ignore[override]  # mmengine's, not timm's
        """Load or change the weights as ``init_cfg`` says; timm has initialised them already."""
        initialize_once(self)

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Return which layer a parameter belongs to, in timm's form; the pyramid comes last."""
        return group_vit(coarse)

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *args: Any) -> None:
        # For any loader: a position embedding of another image size is resampled to this one.
        key = f'{prefix}pos_embed'
        if key in state_dict and self.pos_embed is not None:
            state_dict[key] = fit_position_embedding(state_dict[key], self)[0]
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _pos_embed(self, x: Tensor) -> Tensor:
        # From the class that timm chose: the distilled DeiT has one more token.
        return self._timm_class._pos_embed(self, x)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        """Compute one (B, embed_dims, h, w) map per index of ``out_indices`` from (B, 3, H, W).

        With ``out_type='cls'`` or 'mean': the class or mean token instead, (B, embed_dims).
        """
        x = self.patch_embed(images)
        batch, height, width, channels = x.shape
        x = self.norm_pre(self.patch_drop(self._pos_embed(x)))
        maps: dict[int, Tensor] = {}
        recompute = self.grad_checkpointing and torch.is_grad_enabled()
        for i in range(max(self.out_indices) + 1):
            block = self.blocks[i]
            if recompute and i >= self.frozen_stages:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
            if i in self.out_indices and self.out_type == 'maps':
                tokens = (self.norm(x) if self.norm_out else x)[:, self.num_prefix_tokens :]
                maps[i] = tokens.transpose(1, 2).reshape(batch, channels, height, width)
        if self.out_type == 'mean':
            return (self.norm(x.mean(dim=1)),)
        if self.out_type == 'cls':
            tokens = self.norm(x)[:, : 2 if hasattr(self, 'dist_token') else 1].unbind(dim=1)
            return (tokens if len(tokens) > 1 else tokens[0],)
        outs = tuple(maps[i] for i in self.out_indices)
        return outs if self.pyramid is None else self.pyramid(outs)
