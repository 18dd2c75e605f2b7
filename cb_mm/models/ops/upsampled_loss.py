"""Cross-entropy of upsampled logits, with few or none of the upsampled logits.

mmseg's heads bring logits from stride 4 to the size of the labels before the loss. For 150 classes
at 512 × 512 that is 157 MB per image, written and read again by softmax, its gradient and the
gradient of upsampling: nearly half of a training step on the CPU, and most of its memory. Here some
rows at a time are upsampled, turned into loss and gradient, and discarded. The gradient is that of
the original logits, because upsampling is linear; it is kept from the forward pass, as the loss is
one number.

On the CPU the rows are as many as the cache holds. A GPU has no use for that: every kernel takes
5 µs to start, so all rows are taken at once unless they need more memory than `_LARGE_CHUNK`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from mmseg.models.decode_heads import FCNHead
from mmseg.models.losses import CrossEntropyLoss
from torch import Tensor
from torch.autograd.function import once_differentiable

from .upsampled_conv import shifted_upsampling

# Upsampled numbers at a time. Those of a CPU should stay in its cache; elsewhere they are 1 GiB of
# float32, of which there are two copies. mmseg keeps three, of all images.
_SMALL_CHUNK, _LARGE_CHUNK = 2**20, 2**28


class UpsampledLoss:
    """For decode heads of mmseg: the same losses and accuracy, for less time and memory.

    Heads with another loss than one plain softmax cross-entropy, or with a sampler, are left to
    mmseg.
    """

    # What the head has that this is mixed into.
    loss_decode: Any
    sampler: Any
    ignore_index: int
    align_corners: bool
    _stack_batch_gt: Callable[[list[Any]], Tensor]

    def loss_by_feat(self, seg_logits: Tensor, batch_data_samples: list[Any]) -> dict[str, Tensor]:
        """Return losses and accuracy of logits (B, classes, h, w)."""
        criterion = self.loss_decode
        if self.sampler is not None or not _is_plain(criterion) or torch.compiler.is_compiling():
            return super().loss_by_feat(seg_logits, batch_data_samples)  # type: ignore[misc]
        labels = self._stack_batch_gt(batch_data_samples).squeeze(1)
        with _full_precision(seg_logits.device.type):
            total, correct = UpsampledCrossEntropy.apply(
                seg_logits, labels, self.ignore_index, self.align_corners
            )
        valid = (labels != self.ignore_index).sum()
        count = valid if criterion.avg_non_ignore else labels.numel()
        tiny = torch.finfo(torch.float32).eps  # mmseg's, for a batch where nothing is labelled
        return {
            criterion.loss_name: criterion.loss_weight * (total / (count + tiny)),
            'acc_seg': (correct + tiny) * (100.0 / (valid + tiny)),
        }


@MODELS.register_module()
class FastFCNHead(UpsampledLoss, FCNHead):
    """mmseg's FCNHead, same arguments, keys and results, with the cheaper loss."""

    #: For the record of a checkpoint: the class whose results these are.
    equivalent_to = 'FCNHead'


def _full_precision(device: str) -> contextlib.AbstractContextManager:
    """Switch autocast off, on devices that have it."""
    if torch.amp.is_autocast_available(device):
        return torch.autocast(device, enabled=False)
    return contextlib.nullcontext()


def _is_plain(criterion: Any) -> bool:
    return (
        type(criterion) is CrossEntropyLoss
        and not criterion.use_sigmoid
        and not criterion.use_mask
        and criterion.class_weight is None
        and criterion.reduction == 'mean'
    )


class UpsampledCrossEntropy(torch.autograd.Function):
    """Sum of the loss over all labelled pixels, and how many of them the largest logit gets right.

    ``apply(logits, labels, ignore_index, align_corners)`` with logits (B, C, h, w) and labels
    (B, H, W) is ``cross_entropy(interpolate(logits, (H, W)), labels, reduction='sum')``.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, ignore_index: int, align_corners: bool
    ) -> tuple[Tensor, Tensor]:
        """Return loss and hits, each of shape (1,) in float32 or better."""
        _require_in_range(labels, logits.shape[1], ignore_index)
        maps = logits.detach().to(torch.promote_types(logits.dtype, torch.float32))
        in_chunks = _in_small_chunks if logits.device.type == 'cpu' else _in_large_chunks
        total, hits, grad = in_chunks(
            maps, labels, ignore_index, align_corners, ctx.needs_input_grad[0]
        )
        if grad is not None:
            ctx.save_for_backward(grad.to(logits.dtype))
        ctx.mark_non_differentiable(hits)
        return total.view(1), hits.view(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor, _: Any) -> tuple[Tensor, None, None, None]:
        """Scale the gradient found in the forward pass."""
        (grad,) = ctx.saved_tensors
        return grad * grad_total, None, None, None


def _in_small_chunks(
    maps: Tensor, labels: Tensor, ignore_index: int, align_corners: bool, needed: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return loss, hits and the gradient of maps (B, C, h, w), for a CPU."""
    (_, classes, h, w), (height, width) = maps.shape, labels.shape[1:]
    rows = shifted_upsampling(h, height, 1, align_corners, maps)[..., 0]
    columns = shifted_upsampling(w, width, 1, align_corners, maps)[..., 0]
    total, hits = maps.new_zeros(()), maps.new_zeros(())
    grads = []
    step = max(_SMALL_CHUNK // (width * classes), 1)
    for image, label in zip(maps, labels, strict=True):
        # Classes before columns: softmax then runs along whole rows of memory, several times
        # faster than over a dozen neighbouring numbers.
        wide = torch.matmul(image, columns.T).transpose(0, 1).reshape(h, -1)
        wide_grad = torch.zeros_like(wide) if needed else wide.new_empty(0)
        for top in range(0, height, step):
            part = slice(top, min(top + step, height))
            source = _sources(top, part.stop, h, height, align_corners)
            shares = rows[part, source]
            scores = (shares @ wide[source]).view(-1, classes, width)
            loss, right, slope = _loss(scores, label[part].unsqueeze(1), ignore_index, needed)
            total += loss
            hits += right
            if slope is not None:
                wide_grad[source].addmm_(shares.T, slope.view(len(shares), -1))
        if needed:
            grads.append(torch.matmul(wide_grad.view(h, classes, width), columns))
    return total, hits, torch.stack(grads).transpose(1, 2) if needed else None


def _in_large_chunks(
    maps: Tensor, labels: Tensor, ignore_index: int, align_corners: bool, needed: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the same with as few kernels as possible, for a GPU.

    Products would be shorter to write, but may run in TF32, which is too coarse for logits.
    """
    (batch, classes, h, _), (height, width) = maps.shape, labels.shape[1:]
    step = max(_LARGE_CHUNK // (batch * classes * width), 1)
    if step >= height:
        scores = _resize(maps, (height, width), align_corners)
        total, hits, slope = _loss(scores, labels.unsqueeze(1), ignore_index, needed)
        return total, hits, _resize_back(slope, maps.shape, align_corners) if needed else None
    total, hits = maps.new_zeros(()), maps.new_zeros(())
    grad = torch.zeros_like(maps) if needed else None
    upper, lower, share = _neighbours(h, height, align_corners, maps)
    for top in range(0, height, step):
        part = slice(top, min(top + step, height))
        above, below, lean = upper[part], lower[part], share[part].view(-1, 1)
        tall = torch.lerp(maps.index_select(2, above), maps.index_select(2, below), lean)
        # As many rows as before: only the columns are interpolated.
        scores = _resize(tall, (len(above), width), align_corners)
        loss, right, slope = _loss(scores, labels[:, part].unsqueeze(1), ignore_index, needed)
        total += loss
        hits += right
        if grad is not None:
            tall_grad = _resize_back(slope, tall.shape, align_corners)
            below_grad = tall_grad * lean
            grad.index_add_(2, above, tall_grad - below_grad).index_add_(2, below, below_grad)
    return total, hits, grad


def _resize(maps: Tensor, size: tuple[int, int], align_corners: bool) -> Tensor:
    return F.interpolate(maps, size, mode='bilinear', align_corners=align_corners)


def _resize_back(slope: Any, shape: Sequence[int], align_corners: bool) -> Tensor:
    """Return the gradient of what `_resize` was given, from that of its result."""
    return torch.ops.aten.upsample_bilinear2d_backward(
        slope, slope.shape[2:], list(shape), align_corners
    )


def _neighbours(
    length: int, new_length: int, align_corners: bool, like: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return for each upsampled row the row above, the row below, and the share of the latter."""
    place = torch.arange(new_length, device=like.device, dtype=like.dtype)
    if align_corners:
        place = place * ((length - 1) / max(new_length - 1, 1))
    else:
        place = ((place + 0.5) * (length / new_length) - 0.5).clamp(min=0)
    upper = place.floor().clamp(max=length - 1)
    lower = (upper + 1).clamp(max=length - 1)
    return upper.long(), lower.long(), place - upper


def _loss(
    scores: Tensor, labels: Tensor, ignore_index: int, needed: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return summed loss, hits and gradient: scores (N, C, ...), labels (N, 1, ...).

    A hit is a label whose score none exceeds: finding the argmax would take longer than everything
    else here.
    """
    known = labels != ignore_index
    index = labels.masked_fill(~known, 0)
    logs = torch.log_softmax(scores, dim=1)
    own = logs.gather(1, index)
    hits = ((own >= logs.amax(dim=1, keepdim=True)) & known).sum()
    share = known.to(logs.dtype)
    loss = -(own * share).sum()
    if not needed:
        return loss, hits, None
    slope = logs.exp_().mul_(share)
    return loss, hits, slope.scatter_add_(1, index, -share)


def _sources(top: int, stop: int, length: int, new_length: int, align_corners: bool) -> slice:
    """Return the rows that the upsampled rows from top to stop are made of."""
    if align_corners:
        scale = (length - 1) / max(new_length - 1, 1)
        first, last = top * scale, (stop - 1) * scale
    else:
        scale = length / new_length
        first, last = (top + 0.5) * scale - 0.5, (stop - 0.5) * scale - 0.5
    # One more on either side: rounding here may differ from torch's.
    return slice(max(int(first) - 1, 0), min(int(last) + 3, length))


def _require_in_range(labels: Tensor, classes: int, ignore_index: int) -> None:
    if not labels.is_cpu:  # on other devices, reading a value would synchronise
        return
    wrong = labels[((labels < 0) | (labels >= classes)) & (labels != ignore_index)]
    if len(wrong):
        raise IndexError(f'Target {int(wrong[0])} is out of bounds.')  # torch's own words
