"""Checks of VQAv2: questions, answers and images belong together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ...errors import UserError
from ..vqa import files
from .files import Progress, ReadResult, data_root, inspect_image, run_all
from .files import sample as sample_of
from .findings import Report

SPLITS = files.SPLITS

#: questions in the full release
FULL_COUNTS = {'train2014': 443_757, 'val2014': 214_354}


def check_vqav2(
    root: str | os.PathLike,
    quick: bool = False,
    splits: Sequence[str] = SPLITS,
    progress: Progress | None = None,
    workers: int | None = None,
) -> Report:
    """Check that every question has answers and an image that can be read.

    Args:
        root: The folder with the JSON files and the folders of images.
        quick: Read only a few images.
        splits: The parts to look at; of those without public answers, only the questions.
        progress: Wraps the loop over images: called with an iterable and its length.
        workers: Number of decoding threads; by default one per processor.

    Raises:
        UserError: If ``root`` is not a folder.
    """
    root = data_root(root)
    report = Report('vqav2', root, quick)
    for split in splits:
        images = _check_questions(root, split, report)
        chosen = sample_of(images) if quick else images
        report.counts[f'{split} images read'] = len(chosen)

        def read(file: str) -> ReadResult:
            return inspect_image(root / file)

        for file, facts in zip(chosen, run_all(read, chosen, progress, workers), strict=True):
            for kind, message in facts.findings:
                report.add(kind, Path(file), message)
    return report


def _check_questions(root: Path, split: str, report: Report) -> list[str]:
    """Return the images that are there."""
    name, answers_name = files.questions_file(split), files.annotations_file(split)
    try:
        questions = files.read_records(root, name, 'questions')
    except UserError as error:
        report.add('json' if (root / name).is_file() else 'missing-file', Path(name), str(error))
        return []
    report.counts[f'{split} questions'] = len(questions)
    if len(questions) != FULL_COUNTS.get(split, len(questions)):
        report.add('count', Path(name), f'{len(questions):,} of {FULL_COUNTS[split]:,} questions')
    if split in SPLITS:
        try:
            answered = {
                record['question_id']
                for record in files.read_records(root, answers_name, 'annotations')
            }
        except UserError as error:
            kind = 'json' if (root / answers_name).is_file() else 'missing-file'
            report.add(kind, Path(answers_name), str(error))
        else:
            for record in questions:
                if record['question_id'] not in answered:
                    number = record['question_id']
                    report.add('answer-missing', Path(answers_name), f'question {number}')
    images = sorted({files.image_file(split, record['image_id']) for record in questions})
    present = [file for file in images if (root / file).is_file()]
    for file in sorted(set(images) - set(present)):
        report.add('image-missing', Path(file), f'{name} asks about it')
    return present
