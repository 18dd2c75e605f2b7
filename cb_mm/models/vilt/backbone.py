"""Hugging Face's ViLT, with CB on image tokens, text tokens or both."""

from __future__ import annotations

from typing import Any

from mmengine.logging import print_log
from mmengine.model import BaseModule
from mmengine.registry import MODELS
from torch import Tensor
from transformers import ViltConfig, ViltModel

from ...checkpoints.backbone_weights import WEIGHTS_LINE, WeightsReport
from ...errors import UserError
from ..broadcast.insert import add_context_broadcast
from .sources import read_vilt


@MODELS.register_module()
class ViltCB(BaseModule):
    """ViLT without a head: words and an image in, one vector out.

    Args:
        arch: Arguments of transformers' ViltConfig; by default ViLT-B/32.
        broadcast: 'cb', 'cb_s', ... or None.
        layers: 'all', 'upper' or numbers.
        tokens: Those that are averaged and receive the mean: 'image', 'text' or 'both'.
        padding_in_mean: Let padding count in the mean, as a plain mean over the sequence does.
        scale_init: Initial value of the scales of CB_S and cb_blend.
        drop_rate: Dropout after the embeddings, the attention and the MLP, where ``arch`` does not
            set it.
        init_cfg: ``dict(type='Pretrained', checkpoint=...)``: a folder with the files of a
            published ViLT, or its name on the Hugging Face Hub.
    """

    def __init__(
        self,
        arch: dict[str, Any] | None = None,
        broadcast: str | None = None,
        layers: Any = 'all',
        tokens: str = 'both',
        padding_in_mean: bool = False,
        scale_init: float = 0.0,
        drop_rate: float = 0.0,
        init_cfg: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(init_cfg)
        try:
            config = ViltConfig(**{'hidden_dropout_prob': drop_rate, **(arch or {})})
            self.vilt = ViltModel(config)
        except (TypeError, ValueError) as error:
            raise UserError(f'arch={arch}: transformers refuses it: {error}') from error
        self.out_channels = int(config.hidden_size)
        self.patch_size, self.max_words = (
            int(config.patch_size),
            int(config.max_position_embeddings),
        )
        self.broadcast, self.position = broadcast, 'end'
        self.broadcast_layers: tuple[int, ...] = ()
        self.tokens = tokens if broadcast else None
        self.padding_in_mean = padding_in_mean
        self.weights_report: WeightsReport | None = None
        if broadcast is not None:
            added = add_context_broadcast(
                self.vilt,
                broadcast,
                layers,
                tokens=tokens,
                padding_in_mean=padding_in_mean,
                scale_init=scale_init,
            )
            self.broadcast_layers = tuple(int(name.split('.')[2]) for name in added.names)

    def init_weights(self) -> None:
        """Load the published weights that ``init_cfg`` names; transformers has drawn others."""
        if self.is_init:  # type: ignore[has-type]
            return
        source = (self.init_cfg or {}).get('checkpoint')
        if source is not None:
            self._load(str(source))
        self.is_init = True

    def _load(self, source: str) -> None:
        weights, lacking = read_vilt(source)
        own = self.vilt.state_dict()
        for name, value in weights.items():
            if name in own and own[name].shape != value.shape:
                raise UserError(
                    f'{source} is another ViLT: {name} has the shape {tuple(value.shape)}, this '
                    f'model {tuple(own[name].shape)}. Set model.backbone.arch as its config.json '
                    'says.'
                )
        foreign = [name for name in weights if name not in own]
        new = [name for name in own if name not in weights and '.broadcast.' not in name]
        if foreign or new or lacking:
            odd = (foreign or new or lacking)[0]
            where = 'this model' if foreign else 'the file'
            raise UserError(
                f'{source} is another ViLT: {where} has no {odd}. Set model.backbone.arch as its '
                'config.json says.'
            )
        self.vilt.load_state_dict(weights, strict=False)
        scales = tuple(name for name in own if '.broadcast.' in name)
        self.weights_report = WeightsReport(
            source, 'Hugging Face', '', len(weights), len(own), expected_missing=scales
        )
        print_log(f'{WEIGHTS_LINE}{self.weights_report}', logger='current')

    def forward(self, **inputs: Tensor) -> Tensor:
        """Return what ViLT reads off its first text token, (B, C)."""
        return self.vilt(**inputs).pooler_output
