"""Samples that cannot be used: named, and either the end of the run or skipped and counted.

torch would wrap an error of a loading process in that process's traceback, mmseg silently trains on
a label map of another size, and OpenCV fills a cut-off JPEG with grey. What samples must satisfy is
in `cb_mm.datasets.checks.samples`.
"""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from torch import nn
from torch.utils.data import DataLoader

from ...compat.wrappers import unwrap
from ...datasets.checks.files import inspect_image, inspect_labels
from ...datasets.checks.samples import SampleError, SampleRules, ignored_labels, step_lists
from ...errors import SHOW_TRACEBACK, MissingFile, UserError
from ..endless_loader import built_loaders, start_again
from .stop_on_signal import save_now

#: In the work directory: one line for every file that was skipped.
SKIPPED_FILE = 'broken_files.txt'
#: This many samples in a row cannot all be broken by chance.
_MOST_IN_A_ROW = 100
#: Maximum length of a pipeline step in a message.
_LONGEST_STEP = 200


class LoadFailure:
    """A user-facing error from a worker, where torch would wrap it in a traceback.

    Args:
        message: What is wrong.
        advised: Whether it also says what to do.
    """

    def __init__(self, message: str, advised: bool = False) -> None:
        self.message, self.advised = message, advised


class Collate:
    """A collate function that lets a failure through."""

    def __init__(self, collate: Callable) -> None:
        self.collate = collate

    def __call__(self, samples: list) -> Any:
        """Return a batch, or the first failure in it."""
        for sample in samples:
            if isinstance(sample, LoadFailure):
                return sample
        try:
            return self.collate(samples)
        except Exception as error:  # in a worker, torch would wrap it in a traceback
            return LoadFailure(
                f'samples cannot be collated into a batch ({_first_line(error)}). Make the last '
                'steps of the pipeline give all of them the same shape, or set batch_size=1.',
                advised=True,
            )


class GuardedLoader:
    """A loading step of a pipeline that checks what it has loaded.

    Args:
        loader: The step, such as LoadImageFromFile.
        rules: What its samples must satisfy.
    """

    def __init__(self, loader: Callable, rules: SampleRules) -> None:
        self.guarded_loader, self.rules = loader, rules

    def __call__(self, results: dict) -> dict | None:
        """Load as the loader does; raise a UserError if the sample is broken."""
        image, labels = results.get('img_path'), results.get('seg_map_path')
        before = set(results)
        try:
            loaded = self.guarded_loader(results)
        except FileNotFoundError as error:
            raise MissingFile(f'{error.filename or image} does not exist.') from error
        except Exception as error:  # decoders fail on a damaged file in a dozen ways
            raise UserError(_unreadable('img' in before, image, labels, error)) from error
        if loaded is not None:
            self.rules.check(loaded, set(loaded) - before)
        return loaded

    def __getattr__(self, name: str) -> Any:
        if name.startswith('__') or name == 'guarded_loader':  # while it is being unpickled
            raise AttributeError(name)
        return getattr(self.guarded_loader, name)

    def __repr__(self) -> str:
        return repr(self.guarded_loader)


def _unreadable(
    image_is_there: bool, image: str | None, labels: str | None, error: Exception
) -> str:
    """Return which file could not be loaded, and why, in the words of tools/check_data.py."""
    reason = _first_line(error)
    if image_is_there and not labels:
        return f'the annotation of image {image} cannot be used ({reason}).'
    path = Path(str(labels if image_is_there else image))
    facts = inspect_labels(path, 255) if image_is_there else inspect_image(path)
    found = '; '.join(text for _, text in facts.findings) if facts.size is None else reason
    return f'{"label map" if image_is_there else "image"} {path}: {found}.'


def _first_line(error: Exception) -> str:
    return f'{type(error).__name__}: {error}'.strip(': ').splitlines()[0]


def load_failure(dataset: Any, index: int, error: Exception) -> LoadFailure:
    """Return the message for an error that a data set raised for one of its samples."""
    detail = f'\n{traceback.format_exc()}' if os.environ.get(SHOW_TRACEBACK) else ''
    if isinstance(error, UserError):
        return LoadFailure(f'{error}{detail}', isinstance(error, SampleError))
    try:
        file = dataset.get_data_info(int(index)).get('img_path')
    except Exception:  # an unusual data set: use the number
        file = None
    what = f'image {file or f"number {index}"}'
    step, size = _failed_step(dataset, error)
    if step is None:
        return LoadFailure(f'{what}: {_first_line(error)}{detail}')
    shape = f' ({size[1]} x {size[0]})' if size else ''
    return LoadFailure(
        f'{what}{shape}: the step {" ".join(repr(step).split())[:_LONGEST_STEP]} of the pipeline '
        f'fails ({_first_line(error)}). Correct its values in the config, or remove the image.'
        f'{detail}',
        advised=True,
    )


def _failed_step(dataset: Any, error: Exception) -> tuple[Any, Sequence[int] | None]:
    """Return the innermost step of the pipeline in an error's frames, and the size it was given."""
    steps = [step for steps in step_lists(dataset) for step in steps]
    found: tuple[Any, Sequence[int] | None] = None, None
    trace = error.__traceback__
    while trace is not None:
        local = trace.tb_frame.f_locals
        owner, results = local.get('self'), local.get('results')
        if any(owner is step for step in steps):
            size = results.get('ori_shape') if isinstance(results, dict) else None
            found = owner, size or found[1]
        trace = trace.tb_next
    return found


class GuardedSamples:
    """Loader of a batch; a broken sample becomes a failure, or its next intact neighbour.

    torch's DataLoader calls it as the data set's ``__getitems__``. The replacement depends on the
    sample alone, so that a resumed run makes the same one.
    """

    def __init__(self, dataset: Any, skip: bool = False, folder: str | Path = '.') -> None:
        self.dataset, self.skip, self.file = dataset, skip, Path(folder) / SKIPPED_FILE
        self.load_batch = getattr(dataset, '__getitems__', None)
        self.seen: set[str] = set()

    def __call__(self, indices: list[int]) -> list[Any]:
        """Return the samples, or failures in their places."""
        return [self._load(index) for index in indices]

    def _load(self, index: int) -> Any:
        failure = LoadFailure('')
        # Third-party samplers may yield more than numbers; those have no neighbours.
        skip = self.skip and isinstance(index, Integral)
        for further in range(min(len(self.dataset), _MOST_IN_A_ROW) if skip else 1):
            place = (index + further) % len(self.dataset) if further else index
            if further and hasattr(index, 'at'):
                place = index.at(place)
            try:
                return self.load_batch([place])[0] if self.load_batch else self.dataset[place]
            except Exception as error:
                failure = load_failure(self.dataset, place, error)
                if skip:
                    self._note(failure.message)
        if skip:
            failure.message = (
                f'{_MOST_IN_A_ROW} samples in a row are broken. The last: {failure.message}'
            )
        return failure

    def _note(self, message: str) -> None:
        """Add one line to the file; several processes write to it."""
        if message in self.seen:
            return
        self.seen.add(message)
        with contextlib.suppress(OSError), self.file.open('ab') as stream:
            # A file name need not be UTF-8.
            stream.write((' '.join(message.split()) + '\n').encode('utf-8', 'backslashreplace'))


def guard(
    loader: DataLoader,
    skip: bool = False,
    folder: str | Path = '.',
    ignored: Iterable[int] = (),
    predicted: int = 0,
) -> DataLoader:
    """Let a data loader name broken samples; it must not have started its workers yet.

    A DataLoader takes no other data set once it is built, and a hook gets it built; so the method
    that torch looks for is put on the data set itself.
    """
    dataset: Any = loader.dataset
    rules = SampleRules.of(dataset, ignored, predicted)
    for steps in step_lists(dataset):
        for place, step in enumerate(steps):
            if type(step).__name__.startswith('Load'):
                steps[place] = GuardedLoader(step, rules)
    dataset.__getitems__ = GuardedSamples(dataset, skip, folder)
    loader.collate_fn = Collate(loader.collate_fn)
    return loader


def predicted_classes(model: nn.Module) -> int:
    """Return how many classes the heads of a model can tell apart; 0 if it is not known."""
    parts = [getattr(model, name, None) for name in ('decode_head', 'head', 'bbox_head')]
    parts.append(getattr(getattr(model, 'roi_head', None), 'bbox_head', None))
    heads = [
        head
        for part in parts
        for head in (part if isinstance(part, (nn.ModuleList, nn.Sequential)) else [part])
    ]
    counts = [getattr(head, 'num_classes', 0) for head in heads if head is not None]
    return min((count for count in counts if isinstance(count, int) and count > 0), default=0)


@HOOKS.register_module()
class SampleGuardHook(Hook):
    """Guard the loaders of a runner: a broken sample is named, and ends the run or is skipped.

    Args:
        skip: Train without broken samples. A validation skips nothing: that would change its score.
    """

    priority = 'HIGHEST'

    def __init__(self, skip: bool = False) -> None:
        self.skip = skip

    def before_run(self, runner: Runner) -> None:
        """Guard the loaders before they load anything."""
        ignored = ignored_labels(runner.cfg.to_dict())
        for part, loader in built_loaders(runner).items():
            if not isinstance(loader.collate_fn, Collate):
                # A validation only counts, and may have more classes than the model.
                predicted = predicted_classes(unwrap(runner.model)) if part == 'train' else 0
                skip = self.skip and part == 'train'
                guard(loader, skip, runner.work_dir, ignored, predicted)
        start_again(runner)

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Stop at a failure; what was trained until here is saved."""
        if isinstance(data_batch, LoadFailure) and runner.iter > 0 and is_main_process():
            file = save_now(runner, runner.iter, batch_idx)
            if file is not None:
                runner.logger.info(f'The {runner.iter} finished iterations are saved as {file}.')
        self._stop_at(data_batch, 'train without it (`skip_broken`; skip=True of SampleGuardHook)')

    def before_val_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Stop at a failure."""
        self._stop_at(data_batch, 'remove it from the validation data')

    def before_test_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Stop at a failure."""
        self._stop_at(data_batch, 'remove it from the test data')

    def _stop_at(self, batch: Any, otherwise: str) -> None:
        if isinstance(batch, LoadFailure):
            advice = f' Fix the file or {otherwise}; tools/check_data.py finds all of them.'
            raise UserError(batch.message + ('' if batch.advised else advice))

    def after_train(self, runner: Runner) -> None:
        """Report what was skipped."""
        file = Path(runner.work_dir) / SKIPPED_FILE
        if not (self.skip and is_main_process() and file.is_file()):
            return
        lines = sorted(set(file.read_text(encoding='utf-8').splitlines()))
        samples = 'sample was' if len(lines) == 1 else 'samples were'
        shown = '\n'.join(f'  {line}' for line in lines[:10])
        more = f'\n  ... and {len(lines) - 10} more in {file}' if len(lines) > 10 else ''
        print(f'{len(lines)} broken {samples} skipped:\n{shown}{more}', flush=True)
