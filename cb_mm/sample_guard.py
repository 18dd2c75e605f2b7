"""Samples that cannot be used: named, and either the end of the run or skipped and counted.

torch would wrap an error of a loading process in that process's traceback, mmseg trains on a label
map of another size without a word, and OpenCV fills a cut-off JPEG with grey.
"""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch.utils.data import DataLoader

from .data.check_files import jpeg_is_cut, read_image, read_labels
from .errors import SHOW_TRACEBACK, UserError

#: In the work directory: one line for every file that was skipped.
SKIPPED_FILE = 'broken_files.txt'
#: So many samples in a row cannot all be broken by chance.
_MOST_IN_A_ROW = 100


class LoadFailure:
    """Takes an error for people out of a worker, where torch would wrap it in a traceback."""

    def __init__(self, message: str) -> None:
        self.message = message


class Collate:
    """A way to make a batch which lets a failure through."""

    def __init__(self, collate: Callable) -> None:
        self.collate = collate

    def __call__(self, samples: list) -> Any:
        """A batch, or the first failure in it."""
        for sample in samples:
            if isinstance(sample, LoadFailure):
                return sample
        return self.collate(samples)


class GuardedLoader:
    """A loading step of a pipeline that looks at what it has loaded.

    Args:
        loader: The step, such as LoadImageFromFile.
        dataset: Whose step it is.
        ignored: Labels that the rest of the config ignores.
    """

    def __init__(self, loader: Callable, dataset: Any, ignored: Iterable[int] = ()) -> None:
        self.loader = loader
        self.classes, self.ignored = label_range(dataset, ignored)

    def __call__(self, results: dict) -> dict | None:
        """As the loader; a UserError when the sample is broken."""
        image, labels = results.get('img_path'), results.get('seg_map_path')
        before = set(results)
        try:
            loaded = self.loader(results)
        except FileNotFoundError as error:
            raise UserError(f'{error.filename or image} does not exist.') from error
        except Exception as error:  # decoders fail on a damaged file in a dozen ways
            raise UserError(_unreadable('img' in before, image, labels, error)) from error
        if loaded is not None:
            check_loaded(loaded, set(loaded) - before, self.classes, self.ignored)
        return loaded

    def __getattr__(self, name: str) -> Any:
        if name.startswith('__') or name == 'loader':  # while it is being unpickled
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __repr__(self) -> str:
        return repr(self.loader)


def ignored_labels(config: Any) -> set[int]:
    """Every ``ignore_index`` in a config: of data sets, heads and metrics.

    People write it where the loss or the metric reads it, and leave the data set at its 255.
    """
    if isinstance(config, Mapping):
        own = {config['ignore_index']} if isinstance(config.get('ignore_index'), int) else set()
        return own.union(*map(ignored_labels, config.values()))
    if isinstance(config, (list, tuple)):
        return set().union(*map(ignored_labels, config))
    return set()


def label_range(dataset: Any, ignored: Iterable[int] = ()) -> tuple[int, list[int]]:
    """Number of classes of a data set (0 if not known), and the labels that count for nothing."""
    classes = (getattr(dataset, 'metainfo', None) or {}).get('classes') or ()
    return len(classes), sorted({getattr(dataset, 'ignore_index', 255), *ignored})


def check_loaded(results: dict, new: set[str], classes: int, ignored: Sequence[int]) -> None:
    """A UserError when what a step has loaded (the keys ``new``) does not fit together."""
    image = results.get('img_path')
    if 'img' in new:
        if image and _is_cut(image):
            raise UserError(_unreadable(False, image, None, None))
        height, width = results['img'].shape[:2]
        told = results.get('height'), results.get('width')
        if all(isinstance(size, (int, float)) for size in told) and told != (height, width):
            raise UserError(
                f'image {image} is {width} x {height}, its annotation says {told[1]} x {told[0]}.'
            )
    if 'gt_seg_map' in new:
        file, labels = results.get('seg_map_path'), np.asarray(results['gt_seg_map'])
        height, width = results.get('ori_shape') or results['img'].shape[:2]
        if labels.shape != (height, width):
            size = ' x '.join(map(str, labels.shape[1::-1] + labels.shape[2:]))
            raise UserError(f'label map {file} is {size}, its image {image} {width} x {height}.')
        wrong = labels[(labels >= classes) & ~np.isin(labels, ignored)] if classes else ()
        if len(wrong):
            raise UserError(
                f'label map {file} has labels that stand for no class: counted from 0, they go up '
                f'to {int(wrong.max())}, and there are {classes} classes.'
            )
    boxes = results.get('gt_bboxes') if 'gt_bboxes' in new else None
    if boxes is not None and not np.isfinite(np.asarray(getattr(boxes, 'tensor', boxes))).all():
        raise UserError(f'image {image} has a box that is not finite (NaN or infinity).')


def _unreadable(
    image_is_there: bool, image: str | None, labels: str | None, error: Exception | None
) -> str:
    """Which file could not be loaded, and why, as tools/check_data.py puts it."""
    reason = f'{type(error).__name__}: {error}'.strip(': ').splitlines()[0]
    if image_is_there and not labels:
        return f'the annotation of image {image} cannot be used ({reason}).'
    path = Path(str(labels if image_is_there else image))
    facts = read_labels(path, 255) if image_is_there else read_image(path)
    found = '; '.join(text for _, text in facts.findings) if facts.size is None else reason
    return f'{"label map" if image_is_there else "image"} {path}: {found}.'


def _is_cut(path: str) -> bool:
    """Whether a local JPEG ends too early; looks at its last two bytes first."""
    with contextlib.suppress(OSError), open(path, 'rb') as stream:
        if stream.read(2) == b'\xff\xd8':
            stream.seek(-2, os.SEEK_END)
            if stream.read(2) != b'\xff\xd9':
                stream.seek(0)
                return jpeg_is_cut(stream.read())
    return False


class GuardedSamples:
    """Loads a batch; a broken sample becomes a failure, or its next whole neighbour.

    torch's DataLoader calls it as the data set's ``__getitems__``. The replacement depends on the
    sample alone, so that a resumed run makes the same one.
    """

    def __init__(self, dataset: Any, skip: bool = False, folder: str | Path = '.') -> None:
        self.dataset, self.skip, self.file = dataset, skip, Path(folder) / SKIPPED_FILE
        self.load_batch = getattr(dataset, '__getitems__', None)
        self.seen: set[str] = set()

    def __call__(self, indices: list[int]) -> list[Any]:
        """The samples, or failures in their places."""
        return [self._load(index) for index in indices]

    def _load(self, index: int) -> Any:
        message = ''
        # Samplers of other people may yield more than numbers; those have no neighbours.
        skip = self.skip and isinstance(index, Integral)
        for further in range(min(len(self.dataset), _MOST_IN_A_ROW) if skip else 1):
            place = (index + further) % len(self.dataset) if further else index
            if further and hasattr(index, 'at'):
                place = index.at(place)
            try:
                return self.load_batch([place])[0] if self.load_batch else self.dataset[place]
            except Exception as error:
                message = self._describe(place, error)
                if skip:
                    self._note(message)
        if skip:
            message = f'--skip-broken: {_MOST_IN_A_ROW} samples in a row are broken. The last: ' + (
                message
            )
        return LoadFailure(message)

    def _describe(self, index: int, error: Exception) -> str:
        detail = f'\n{traceback.format_exc()}' if os.environ.get(SHOW_TRACEBACK) else ''
        if isinstance(error, UserError):
            return f'{error}{detail}'
        try:
            file = self.dataset.get_data_info(int(index)).get('img_path')
        except Exception:  # an odd data set: its number must do
            file = None
        return f'image {file or f"number {index}"}: {type(error).__name__}: {error}{detail}'

    def _note(self, message: str) -> None:
        """One line in the file; several processes add to it."""
        if message in self.seen:
            return
        self.seen.add(message)
        with contextlib.suppress(OSError), self.file.open('a', encoding='utf-8') as stream:
            stream.write(' '.join(message.split()) + '\n')


def guard(
    loader: DataLoader, skip: bool = False, folder: str | Path = '.', ignored: Iterable[int] = ()
) -> DataLoader:
    """Let a data loader name broken samples; it must not have started its workers yet."""
    dataset: Any = loader.dataset
    for steps in step_lists(dataset):
        for place, step in enumerate(steps):
            if type(step).__name__.startswith('Load'):
                steps[place] = GuardedLoader(step, dataset, ignored)
    dataset.__getitems__ = GuardedSamples(dataset, skip, folder)
    loader.collate_fn = Collate(loader.collate_fn)
    return loader


def step_lists(dataset: Any) -> Iterator[list]:
    """Every list of transforms in a data set, its wrapped data sets and nested transforms."""
    inner = getattr(dataset, 'datasets', None) or [getattr(dataset, 'dataset', None)]
    for one in inner:
        if one is not None:
            yield from step_lists(one)
    yield from _nested(getattr(dataset, 'pipeline', None))


def _nested(step: Any) -> Iterator[list]:
    steps = step if isinstance(step, list) else getattr(step, 'transforms', None)
    if isinstance(steps, list):
        yield steps
        for one in steps:
            yield from _nested(one)


class SampleGuard(Hook):
    """Guards the loaders of a runner. A validation skips nothing: its score would be another's."""

    priority = 'HIGHEST'

    def __init__(self, skip: bool = False) -> None:
        self.skip = skip

    def attach(self, runner: Runner) -> None:
        """To be called before the loops are built, since the endless one starts its workers."""
        build = runner.build_dataloader
        ignored = ignored_labels(runner.cfg.to_dict())

        def build_guarded(dataloader: Any, *args: Any, **kwargs: Any) -> DataLoader:
            training = dataloader is runner._train_dataloader or (
                isinstance(dataloader, dict) and dataloader == runner._train_dataloader
            )
            built = build(dataloader, *args, **kwargs)
            return guard(built, self.skip and training, runner.work_dir, ignored)

        runner.build_dataloader = build_guarded
        runner.register_hook(self)

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Stop at a failure."""
        self._stop_at(data_batch, 'pass --skip-broken to train without it')

    def before_val_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Stop at a failure."""
        self._stop_at(data_batch, 'take it out of the validation data')

    def _stop_at(self, batch: Any, otherwise: str) -> None:
        if isinstance(batch, LoadFailure):
            raise UserError(
                f'{batch.message} Mend the file or {otherwise}; tools/check_data.py finds all of '
                'them.'
            )

    def after_train(self, runner: Runner) -> None:
        """Say what was skipped."""
        file = Path(runner.work_dir) / SKIPPED_FILE
        if not (self.skip and is_main_process() and file.is_file()):
            return
        lines = sorted(set(file.read_text(encoding='utf-8').splitlines()))
        samples = 'sample was' if len(lines) == 1 else 'samples were'
        shown = '\n'.join(f'  {line}' for line in lines[:10])
        more = f'\n  ... and {len(lines) - 10} more in {file}' if len(lines) > 10 else ''
        print(f'--skip-broken: {len(lines)} broken {samples} skipped:\n{shown}{more}', flush=True)
