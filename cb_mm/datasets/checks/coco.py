"""Checks of a data set in the layout of COCO 2017 with instance annotations."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...fileio.folders import list_files
from .coco_records import check_annotation_record, check_category_record, check_image_record
from .files import Progress, ReadResult, data_root, inspect_image, run_all, turned_apart
from .files import sample as sample_of
from .findings import COCO_ARCHIVES, Report

SPLITS = ('train2017', 'val2017')

#: The quick form reads annotation files up to this size; COCO's own training file takes a while.
QUICK_JSON_BYTES = 8_000_000


def check_coco(
    root: str | os.PathLike,
    quick: bool = False,
    splits: Sequence[str] = SPLITS,
    classes: Sequence[str] | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
) -> Report:
    """Check layout, annotation files, their agreement with the images, and the images.

    Args:
        root: The folder with ``annotations``, ``train2017`` and ``val2017``.
        quick: Read only a few images, and annotation files only when they are small.
        splits: The parts to look at: a test needs no training images.
        classes: Names that must be among the categories: those a detector is trained for.
        progress: Wraps the loop over images: called with an iterable and its length.
        workers: Number of decoding threads; by default one per processor.

    Raises:
        UserError: If ``root`` is not a folder.
    """
    root = data_root(root)
    report = Report('coco', root, quick)
    if not _misplaced(root, report, splits):
        for split in splits:
            _check_split(root, split, classes, report, progress, workers)
    return report


def _misplaced(root: Path, report: Report, splits: Sequence[str]) -> bool:
    """Report if ``root`` is the wrong folder or data set; return whether it is."""

    def has_layout(folder: Path) -> bool:
        return any((folder / f'annotations/instances_{split}.json').is_file() for split in splits)

    if has_layout(root):
        return False
    if (root / 'images/training').is_dir() and (root / 'annotations/training').is_dir():
        report.add('other-data-set', '.', 'this folder is in the layout of ADE20K, not of COCO')
        return True
    folders = sorted(path for path in root.iterdir() if path.is_dir())
    nearby = [path for path in (*folders, *root.parents[:2]) if has_layout(path)]
    if nearby:
        report.add('wrong-folder', '.', f'the data set is in {nearby[0]}, not in {root}')
    return bool(nearby)


def _check_split(
    root: Path,
    split: str,
    classes: Sequence[str] | None,
    report: Report,
    progress: Progress | None,
    workers: int | None,
) -> None:
    file = f'annotations/instances_{split}.json'
    if not (root / file).is_file():
        report.add('missing-file', file, f'the file does not exist; {COCO_ARCHIVES}')
    if not (root / split).is_dir():
        report.add('missing-folder', split, f'the folder does not exist; {COCO_ARCHIVES}')
        return
    present = list_files(root / split)
    report.check_names(Path(split), present)
    report.counts[f'{split} image files'] = len(present)
    if not present:
        report.add('no-images', split, 'the folder is empty')
    images: dict[int, dict] = {}
    if (root / file).is_file():
        if report.quick and (root / file).stat().st_size > QUICK_JSON_BYTES:
            _glance(root, file, report)
        else:
            images = check_document(root, file, split, classes, report)
    names = set(present)
    if images:
        records = [record for record in images.values() if record['file_name'] in names]
        for record in images.values():
            if record['file_name'] not in names:
                message = f'image {record["id"]}: the file does not exist'
                report.add('image-missing', Path(split, record['file_name']), message)
        for name in sorted(names - {record['file_name'] for record in images.values()}):
            report.add('image-unlisted', Path(split, name), f'is not in {file}')
    else:
        records = [{'file_name': name} for name in present]
    _check_images(root, split, records, report, progress, workers)


def _check_images(
    root: Path,
    split: str,
    records: list[dict],
    report: Report,
    progress: Progress | None,
    workers: int | None,
) -> None:
    """Decode images and compare them with the size in their records, if given."""
    chosen = sample_of(records) if report.quick else records
    report.counts[f'{split} images read'] = len(chosen)

    def read(record: dict) -> ReadResult:
        return inspect_image(root / split / record['file_name'])

    for record, facts in zip(chosen, run_all(read, chosen, progress, workers), strict=True):
        file = Path(split, record['file_name'])
        for kind, message in facts.findings:
            report.add(kind, file, message)
        stated: Any = (record.get('width'), record.get('height'))
        if turned_apart(facts, stated if None not in stated else None):
            report.add('orientation', file, f'has the EXIF orientation {facts.orientation}')
        elif facts.size and None not in stated and facts.size != stated:
            report.add(
                'image-size',
                file,
                f'image {record["id"]}: is {facts.size[0]}x{facts.size[1]}, '
                f'the annotations say {stated[0]}x{stated[1]}',
            )


def _glance(root: Path, file: str, report: Report) -> None:
    """Return whether a large JSON file has both its ends."""
    with open(root / file, 'rb') as stream:
        start = stream.read(64).lstrip(b'\xef\xbb\xbf \t\r\n')
        stream.seek(-64, os.SEEK_END)
        end = stream.read().rstrip()
    if not start.startswith(b'{') or not end.endswith(b'}'):
        report.add('json', file, 'does not start and end as an object: it is cut short or not JSON')


def check_document(
    root: Path, file: str, split: str, classes: Sequence[str] | None, report: Report
) -> dict[int, dict]:
    """Check an annotation file and return its valid image records by id.

    Args:
        root: Folder that ``file`` is relative to.
        file: The annotations.
        split: Of the counts in the report.
        classes: Names that must be among the categories.
        report: Takes the findings.
    """
    try:
        document = json.loads((root / file).read_bytes())
    except (ValueError, RecursionError) as error:
        report.add('json', file, f'is not JSON: {error}')
        return {}
    except OSError as error:
        report.add('json', file, f'cannot be read: {error.strerror}')
        return {}
    if not isinstance(document, dict):
        report.add('json', file, f'holds a {type(document).__name__}, not an object')
        return {}
    sections: dict[str, list] = {}
    for name in ('images', 'annotations', 'categories'):
        section = document.get(name)
        if not isinstance(section, list):
            report.add('json-section', file, f'"{name}" is missing or not a list')
            section = []
        sections[name] = section
        report.counts[f'{split} {name}'] = len(section)
    images = _sound_images(sections['images'], file, report)
    categories = _sound_categories(sections['categories'], file, classes, report)
    _check_annotations(sections['annotations'], images, categories, file, split, report)
    if not sections['annotations'] and isinstance(document.get('annotations'), list):
        report.add('no-annotations', file, 'the list of annotations is empty')
    return images


def _sound_images(records: list, file: str, report: Report) -> dict[int, dict]:
    images: dict[int, dict] = {}
    names: set[str] = set()
    for record in records:
        findings = list(check_image_record(record))
        for kind, message in findings:
            report.add(kind, file, message)
        if findings:
            continue
        if record['id'] in images:
            report.add('duplicate-id', file, f'image id {record["id"]} is used twice')
            continue
        if record['file_name'] in names:
            message = f'image {record["id"]}: {record["file_name"]} is listed before'
            report.add('duplicate-file', file, message)
        names.add(record['file_name'])
        images[record['id']] = record
    return images


def _sound_categories(
    records: list, file: str, classes: Sequence[str] | None, report: Report
) -> set[int]:
    found: dict[int, str] = {}
    for record in records:
        findings = list(check_category_record(record))
        for kind, message in findings:
            report.add(kind, file, message)
        if findings:
            continue
        if record['id'] in found or record['name'] in found.values():
            message = f'category {record["id"]} {record["name"]!r}: id or name is used twice'
            report.add('duplicate-id', file, message)
        found[record['id']] = record['name']
    for name in classes or ():
        if name not in found.values():
            report.add('class-missing', file, f'there is no category named {name!r}')
    return set(found)


def _check_annotations(
    records: list[Any],
    images: dict[int, dict],
    categories: set[int],
    file: str,
    split: str,
    report: Report,
) -> None:
    seen: set[int] = set()
    annotated: set[int] = set()
    for record in records:
        for kind, message in check_annotation_record(record, images, categories):
            report.add(kind, file, message)
        if not isinstance(record, dict):
            continue
        number, image = record.get('id'), record.get('image_id')
        if isinstance(number, int):
            if number in seen:
                report.add('duplicate-id', file, f'annotation id {number} is used twice')
            seen.add(number)
        if isinstance(image, int):
            annotated.add(image)
    for number, record in images.items():
        if number not in annotated:
            message = f'image {number} has no annotation'
            report.add('image-empty', Path(split, record['file_name']), message)
