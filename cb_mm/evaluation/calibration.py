"""Calibration: whether a model is right as often as it says.

A prediction has a confidence, the probability that the model gives to the class it predicts. Of all
pixels (or images) predicted with 80 % confidence, 80 % should be right. The predictions are sorted
into bins by confidence; only sums per bin are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from mmengine.registry import METRICS
from torch import Tensor, nn

from ..errors import UserError
from .streaming import Figures, State, StreamingMetric, merge

#: Sums over queries, as in Mask2Former.
SCORES = 'scores'
#: How probabilities follow from what a model gives.
OUTPUTS = ('logits', 'sigmoid', SCORES, 'probabilities')
#: A probability is counted in units of 2⁻²⁴, the precision of float32 near 1: sums are then exact.
_BITS = 24
_ONE = 1 << _BITS
#: Values in memory at once: what fits into the cache of a CPU, or keeps a GPU busy.
_AT_ONCE = {'cpu': 1 << 18, 'other': 1 << 24}
#: Heads of mmseg that give sums over queries of class times mask probability, not logits.
_QUERY_HEADS = {'MaskFormerHead', 'Mask2FormerHead', 'SideAdapterCLIPHead'}


@METRICS.register_module()
class CalibrationMetric(StreamingMetric):
    """Calibration of a segmentation (pixel by pixel) or a classification (image by image).

    All figures are in per cent:

    - ``ECE``: expected calibration error, the mean distance between confidence and accuracy over
      bins of equal width, weighted by how many predictions are in them (Guo et al., 2017);
    - ``classwise_ECE``: the same for the probability of each class, whether predicted or not,
      averaged over the classes (Kull et al., 2019);
    - ``Brier``: the squared distance between the probabilities and the truth, summed over classes,
      from 0 to 200 (Brier, 1950);
    - ``confidence``: the mean confidence. Above the accuracy, the model is overconfident.

    Args:
        bins: Bins of equal width between 0 and 1; each includes its upper end.
        ignore_index: Label of pixels that do not count.
        outputs: What ``seg_logits`` holds: 'logits' (softmax gives probabilities), 'sigmoid' (the
            sigmoid of each channel does), 'scores' (divided by their sum they are
            probabilities, as in Mask2Former), 'probabilities'. None is for the sweep to find out,
            and 'logits' elsewhere. A head with one channel gives a probability in any case, and so
            does a classifier.
        collect_device: As in mmengine.
        prefix: As in mmengine.
    """

    def __init__(
        self,
        bins: int = 15,
        ignore_index: int = 255,
        outputs: str | None = None,
        collect_device: str = 'cpu',
        prefix: str | None = None,
    ) -> None:
        if not 1 <= bins <= 1000:
            raise UserError(f'CalibrationMetric: bins={bins}; from 1 to 1000 are possible.')
        if outputs is not None and outputs not in OUTPUTS:
            raise UserError(
                f'CalibrationMetric: outputs={outputs!r} is none of {", ".join(OUTPUTS)}.'
            )
        super().__init__(collect_device, prefix)
        self.bins, self.ignore_index, self.outputs = bins, ignore_index, outputs

    def measure(self, sample: Mapping[str, Any]) -> State:
        """Return the counts of one image."""
        state: State = {}
        for probability, predicted, truth in self._pieces(sample):
            counts = _counts(probability, predicted, truth, self.bins)
            state = merge([state, {name: one.cpu().numpy() for name, one in counts.items()}])
        return state

    def figures(self, state: State) -> Figures:
        """Return ECE, class-wise ECE, Brier score and mean confidence, and the reliability."""
        total = int(state['count'].sum()) if state else 0
        if not total:
            raise UserError('CalibrationMetric: no pixel or image has a true class.')
        confidence, by_class = state['confidence'] / _ONE, state['class_confidence'] / _ONE
        gaps = np.abs(state['correct'] - confidence)
        class_gaps = np.abs(state['class_correct'] - by_class).sum(axis=1) / total * 100
        metrics = {
            'ECE': float(gaps.sum() / total * 100),
            'classwise_ECE': float(class_gaps.mean()),
            'Brier': float(state['brier'].sum() / _ONE / total * 100),
            'confidence': float(confidence.sum() / total * 100),
        }
        reliability = {
            'count': state['count'].tolist(),
            'correct': state['correct'].tolist(),
            'confidence': confidence.tolist(),  # summed over the predictions of the bin
        }
        return Figures(metrics, {'classwise_ECE': class_gaps}, {'reliability': reliability})

    def _pieces(self, sample: Mapping[str, Any]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield probabilities (classes, N), predicted classes (N) and true classes (N)."""
        if 'seg_logits' in sample and 'gt_sem_seg' in sample:
            values = sample['seg_logits']['data'].flatten(1)
            predicted = sample['pred_sem_seg']['data'].flatten().long()
            truth = sample['gt_sem_seg']['data'].flatten().to(predicted)
            outputs = 'probabilities' if len(values) == 1 else self.outputs or 'logits'
        elif 'pred_score' in sample and 'gt_label' in sample:
            values = sample['pred_score'].flatten()[:, None]
            truth = sample['gt_label'].flatten().to(values.device).long()
            predicted = values.argmax(dim=0)
            outputs = 'probabilities'
            if len(truth) != 1:
                raise UserError('CalibrationMetric needs exactly one true class per image.')
        else:
            raise UserError(
                'CalibrationMetric needs the logits of a segmentation or the scores of a '
                'classification. A detection has neither: its calibration is not measured here.'
            )
        limit = _AT_ONCE['cpu' if values.device.type == 'cpu' else 'other']
        step = max(limit // len(values), 1)
        for first in range(0, len(truth), step):
            piece = slice(first, first + step)
            probability = probabilities(values[:, piece].float(), outputs)
            known = (truth[piece] >= 0) & (truth[piece] < len(probability))
            known &= truth[piece] != self.ignore_index
            if known.all():
                yield probability, predicted[piece], truth[piece]
            elif known.any():
                yield probability[:, known], predicted[piece][known], truth[piece][known]


def probabilities(values: Tensor, outputs: str) -> Tensor:
    """Return the probability of each class: (classes, N), from the outputs of a head.

    Args:
        values: (channels, N); a single channel is the probability of the second of two classes.
        outputs: One of `OUTPUTS`.
    """
    if outputs == 'logits':
        return values.softmax(dim=0)
    if outputs == 'sigmoid':
        return values.sigmoid()
    if outputs == SCORES:
        return values / values.sum(dim=0).clamp_min(torch.finfo(values.dtype).tiny)
    return torch.cat([1 - values, values]) if len(values) == 1 else values


def outputs_of(model: nn.Module) -> str:
    """Return which of `OUTPUTS` the ``seg_logits`` of a model are."""
    head = getattr(model, 'decode_head', None)
    if isinstance(head, nn.ModuleList):  # of a cascade, the last
        head = head[-1]
    names = {kind.__name__ for kind in type(head).__mro__}
    if names & _QUERY_HEADS:
        return SCORES
    if any(kind.__name__ == 'SegTTAModel' for kind in type(model).__mro__):
        return 'probabilities'
    losses = getattr(head, 'loss_decode', None)
    parts = list(losses) if isinstance(losses, nn.ModuleList) else [losses]
    decisive = [one for one in parts if type(one).__name__ in ('CrossEntropyLoss', 'FocalLoss')]
    sigmoid = decisive and all(getattr(one, 'use_sigmoid', False) for one in decisive)
    return 'sigmoid' if sigmoid else 'logits'


def _counts(probability: Tensor, predicted: Tensor, truth: Tensor, bins: int) -> dict[str, Tensor]:
    """Return all sums over some predictions, as whole numbers."""
    classes, number = probability.shape
    parts = probability.mul(_ONE).round_().to(torch.int32)
    chosen = parts.gather(0, predicted[None])[0].long()
    right = predicted == truth
    place = _bin(chosen, bins)
    counts = {
        'count': _sums(place, torch.ones_like(place), bins),
        'correct': _sums(place, right.long(), bins),
        'confidence': _sums(place, chosen, bins),
        'brier': _brier(parts, truth),
    }
    # Nearly all probabilities are in the first bin: the others are sorted into theirs, and what is
    # missing from the sums of a class is in the first.
    label, pixel = (parts > _ONE // bins).nonzero(as_tuple=True)
    values = parts[label, pixel].long()
    place = label * bins + _bin(values, bins)
    hit = (truth[pixel] == label).long()
    size = classes * bins
    sums = {
        'class_count': _sums(place, torch.ones_like(place), size),
        'class_correct': _sums(place, hit, size),
        'class_confidence': _sums(place, values, size),
    }
    whole = {
        'class_count': torch.full((classes,), number, device=parts.device),
        'class_correct': _sums(truth, torch.ones_like(truth), classes),
        'class_confidence': parts.sum(dim=1, dtype=torch.int64),
    }
    for name, flat in sums.items():
        table = flat.view(classes, bins)
        table[:, 0] += whole[name] - table.sum(dim=1)
        counts[name] = table
    return counts


def _bin(parts: Tensor, bins: int) -> Tensor:
    """Return the bin of each probability; the upper end of a bin belongs to it."""
    return (((parts * bins + (_ONE - 1)) >> _BITS) - 1).clamp_(0, bins - 1)


def _sums(place: Tensor, values: Tensor, size: int) -> Tensor:
    return torch.zeros(size, dtype=torch.int64, device=place.device).scatter_add_(0, place, values)


def _brier(parts: Tensor, truth: Tensor) -> Tensor:
    """Return the sum of Brier scores: of each, Σp² - 2p + 1 with the p of the true class."""
    true = parts.gather(0, truth[None])[0].long()
    squares = parts.double().square_().sum(dim=0).long() - 2 * _ONE * true + _ONE * _ONE
    return ((squares + _ONE // 2) >> _BITS).sum()[None]
