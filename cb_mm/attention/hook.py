"""Attention while a model trains: maps and statistics in TensorBoard, W&B or on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from torch import Tensor, nn

from ..compat.wrappers import unwrap
from ..errors import UserError
from ..fileio.images import read_image, resize
from .capture import LayerAttention, choose
from .layer_statistics import measure
from .maps import mean_row, parse_query
from .subject import Subject, load_subject
from .tokens import Tokens

#: Measures that are logged, by layer.
LOGGED = ('entropy', 'class_entropy', 'sparsity', 'sink_mass', 'sink_value', 'broadcast')


@HOOKS.register_module()
class AttentionHook(Hook):
    """Log attention maps and their statistics through the run's visualizer.

    Scalars ``attention/entropy/layer_11`` and so on for every layer, images
    ``attention/NAME/layer_11`` for the chosen ones: the mean over heads, over the image. They go
    wherever the config's ``vis_backends`` write: TensorBoard, W&B, files. Training is not
    affected: no gradient, no random number, no statistics of a norm. Only the main process works.

    Args:
        interval: Iterations between two logs.
        images: Image files. By default the first image of the first logged batch, kept for the
            run.
        layers: Layers whose maps are drawn; -1 is the last.
        query: Whose attention is drawn: 'mean' of all patches, 'cls', or 'X,Y' of a pixel.
        size: Height and width to which image files are resized; None leaves their own.
        clip: Percentile of a map that is drawn as the strongest colour.
    """

    priority = 'LOW'

    def __init__(
        self,
        interval: int = 1000,
        images: Sequence[str] = (),
        layers: Sequence[int] = (-1,),
        query: str = 'mean',
        size: Sequence[int] | None = None,
        clip: float = 99.0,
    ) -> None:
        if interval < 1:
            raise UserError(f'interval={interval} of AttentionHook is not a whole number from 1.')
        self.interval = interval
        self.layers = list(layers)
        self.query = parse_query(query)
        self.clip = clip
        wanted = None if size is None else (int(size[0]), int(size[1]))
        self._images = {
            f'image_{i}': resize(read_image(file), wanted) for i, file in enumerate(images)
        }
        self._warned = False

    def before_train(self, runner: Runner) -> None:
        """Refuse a model whose attention cannot be read, before it has trained for hours."""
        with _as_it_was(unwrap(runner.model)) as model:
            subject = load_subject(model)
            choose('layer', self.layers, subject.layers, 'attention layers')

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: dict | None = None
    ) -> None:
        """Log, every ``interval`` iterations."""
        if not self.every_n_train_iters(runner, self.interval) or not is_main_process():
            return
        if not self._images:
            self._images = {'first_training_image': _first_image(data_batch)}
        step = runner.iter + 1
        sums: dict[str, list[float]] = {}
        with _as_it_was(unwrap(runner.model)) as model:
            subject = load_subject(model)
            for name, image in self._images.items():
                for tag, picture in self._look(runner, subject, image, sums):
                    runner.visualizer.add_image(f'attention/{name}/{tag}', picture, step)
        scalars = {tag: float(np.mean(values)) for tag, values in sums.items()}
        runner.visualizer.add_scalars(scalars, step)

    def _look(
        self, runner: Runner, subject: Subject, image: np.ndarray, sums: dict[str, list[float]]
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Add the statistics of an image to the sums; yield the pictures of its layers."""
        from .overlay import Look, overlay  # here: importing cb_mm need not wait for matplotlib

        drawn = set(choose('layer', self.layers, subject.layers, 'attention layers'))
        maps: dict[int, np.ndarray] = {}
        grids: list[Tokens] = []

        def consume(layer: LayerAttention) -> None:
            found = measure(layer, percentiles=())
            for name in LOGGED:
                value = float(found.whole[name][0])
                if np.isfinite(value):  # some models have no class token
                    sums.setdefault(f'attention/{name}/layer_{layer.index:02d}', []).append(value)
            grids.append(layer.tokens)
            if layer.index in drawn:
                token = self.query.token(layer.tokens, image.shape[:2])
                row = mean_row(layer) if token is None else layer.rows(token)[0, :, 0]
                spatial = row.mean(0)[len(layer.tokens.prefix) :]
                maps[layer.index] = spatial.reshape(layer.tokens.grid).cpu().numpy()

        subject.run(subject.fit(image, None), consume)
        warning = subject.grid_warning([grids[0].grid])
        if warning and not self._warned:
            runner.logger.warning(f'AttentionHook: {warning}')
            self._warned = True
        for index, values in maps.items():
            yield (
                f'layer_{index:02d}',
                overlay(image, values, grids[0], Look(clip=self.clip)),
            )


@contextmanager
def _as_it_was(model: nn.Module) -> Iterator[nn.Module]:
    """Restore the training mode of every part, and all random states, at the end."""
    modes = {part: part.training for part in model.modules()}
    try:
        with torch.random.fork_rng():
            yield model
    finally:
        for part, training in modes.items():
            part.training = training


def _first_image(data_batch: Any) -> np.ndarray:
    """Return the first image of a batch as OpenMMLab collates it, RGB (H, W, 3)."""
    inputs = data_batch.get('inputs') if isinstance(data_batch, dict) else None
    first = inputs[0] if inputs is not None and len(inputs) else None
    if not isinstance(first, Tensor) or first.dtype != torch.uint8 or first.ndim != 3:
        raise UserError(
            'AttentionHook finds no 8-bit images in the training batches of this config. Name '
            'some: images=[...].'
        )
    # mmcv loads BGR; the data preprocessor turns it round.
    return np.ascontiguousarray(first.permute(1, 2, 0).cpu().numpy()[..., ::-1])
