"""From images and questions to the tensors that ViLT takes."""

from __future__ import annotations

from typing import Any

import torch
from mmengine.model import BaseDataPreprocessor
from mmengine.registry import MODELS
from torch import Tensor

from ...errors import UserError
from .sources import read_tokenizer


@MODELS.register_module()
class ViltDataPreprocessor(BaseDataPreprocessor):
    """Normalise and pad the images of a batch, and cut the questions into tokens.

    Args:
        mean: Of each channel, in grey levels.
        std: Of each channel.
        to_rgb: Images come as BGR, as mmcv loads them.
        tokenizer: Folder or name of a published ViLT; by default that of the weights.
        max_words: Questions are padded or cut to so many tokens.
        patch_size: Images are padded to a multiple of it.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        mean: tuple[float, ...] = (127.5, 127.5, 127.5),
        std: tuple[float, ...] = (127.5, 127.5, 127.5),
        to_rgb: bool = True,
        tokenizer: str | None = None,
        max_words: int = 40,
        patch_size: int = 32,
    ) -> None:
        super().__init__()
        self.register_buffer('mean', torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer('std', torch.tensor(std).view(-1, 1, 1), persistent=False)
        self.to_rgb, self.max_words, self.patch_size = to_rgb, max_words, patch_size
        self._source = tokenizer
        self._tokenizer: Any = None

    def load_tokenizer(self) -> Any:
        """Return the tokenizer; it is read when it is first needed."""
        if self._tokenizer is None:
            if self._source is None:
                raise UserError(
                    'ViLT needs the vocabulary that it was trained with: pass `cfg_options` '
                    'model.data_preprocessor.tokenizer=DIR, the folder of the published ViLT.'
                )
            self._tokenizer = read_tokenizer(self._source)
        return self._tokenizer

    def forward(self, data: dict[str, Any], training: bool = False) -> dict[str, Any]:
        """Return ``inputs``, a dict of what ViLT takes, and ``data_samples``.

        Args:
            data: ``inputs``, a list of images (3, H, W), and ``data_samples``.
            training: Not used: training and testing get the same.
        """
        samples = data['data_samples']
        words = self.load_tokenizer()(
            [sample.question for sample in samples],
            padding='max_length',
            truncation=True,
            max_length=self.max_words,
            return_tensors='pt',
        )
        pixels, mask = self._pad(self.cast_data(data['inputs']))
        words = {key: value.to(pixels.device) for key, value in words.items()}
        return dict(
            inputs=dict(**words, pixel_values=pixels, pixel_mask=mask), data_samples=samples
        )

    def _pad(self, images: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Return one tensor (B, 3, H, W), and where in it there is an image (B, H, W)."""
        size = [
            -(-max(image.shape[axis] for image in images) // self.patch_size) * self.patch_size
            for axis in (1, 2)
        ]
        pixels = self.mean.new_zeros(len(images), 3, *size)
        mask = torch.zeros(len(images), *size, dtype=torch.long, device=pixels.device)
        for row, image in enumerate(images):
            image = image.flip(0) if self.to_rgb else image
            height, width = image.shape[1:]
            pixels[row, :, :height, :width] = (image.float() - self.mean) / self.std
            mask[row, :height, :width] = 1
        return pixels, mask
