"""The compiled ops of mmcv that Mask R-CNN needs, on torchvision's kernels.

mmcv's compiled extension (`mmcv._ext`) has no wheels for current torch and does not compile
against it, and without it `mmcv.ops`, and so mmdet's models, cannot even be imported. When it
cannot be imported, `install` puts a stand-in in its place: non-maximum suppression, soft-NMS and
average RoIAlign work, on CPU and CUDA; every other op raises an error that names it, when called.
An extension that imports is left alone.
"""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import inspect
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NoReturn

import torch
from torch import Tensor
from torchvision.ops import nms as torchvision_nms
from torchvision.ops import roi_align as torchvision_roi_align

from ..errors import UserError
from .families import current_family

EXTENSION = 'mmcv._ext'


class MissingOp(UserError, NotImplementedError):
    """An mmcv op without a stand-in here was called."""


def _wide(*tensors: Tensor) -> list[Tensor]:
    """Return the tensors in one float type of at least 32 bits.

    torchvision has no bfloat16 kernels, none for float16 on CPU, and box coordinates above 2048
    are not exact in float16.
    """
    dtype = torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32
    return [t.to(dtype) for t in tensors]


def _with_offset(boxes: Tensor, offset: int) -> Tensor:
    """Return boxes of width x2 - x1 from boxes of width x2 - x1 + offset."""
    return boxes + boxes.new_tensor([0, 0, offset, offset]) if offset else boxes


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Return the indices of the boxes (N, 4) that are kept, best score first."""
    boxes, scores = _wide(boxes, scores)
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
    wide_boxes, scores = _wide(boxes, scores)
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


def _require_average(pool_mode: int) -> None:
    if pool_mode != 1:
        _missing('roi_align(pool_mode="max")')


def roi_align_forward(
    features: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Fill ``output`` (R, C, aligned_height, aligned_width) from ``features`` (B, C, H, W).

    ``rois`` (R, 5) are batch index, x1, y1, x2, y2. A sampling ratio of 0 means as many samples per
    bin as it has cells. The argmax tensors belong to maximum pooling and are not changed.
    """
    _require_average(pool_mode)
    features, rois = _wide(features, rois)
    size = (aligned_height, aligned_width)
    pooled = torchvision_roi_align(features, rois, size, spatial_scale, sampling_ratio, aligned)
    output.copy_(pooled)


def roi_align_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    grad_input: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Fill ``grad_input`` (B, C, H, W) from ``grad_output`` (R, C, aligned_height, aligned_width).

    The kernel behind torchvision's own autograd formula is called by name: going through
    autograd would run the forward pass a second time.
    """
    _require_average(pool_mode)
    grad_output, rois = _wide(grad_output, rois)
    grad_input.copy_(
        torch.ops.torchvision._roi_align_backward(
            grad_output.contiguous(),
            rois,
            spatial_scale,
            aligned_height,
            aligned_width,
            *grad_input.shape,
            sampling_ratio,
            aligned,
        )
    )


def get_compiler_version() -> str:
    """Return what mmcv's environment report shows."""
    return 'none (ops from torchvision, by cb_mm)'


get_compiling_cuda_version = get_compiler_version

OPS: dict[str, Callable[..., Any]] = {
    op.__name__: op
    for op in (nms, softnms, roi_align_forward, roi_align_backward, get_compiler_version)
} | {'get_compiling_cuda_version': get_compiling_cuda_version}


def _missing(name: str) -> NoReturn:
    raise MissingOp(
        f"{_calling_part()} needs the op {name} of mmcv's compiled extension, which is not "
        'installed; cb_mm replaces only nms, soft_nms and average RoIAlign. Install mmcv '
        f'with its ops, built for your torch (MMCV_WITH_OPS=1 pip install --no-build-isolation '
        f'{_distribution()}), or configure a model without this part.'
    )


def _calling_part() -> str:
    """Return the running part of the model, from the stack: 'backbone.conv (DeformConv2d)'."""
    running = []
    frame = inspect.currentframe()
    while frame is not None:
        owner = frame.f_locals.get('self')
        if isinstance(owner, torch.nn.Module):
            running.append(owner)
        frame = frame.f_back
    if not running:  # called by hand, or in a backward pass
        return 'this call'
    names = {module: name for name, module in running[-1].named_modules()}
    kind = type(running[0]).__name__
    return f'{names[running[0]]} ({kind})' if names.get(running[0]) else kind


def _distribution() -> str:
    return 'mmcv' if current_family() == 'openmmlab' else 'onedl-mmcv'


class _StandIn(ModuleType):
    """A module with every op mmcv requests; those without a stand-in raise when called."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith('__'):
            raise AttributeError(name)
        return lambda *args, **kwargs: _missing(name)


def source() -> str:
    """Return where mmcv's ops come from: 'compiled' or 'torchvision'."""
    return 'torchvision' if isinstance(sys.modules.get(EXTENSION), _StandIn) else 'compiled'


def install() -> str:
    """Make ``mmcv.ops`` importable and return where its ops come from. Calling it again is free."""
    if EXTENSION in sys.modules:
        return source()
    import mmcv

    try:
        importlib.import_module(EXTENSION)
    except ImportError:
        stand_in = _StandIn(EXTENSION, __doc__)
        # mmcv's own `check_ops_exist` asks for the spec.
        stand_in.__spec__ = importlib.machinery.ModuleSpec(EXTENSION, loader=None)
        vars(stand_in).update(OPS)
        sys.modules[EXTENSION] = mmcv._ext = stand_in
        _mend_early_imports()
    return source()


def _mend_early_imports() -> None:
    """Give modules that were imported before us the ops they failed to import.

    A script may import mmdet or mmseg first and reach us only through ``custom_imports``. Some of
    their modules guard ``from mmcv.ops import …`` with try/except and fall back to a placeholder,
    which would stay for the life of the process.
    """
    for module in list(sys.modules.values()):
        if getattr(module, '__name__', '').split('.')[0] not in ('mmdet', 'mmseg', 'mmpretrain'):
            continue
        for origin, name, alias in _guarded_op_imports(module):
            setattr(module, alias, getattr(importlib.import_module(origin), name))


def _guarded_op_imports(module: ModuleType) -> Iterator[tuple[str, str, str]]:
    """Yield (module, name, alias) of each ``from mmcv.ops… import name as alias`` in a try."""
    try:
        text = inspect.getsource(module)
    except (OSError, TypeError):
        return
    if 'mmcv.ops' not in text:
        return
    for block in (node for node in ast.parse(text).body if isinstance(node, ast.Try)):
        for line in block.body:
            source = line.module or '' if isinstance(line, ast.ImportFrom) else ''
            if isinstance(line, ast.ImportFrom) and source.startswith('mmcv.ops'):
                for item in line.names:
                    yield source, item.name, item.asname or item.name
