"""The loss of upsampled logits is mmseg's, with its gradient, without the upsampled logits."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from mmengine.registry import init_default_scope
from mmengine.structures import PixelData
from mmseg.registry import MODELS
from mmseg.structures import SegDataSample

from cb_mm.models.ops import upsampled_loss
from cb_mm.models.ops.upsampled_loss import UpsampledCrossEntropy

#: Size of the logits, size of the labels.
SIZES = {
    'times four': ((8, 8), (32, 32)),
    'odd': ((7, 9), (25, 34)),
    'equal': ((6, 5), (6, 5)),
    'smaller': ((20, 30), (9, 8)),
    'one pixel': ((1, 1), (5, 3)),
    'to one pixel': ((5, 3), (1, 1)),
    'one row': ((1, 9), (4, 40)),
}


def case(sizes, dtype=torch.float32, classes: int = 7, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, classes, *sizes[0], generator=generator, dtype=dtype) * 3
    labels = torch.randint(classes, (2, *sizes[1]), generator=generator)
    labels[torch.rand(labels.shape, generator=generator) < 0.2] = 255
    return logits.requires_grad_(), labels


def plain(logits, labels, align_corners):
    resized = F.interpolate(logits, labels.shape[1:], mode='bilinear', align_corners=align_corners)
    hits = (resized.argmax(1) == labels).sum()
    return F.cross_entropy(resized, labels, ignore_index=255, reduction='sum'), hits


@pytest.mark.parametrize('align_corners', [False, True])
@pytest.mark.parametrize('rows', [1, 3, 1000])
@pytest.mark.parametrize('sizes', SIZES.values(), ids=SIZES)
def test_loss_gradient_and_hits(monkeypatch, sizes, rows, align_corners):
    """Whatever the number of rows at a time."""
    monkeypatch.setattr(upsampled_loss, '_SMALL_CHUNK', rows * sizes[1][1] * 7)
    logits, labels = case(sizes, torch.float64)
    ours, hits = UpsampledCrossEntropy.apply(logits, labels, 255, align_corners)
    theirs, right = plain(logits, labels, align_corners)
    torch.testing.assert_close(ours[0], theirs, rtol=0, atol=1e-9)
    assert hits.item() == right
    (our_grad,) = torch.autograd.grad(3 * ours.sum(), logits)
    (their_grad,) = torch.autograd.grad(3 * theirs, logits)
    torch.testing.assert_close(our_grad, their_grad, rtol=0, atol=1e-11)


@pytest.mark.parametrize('align_corners', [False, True])
@pytest.mark.parametrize('rows', [1, 3, 1000])
@pytest.mark.parametrize('sizes', SIZES.values(), ids=SIZES)
def test_the_chunks_of_a_gpu(monkeypatch, sizes, rows, align_corners):
    """On the CPU, which can check them: all rows at once, or some rows of all images."""
    monkeypatch.setattr(upsampled_loss, '_LARGE_CHUNK', rows * sizes[1][1] * 7 * 2)
    logits, labels = case(sizes, torch.float64)
    ours, hits, grad = upsampled_loss._in_large_chunks(
        logits.detach(), labels, 255, align_corners, True
    )
    theirs, right = plain(logits, labels, align_corners)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
    assert hits.item() == right
    (their_grad,) = torch.autograd.grad(theirs, logits)
    torch.testing.assert_close(grad, their_grad, rtol=0, atol=1e-11)
    assert upsampled_loss._in_large_chunks(logits, labels, 255, align_corners, False)[2] is None


def test_many_random_sizes():
    generator = torch.Generator().manual_seed(5)
    for seed in range(60):
        h, w, height, width = torch.randint(1, 40, (4,), generator=generator).tolist()
        logits, labels = case(((h, w), (height, width)), seed=seed)
        align_corners = bool(seed % 2)
        ours, _ = UpsampledCrossEntropy.apply(logits, labels, 255, align_corners)
        theirs, _ = plain(logits, labels, align_corners)
        torch.testing.assert_close(ours[0], theirs, rtol=1e-5, atol=1e-4)
        grads = [torch.autograd.grad(loss.sum(), logits)[0] for loss in (ours, theirs)]
        torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-5)


def head(kind: str, **loss):
    init_default_scope('mmseg')
    torch.manual_seed(0)
    return MODELS.build(
        dict(type=kind, in_channels=8, in_index=0, channels=16, num_convs=1, num_classes=7,
             concat_input=False, norm_cfg=dict(type='BN'), align_corners=False,
             loss_decode=dict(type='CrossEntropyLoss', loss_weight=0.4, **loss))
    )  # fmt: skip


def samples(labels):
    return [SegDataSample(gt_sem_seg=PixelData(data=label[None])) for label in labels]


@pytest.mark.parametrize(
    'loss',
    [{}, {'avg_non_ignore': True}, {'class_weight': [1.0] * 6 + [0.5]},
     {'use_sigmoid': True}, {'loss_name': 'loss_mine'}],
    ids=str,
)  # fmt: skip
def test_heads_report_what_mmseg_reports(loss):
    """Where the loss is another one, by mmseg's own way."""
    ours, theirs = head('FastFCNHead', **loss), head('FCNHead', **loss)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    logits, labels = case(SIZES['times four'])
    if 'class_weight' in loss:  # mmseg's two families fail on ignored labels here
        labels[labels == 255] = 0
    found, expected = (h.loss_by_feat(logits, samples(labels)) for h in (ours, theirs))
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(found[key].squeeze(), value.squeeze(), rtol=1e-5, atol=1e-6)


def test_nothing_labelled():
    ours, theirs = head('FastFCNHead'), head('FCNHead')
    logits, labels = case(SIZES['odd'])
    labels.fill_(255)
    found, expected = (h.loss_by_feat(logits, samples(labels)) for h in (ours, theirs))
    assert found['loss_ce'].item() == expected['loss_ce'].item() == 0
    found['loss_ce'].sum().backward()
    assert not logits.grad.any()


def test_half_precision_keeps_its_type():
    logits, labels = case(SIZES['times four'])
    small = logits.detach().bfloat16().requires_grad_()
    ours, _ = UpsampledCrossEntropy.apply(small, labels, 255, False)
    theirs, _ = plain(small.float(), labels, False)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours[0], theirs)
    ours.sum().backward()
    assert small.grad.dtype == torch.bfloat16


def test_under_autocast():
    fast, slow = head('FastFCNHead'), head('FCNHead')
    logits, labels = case(SIZES['times four'])
    small = logits.detach().bfloat16().requires_grad_()
    with torch.autocast('cpu', torch.bfloat16):
        found = fast.loss_by_feat(small, samples(labels))['loss_ce']
    expected = slow.loss_by_feat(small.float(), samples(labels))['loss_ce']
    torch.testing.assert_close(found.squeeze(), expected)
    found.sum().backward()


def test_label_out_of_range():
    logits, labels = case(SIZES['odd'])
    labels[0, 0, 0] = 7
    with pytest.raises(IndexError, match='Target 7 is out of bounds'):
        UpsampledCrossEntropy.apply(logits, labels, 255, False)


def test_no_upsampled_logits_are_stored():
    """What waits for the backward pass is of the size of the small logits."""
    logits, labels = case(((16, 16), (128, 128)))
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: (sizes.append(t.numel()), t)[1], lambda t: t
    ):
        UpsampledCrossEntropy.apply(logits, labels, 255, False)
    assert sizes == [logits.numel()]
