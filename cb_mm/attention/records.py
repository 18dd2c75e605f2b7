"""``images.jsonl``: what was measured, one line per image and model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmengine.config import Config
from torch import nn

from ..checkpoints.match import weights_digest
from ..compat import families as family
from ..config.loading import load_config
from ..fileio.digests import content_digest, value_digest
from ..fileio.json_lines import RecordFile
from ..fileio.json_shape import ListOf, MapOf, mismatch
from ..fileio.safe_text import readable
from .layer_statistics import MEANINGS
from .subject import Subject
from .summary import ModelSummary

_NUMBER = (float, None)
_LAYER = {
    'index': int, 'name': str, 'whole': MapOf(_NUMBER), 'heads': MapOf(ListOf(_NUMBER)),
}  # fmt: skip
_RECORD = {
    'image': str, 'content': str, 'model': str, 'grid': ListOf(int), 'prefix': ListOf(str),
    'bound': float, 'layers': ListOf(_LAYER),
}  # fmt: skip


def file_name(file: Path) -> str:
    """Return what a file is called in records."""
    return readable(str(file))


class ImageRecords(RecordFile):
    """Earlier records, added to the summaries, and the records of this run.

    Args:
        path: The file.
        identity: What is measured.
        summaries: Of each model, by name.
        files: The requested images; records of others are kept, but do not count.
        overwrite: Start from scratch, whatever the file holds.
    """

    def __init__(
        self,
        path: Path,
        identity: Mapping[str, Any],
        summaries: Mapping[str, ModelSummary],
        files: Sequence[Path],
        overwrite: bool = False,
    ) -> None:
        self._summaries = summaries
        self._files = {file_name(file): file for file in files}
        self._content: dict[str, str] = {}
        self._layouts: dict[str, Any] = {}
        advice = 'Pass another `out`, or replace what is there with `overwrite`'
        super().__init__(
            path,
            identity,
            key=('image', 'model'),
            take=self._take_in,
            overwrite=overwrite,
            advice=advice,
        )

    def content(self, name: str) -> str:
        """Return the digest of an image file that is asked for; empty where it cannot be read."""
        if name not in self._content:
            try:
                self._content[name] = content_digest(self._files[name])
            except OSError:
                self._content[name] = ''
        return self._content[name]

    def _take_in(self, record: dict[str, Any]) -> str | None:
        wrong = mismatch(record, _RECORD)
        if wrong is None and (record['model'] not in self._summaries or len(record['grid']) != 2):
            wrong = 'it is not of a model of this run'
        if wrong is None:
            layout = _layout(record)
            if not layout or layout != self._layouts.setdefault(record['model'], layout):
                wrong = 'it has different layers, heads or measures than the lines before it'
        if wrong is None and record['image'] in self._files:
            if record['content'] != self.content(record['image']):
                return f'{record["image"]} has changed since it was measured'
            self._summaries[record['model']].add(record)
        return wrong


def _layout(record: Mapping[str, Any]) -> list:
    """Return what two records must agree in for their mean to mean anything."""
    return [
        [
            layer['index'],
            layer['name'],
            sorted(layer['whole']),
            {name: len(values) for name, values in layer['heads'].items()},
        ]
        for layer in record['layers']
    ]


def identity_of(
    sources: Sequence[Any],
    subjects: Sequence[Subject],
    size: Sequence[int] | None,
    percentiles: Sequence[float],
) -> dict[str, Any]:
    """Return everything but the images that a figure depends on."""
    return {
        'models': {
            f'model {subject.name}': value_digest(
                [
                    _architecture(source),
                    weights_digest(subject.model),
                    subject.mean,
                    subject.std,
                    subject.to_rgb,
                    subject.size,
                ]
            )
            for source, subject in zip(sources, subjects, strict=True)
        },
        'size': size,
        'percentiles': [float(percent) for percent in percentiles],
        'measures': list(MEANINGS),
        'device': next(subjects[0].model.parameters()).device.type,
        'software': family.software_versions(),
    }


def _architecture(source: Any) -> Any:
    """Return the model of a config, the name of a timm model, or a built model as text."""
    if isinstance(source, nn.Module):
        return repr(source)
    if isinstance(source, Config) or Path(source).is_file():
        return load_config(source).get('model')
    return source
