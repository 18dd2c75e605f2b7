"""A model, its test images and its metrics, built once and ready to run any job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.dist import all_gather_object, get_rank, get_world_size
from mmengine.evaluator import BaseMetric
from mmengine.registry import METRICS, init_default_scope
from mmengine.utils.dl_utils import set_multi_processing
from torch import nn
from torch.utils.data import DataLoader

from ..checkpoints.label_set import LabelSet
from ..checkpoints.load_model import load_model
from ..corruption.transform import noise_generator
from ..datasets.checks.samples import ignored_labels
from ..datasets.samplers.replay import derive_seed
from ..engine.optim.precision import Precision, choose_precision
from ..errors import UserError
from ..models.backbones.fast_products import use_fast_products
from ..prediction.drawing import draw_prediction, seen_image
from .attacks.catalogue import FGSM
from .attacks.pgd import Trace, pgd
from .attacks.truth import truth_dataset_cfg
from .data import JobLoader, SweepDataset, write_picture
from .extra_metrics import fit_to_model, metric_configs
from .given import loader_settings
from .image_store import ImageStore
from .jobs import CLEAN, AttackCell, Job
from .metrics import JobEvaluator, Scores


class ModelUnderTest:
    """Runs jobs one after another.

    Args:
        config: a full config, prepared for testing.
        checkpoint: file with the weights of exactly this model; None for one that is built.
        model: built already, with its weights; it stays where it is.
        data_loader: built already; its data set is not changed.
        metrics: built already.
        trust: read a checkpoint that holds more than weights.
        seed: seed of the noise.
        limit: test only on the first ``limit`` images.
        cache_bytes: memory limit for decoded images, in this process and its workers together.
        save_to: folder for corrupted images.
        show_to: folder for predictions drawn over the images.
        attacks: whether any job is an attack.
        precision: what the model runs in; None for torch's settings.
        allow_mismatch: test a checkpoint with a different broadcast, other settings or classes.
        frost_pictures: folder with photographs of frost.
    """

    def __init__(
        self,
        config: Config,
        checkpoint: str | Path | None = None,
        *,
        model: nn.Module | None = None,
        data_loader: DataLoader | None = None,
        metrics: Sequence[BaseMetric] | None = None,
        trust: bool = False,
        seed: int = 0,
        limit: int | None = None,
        cache_bytes: int = 0,
        save_to: str | None = None,
        show_to: str | None = None,
        attacks: bool = False,
        precision: Precision | None = None,
        allow_mismatch: bool = False,
        frost_pictures: str | None = None,
    ) -> None:
        _set_environment(config)
        half = bool((config.get('test_cfg') or {}).get('fp16', False))
        #: What the model runs in; None for torch's settings.
        self.precision = precision or choose_precision(None, amp=half)
        self.seed, self.save_to, self.show_to = seed, save_to, show_to
        loading, source = config.test_dataloader, config.test_dataloader.dataset
        if data_loader is not None:
            loading, source = loader_settings(data_loader), data_loader.dataset
        workers = max(loading.get('num_workers', 0), 1)
        truth = None
        if attacks:
            train = (config.get('train_dataloader') or {}).get('dataset')
            truth = truth_dataset_cfg(source, train)
        #: Config of the data set that has the labels an attack needs.
        self.truth_config = truth
        store = ImageStore(cache_bytes // workers)
        self.dataset = SweepDataset(
            source, seed, limit, store, save_to, truth, _ignored(config, model), frost_pictures
        )
        self.limited = len(self.dataset) < len(self.dataset.dataset)
        self.loader = JobLoader(self.dataset, loading, get_rank(), get_world_size())
        self.metrics = metrics or [METRICS.build(metric) for metric in metric_configs(config)]
        labels = LabelSet.of_metainfo(self.dataset.metainfo)
        if model is None:
            assert checkpoint is not None  # without a model there is one: see `sweep`
            model = load_model(
                config, checkpoint, labels=labels, trust=trust, allow_mismatch=allow_mismatch
            ).to(get_device())
            use_fast_products(model)
        self.model = model.eval()
        fit_to_model(self.metrics, self.model)

    def run(self, job: Job, progress: Callable[[int], Any] = lambda images: None) -> Scores | None:
        """Test the model on all images under one corruption.

        Args:
            job: what to test.
            progress: called with the number of images of every batch that is done.

        Returns:
            The scores, on the main process; None on others.
        """
        evaluator = JobEvaluator(self.metrics, self.dataset.metainfo, self.limited)
        traces: dict[int, Trace] = {}
        for numbers, batch in self.loader.load(job):
            truths = batch.pop('truth', None)
            if isinstance(job.cell, AttackCell):
                attacked = self._attack(job, job.cell, numbers, batch['inputs'], truths)
                batch['inputs'] = [image for image, _ in attacked]
                traces |= {n: trace for n, (_, trace) in zip(numbers, attacked, strict=True)}
            outputs = self.predict(batch)
            evaluator.process(numbers[0], batch, outputs)
            if self.show_to and job.repeat == 0:
                self._show(self.show_to, job, numbers, batch['inputs'], outputs)
            progress(len(numbers))
        scores = evaluator.evaluate(get_rank() == 0)
        everywhere = [item for one in all_gather_object(traces) for item in one.items()]
        if scores is not None:
            scores.traces = [trace for _, trace in sorted(everywhere, key=lambda item: item[0])]
        return scores

    @torch.no_grad()
    def predict(self, batch: Any) -> Sequence[Any]:
        """Run the model on a batch of the loader."""
        try:
            if self.precision is None:
                return self.model.test_step(batch)
            with self.precision.products(), self.precision.autocast():
                return self.model.test_step(batch)
        except AssertionError as error:
            if 'image size in a batch' in str(error):
                raise UserError(
                    'the images have different sizes, and this model takes batches of one size. '
                    'Pass `cfg_options` test_dataloader.batch_size=1'
                ) from error
            raise

    def _attack(
        self,
        job: Job,
        cell: AttackCell,
        numbers: Sequence[int],
        inputs: Sequence[torch.Tensor],
        truths: Sequence[Any],
    ) -> list[tuple[torch.Tensor, Trace]]:
        """Attack each image separately, so that its batch does not matter."""
        epsilon, device = cell.level, next(self.model.parameters()).device
        assert epsilon is not None  # an attack has one
        attacked: list[tuple[torch.Tensor, Trace]] = []
        for number, image, truth in zip(numbers, inputs, truths, strict=True):
            # The same for every attack and ε: the loss then draws the same boxes.
            seed = derive_seed(self.seed, FGSM, self.dataset.names[number])
            identity = self.dataset.identities[number]
            rng = noise_generator(self.seed, job.repeat, identity, cell.name, epsilon)
            attacked.append(
                pgd(self.model, image.to(device), truth, epsilon, cell.attack, seed=seed, rng=rng)
            )
            if self.save_to and job.repeat == 0:
                picture = seen_image(attacked[-1][0], self.dataset.channel_order)
                write_picture(self.picture(self.save_to, job, number), picture, 'rgb')
        return attacked

    def _show(
        self, folder: str, job: Job, numbers: Sequence[int], inputs: Any, outputs: Sequence[Any]
    ) -> None:
        for number, image, output in zip(numbers, inputs, outputs, strict=True):
            seen = seen_image(image, self.dataset.channel_order)
            drawn = draw_prediction(seen, output, self.dataset.metainfo)
            write_picture(self.picture(folder, job, number), drawn, 'rgb')

    def picture(self, folder: str | Path, job: Job, number: int) -> Path:
        """Return where the picture of an image under a corruption goes."""
        return Path(folder) / job.cell.key / self.dataset.picture_name(number)

    def lacks_pictures(self, job: Job) -> bool:
        """Return whether requested pictures (of the first repeat) are missing."""
        folders = [self.show_to] if job.cell.name == CLEAN else [self.show_to, self.save_to]
        return job.repeat == 0 and any(
            not self.picture(folder, job, number).is_file()
            for folder in folders
            if folder
            for number in range(len(self.dataset))
        )


def _ignored(config: Config, model: nn.Module | None) -> set[int]:
    """Return the labels that count for nothing, by the config and by a built model."""
    parts = () if model is None else model.modules()
    found = {getattr(part, 'ignore_index', None) for part in parts}
    return ignored_labels(config.to_dict()) | {label for label in found if isinstance(label, int)}


def _set_environment(config: Config) -> None:
    """Set what mmengine's Runner sets before it builds anything."""
    init_default_scope(config.get('default_scope', 'mmengine'))
    environment = config.get('env_cfg') or {}
    if environment.get('cudnn_benchmark'):
        torch.backends.cudnn.benchmark = True
    set_multi_processing(**environment.get('mp_cfg', {}), distributed=get_world_size() > 1)
