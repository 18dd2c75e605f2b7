"""Non-maximum suppression: hard on torchvision's kernel, soft and matching ones by hand."""

from __future__ import annotations

import torch
from torch import Tensor
from torchvision.ops import box_iou
from torchvision.ops import nms as torchvision_nms

from .tensors import wide


def _with_offset(boxes: Tensor, offset: int) -> Tensor:
    """Return boxes of width x2 - x1 from boxes of width x2 - x1 + offset."""
    return boxes + boxes.new_tensor([0, 0, offset, offset]) if offset else boxes


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Return the indices of the boxes (N, 4) that are kept, best score first."""
    boxes, scores = wide(boxes, scores)
    return torchvision_nms(_with_offset(boxes, offset), scores, iou_threshold)


def softnms(
    boxes: Tensor,
    scores: Tensor,
    dets: Tensor,
    iou_threshold: float,
    sigma: float,
    min_score: float,
    method: int,
    offset: int,
) -> Tensor:
    """Fill ``dets`` (N, 5) with boxes and decayed scores; return the indices of those kept.

    ``method`` is 0 (naive: plain suppression), 1 (linear: score × (1 − IoU)) or 2 (gaussian:
    score × exp(−IoU² / sigma)). The best box is always kept; the others only while their score
    is at least ``min_score``. torchvision has no soft-NMS.
    """
    wide_boxes, scores = wide(boxes, scores)
    x1, y1, x2, y2 = _with_offset(wide_boxes, offset).unbind(1)
    areas = (x2 - x1) * (y2 - y1)
    scores = scores.clone()
    alive = torch.ones_like(scores, dtype=torch.bool)
    kept: list[int] = []
    kept_scores: list[Tensor] = []
    while alive.any():
        best = int(scores.masked_fill(~alive, -torch.inf).argmax())
        kept.append(best)
        kept_scores.append(scores[best])
        width = (torch.minimum(x2, x2[best]) - torch.maximum(x1, x1[best])).clamp(min=0)
        height = (torch.minimum(y2, y2[best]) - torch.maximum(y1, y1[best])).clamp(min=0)
        overlap = width * height
        # Two empty boxes give 0 / 0; they do not overlap.
        iou = (overlap / (areas + areas[best] - overlap)).nan_to_num(nan=0.0)
        if method == 2:
            scores = scores * torch.exp(-(iou**2) / sigma)
        else:
            decayed = scores * (1 - iou) if method == 1 else torch.zeros_like(scores)
            scores = torch.where(iou >= iou_threshold, decayed, scores)
        alive &= scores >= min_score
        alive[best] = False
    indices = torch.tensor(kept, dtype=torch.long, device=boxes.device)
    if kept:
        rows = torch.cat([wide_boxes[indices], torch.stack(kept_scores)[:, None]], dim=1)
        dets[: len(kept)] = rows.to(dets.dtype)
    return indices


def nms_match(dets: Tensor, iou_threshold: float) -> list[list[int]]:
    """Return groups of boxes, best first: one that is kept, and those that it suppresses.

    ``dets`` (N, 5) are boxes and scores. PISA's sampler asks for it.
    """
    (dets,) = wide(dets)
    iou = box_iou(dets[:, :4], dets[:, :4]).nan_to_num(nan=0.0)
    order = dets[:, 4].argsort(descending=True, stable=True)
    groups: list[list[int]] = []
    while len(order):
        matched = iou[order[0], order] >= iou_threshold
        matched[0] = True
        groups.append(order[matched].tolist())
        order = order[~matched]
    return groups


OPS = (nms, softnms, nms_match)
