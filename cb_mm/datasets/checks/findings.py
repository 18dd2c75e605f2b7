"""What a check of a data set found, as text and as JSON."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import UserError
from ...fileio.result_files import write_json

LEVELS = ('error', 'warning', 'note')


@dataclass(frozen=True)
class Kind:
    """One kind of finding: errors stop or spoil a run, warnings may, notes are harmless."""

    level: str
    title: str
    remedy: str


ADE20K_ARCHIVE = (
    'get ADEChallengeData2016.zip (the "Scene Parsing" benchmark, about 1 GB, from '
    'http://sceneparsing.csail.mit.edu), unpack it, and give the folder ADEChallengeData2016'
)
COCO_ARCHIVES = (
    'get train2017.zip, val2017.zip and annotations_trainval2017.zip from '
    'https://cocodataset.org/#download and unpack all three in one folder'
)

KINDS: dict[str, Kind] = {
    # the folder as a whole
    'wrong-release': Kind('error', 'another release of ADE20K', ADE20K_ARCHIVE),
    'wrong-folder': Kind('error', 'not the root of the data set', 'give the folder named above'),
    'other-data-set': Kind('error', 'a different data set', 'check it under its own name'),
    'missing-folder': Kind('error', 'folder is missing', 'unpack the whole archive'),
    'missing-file': Kind('error', 'file is missing', 'unpack the whole archive'),
    'no-images': Kind('error', 'no image in the folder', 'unpack the whole archive'),
    'not-converted': Kind(
        'error', 'label maps that must be made first', 'run the command that is named above'
    ),
    'count': Kind('note', 'not the full release', 'nothing, if you want a part of it'),
    # image files
    'unreadable': Kind('error', 'image cannot be decoded', 'fetch the file again, or remove it'),
    'truncated': Kind('error', 'image is cut short', 'fetch the file again, or remove it'),
    'grey-scale': Kind('note', 'grey-scale image', 'nothing: it is read as RGB'),
    'four-channel': Kind('note', 'image with a fourth channel', 'nothing: it is read as RGB'),
    'resized': Kind(
        'note', 'image of another size', 'nothing, if you know; scores do not compare with others'
    ),
    'suffix': Kind('warning', 'image that will not be read', 'rename or convert it'),
    'orientation': Kind(
        'error',
        'image that its EXIF tag rotates, but not its annotation',
        'if the annotation fits the pixels as they are stored, remove the tag (exiftool '
        "-Orientation= FILE) or set color_type='color_ignore_orientation' in LoadImageFromFile; if "
        'it fits what a viewer shows, rotate the pixels themselves (mogrify -auto-orient FILE)',
    ),
    'name': Kind('warning', 'file name that is not UTF-8', 'rename the file'),
    # folders of classes
    'no-class-folders': Kind(
        'error', 'images are not in folders of classes', 'sort them into one folder per class'
    ),
    'class-empty': Kind('error', 'class without an image', 'fetch it again, or remove the folder'),
    'class-unknown': Kind('error', 'class that training does not have', 'remove or rename it'),
    'class-count': Kind(
        'error',
        'label beyond the classes of the model',
        "set model.head.num_classes, and labels='sorted' in the data sets for a part of ImageNet",
    ),
    'head-too-small': Kind(
        'error', 'fewer outputs of the model than classes', 'set num_classes of every head'
    ),
    'head-too-large': Kind(
        'warning',
        'more outputs of the model than classes',
        'set num_classes of every head; nothing, if the data set has a part of the classes',
    ),
    # label maps
    'label-missing': Kind(
        'error', 'image without a label map', 'add the .png, or remove the image'
    ),
    'label-alone': Kind('warning', 'label map without an image', 'nothing reads it: remove it'),
    'label-unreadable': Kind('error', 'label map cannot be decoded', 'fetch the file again'),
    'label-colour': Kind(
        'error',
        'label map in colours',
        'write one number per pixel, in an 8-bit PNG of one channel',
    ),
    'label-lossy': Kind(
        'error',
        'label map in a format that changes values',
        'write the original masks as PNG; what JPEG or WebP has blurred does not come back',
    ),
    'label-range': Kind(
        'error',
        'label out of range',
        'map it to a class or to 0, set the number of classes, or set ignore_index to it in heads '
        'and metrics',
    ),
    'label-unknown': Kind(
        'error',
        'label without a class',
        'one line in the config, ignore_index = N, reaches losses, metrics, data sets and padding',
    ),
    'class-absent': Kind(
        'note', 'class that never occurs', 'nothing, if you know; its score cannot be measured'
    ),
    'label-255': Kind('warning', 'label 255', 'nothing, if it means "ignore": that is how it acts'),
    'label-empty': Kind('warning', 'nothing labelled', 'remove the pair: it teaches nothing'),
    'label-size': Kind(
        'error', 'image and label map differ in size', 'fetch or make both again from one source'
    ),
    # COCO: the file
    'json': Kind('error', 'not a usable JSON file', 'unpack the annotations again'),
    'json-section': Kind('error', 'section missing or not a list', 'write the file again'),
    'json-record': Kind('error', 'record incomplete or of the wrong type', 'fix the record'),
    'duplicate-id': Kind('error', 'id used twice', 'give every record a unique id'),
    'duplicate-file': Kind('warning', 'image listed twice', 'merge the two records'),
    'no-annotations': Kind('error', 'no annotations at all', 'unpack the annotations again'),
    'class-missing': Kind(
        'error', 'class without a category', 'use the names of the file in metainfo.classes'
    ),
    'category-unused': Kind(
        'warning', 'category that is not a class', 'add it to metainfo.classes, or leave it out'
    ),
    # COCO: images
    'image-missing': Kind('error', 'listed image is missing', 'add the file, or remove its record'),
    'image-path': Kind('error', 'file name leaves the folder', 'use a name relative to the folder'),
    'image-size': Kind(
        'error', 'image is not of the recorded size', 'correct width and height, or the image'
    ),
    'image-empty': Kind('note', 'image without annotations', 'nothing: training leaves it out'),
    'image-unlisted': Kind('note', 'image that no record lists', 'nothing: it is not used'),
    # VQAv2
    'answer-missing': Kind('error', 'question without answers', 'unpack the annotations again'),
    # COCO: annotations
    'unknown-image': Kind('error', 'annotation of an unknown image', 'remove it, or add the image'),
    'unknown-category': Kind('error', 'annotation of an unknown category', 'add the category'),
    'box': Kind('error', 'box is not four finite numbers', 'write [x, y, width, height]'),
    'box-negative': Kind('error', 'box of negative size', 'write x, y, width, height, not corners'),
    # COCO 2017 itself has two of these in its training set; mmdet leaves them out.
    'box-empty': Kind('warning', 'box or outline without area', 'nothing: training leaves it out'),
    'box-outside': Kind('error', 'box outside the image', 'correct the box'),
    'box-overhang': Kind('warning', 'box reaches over the edge', 'clip it to the image'),
    'box-mismatch': Kind('warning', 'box does not fit its outline', 'compute it from the outline'),
    'area': Kind('error', 'area is not a positive number', 'compute it from the outline'),
    'segmentation': Kind('error', 'outline is not usable', 'write polygons or run lengths'),
    'segmentation-outside': Kind('error', 'outline outside the image', 'clip it to the image'),
}


def printable(text: str) -> str:
    r"""Return a text that any stream can take: ``b'\\xe9.jpg'`` becomes ``\\xe9.jpg``."""
    return os.fsencode(text).decode('utf-8', 'backslashreplace')


@dataclass(frozen=True)
class Problem:
    """One finding: ``file`` relative to the root, ``message`` naming the id where there is one."""

    kind: str
    file: str
    message: str

    @property
    def level(self) -> str:
        """'error', 'warning' or 'note'."""
        return KINDS[self.kind].level

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return KINDS[self.kind].remedy


@dataclass
class Report:
    """All that a check found in a data set ('ade20k', 'coco', ...)."""

    dataset: str
    root: Path
    quick: bool
    problems: list[Problem] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, file: str | Path, message: str) -> None:
        """Record a finding of one of the ``KINDS``."""
        if kind not in KINDS:
            raise KeyError(kind)
        self.problems.append(Problem(kind, printable(Path(file).as_posix()), printable(message)))

    def check_names(self, folder: Path, names: Iterable[str]) -> None:
        """Record every file name that is not UTF-8: logs and results cannot hold it as it is."""
        for name in names:
            if name != printable(name):
                self.add('name', folder / name, 'its name is not UTF-8')

    def of(self, level: str) -> list[Problem]:
        """Return the findings of a level."""
        return [problem for problem in self.problems if problem.level == level]

    @property
    def errors(self) -> list[Problem]:
        """What stops or spoils a run."""
        return self.of('error')

    @property
    def warnings(self) -> list[Problem]:
        """What may be a mistake."""
        return self.of('warning')

    @property
    def ok(self) -> bool:
        """Whether there are no errors."""
        return not self.errors

    def to_dict(self) -> dict:
        """Return everything as plain data for JSON."""
        return {
            'dataset': self.dataset,
            'root': str(self.root),
            'quick': self.quick,
            'ok': self.ok,
            'counts': self.counts,
            'problems': [
                {
                    'level': problem.level,
                    'kind': problem.kind,
                    'file': problem.file,
                    'message': problem.message,
                    'remedy': problem.remedy,
                }
                for problem in self.problems
            ],
        }

    def write_json(self, file: str | os.PathLike) -> None:
        """Write everything to ``file`` atomically.

        Raises:
            UserError: If it cannot be written.
        """
        write_json(file, self.to_dict())

    def text(self, examples: int = 5) -> str:
        """Return a summary: what was counted, then each kind of finding with a few examples."""
        form = 'quick check' if self.quick else 'full check'
        lines = [f'{self.dataset} at {printable(str(self.root))} ({form})']
        lines += [f'  {count:>9,}  {what}' for what, count in self.counts.items()]
        groups: dict[str, list[Problem]] = defaultdict(list)
        for problem in self.problems:
            groups[problem.kind].append(problem)
        for kind in sorted(groups, key=lambda kind: LEVELS.index(KINDS[kind].level)):
            found = groups[kind]
            lines.append(f'\n{KINDS[kind].level}: {KINDS[kind].title} ({kind}): {len(found):,}')
            lines += [f'  {problem.file}: {problem.message}' for problem in found[:examples]]
            if len(found) > examples:
                lines.append(f'  ... and {len(found) - examples:,} more')
            lines.append(f'  -> {KINDS[kind].remedy}')
        totals = {level: len(self.of(level)) for level in LEVELS}
        plural = [f'{n:,} {level}{"" if n == 1 else "s"}' for level, n in totals.items()]
        lines.append(f'\n{"fine" if self.ok else "not usable as it is"}: {", ".join(plural)}')
        return '\n'.join(lines)


def require_valid(report: Report) -> Report:
    """Return the report, or raise one message that names the first error and where to see all.

    Raises:
        UserError: If the report has errors.
    """
    if report.ok:
        return report
    first, *others = report.errors
    more = f' (and {len(others):,} more errors)' if others else ''
    where = '' if first.file == '.' else f'{first.file}: '
    raise UserError(
        f'data set {report.root}: {where}{first.message}{more}.\n'
        f'What to do: {first.remedy}.\n'
        f'To see everything: python tools/check_data.py --dataset {report.dataset} {report.root}'
    )
