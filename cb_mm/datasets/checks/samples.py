"""What a loaded sample must satisfy: its image and its annotation fit together."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import UserError
from ...fileio.images import jpeg_is_cut
from .files import ReadResult, exif_orientation, turned_apart
from .findings import KINDS


class SampleError(UserError):
    """A sample that cannot be used, with advice beyond fetching the file again."""


@dataclass(frozen=True)
class SampleRules:
    """What the samples of a data set must satisfy.

    Attributes:
        classes: Number of classes; 0 if it is not known.
        ignored: Labels that are ignored.
        turned: Whether images are rotated by their EXIF tag when they are read.
        predicted: Number of classes that the model predicts; 0 if it is not known. A loss that
            gets a label from there on ends a GPU process with "device-side assert triggered".
    """

    classes: int = 0
    ignored: tuple[int, ...] = (255,)
    turned: bool = True
    predicted: int = 0

    @classmethod
    def of(cls, dataset: Any, ignored: Iterable[int] = (), predicted: int = 0) -> SampleRules:
        """Return the rules of a data set whose config ignores these labels too."""
        classes = (getattr(dataset, 'metainfo', None) or {}).get('classes') or ()
        labels = sorted({getattr(dataset, 'ignore_index', 255), *ignored})
        steps = [step for steps in step_lists(dataset) for step in steps]
        return cls(len(classes), tuple(labels), any(map(_follows_exif, steps)), predicted)

    def check(self, results: dict, new: set[str]) -> None:
        """Refuse what a step has loaded (the keys ``new``) if it does not fit together.

        Raises:
            UserError: Names the file, what is wrong and, where not obvious, what to do.
        """
        image = results.get('img_path')
        if 'img' in new:
            if image and _is_cut(image):
                raise UserError(f'image {image}: ends too early, after {_bytes(image)} bytes.')
            loaded = results['img'].shape[:2]
            told = results.get('height'), results.get('width')
            known = all(isinstance(size, (int, float)) for size in told)
            if results.get('instances'):
                self.check_orientation(results, told if known else None, 'its annotation')
            if known and told != loaded:
                raise UserError(
                    f'image {image} is {loaded[1]} x {loaded[0]}, its annotation says '
                    f'{told[1]} x {told[0]}.'
                )
        if 'gt_seg_map' in new:
            file, labels = results.get('seg_map_path'), np.asarray(results['gt_seg_map'])
            height, width = results.get('ori_shape') or results['img'].shape[:2]
            self.check_orientation(results, labels.shape, f'its label map {file}')
            if min(height, width) == 1:  # mmseg drops that side of the label map
                raise SampleError(
                    f'image {image} is {width} x {height}: one row or column of pixels cannot be '
                    'segmented. Leave it out.'
                )
            if labels.ndim == 3 and labels.shape[:2] == (height, width):
                same = bool((labels[..., :3] == labels[..., :1]).all())
                raise UserError(
                    f'label map {file} has {labels.shape[2]} channels and must have one, with the '
                    'number of the class'
                    + (
                        ': the first three are the same, so keep one.'
                        if same
                        else ', not a colour.'
                    )
                )
            if labels.shape != (height, width):
                size = ' x '.join(map(str, labels.shape[1::-1] + labels.shape[2:]))
                raise UserError(
                    f'label map {file} is {size}, its image {image} {width} x {height}.'
                )
            self._check_labels(file, labels)
        for key in ('gt_label', 'gt_bboxes_labels'):  # of a classifier, from its list; of boxes
            if key in new or ('img' in new and key in results):
                self._check_numbers(image, np.asarray(results[key]))
        boxes = results.get('gt_bboxes') if 'gt_bboxes' in new else None
        if boxes is not None and not np.isfinite(np.asarray(getattr(boxes, 'tensor', boxes))).all():
            raise UserError(f'image {image} has a box that is not finite (NaN or infinity).')

    def check_orientation(self, results: dict, size: Any, what: str) -> None:
        """Refuse a rotated image, unless its annotation has the rotated size."""
        image = results.get('img_path')
        orientation = exif_orientation(image) if self.turned and image else 1
        height, width = results.get('ori_shape') or results['img'].shape[:2]
        facts = ReadResult((width, height), orientation=orientation)
        if not turned_apart(facts, size[1::-1] if size else None):
            return
        raise SampleError(
            f'image {image} has the EXIF orientation {orientation}, so it is rotated when it is '
            f'read; {what} is not. What to do: {KINDS["orientation"].remedy}.'
        )

    def _check_numbers(self, image: str | None, labels: np.ndarray) -> None:
        """Refuse the label of an image or a box that the model cannot predict."""
        if not (self.predicted and labels.size and np.issubdtype(labels.dtype, np.integer)):
            return
        for label in (int(labels.min()), int(labels.max())):
            if not 0 <= label < self.predicted:
                raise SampleError(
                    f'image {image} has the label {label}, and the model predicts '
                    f'{self.predicted} classes, from 0. Set num_classes of its head, or correct '
                    'the annotation.'
                )

    def _check_labels(self, file: str | None, labels: np.ndarray) -> None:
        limit = min((count for count in (self.classes, self.predicted) if count), default=0)
        if not limit:
            return
        wrong = np.unique(labels[(labels < 0) | (labels >= limit)])
        wrong = wrong[~np.isin(wrong, self.ignored)]
        if not len(wrong):
            return
        if limit < self.classes:
            raise SampleError(
                f'label map {file} has the label {int(wrong.max())}; the data set has '
                f'{self.classes} classes, but the model predicts {limit}. Set num_classes of '
                'every head.'
            )
        most = int(wrong.max())
        told = (
            f'label map {file} has labels that belong to no class: counted from 0, they go up to '
            f'{most}, and there are {self.classes} classes.'
        )
        if len(wrong) > 1:
            raise SampleError(
                f'{told} Correct the label map, or num_classes and metainfo.classes in the config.'
            )
        places = ('model.decode_head', 'val_evaluator', 'test_evaluator')
        options = ' '.join(f'{place}.ignore_index={most}' for place in places)
        raise SampleError(
            f'{told} If {most} means "not labelled", let every head and metric ignore it: '
            f'`cfg_options` {options} (and model.auxiliary_head.ignore_index={most}, if there is '
            'one); otherwise correct the label map or the classes.'
        )


def _follows_exif(step: Any) -> bool:
    """Return whether a step reads images with an mmcv decoder that applies the EXIF tag."""
    kind, decoder = (getattr(step, name, None) for name in ('color_type', 'imdecode_backend'))
    return kind in ('color', 'grayscale') and decoder in ('cv2', 'pillow', None)


def ignored_labels(config: Any) -> set[int]:
    """Return every ``ignore_index`` in a config: of data sets, heads and metrics.

    People write it where the loss or the metric reads it, and leave the data set at its 255.
    """
    if isinstance(config, Mapping):
        own = {config['ignore_index']} if isinstance(config.get('ignore_index'), int) else set()
        return own.union(*map(ignored_labels, config.values()))
    if isinstance(config, (list, tuple)):
        return set().union(*map(ignored_labels, config))
    return set()


def step_lists(dataset: Any) -> Iterator[list]:
    """Yield every list of transforms in a data set, its wrapped data sets and nested transforms."""
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


def _is_cut(path: str) -> bool:
    """Return whether a local JPEG ends too early; check its last two bytes first."""
    with contextlib.suppress(OSError), open(path, 'rb') as stream:
        if stream.read(2) == b'\xff\xd8':
            stream.seek(-2, os.SEEK_END)
            if stream.read(2) != b'\xff\xd9':
                stream.seek(0)
                return jpeg_is_cut(stream.read())
    return False


def _bytes(path: str) -> str:
    return f'{os.path.getsize(path):,}'
