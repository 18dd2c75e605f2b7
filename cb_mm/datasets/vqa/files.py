"""The files of VQAv2's release, by the names that they have there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...errors import MissingFile, UserError
from ...fileio.result_files import read_json

#: Parts with answers, and those without, whose images are COCO's test images.
SPLITS = ('train2014', 'val2014')
TEST_SPLITS = ('test-dev2015', 'test2015')
#: What the records must have.
_KEYS: dict[str, dict[str, type]] = {
    'questions': {'question_id': int, 'image_id': int, 'question': str},
    'annotations': {'question_id': int, 'answers': list, 'multiple_choice_answer': str},
}
_NAMES = {int: 'a number', str: 'a text', list: 'a list of {"answer": TEXT}'}
RELEASE = (
    'Get the questions and annotations of v2 from https://visualqa.org/download.html and unpack '
    'them in the data root.'
)


def questions_file(split: str) -> str:
    """Return the name of the questions of a part."""
    return f'v2_OpenEnded_mscoco_{split}_questions.json'


def annotations_file(split: str) -> str:
    """Return the name of the answers of a part."""
    return f'v2_mscoco_{split}_annotations.json'


def image_file(split: str, image_id: int) -> str:
    """Return the path of an image below the folder of the images."""
    part = 'test2015' if split in TEST_SPLITS else split
    return f'{part}/COCO_{part}_{image_id:012d}.jpg'


def read_records(root: str | Path, name: str, section: str) -> list[dict[str, Any]]:
    """Return the records of one file of the release.

    Args:
        root: The data root.
        name: The file.
        section: The key of the list, 'questions' or 'annotations'.

    Raises:
        UserError: The file is missing or has something else in it.
    """
    path = Path(root) / name
    if not path.is_file():
        raise MissingFile(f'{path} does not exist. {RELEASE}')
    try:
        content = read_json(path)
    except ValueError as error:
        raise UserError(f'{path} is not JSON: {error}. {RELEASE}') from error
    records = content.get(section) if isinstance(content, dict) else None
    if not isinstance(records, list) or not all(isinstance(one, dict) for one in records):
        raise UserError(f'{path} has no list "{section}". {RELEASE}')
    for place, record in enumerate(records):
        for key, kind in _KEYS[section].items():
            if key not in record:
                raise UserError(f'{path}: record {place} of "{section}" has no "{key}".')
            if not isinstance(record[key], kind) or (kind is list and not _texts(record[key])):
                raise UserError(
                    f'{path}: record {place} of "{section}" has something else as its "{key}" than '
                    f'{_NAMES[kind]}. {RELEASE}'
                )
    return records


def _texts(answers: list) -> bool:
    return all(isinstance(one, dict) and isinstance(one.get('answer'), str) for one in answers)
