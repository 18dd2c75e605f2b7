"""A ViLT that answers questions, with the loss and the head of the published one."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.model import BaseModel, BaseModule
from mmengine.registry import MODELS
from mmengine.structures import BaseDataElement
from torch import Tensor, nn

from ...errors import UserError


@MODELS.register_module()
class VQAHead(BaseModule):
    """Two linear layers from ViLT's vector to one score per answer.

    Args:
        in_channels: Width of the vector.
        num_classes: Number of answers.
        init_cfg: Initial values; by default a normal distribution of standard deviation 0.02.
    """

    def __init__(
        self, in_channels: int = 768, num_classes: int = 3129, init_cfg: Any = None
    ) -> None:
        super().__init__(init_cfg or dict(type='Normal', layer='Linear', std=0.02))
        self.num_classes = num_classes
        self.classifier = nn.Sequential(
            nn.Linear(in_channels, 2 * in_channels),
            nn.LayerNorm(2 * in_channels),
            nn.GELU(),
            nn.Linear(2 * in_channels, num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of the answers before the sigmoid, (B, answers)."""
        return self.classifier(x)

    def loss(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the binary cross-entropy of all answers, summed over them, mean over questions."""
        return F.binary_cross_entropy_with_logits(scores, targets) * self.num_classes


@MODELS.register_module()
class ViltVQA(BaseModel):
    """ViLT for visual question answering.

    Args:
        backbone: A ViltCB.
        head: A VQAHead.
        data_preprocessor: A ViltDataPreprocessor. Without a ``tokenizer`` it takes that of the
            weights that the backbone starts from.
        init_cfg: As in mmengine.
    """

    def __init__(
        self,
        backbone: dict[str, Any],
        head: dict[str, Any],
        data_preprocessor: dict[str, Any] | None = None,
        init_cfg: Any = None,
    ) -> None:
        preprocessor = copy.deepcopy(dict(data_preprocessor or dict(type='ViltDataPreprocessor')))
        start = (backbone.get('init_cfg') or {}).get('checkpoint')
        if preprocessor.get('tokenizer') is None:
            preprocessor['tokenizer'] = start
        super().__init__(preprocessor, init_cfg)
        self.backbone = MODELS.build(backbone)
        self.head = MODELS.build(dict(in_channels=self.backbone.out_channels, **head))
        self.data_preprocessor.patch_size = self.backbone.patch_size
        limit = self.backbone.max_words
        self.data_preprocessor.max_words = min(self.data_preprocessor.max_words, limit)

    def init_weights(self) -> None:
        """Draw or load the weights; the vocabulary must be there too, before training starts."""
        super().init_weights()
        self.data_preprocessor.load_tokenizer()

    def forward(
        self,
        inputs: dict[str, Tensor],
        data_samples: Sequence[BaseDataElement] | None = None,
        mode: str = 'tensor',
    ) -> Any:
        """Return scores ('tensor'), the loss ('loss') or the samples with answers ('predict')."""
        scores = self.head(self.backbone(**inputs))
        if mode == 'tensor':
            return scores
        samples = list(data_samples or ())
        if mode == 'loss':
            return {'loss_vqa': self.head.loss(scores, self._targets(samples, scores))}
        for sample, row in zip(samples, scores.float(), strict=True):
            sample.set_field(int(row.argmax()), 'pred_label')
            sample.set_field(float(row.max().sigmoid()), 'pred_score')
        return samples

    def _targets(self, samples: Sequence[BaseDataElement], scores: Tensor) -> Tensor:
        # Filled on the CPU, since a GPU would start a kernel for each answer; in float32 under any
        # autocast type, in which 0.3 would be another number.
        targets = torch.zeros(scores.shape, dtype=torch.promote_types(scores.dtype, torch.float32))
        for row, sample in enumerate(samples):
            if max(sample.answer_labels, default=0) >= self.head.num_classes:
                raise UserError(
                    f'answer number {max(sample.answer_labels)} to question {sample.question_id} '
                    f'is beyond the {self.head.num_classes} of the model. Set '
                    'model.head.num_classes to the number of answers.'
                )
            for label, score in zip(sample.answer_labels, sample.answer_scores, strict=True):
                targets[row, label] = score
        return targets.to(scores.device)
