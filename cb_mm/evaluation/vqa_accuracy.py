"""The accuracy of VQAv2, and the file of answers that its server takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmengine.evaluator import BaseMetric
from mmengine.registry import METRICS

from ..datasets.vqa.answers import answer_accuracy
from ..fileio.result_files import write_json


@METRICS.register_module()
class VQAv2Accuracy(BaseMetric):
    """VQA accuracy in per cent: of all questions, and by type of the answer.

    Args:
        out_file: Also write the answers there, as a JSON list that the server of VQAv2 takes. For
            parts without public answers (test-dev) that is all; the figure is then the number of
            questions.
        **kwargs: As in mmengine's BaseMetric.
    """

    default_prefix = 'vqa'

    def __init__(self, out_file: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.out_file = out_file

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Keep the model's answer and those of people to every question of a batch."""
        keys = ('question_id', 'answers', 'answer_type')
        for sample in data_samples:
            kept = {key: sample[key] for key in keys}
            self.results.append({**kept, 'label': int(sample['pred_label'])})

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Return per cent; without answers to compare with, the number of questions."""
        vocabulary = (self.dataset_meta or {}).get('classes') or ()
        # An output that no answer belongs to is a wrong answer.
        found = [
            (one, str(vocabulary[one['label']]) if one['label'] < len(vocabulary) else None)
            for one in results
        ]
        if self.out_file is not None:
            answers = [
                {'question_id': one['question_id'], 'answer': said or ''} for one, said in found
            ]
            write_json(Path(self.out_file), answers)
        scores = [
            (one, 0.0 if said is None else answer_accuracy(said, one['answers']))
            for one, said in found
            if one['answers']
        ]
        if not scores:
            return {'questions': float(len(found))}
        figures = {'accuracy': _percent([score for _, score in scores])}
        for kind in ('yes/no', 'number', 'other'):
            of_kind = [score for one, score in scores if one['answer_type'] == kind]
            if of_kind:
                figures[kind.replace('/', '_')] = _percent(of_kind)
        return figures


def _percent(values: Sequence[float]) -> float:
    return 100 * sum(values) / len(values)
