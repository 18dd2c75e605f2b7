"""The images of a sweep: one data set and one set of workers for all jobs.

The index of an image carries its job, so that the workers, and what they keep in memory, live as
long as the sweep.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from mmcv.transforms import BaseTransform
from mmengine.dataset import pseudo_collate
from mmengine.registry import DATASETS, FUNCTIONS, TRANSFORMS
from torch.utils.data import DataLoader, Dataset

from ..corruption import ImageCorruption, corrupt_dataset, corrupt_dataset_cfg
from ..corruption.transform import image_identity
from ..datasets.checks.samples import step_lists
from ..engine.hooks.sample_guard import Collate, LoadFailure, load_failure
from ..engine.signals import leave_signals_to_parent
from ..errors import UserError
from ..fileio.atomic import write_atomically
from ..fileio.folders import list_files
from .identity import data_digest, image_path, short_names
from .image_store import ImageStore, store_loaders
from .jobs import AttackCell, Job

_LOADER_OPTIONS = ('pin_memory', 'prefetch_factor', 'timeout', 'multiprocessing_context')


@TRANSFORMS.register_module()
class SweepCorruption(BaseTransform):
    """The corruption of whatever job the image is loaded for.

    Required and modified keys are those of ImageCorruption.

    Args:
        seed: seed of the noise.
        save_to: folder for the corrupted images of the first repeat, as PNG.
        root: as in ImageCorruption.
        channel_order: as in ImageCorruption.
        frost_pictures: as in ImageCorruption.
    """

    def __init__(
        self,
        seed: int = 0,
        save_to: str | None = None,
        root: Sequence[str] | None = None,
        channel_order: str = 'bgr',
        frost_pictures: str | None = None,
    ) -> None:
        self.seed = seed
        self.save_to = save_to
        self.root = root
        self.channel_order = channel_order
        self.frost_pictures = frost_pictures
        self.job: Job | None = None
        self.picture = ''
        self._built: tuple[Job | None, ImageCorruption | None] = (None, None)

    def transform(self, results: dict) -> dict:
        """Corrupt the image for ``self.job``; clean and attacked images pass as they are."""
        corruption = self._corruption()
        if corruption is None:
            return results
        results = corruption(results)
        if self.save_to and self.job is not None and self.job.repeat == 0:
            file = Path(self.save_to) / self.job.cell.key / self.picture
            write_picture(file, results['img'], self.channel_order)
        return results

    def _corruption(self) -> ImageCorruption | None:
        if self.job is not None and self._built[0] != self.job:
            config = self.job.cell.transform_cfg(self.seed, self.job.repeat)
            if config is not None:
                config = {key: value for key, value in config.items() if key != 'type'}
                built = ImageCorruption(
                    **config,
                    root=self.root,
                    channel_order=self.channel_order,
                    frost_pictures=self.frost_pictures,
                )
            self._built = self.job, built if config else None
        return self._built[1]


def write_picture(file: Path, image: np.ndarray, channel_order: str) -> None:
    """Write an image (H x W [x 3], values 0-255) as PNG."""
    image = np.rint(image).astype(np.uint8)
    if image.ndim == 3 and image.shape[2] == 3 and channel_order == 'rgb':
        image = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    write_atomically(file, cv2.imencode('.png', image)[1].tobytes())


class SweepDataset(Dataset):
    """The test images, for any job: an index is a pair of image number and job.

    Args:
        source: the config of the data set, or the data set itself, which is not changed.
        seed: seed of the noise.
        limit: take only the first ``limit`` images.
        store: where decoded images are kept.
        save_to: folder for corrupted images.
        truth_config: config of the same data set with labels resized like the image; an attack
            needs them.
        ignored: labels that the rest of the config ignores.
        frost_pictures: folder with photographs of frost.
    """

    def __init__(
        self,
        source: Any,
        seed: int,
        limit: int | None,
        store: ImageStore,
        save_to: str | None = None,
        truth_config: Any = None,
        ignored: Iterable[int] = (),
        frost_pictures: str | None = None,
    ) -> None:
        corruption = dict(
            type='SweepCorruption', seed=seed, save_to=save_to, frost_pictures=frost_pictures
        )
        if isinstance(source, Mapping):
            self.dataset = DATASETS.build(corrupt_dataset_cfg(source, corruption))
        else:
            self.dataset = corrupt_dataset(source, corruption)
        self.truth: Any = DATASETS.build(truth_config) if truth_config else None
        steps = [step for steps in step_lists(self.dataset) for step in steps]
        loaders = steps + [step for steps in step_lists(self.truth) for step in steps]
        self.corruptions = [step for step in steps if isinstance(step, SweepCorruption)]
        self.channel_order = self.corruptions[0].channel_order
        self.size = min(limit or len(self.dataset), len(self.dataset))
        if self.size == 0:
            raise UserError('the test data set has no images.')
        infos = [self.dataset.get_data_info(i) for i in range(self.size)]
        self.names = short_names([image_path(info, i) for i, info in enumerate(infos)])
        roots = [folder for step in self.corruptions for folder in step.root or ()]
        #: What tells images apart for random draws, wherever the data set is.
        self.identities = [
            image_identity({'img_id': name, **info}, roots)
            for name, info in zip(self.names, infos, strict=True)
        ]
        self.label_maps = [info.get('seg_map_path') for info in infos]
        remote = any(getattr(step, 'backend_args', None) for step in steps)
        self.digest = data_digest(self.names, infos, loaders, local=not remote)
        for dataset in (self.dataset, self.truth):
            store_loaders(dataset, store, ignored)

    @property
    def metainfo(self) -> dict:
        """Classes, palette and so on of the data set."""
        return self.dataset.metainfo

    def __len__(self) -> int:
        return self.size

    def picture_name(self, index: int) -> str:
        """Return the path of the PNG of an image below the folder of its cell."""
        return str(Path(self.names[index]).with_suffix('.png'))

    def __getitem__(self, item: tuple[int, Job]) -> dict | LoadFailure:
        """Return what the model takes, plus 'truth' for an attack."""
        index, job = item
        for step in self.corruptions:
            step.job, step.picture = job, self.picture_name(index)
        try:
            sample = self.dataset[index]
            if isinstance(job.cell, AttackCell):
                sample['truth'] = self.truth[index]['data_samples']
        except Exception as error:  # in a worker, torch would wrap it in a traceback
            return load_failure(self.dataset, index, error)
        return sample


class JobBatches:
    """Batches of this process, in order, for the current job.

    Whole batches are assigned to the processes, so that every batch has the same images as in a
    single process, and every image is tested once.

    Args:
        size: number of images.
        batch_size: images per batch.
        rank: number of this process.
        processes: how many processes there are.
    """

    def __init__(self, size: int, batch_size: int, rank: int = 0, processes: int = 1) -> None:
        starts = range(rank * batch_size, size, processes * batch_size)
        self.batches = [list(range(s, min(s + batch_size, size))) for s in starts]
        self.job: Job | None = None

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[tuple[int, Job]]]:
        for batch in self.batches:
            assert self.job is not None  # set before the loader starts
            yield [(index, self.job) for index in batch]


class JobLoader:
    """Loader of the batches of one job after another with the same workers.

    torch assigns batches to workers in turn, starting with the first worker in every pass. A worker
    therefore gets the same images for every job, and keeps only those in memory.
    """

    def __init__(self, dataset: SweepDataset, config: Any, rank: int, processes: int) -> None:
        size = config.get('batch_size', 1)
        if not isinstance(size, int) or size < 1:
            raise UserError(f'test_dataloader.batch_size={size!r}: it must be 1 or more.')
        self.batches = JobBatches(len(dataset), size, rank, processes)
        # As many as the process with the fewest has, which is the last one.
        self.common_batches = len(JobBatches(len(dataset), size, processes - 1, processes))
        workers = min(config.get('num_workers', 0), len(self.batches))
        options = {key: config[key] for key in _LOADER_OPTIONS if config.get(key) is not None}
        if workers == 0:
            options = {key: options[key] for key in options if key == 'pin_memory'}
        self.loader = DataLoader(
            dataset,
            batch_sampler=self.batches,
            num_workers=workers,
            persistent_workers=workers > 0,
            collate_fn=Collate(_collate_of(config)),
            worker_init_fn=quiet_worker,
            **options,
        )

    def load(self, job: Job) -> Iterator[tuple[list[int], Any]]:
        """Yield (image numbers, batch) of a job."""
        self.batches.job = job
        for numbers, batch in zip(self.batches.batches, self.loader, strict=True):
            if isinstance(batch, LoadFailure):
                raise UserError(batch.message)
            yield numbers, batch


def labels_without_image(dataset: Any) -> list[str]:
    """Return label maps of an mmseg data set that are not tested for lack of an image.

    Its images are whatever is in the folder: a lost one is skipped silently.
    """
    found = []
    for one in getattr(dataset, 'datasets', None) or [dataset]:
        folder = (getattr(one, 'data_prefix', None) or {}).get('seg_map_path')
        suffix = getattr(one, 'seg_map_suffix', None)
        if suffix and folder and os.path.isdir(folder) and not getattr(one, 'ann_file', None):
            used = {one.get_data_info(i).get('seg_map_path') for i in range(len(one))}
            paths = (os.path.join(folder, name) for name in list_files(folder))
            found += [p for p in paths if p.endswith(suffix) and p not in used]
    return sorted(found)


def _collate_of(config: Any) -> Callable:
    wanted = config.get('collate_fn')
    if wanted is None:
        return pseudo_collate
    if callable(wanted):
        return wanted
    options = dict(wanted)
    return partial(FUNCTIONS.get(options.pop('type')), **options)


def quiet_worker(_: int) -> None:
    """Use one thread per worker, and let the main process decide when to stop."""
    leave_signals_to_parent()
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
