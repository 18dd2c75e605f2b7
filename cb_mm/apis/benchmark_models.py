"""Models of configs, ready to be measured: built, with made-up images and annotations."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from mmengine.config import Config, ConfigDict
from mmengine.device import get_device
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import init_default_scope
from mmengine.structures import InstanceData, PixelData
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..config.explain import explaining_build_errors
from ..engine.acceleration import compile_parts, use_channels_last
from ..engine.optim.precision import PRECISIONS, Precision, choose_precision
from ..errors import UserError
from ..models.backbones.fast_products import use_fast_products
from . import benchmark_report as benchmark

#: Ways to run a model with the same or nearly the same result; tool option -> label.
VARIANTS = {
    'channels_last': 'channels last',
    **{name: name for name in PRECISIONS},
    'compile': 'torch.compile',
}


@dataclass
class Subject:
    """A model and what it is given; `forward` and `train_step` are what is measured."""

    name: str
    model: nn.Module
    images: Tensor
    samples: list[Any]
    precision: Precision | None = None

    def forward(self) -> Any:
        """Predict in eval mode, resized to the image as in testing."""
        self.model.eval()
        with torch.no_grad(), self._products(), self._autocast():
            return self.model(self.images, copy.deepcopy(self.samples), mode='predict')

    def train_step(self) -> None:
        """Run forward, losses, backward, and a step of AdamW that does not change the weights."""
        self.model.train()
        optimizer = self._optimizer()
        with self._products():
            with self._autocast():
                losses = self.model(self.images, self.samples, mode='loss')
                loss, _ = self.model.parse_losses(losses)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    def require_trainable(self) -> None:
        """Raise a UserError if a training step could stop at a norm over a single value."""
        if len(self.images) == 1 and any(isinstance(m, _BatchNorm) for m in self.model.modules()):
            raise UserError(
                f'{self.name} has batch norms, which can fail in a training step on one image; '
                'measure it with `batch` 2 or more.'
            )

    def output(self) -> Tensor | None:
        """Return raw numbers that show whether a variant keeps the result; None for a detector."""
        if not hasattr(self.model, 'decode_head'):
            return None
        self.model.eval()
        with torch.no_grad(), self._products(), self._autocast():
            features = self.model.extract_feat(self.images)
            return self.model.decode_head.forward(features).float()

    def _products(self) -> contextlib.AbstractContextManager:
        return self.precision.products() if self.precision else contextlib.nullcontext()

    def _autocast(self) -> contextlib.AbstractContextManager:
        return self.precision.autocast() if self.precision else contextlib.nullcontext()

    def _optimizer(self) -> torch.optim.Optimizer:
        if not hasattr(self, '_kept_optimizer'):
            trained = [p for p in self.model.parameters() if p.requires_grad]
            self._kept_optimizer = torch.optim.AdamW(trained, lr=0.0)
        return self._kept_optimizer


def build_subject(
    config: Config, name: str, size: tuple[int, int], batch: int, variant: str | None = None
) -> Subject:
    """Build the model of a config with random weights, in one of `VARIANTS` or plain."""
    scope = config.get('default_scope', 'mmengine')
    if 'model' not in config or scope not in ('mmseg', 'mmdet'):
        raise UserError(f'{config.filename} does not describe an mmseg or mmdet model.')
    init_default_scope(scope)
    from mmengine.registry import MODELS

    torch.manual_seed(0)
    with explaining_build_errors(config):
        model = MODELS.build(ConfigDict(without_weights(config.model.to_dict())))
    model = revert_sync_batchnorm(model)
    use_fast_products(model)
    return subject_of(model.to(get_device()), name, size, batch, variant)


def subject_of(
    model: nn.Module, name: str, size: tuple[int, int], batch: int, variant: str | None = None
) -> Subject:
    """Return a built segmentor or detector with made-up images; the variant changes it."""
    device = next(model.parameters()).device
    images = torch.randn(batch, 3, *size, generator=torch.Generator().manual_seed(1)).to(device)
    make = _segmentation_sample if hasattr(model, 'decode_head') else _detection_sample
    samples = [make(model, size, index).to(device) for index in range(batch)]
    if variant == 'channels_last':
        use_channels_last(model)
    elif variant == 'compile':
        compile_parts(model)
    precision = choose_precision(variant) if variant in PRECISIONS else None
    label = f'{name}, {VARIANTS[variant]}' if variant else name
    return Subject(label, model, images, samples, precision)


def without_weights(cfg: Any) -> Any:
    """Remove the loading of weights: speed does not depend on them."""
    if isinstance(cfg, dict):
        return {
            # Not left out: mmseg's TIMMBackbone would then download its own.
            key: None if key == 'pretrained' else without_weights(value)
            for key, value in cfg.items()
            if not (key == 'init_cfg' and 'checkpoint' in str(value))
        }
    return [without_weights(value) for value in cfg] if isinstance(cfg, list) else cfg


def _segmentation_sample(model: nn.Module, size: tuple[int, int], index: int) -> Any:
    from mmseg.structures import SegDataSample

    generator = torch.Generator().manual_seed(index)
    labels = torch.randint(model.decode_head.num_classes, (1, *size), generator=generator)
    facts = dict(img_shape=size, ori_shape=size, pad_shape=size)
    return SegDataSample(gt_sem_seg=PixelData(data=labels), metainfo=facts)


def _detection_sample(model: nn.Module, size: tuple[int, int], index: int) -> Any:
    """Return seven objects, the mean of COCO, of a quarter of the image's width and height."""
    from mmdet.structures import DetDataSample
    from mmdet.structures.mask import BitmapMasks

    rng = np.random.default_rng(index)
    corner = rng.random((7, 2)) * 0.7
    corners = np.concatenate([corner, corner + 0.25], axis=1)
    boxes = corners * np.array([size[1], size[0]] * 2)
    masks = np.zeros((7, *size), np.uint8)
    for mask, (left, top, right, bottom) in zip(masks, boxes.astype(int), strict=True):
        mask[top:bottom, left:right] = 1
    truth = InstanceData(
        bboxes=torch.tensor(boxes, dtype=torch.float32),
        labels=torch.zeros(7, dtype=torch.long),
        masks=BitmapMasks(masks, *size),
    )
    nothing = InstanceData(bboxes=torch.zeros(0, 4), labels=torch.zeros(0, dtype=torch.long))
    facts = dict(
        img_shape=size, ori_shape=size, pad_shape=size, batch_input_shape=size, scale_factor=(1, 1)
    )
    return DetDataSample(gt_instances=truth, ignored_instances=nothing, metainfo=facts)


def compare(subjects: Sequence[Subject], repeats: int, train: bool) -> list[benchmark.Row]:
    """Measure all subjects in turns.

    The difference of a variant is the norm of its logits minus those of the plain model of the
    same name, relative to the latter.
    """
    for subject in subjects if train else ():
        subject.require_trainable()
    jobs = {subject.name: subject.forward for subject in subjects}
    forward = benchmark.time_in_turns(jobs, repeats)
    memory = {name: benchmark.peak_memory(job) for name, job in jobs.items()}
    plain: dict[str, Tensor | None] = {}
    rows = []
    for subject in subjects:
        name, _, variant = subject.name.partition(', ')
        output, difference = subject.output(), None
        if not variant:
            plain[name] = output
        elif output is not None and (first := plain.get(name)) is not None:
            difference = float((output - first).norm() / first.norm())
        with _not_compiled(subject.model):
            multiplications = benchmark.count_multiplications(subject.forward)
        row = benchmark.Row(
            name=subject.name,
            parameters=sum(p.numel() for p in subject.model.parameters()),
            multiplications=multiplications,
            batch=len(subject.images),
            forward=forward[subject.name].summary(),
            forward_memory=memory[subject.name],
            difference=difference,
        )
        rows.append(row)
    if train:
        steps = {subject.name: subject.train_step for subject in subjects}
        times = benchmark.time_in_turns(steps, repeats)
        for row in rows:
            row.train = times[row.name].summary()
            row.train_memory = benchmark.peak_memory(steps[row.name])
    return rows


@contextlib.contextmanager
def _not_compiled(model: nn.Module) -> Any:
    """Use the plain forward methods, since the counter does not see inside a compiled one."""
    compiled = {m: m.__dict__.pop('forward') for m in model.modules() if 'forward' in m.__dict__}
    try:
        yield
    finally:
        for module, forward in compiled.items():
            module.forward = forward
