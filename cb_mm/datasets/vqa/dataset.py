"""VQAv2 in the layout of its release, as a data set of mmengine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS

from ...errors import UserError
from . import files
from .answers import MIN_COUNT, build_vocabulary, read_vocabulary, soft_targets


@DATASETS.register_module()
class VQAv2Dataset(BaseDataset):
    """Questions about images of COCO, each with the answers of ten people.

    ``data_root`` holds ``v2_OpenEnded_mscoco_{split}_questions.json`` and
    ``v2_mscoco_{split}_annotations.json``, and the folders ``train2014``, ``val2014`` and
    ``test2015`` of images. ``metainfo['classes']`` are the answers that a model may give.

    Args:
        data_root: The folder of the data set.
        split: 'train2014', 'val2014', several of them, or 'test-dev2015' and 'test2015', which
            have no answers.
        answers: A file with the answers that a model may give; see `read_vocabulary`. By default
            they are the most frequent answers of training and validation questions.
        min_count: By default an answer must be that of at least so many questions: 3,129 are.
        vocabulary_splits: Parts whose annotations the vocabulary is built from.
        answerable_only: Leave out questions whose answers are all outside the vocabulary: they
            teach nothing. For training; a test counts them.
        data_prefix: ``img_path``, the folder of ``train2014`` and so on, if it is another one.
        **kwargs: As in mmengine's BaseDataset.
    """

    def __init__(
        self,
        data_root: str = '',
        split: str | Sequence[str] = 'train2014',
        answers: str | None = None,
        min_count: int = MIN_COUNT,
        vocabulary_splits: Sequence[str] = files.SPLITS,
        answerable_only: bool = False,
        data_prefix: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        self.splits = [split] if isinstance(split, str) else list(split)
        unknown = [one for one in self.splits if one not in (*files.SPLITS, *files.TEST_SPLITS)]
        if unknown or not self.splits:
            raise UserError(
                f'split={split!r}: VQAv2 has {", ".join((*files.SPLITS, *files.TEST_SPLITS))}.'
            )
        self.answerable_only = answerable_only
        if answers is not None:
            self.vocabulary = read_vocabulary(answers)
        else:
            frequent = [
                record['multiple_choice_answer']
                for part in vocabulary_splits
                for record in files.read_records(
                    data_root, files.annotations_file(part), 'annotations'
                )
            ]
            self.vocabulary = build_vocabulary(frequent, min_count)
        if not self.vocabulary:
            raise UserError(
                f'no answer of {data_root} is that of {min_count} questions. Set min_count, or '
                'name a file of answers.'
            )
        super().__init__(
            data_root=data_root,
            data_prefix=data_prefix or dict(img_path=''),
            metainfo=dict(classes=tuple(self.vocabulary)),
            **kwargs,
        )

    def load_data_list(self) -> list[dict[str, Any]]:
        """Return one dict per question; ``answers`` and the targets are empty for a test part."""
        number_of = {answer: number for number, answer in enumerate(self.vocabulary)}
        folder = Path(self.data_prefix['img_path'] or self.data_root)
        found = []
        for split in self.splits:
            records = files.read_records(self.data_root, files.questions_file(split), 'questions')
            given: dict[int, dict[str, Any]] = {}
            if split in files.SPLITS:
                name = files.annotations_file(split)
                annotations = files.read_records(self.data_root, name, 'annotations')
                given = {one['question_id']: one for one in annotations}
            for record in records:
                number = record['question_id']
                if given and number not in given:
                    raise UserError(
                        f'{files.annotations_file(split)} of {self.data_root} has no answers to '
                        f'question {number}. {files.RELEASE}'
                    )
                annotation = given.get(number, {})
                answers = [one['answer'] for one in annotation.get('answers', ())]
                targets = soft_targets(answers, number_of)
                if self.answerable_only and not targets:
                    continue
                found.append(
                    dict(
                        img_path=str(folder / files.image_file(split, record['image_id'])),
                        question=record['question'],
                        question_id=number,
                        answers=answers,
                        answer_type=annotation.get('answer_type', ''),
                        answer_labels=list(targets),
                        answer_scores=list(targets.values()),
                    )
                )
        return found
