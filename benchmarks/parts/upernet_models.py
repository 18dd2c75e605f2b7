"""The same UperNet by several libraries, on one ViT and pyramid: logits, and a training step."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cb_mm.apis.benchmark_models import Subject


class OfOpenMMLab:
    """A model of a config, ours or mmseg's."""

    def __init__(self, subject: Subject) -> None:
        self.subject, self.model = subject, subject.model
        self.train_step = subject.train_step

    @torch.no_grad()
    def forward(self) -> Tensor:
        """Return the logits at the size of the images."""
        facts = [sample.metainfo for sample in self.subject.samples]
        return self.model.eval().encode_decode(self.subject.images, facts)


class _Other:
    """A model of another library; subclasses say how it is called."""

    def __init__(self, subject: Subject, model: nn.Module) -> None:
        self.model, self.images = model, subject.images
        self.labels = torch.cat([sample.gt_sem_seg.data for sample in subject.samples])
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)

    @torch.no_grad()
    def forward(self) -> Tensor:
        """Return the logits at the size of the images."""
        return self._logits(self.model.eval())

    def train_step(self) -> None:
        """Run forward, loss, backward, and a step of AdamW that does not change the weights."""
        self._loss(self.model.train()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _logits(self, model: Any) -> Tensor:
        raise NotImplementedError

    def _loss(self, model: Any) -> Tensor:
        raise NotImplementedError


class OfHuggingFace(_Other):
    """UperNetForSemanticSegmentation with the backbone and the weights of an OpenMMLab model."""

    def __init__(self, subject: Subject) -> None:
        from transformers import ResNetConfig, UperNetConfig, UperNetForSemanticSegmentation

        other = subject.model
        width = other.backbone.embed_dims
        config = UperNetConfig(
            # replaced below: there is no backbone of this library with a ViT's pyramid
            backbone_config=ResNetConfig(
                embedding_size=8, hidden_sizes=[width] * 4, depths=[1] * 4,
                out_features=['stage1', 'stage2', 'stage3', 'stage4'],
            ),
            hidden_size=other.decode_head.channels, num_labels=other.decode_head.num_classes,
            auxiliary_in_channels=width, auxiliary_channels=other.auxiliary_head.channels,
        )  # fmt: skip
        model = UperNetForSemanticSegmentation(config)
        model.backbone = _HuggingFaceBackbone(other.backbone)
        for name in ('decode_head', 'auxiliary_head'):
            getattr(model, name).load_state_dict(_renamed(getattr(other, name).state_dict()))
        super().__init__(subject, model)

    def _logits(self, model: Any) -> Tensor:
        return model(self.images).logits

    def _loss(self, model: Any) -> Tensor:
        return model(self.images, labels=self.labels).loss


class _HuggingFaceBackbone(nn.Module):
    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward_with_filtered_kwargs(self, images: Tensor, **_: Any) -> Any:
        from transformers.modeling_outputs import BackboneOutput

        return BackboneOutput(feature_maps=self.backbone(images))


def _renamed(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of mmseg's head by the names of Hugging Face's."""
    names = {key: key.replace('.bn.', '.batch_norm.') for key in weights}
    return {names[key].replace('conv_seg', 'classifier'): x for key, x in weights.items()}


class OfSmp(_Other):
    """UPerNet of segmentation_models_pytorch on the backbone of an OpenMMLab model."""

    def __init__(self, subject: Subject) -> None:
        from segmentation_models_pytorch import UPerNet
        from segmentation_models_pytorch.decoders.upernet.decoder import UPerNetDecoder

        other = subject.model
        width, head = other.backbone.embed_dims, other.decode_head
        model = UPerNet('resnet18', encoder_weights=None, decoder_channels=head.channels,
                        classes=head.num_classes)  # fmt: skip
        model.encoder = _SmpEncoder(other.backbone)
        model.decoder = UPerNetDecoder([3, 0] + [width] * 4, decoder_channels=head.channels)
        super().__init__(subject, model)

    def _logits(self, model: Any) -> Tensor:
        return model(self.images)

    def _loss(self, model: Any) -> Tensor:
        return F.cross_entropy(model(self.images), self.labels)


class _SmpEncoder(nn.Module):
    output_stride = 32

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, images: Tensor) -> list[Tensor]:
        # Its decoders skip the first two maps, of stride 1 and 2.
        return [images, images, *self.backbone(images)]
