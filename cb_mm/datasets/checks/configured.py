"""The check of the data sets of a config, in any layout: files are read as training reads them."""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope

from ...config.explain import explaining_build_errors
from ...config.loading import dataset_class
from ...errors import MissingFile, UserError
from .annotation_file import report_annotation_file
from .files import Progress, run_all
from .files import sample as sample_of
from .findings import Report
from .label_files import (
    forget_folders,
    report_class_count,
    report_leftovers,
    stored_otherwise,
    why_missing,
)
from .samples import SampleRules, ignored_labels, step_lists


@dataclass
class _Sample:
    """What one sample holds: pixels of each label, objects of each class, or what is wrong."""

    image: str
    file: str
    pixels: dict[int, int] = field(default_factory=dict)
    objects: dict[int, int] = field(default_factory=dict)
    wrong: tuple[str, str] | None = None


def check_config(
    config: Config,
    quick: bool = False,
    splits: Sequence[str] = ('train', 'val', 'test'),
    progress: Progress | None = None,
    workers: int | None = None,
) -> Report:
    """Read the data sets of a config: images, label maps or boxes, and the classes they hold.

    Args:
        config: Any config of mmseg's or mmdet's; a data set of several splits is read once.
        quick: Read only a few files of each.
        splits: Of these loaders.
        progress: Wraps the loop over samples: called with an iterable and its length.
        workers: Number of decoding threads; by default one per processor.

    Raises:
        UserError: A data set cannot be built, such as where a folder is missing.
    """
    init_default_scope(config.get('default_scope', 'mmengine'))
    loaders = {split: config.get(f'{split}_dataloader') for split in splits}
    named = {split: loader.dataset for split, loader in loaders.items() if loader}
    if not named:
        raise UserError(f'config {config.filename} has no data set: it has no *_dataloader.')
    report = Report('data sets', Path(config.filename or '.'), quick)
    seen: list[Any] = []
    forget_folders()
    for split, settings in named.items():
        if settings in seen:
            report.counts[f'{split}: the same images as before'] = 0
            continue
        seen.append(settings)
        if not report_annotation_file(report, split, settings, dataset_class(config, settings)):
            continue
        try:
            # pycocotools prints what it is doing.
            with explaining_build_errors(config), contextlib.redirect_stdout(io.StringIO()):
                dataset = DATASETS.build(settings)
        except UserError:
            raise
        except FileNotFoundError as error:
            raise MissingFile(
                f'{split}_dataloader of config {config.filename}: {error.filename} does not exist. '
                'Its place follows from data_root, data_prefix and ann_file of the data set.'
            ) from error
        rules = SampleRules.of(dataset, ignored_labels(config.to_dict()))
        loading = _Loading(dataset, rules)
        numbers = list(range(len(dataset)))
        samples = run_all(loading.read, sample_of(numbers) if quick else numbers, progress, workers)
        _report(report, split, dataset, rules, samples)
        report_leftovers(report, dataset)
        classes = len((dataset.metainfo or {}).get('classes') or ())
        if classes and len(seen) == 1:
            report_class_count(report, config.get('model') or {}, classes)
    return report


class _Loading:
    """The steps of a data set that read files, without those that change what was read."""

    def __init__(self, dataset: Any, rules: SampleRules) -> None:
        steps = next(iter(step_lists(dataset)), [])
        self.steps = [step for step in steps if type(step).__name__.startswith('Load')]
        self.dataset = dataset
        self.rules = SampleRules(0, rules.ignored, rules.turned)  # labels are counted, not refused

    def read(self, number: int) -> _Sample:
        """Read one sample."""
        results = self.dataset.get_data_info(number)
        image = str(results.get('img_path'))
        label_map = str(results.get('seg_map_path') or '')
        found = _Sample(image, label_map or image)
        if label_map and '://' not in label_map and not Path(label_map).exists():
            found.wrong = 'label-missing', why_missing(image, label_map)
            return found
        for step in self.steps:
            before = set(results)
            try:
                results = step(results)
                self.rules.check(results, set(results) - before)
            except UserError as error:
                found.wrong = _kind_of(error), str(error)
                return found
            except FileNotFoundError as error:
                found.wrong = 'image-missing', f'{error.filename} does not exist'
                return found
            except Exception as error:  # each decoder has its own
                if isinstance(error, KeyError) and error.args == ('mask',):
                    told = 'an object has no outline, and the config loads masks (with_mask=True)'
                    found.wrong = 'segmentation', told
                    return found
                kind = 'unreadable' if 'img' not in before else 'label-unreadable'
                found.wrong = (kind, f'{type(error).__name__}: {error}'.splitlines()[0])
                return found
        if 'gt_seg_map' in results:
            found.wrong = stored_otherwise(label_map)
            if found.wrong:
                return found
            values, counts = np.unique(results['gt_seg_map'], return_counts=True)
            found.pixels = dict(zip(values.tolist(), counts.tolist(), strict=True))
        labels = results.get('gt_bboxes_labels', results.get('gt_label', ()))
        found.objects = dict(Counter(np.atleast_1d(labels).tolist()))
        return found


def _kind_of(error: UserError) -> str:
    text = str(error)
    if 'channels and must have one' in text:
        return 'label-colour'
    if 'its annotation says' in text:
        return 'image-size'
    return 'label-size' if 'label map' in text else 'truncated'


def _report(
    report: Report, split: str, dataset: Any, rules: SampleRules, samples: list[_Sample]
) -> None:
    report.counts[f'{split}: images'] = len(dataset)
    report.counts[f'{split}: read'] = len(samples)
    if not samples:
        report.add('no-images', '.', f'the data set of {split}_dataloader is empty')
        return
    for one in samples:
        if one.wrong:
            report.add(one.wrong[0], one.file, one.wrong[1])
    classes = list((dataset.metainfo or {}).get('classes') or ())
    objects = sum((Counter(one.objects) for one in samples), Counter())
    pixels = sum((Counter(one.pixels) for one in samples), Counter())
    if objects:
        report.counts[f'{split}: objects'] = sum(objects.values())
    found = {**objects, **pixels}
    if classes and found:
        absent = [name for number, name in enumerate(classes) if number not in found]
        if absent and len(samples) == len(dataset):
            shown = ', '.join(absent[:6]) + (f' and {len(absent) - 6} more' if absent[6:] else '')
            report.add('class-absent', '.', f'{split} has none of: {shown}')
    if classes and pixels:
        _report_labels(report, split, len(classes), rules, samples, pixels)


def _report_labels(
    report: Report,
    split: str,
    classes: int,
    rules: SampleRules,
    samples: list[_Sample],
    pixels: Counter[int],
) -> None:
    """Report every label without a class: how often, and what it probably means."""
    unknown = sorted(value for value in pixels if value >= classes and value not in rules.ignored)
    used = [value for value in pixels if value < classes]
    if classes > 1 and len(used) == 1 and not unknown and 255 in pixels:
        share = 100 * pixels[255] / sum(pixels.values())
        report.add(
            'label-255',
            samples[0].file,
            f'{split} has only the labels {used[0]} and 255 ({share:.1f} % of the pixels), which '
            'is ignored, so there is one class to learn. If 255 marks a class, write the number of '
            'that class in its place',
        )
    if len(unknown) > 3:
        files = [one.file for one in samples if set(unknown) & set(one.pixels)]
        shown = ', '.join(map(str, unknown[:3]))
        report.add(
            'label-unknown',
            files[0],
            f'labels {shown} and {len(unknown) - 3} more in {len(files)} of {len(samples)} {split} '
            f'files; the {classes} classes are 0 to {classes - 1}. '
            + _advice(unknown[0], unknown, classes, pixels),
        )
        return
    for value in unknown:
        files = [one.file for one in samples if value in one.pixels]
        share = 100 * pixels[value] / sum(pixels.values())
        report.add(
            'label-unknown',
            files[0],
            f'label {value} in {len(files)} of {len(samples)} {split} files, {share:.1f} % of the '
            f'pixels; the {classes} classes are 0 to {classes - 1}. '
            + _advice(value, unknown, classes, pixels),
        )


def _advice(value: int, unknown: list[int], classes: int, pixels: Counter[int]) -> str:
    if unknown == [classes] and 0 not in pixels:
        return (
            'No pixel is 0, so the labels seem to count from 1: set reduce_zero_label=True in '
            'LoadAnnotations and in the data set'
        )
    if unknown == [classes]:
        return (
            f'If a class is not listed yet, add it to the classes; if {value} means "no class", '
            f'set ignore_index = {value} in the config'
        )
    if unknown == [value]:
        return f'If it means "no class", set ignore_index = {value} in the config'
    return 'Several labels have no class: correct the classes, or map the labels'
