"""FastUPerHead: mmseg's UPerHead with the same parameters and results at half the cost."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from mmcv.cnn import ConvModule
from mmengine.registry import MODELS
from mmseg.models.decode_heads.uper_head import UPerHead
from mmseg.models.utils import resize
from torch import Tensor, nn

from ..ops.evaluated_conv import conv_evaluated
from ..ops.finish import Finish
from ..ops.upsampled_conv import conv_upsampled
from ..ops.upsampled_loss import UpsampledLoss


@MODELS.register_module()
class FastUPerHead(UpsampledLoss, UPerHead):
    """UPerHead whose two bottlenecks do not convolve upsampled maps.

    Most of UPerHead's work is a 3×3 convolution over four levels of which three were upsampled by
    2, 4 and 8. `conv_upsampled` computes the same sum from the levels in their own size. The
    bottleneck of the pooling pyramid gains in the same way. On the CPU, large 3×3 convolutions are
    computed with the Winograd algorithm. The loss does not upsample all logits at once.

    Arguments, state-dict keys and initial values are those of mmseg's UPerHead, so checkpoints
    fit both ways; results differ by float rounding.
    """

    #: For the record of a checkpoint: the class whose results these are.
    equivalent_to = 'UPerHead'

    def psp_forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """Run the pooling pyramid on the last level, (B, C, h, w) -> (B, channels, h, w)."""
        pooled = [branch(inputs[-1]) for branch in self.psp_modules]
        return self._conv(self.bottleneck, [inputs[-1], *pooled])

    def _forward_feature(self, inputs: Sequence[Tensor]) -> Tensor:
        """Fuse one (B, C_i, h_i, w_i) map per level into (B, channels, h_0, w_0)."""
        inputs = self._transform_inputs(inputs)
        levels = [
            self._conv(conv, [x]) for conv, x in zip(self.lateral_convs, inputs, strict=False)
        ]
        levels.append(self.psp_forward(inputs))
        for i in range(len(levels) - 1, 0, -1):
            levels[i - 1] = self._resize(levels[i], levels[i - 1]).add_(levels[i - 1])
        levels[:-1] = [
            self._conv(module, [x]) for module, x in zip(self.fpn_convs, levels, strict=False)
        ]
        return self._conv(self.fpn_bottleneck, levels)

    def cls_seg(self, feat: Tensor) -> Tensor:
        """Classify every place, (B, channels, h, w) -> (B, classes, h, w)."""
        conv = self.conv_seg
        known = type(conv) is nn.Conv2d and conv.kernel_size == (1, 1) and conv.groups == 1
        if known and not (self.training or conv.training or _is_watched(conv)):
            out = conv_evaluated([feat], conv.weight, Finish(shift=conv.bias))
            if out is not None:
                return out.contiguous()
        return super().cls_seg(feat)

    def _conv(self, module: ConvModule, maps: Sequence[Tensor]) -> Tensor:
        """Apply the module to all maps, resized to the first and stacked."""
        conv = module.conv
        if not _is_plain(module):
            return module(torch.cat([self._resize(x, maps[0]) for x in maps], dim=1))
        if not torch.compiler.is_compiling():
            finish = evaluated(module)
            if finish is not None:
                out = conv_evaluated(maps, conv.weight, finish, self.align_corners)
                if out is not None:
                    return out
        out = conv_upsampled(maps, conv.weight, conv.bias, self.align_corners)
        out = module.norm(out) if module.with_norm else out
        return module.activate(out) if module.with_activation else out

    def _resize(self, x: Tensor, like: Tensor) -> Tensor:
        return resize(x, size=like.shape[2:], mode='bilinear', align_corners=self.align_corners)


#: Of classes derived from torch's, such as mmengine's for one process, too.
_BATCH_NORMS = (nn.BatchNorm2d.forward, nn.SyncBatchNorm.forward)


def evaluated(module: ConvModule) -> Finish | None:
    """Return what follows the convolution, if in evaluation it is one factor and term per channel.

    None while training, and where somebody else looks at what comes in between.
    """
    norm = module.norm if module.with_norm else None
    activate = module.activate if module.with_activation else None
    followers = [part for part in (norm, activate) if part is not None]
    if module.training or any(part.training or _is_watched(part) for part in followers):
        return None
    if activate is not None and type(activate) is not nn.ReLU:
        return None
    if norm is None:
        return Finish(None, module.conv.bias, activate is not None)
    if type(norm).forward not in _BATCH_NORMS or norm.running_mean is None:
        return None
    scale = torch.rsqrt(norm.running_var.double() + norm.eps)
    scale = scale if norm.weight is None else scale * norm.weight
    mean = norm.running_mean if module.conv.bias is None else norm.running_mean - module.conv.bias
    shift = -mean * scale
    shift = shift if norm.bias is None else shift + norm.bias
    return Finish(scale.float(), shift.float(), activate is not None)


def _is_watched(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _is_plain(module: ConvModule) -> bool:
    """Return whether the module is a convolution with zero padding, then norm and activation.

    ``conv_cfg`` can put anything else there, which then runs as it is.
    """
    conv = module.conv
    return (
        type(conv) is nn.Conv2d
        and module.order == ('conv', 'norm', 'act')
        and not module.with_explicit_padding
        and not module.with_spectral_norm
        and conv.padding_mode == 'zeros'
        and conv.groups == 1
        and conv.padding == tuple(size // 2 for size in conv.kernel_size)
    )
