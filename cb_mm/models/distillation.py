"""DeiT's hard distillation: a ViT with a distillation token learns from a frozen teacher.

Importing this file needs mmpretrain; `cb_mm.evaluation.classification` does so, by the
``custom_imports`` of a config.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import timm
import torch
import torch.nn.functional as F
from mmpretrain.models import DeiTClsHead, ImageClassifier
from mmpretrain.registry import MODELS
from torch import Tensor, nn

from ..checkpoints.sources import read_weights
from ..errors import UserError, did_you_mean

#: Where a file of weights keeps them, if not at the top.
_INSIDE = ('state_dict', 'model')


@MODELS.register_module()
class DistilledClsHead(DeiTClsHead):
    """One linear layer on the class token and one on the distillation token.

    Tested, the mean of both is the answer, as in DeiT. In training, each has a loss of its own.
    """

    def scores(self, feats: tuple) -> tuple[Tensor, Tensor]:
        """Return the scores (B, classes) from the class token, and from the distillation token."""
        class_token, dist_token = self.pre_logits(feats)
        return self.layers.head(class_token), self.layers.head_dist(dist_token)

    def forward(self, feats: tuple) -> Tensor:
        """Return the mean of both scores, (B, classes)."""
        from_class, from_dist = self.scores(feats)
        return (from_class + from_dist) / 2

    def distillation_loss(
        self, feats: tuple, data_samples: list, teacher_labels: Tensor
    ) -> dict[str, Tensor]:
        """Return ½ CE(class token, labels) and ½ CE(distillation token, the teacher's labels)."""
        from_class, from_dist = self.scores(feats)
        own = self._get_loss(from_class, data_samples)
        return {
            'loss_cls': own.pop('loss') / 2,
            'loss_dist': F.cross_entropy(from_dist, teacher_labels) / 2,
            **own,
        }


class Teacher:
    """A frozen classifier that is no part of the student.

    It is not a module, so its weights are neither trained nor saved, and nothing puts it into
    training mode. Copies of the student share it.

    Args:
        settings: Name of a timm model or of a model of mmpretrain; a dict with ``model_name`` and
            further arguments of ``timm.create_model`` or ``mmpretrain.get_model``; or, with
            ``type``, the config of a model of mmpretrain.
        weights: File, address or timm name; None: those of the timm model of that name.
        num_classes: Of the student.
    """

    def __init__(
        self, settings: str | Mapping[str, Any], weights: str | None, num_classes: int
    ) -> None:
        self._settings = {'model_name': settings} if isinstance(settings, str) else dict(settings)
        self._weights = weights
        self._num_classes = num_classes
        self._model: nn.Module | None = None

    def __deepcopy__(self, memo: dict) -> Teacher:
        return self

    @property
    def model(self) -> nn.Module:
        """The teacher, built and loaded when it is first asked for: testing needs none."""
        if self._model is None:
            self._model = self._build().requires_grad_(False).eval()
        return self._model

    @torch.no_grad()
    def labels(self, images: Tensor) -> Tensor:
        """Return the class (B,) that the teacher sees in each image."""
        if next(self.model.parameters()).device != images.device:  # not in every step
            self.model.to(images.device)
        return self.model(images).argmax(dim=1)

    def _build(self) -> nn.Module:
        settings = dict(self._settings)
        name, source = settings.pop('model_name', None), self._weights
        if 'type' in settings:
            model: nn.Module = MODELS.build(settings)
        elif isinstance(name, str) and timm.is_model(name):
            options = {'num_classes': self._num_classes, **settings}
            model = timm.create_model(name, pretrained=False, **options)
            source = source or name
        else:
            model = _from_mmpretrain(str(name), settings)
        if source is None:
            raise UserError('teacher: a model of mmpretrain needs teacher_weights, a file.')
        self._load(model, source)
        return model

    def _load(self, model: nn.Module, source: str | Path) -> None:
        try:
            content = read_weights(source)[0]
        except UserError as error:
            raise UserError(
                f'distillation needs the weights of its teacher: {error} Set '
                'model.teacher_weights to the file.'
            ) from error
        for key in _INSIDE:
            if isinstance(content.get(key), Mapping):
                content = content[key]
        change = getattr(sys.modules[type(model).__module__], 'checkpoint_filter_fn', None)
        own = model.state_dict()
        if change is not None and set(content) != set(own):
            content = change(dict(content), model)
        wrong = [key for key in own if key not in content or content[key].shape != own[key].shape]
        if wrong:
            raise UserError(
                f'teacher_weights {source} do not fit the teacher: {wrong[0]} is missing or has '
                f'another shape. It must be a classifier of {self._num_classes} classes.'
            )
        model.load_state_dict({key: content[key] for key in own})


def _from_mmpretrain(name: str, options: Mapping[str, Any]) -> nn.Module:
    from mmpretrain.apis import get_model, list_models  # reads the index of all its models

    try:
        return get_model(name, pretrained=False, **options)
    except ValueError as error:  # it knows no such name
        known = [*timm.list_models(), *list_models()]
        hint = did_you_mean(name.split('.')[0], known, most=3)
        raise UserError(f'teacher={name!r} is not a model of timm or mmpretrain.{hint}') from error


@MODELS.register_module()
class DistilledClassifier(ImageClassifier):
    """mmpretrain's ImageClassifier that is trained with DeiT's hard distillation.

    Teacher and student see the same images, after Mixup and CutMix. The loss is half the student's
    own, from the class token, and half the cross-entropy of the distillation token against the
    class that the teacher sees. In evaluation mode, where an attack asks for the loss, it is the
    head's own on the mean of both, and there is no teacher.

    Args:
        teacher: See `Teacher`. The default is DeiT's RegNetY-16GF.
        teacher_weights: See `Teacher`.
        options: Those of ImageClassifier; the head is a `DistilledClsHead`.
    """

    def __init__(
        self,
        *args: Any,
        teacher: str | Mapping[str, Any] = 'regnety_160.deit_in1k',
        teacher_weights: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        if not isinstance(self.head, DistilledClsHead):
            raise UserError("DistilledClassifier needs head=dict(type='DistilledClsHead', ...).")
        # Not public: the record of a checkpoint has no use for where the teacher came from.
        self._teacher = Teacher(teacher, teacher_weights, self.head.num_classes)

    def init_weights(self) -> None:
        """Initialise the student, and load the teacher, whose absence then ends the run early."""
        super().init_weights()
        _ = self._teacher.model

    def loss(self, inputs: Tensor, data_samples: list) -> dict[str, Tensor]:
        """Return the losses of both tokens."""
        if not self.training:
            return super().loss(inputs, data_samples)
        labels = self._teacher.labels(inputs)
        return self.head.distillation_loss(self.extract_feat(inputs), data_samples, labels)
