"""NMS, soft-NMS, RoIAlign and RoIPool against oracles that are written from the definitions."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from mmcv.ops import (
    RoIAlign,
    RoIAlignRotated,
    batched_nms,
    nms,
    nms_match,
    nms_rotated,
    roi_align,
    roi_pool,
    soft_nms,
)

from cb_mm.compat import mmcv_ops
from cb_mm.compat.families import current_family
from cb_mm.errors import exit_code

pytestmark = pytest.mark.skipif(
    mmcv_ops.source() == 'compiled', reason='mmcv has its own compiled ops, which stay in place'
)


def random_boxes(rng: np.random.Generator, count: int, size: float = 60.0) -> np.ndarray:
    """Boxes of which some are empty, inverted, twins of others, or outside the image."""
    corner = rng.uniform(-10, size, (count, 2))
    extent = rng.uniform(0, size / 2, (count, 2))
    boxes = np.concatenate([corner, corner + extent], axis=1)
    if count >= 6:
        boxes[0, 2:] = boxes[0, :2]  # a point
        boxes[1, 2] = boxes[1, 0]  # a line
        boxes[2] = boxes[3]  # twins
        boxes[4, [0, 2]] = boxes[4, [2, 0]]  # inverted
    return boxes.astype(np.float32)


def iou(a: np.ndarray, b: np.ndarray, offset: int) -> float:
    area = lambda box: (box[2] - box[0] + offset) * (box[3] - box[1] + offset)  # noqa: E731
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]) + offset)
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]) + offset)
    union = area(a) + area(b) - width * height
    return width * height / union if union else 0.0


def brute_force_nms(boxes, scores, threshold, offset=0):
    kept = []
    for i in np.argsort(-scores, kind='stable'):
        if all(iou(boxes[i], boxes[k], offset) <= threshold for k in kept):
            kept.append(int(i))
    return kept


def brute_force_soft_nms(boxes, scores, threshold, sigma, min_score, method, offset=0):
    scores = scores.astype(np.float64).copy()
    left, kept, final = list(range(len(scores))), [], []
    while left:
        best = max(left, key=lambda i: scores[i])
        kept.append(best)
        final.append(scores[best])
        left.remove(best)
        for i in left:
            overlap = iou(boxes[best], boxes[i], offset)
            if method == 'gaussian':
                scores[i] *= np.exp(-(overlap**2) / sigma)
            elif overlap >= threshold:
                scores[i] *= 1 - overlap if method == 'linear' else 0
        left = [i for i in left if scores[i] >= min_score]
    return kept, final


@pytest.mark.parametrize('offset', [0, 1])
@pytest.mark.parametrize('count', [0, 1, 7, 60])
@pytest.mark.parametrize('seed', range(5))
def test_nms_equals_brute_force(count, offset, seed):
    rng = np.random.default_rng(seed)
    boxes, scores = random_boxes(rng, count), rng.permutation(count).astype(np.float32)
    for threshold in (0.0, 0.3, 0.7):
        dets, kept = nms(torch.tensor(boxes), torch.tensor(scores), threshold, offset=offset)
        assert kept.tolist() == brute_force_nms(boxes, scores, threshold, offset)
        assert dets.shape == (len(kept), 5)
        assert torch.equal(dets[:, 4], torch.tensor(scores)[kept])


@pytest.mark.parametrize('method', ['naive', 'linear', 'gaussian'])
@pytest.mark.parametrize('offset', [0, 1])
@pytest.mark.parametrize('seed', range(4))
def test_soft_nms_equals_brute_force(method, offset, seed):
    rng = np.random.default_rng(seed)
    boxes, scores = random_boxes(rng, 30), rng.uniform(0, 1, 30).astype(np.float32)
    options = dict(sigma=0.5, min_score=0.05, method=method, offset=offset)
    dets, kept = soft_nms(torch.tensor(boxes), torch.tensor(scores), 0.3, **options)
    expected, expected_scores = brute_force_soft_nms(boxes, scores, 0.3, **options)
    assert kept.tolist() == expected
    assert dets[:, 4].tolist() == pytest.approx(expected_scores, abs=1e-5)
    np.testing.assert_array_equal(dets[:, :4].numpy(), boxes[expected])


@pytest.mark.parametrize(('method', 'second'), [('naive', 0.0), ('linear', 0.25)])
def test_soft_nms_at_equality(method, second):
    """An IoU of just the threshold decays; a score of just ``min_score`` is kept."""
    boxes = torch.tensor([[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 2.0], [9.0, 9.0, 12.0, 12.0]])
    scores = torch.tensor([0.75, 0.5, 0.125])
    for least, count in ((second, 3), (np.nextafter(np.float32(second), np.float32(1)), 2)):
        least = max(float(least), 0.0)
        if least > 0.125:  # the third box is worth less
            count -= 1
        dets, kept = soft_nms(boxes, scores, 0.5, min_score=least, method=method)
        assert len(kept) == count
        found = dict(zip(kept.tolist(), dets[:, 4].tolist(), strict=True))
        assert found.get(1, second) == second
        assert (1 in found) == (least == second)
    # Above the threshold by a hair, it does not decay.
    dets, kept = soft_nms(boxes, scores, 0.5000001, min_score=0.1, method=method)
    assert dict(zip(kept.tolist(), dets[:, 4].tolist(), strict=True))[1] == 0.5


def test_numpy_and_empty_soft_nms():
    dets, kept = soft_nms(np.zeros((0, 4), np.float32), np.zeros(0, np.float32))
    assert dets.shape == (0, 5)
    assert len(kept) == 0
    dets, kept = nms(np.float32([[0, 0, 9, 9], [0, 0, 9, 8]]), np.float32([0.1, 0.9]), 0.5)
    assert isinstance(dets, np.ndarray)
    assert kept.tolist() == [1]


@pytest.mark.parametrize('kind', ['nms', 'soft_nms'])
@pytest.mark.parametrize('class_agnostic', [False, True])
@pytest.mark.parametrize('split', [10000, 5])
def test_batched_nms(kind, class_agnostic, split):
    """Every form of it: by class or not, in one go or class by class, hard or soft."""
    rng = np.random.default_rng(1)
    boxes, scores = random_boxes(rng, 40), rng.permutation(40).astype(np.float32) / 40
    classes = rng.integers(0, 3, 40)
    options = dict(type=kind, iou_threshold=0.4, split_thr=split, class_agnostic=class_agnostic)
    if kind == 'soft_nms':
        options['min_score'] = 0.05
    by_class = not class_agnostic or split == 5  # mmcv splits by class even when told not to look
    dets, kept = batched_nms(
        torch.tensor(boxes), torch.tensor(scores), torch.tensor(classes), options
    )
    expected = []
    for label in range(3) if by_class else [None]:
        group = np.arange(40) if label is None else np.flatnonzero(classes == label)
        if kind == 'nms':
            picked = brute_force_nms(boxes[group], scores[group], 0.4)
            expected += [(scores[group[i]], group[i]) for i in picked]
        else:
            picked, final = brute_force_soft_nms(
                boxes[group], scores[group], 0.4, 0.5, 0.05, 'linear'
            )
            expected += [(s, group[i]) for i, s in zip(picked, final, strict=True)]
    if kind == 'nms' or not by_class or split == 5:
        assert sorted(kept.tolist()) == sorted(i for _, i in expected)
        assert dets[:, 4].tolist() == pytest.approx(
            sorted((s for s, _ in expected), reverse=True), abs=1e-5
        )
    else:
        # Over all classes at once only the very best box escapes `min_score`, not one a class.
        assert {int(i) for i in kept} <= {int(i) for _, i in expected}


def test_batched_nms_without_nms_sorts():
    boxes = torch.tensor([[0.0, 0, 5, 5], [1, 1, 5, 5]])
    dets, kept = batched_nms(boxes, torch.tensor([0.2, 0.8]), torch.tensor([0, 0]), None)
    assert kept.tolist() == [1, 0]
    assert dets.shape == (2, 5)


def direct_roi_align(features, rois, size, scale, ratio, aligned):
    """Mean of bilinear samples, in plain loops over bins and sample points."""
    channels = features.shape[1]
    out = np.zeros((len(rois), channels, size, size))
    for r, (index, *box) in enumerate(rois):
        shift = 0.5 if aligned else 0.0
        x1, y1, x2, y2 = (v * scale - shift for v in box)
        w, h = x2 - x1, y2 - y1
        if not aligned:
            w, h = max(w, 1.0), max(h, 1.0)
        ny = ratio if ratio > 0 else int(np.ceil(h / size))
        nx = ratio if ratio > 0 else int(np.ceil(w / size))
        for i in range(size):
            for j in range(size):
                total = np.zeros(channels)
                for sy in range(max(ny, 0)):
                    for sx in range(max(nx, 0)):
                        y = y1 + (i + (sy + 0.5) / ny) * h / size
                        x = x1 + (j + (sx + 0.5) / nx) * w / size
                        total += bilinear(features[int(index)], y, x)
                out[r, :, i, j] = total / max(ny * nx, 1)
    return out


def bilinear(grid, y, x):
    channels, height, width = grid.shape
    if y < -1 or y > height or x < -1 or x > width:
        return np.zeros(channels)
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    y0, x0 = int(y), int(x)
    y_up, x_up = min(y0 + 1, height - 1), min(x0 + 1, width - 1)
    dy, dx = y - y0, x - x0
    top = grid[:, y0, x0] * (1 - dx) + grid[:, y0, x_up] * dx
    low = grid[:, y_up, x0] * (1 - dx) + grid[:, y_up, x_up] * dx
    return top * (1 - dy) + low * dy


def random_rois(rng, count, images, size):
    boxes = random_boxes(rng, count, size)
    boxes[4:5] = [0, 0, size, size]  # no inverted box: RoIAlign has none
    index = rng.integers(0, images, (count, 1))
    return np.concatenate([index, boxes], axis=1).astype(np.float32)


@pytest.mark.parametrize('aligned', [True, False])
@pytest.mark.parametrize('ratio', [0, 2])
@pytest.mark.parametrize('scale', [1.0, 0.25])
@pytest.mark.parametrize('seed', range(3))
def test_roi_align_equals_direct_sampling(aligned, ratio, scale, seed):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((2, 3, 11, 14))
    rois = random_rois(rng, 9, 2, 14 / scale)
    layer = RoIAlign((4, 4), scale, ratio, 'avg', aligned)
    result = layer(torch.tensor(features), torch.tensor(rois, dtype=torch.float64))
    expected = direct_roi_align(features, rois.astype(np.float64), 4, scale, ratio, aligned)
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-10)


@pytest.mark.parametrize('aligned', [True, False])
@pytest.mark.parametrize('ratio', [0, 2])
def test_roi_align_gradient(aligned, ratio):
    rng = np.random.default_rng(0)
    features = torch.tensor(rng.standard_normal((2, 2, 6, 7)), requires_grad=True)
    rois = torch.tensor(random_rois(rng, 6, 2, 14.0), dtype=torch.float64)
    run = lambda x: roi_align(x, rois, (3, 2), 0.5, ratio, 'avg', aligned)  # noqa: E731
    assert torch.autograd.gradcheck(run, (features,))


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    rng = np.random.default_rng(3)
    features = torch.tensor(rng.standard_normal((1, 4, 16, 16)), dtype=torch.float32)
    rois = torch.tensor(random_rois(rng, 8, 1, 60.0))
    exact = roi_align(features, rois, (7, 7), 0.25, 0, 'avg', True)
    half = features.to(dtype).requires_grad_()
    with torch.autocast('cpu', torch.bfloat16):
        pooled = roi_align(half, rois, (7, 7), 0.25, 0, 'avg', True)
    assert pooled.dtype == dtype
    torch.testing.assert_close(pooled.float(), exact, atol=0.03, rtol=0.03)
    pooled.float().sum().backward()
    assert half.grad.dtype == dtype
    assert half.grad.isfinite().all()
    boxes, scores = rois[:, 1:].to(dtype), torch.linspace(0, 1, 8).to(dtype)
    assert len(nms(boxes, scores, 0.5)[1]) > 0
    assert soft_nms(boxes, scores, 0.5)[0].dtype == dtype


def test_roi_align_without_rois():
    features = torch.randn(1, 3, 8, 8, requires_grad=True)
    pooled = roi_align(features, torch.zeros(0, 5), (7, 7), 1.0, 0, 'avg', True)
    assert pooled.shape == (0, 3, 7, 7)
    pooled.sum().backward()
    assert features.grad.abs().sum() == 0


def direct_roi_pool(features, rois, size, scale):
    """Maximum over the pixels of each bin; bins are rounded outwards."""
    out = np.zeros((len(rois), features.shape[1], size, size))
    for r, (index, *box) in enumerate(rois):
        x1, y1, x2, y2 = (int(np.floor(v * scale + 0.5)) for v in box)
        w, h = max(x2 - x1 + 1, 1) / size, max(y2 - y1 + 1, 1) / size
        for i, j in np.ndindex(size, size):
            rows = slice(
                *(int(max(v, 0)) for v in (y1 + np.floor(i * h), y1 + np.ceil((i + 1) * h)))
            )
            cols = slice(
                *(int(max(v, 0)) for v in (x1 + np.floor(j * w), x1 + np.ceil((j + 1) * w)))
            )
            cut = features[int(index), :, rows, cols]
            out[r, :, i, j] = cut.max(axis=(1, 2)) if cut.size else 0
    return out


def test_roi_pool():
    rng = np.random.default_rng(4)
    features = rng.standard_normal((2, 3, 11, 14))
    rois = random_rois(rng, 9, 2, 28.0)
    tensors = torch.tensor(features, requires_grad=True), torch.tensor(rois, dtype=torch.float64)
    expected = direct_roi_pool(features, rois, 3, 0.5)
    np.testing.assert_array_equal(roi_pool(*tensors, 3, 0.5).detach(), expected)
    assert torch.autograd.gradcheck(lambda x: roi_pool(x, tensors[1], 3, 0.5), tensors[:1])


def test_nms_match():
    """Each group is a box that hard NMS keeps, and those that it suppresses."""
    rng = np.random.default_rng(7)
    boxes, scores = random_boxes(rng, 40), rng.permutation(40).astype(np.float32)
    groups = nms_match(torch.tensor(np.column_stack([boxes, scores])), 0.3)
    assert [int(group[0]) for group in groups] == brute_force_nms(boxes, scores, 0.3)
    assert sorted(i for group in groups for i in group.tolist()) == list(range(40))
    for place, group in enumerate(groups):
        best, *others = group.tolist()
        assert others == sorted(others, key=lambda i: -scores[i])
        assert all(iou(boxes[best], boxes[i], 0) >= 0.3 for i in others)
        later = [i for later in groups[place + 1 :] for i in later.tolist()]
        assert all(iou(boxes[best], boxes[i], 0) < 0.3 for i in later)


def test_other_ops_name_themselves():
    from mmcv.utils import collect_env

    with pytest.raises(mmcv_ops.MissingOp, match='nms_rotated'):
        nms_rotated(torch.ones(1, 5), torch.ones(1), 0.5)
    with pytest.raises(mmcv_ops.MissingOp, match='max'):
        roi_align(torch.zeros(1, 1, 4, 4), torch.zeros(1, 5), (2, 2), 1.0, 0, 'max', True)
    assert 'torchvision' in collect_env()['MMCV Compiler']


def test_a_model_with_a_missing_op_ends_in_one_line(capsys):
    """It names the op, the part of the model and where to get the op."""

    class Detector(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pool = RoIAlignRotated(7, 1.0)

        def forward(self, x):
            return self.pool(x, torch.zeros(1, 6))

    assert exit_code(lambda: Detector()(torch.zeros(1, 3, 32, 32))) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert error.startswith('error: pool (RoIAlignRotated) needs the op roi_align_rotated_forward')
    assert 'docs/installation.md' in error
    source = (
        'instead of mmcv-lite' if current_family() == 'openmmlab' else 'onedl project publishes'
    )
    assert source in error


def run_python(code: str, tmp_path) -> str:
    done = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_mmdet_imported_first(tmp_path):
    """A script that knows mmdet alone and reaches cb_mm by ``custom_imports`` in the config."""
    (tmp_path / 'config.py').write_text("custom_imports = dict(imports=['cb_mm'])\n")
    code = """
import mmdet, mmdet.utils, mmdet.structures, mmseg
try:
    import mmdet.apis  # the maintained distribution allows it without the ops
except ImportError:
    pass
from mmengine.config import Config
Config.fromfile('config.py')
import numpy as np, torch
from mmdet.structures.mask import BitmapMasks
masks = BitmapMasks(np.ones((1, 8, 8), np.uint8), 8, 8)
cut = masks.crop_and_resize(np.float32([[0, 0, 4, 4]]), (2, 2), np.array([0]))
assert cut.masks.all(), cut.masks
from mmdet.models.layers.bbox_nms import multiclass_nms
boxes, scores = torch.tensor([[0., 0, 9, 9], [0, 0, 9, 8]]), torch.tensor([[.9, .0], [.8, .0]])
dets, labels = multiclass_nms(boxes, scores, 0.1, dict(type='nms', iou_threshold=0.5))
assert len(dets) == 1, dets
print('ok')
"""
    assert run_python(code, tmp_path).strip().endswith('ok')


def test_a_present_extension_is_left_alone(tmp_path):
    code = """
import sys, types
import mmcv
own = types.ModuleType('mmcv._ext')
sys.modules['mmcv._ext'] = mmcv._ext = own
from cb_mm.compat import mmcv_ops
from cb_mm.errors import exit_code
assert sys.modules['mmcv._ext'] is own
assert mmcv_ops.install() == 'compiled'
print('ok')
"""
    assert run_python(code, tmp_path).strip().endswith('ok')
