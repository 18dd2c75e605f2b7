"""Prediction on many inputs, one after another: nothing is kept in memory but the batch at hand."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

from ..corruption import Cell, cells_for
from ..engine.failures import explained
from ..engine.signals import Stopped, StopRequest, stop_on_signals
from ..errors import UserError
from ..fileio.atomic import draft_of
from ..fileio.images import require_all_read
from ..fileio.json_lines import RecordFile
from ..fileio.result_files import plain
from .files import PredictionFiles
from .inputs import Input, Video, find_inputs, name_for
from .options import PredictionOptions
from .pipeline import Loaded, PredictionPipeline
from .records import RECORDS, result_record
from .results import Result
from .sheets import Look, Panel
from .subject import Predictor, load_predictor


@dataclass
class _Work:
    """One image or frame on its way through the model, under every corruption."""

    source: str
    name: str
    loaded: list[Loaded]
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.loaded[0].sample['inputs'].shape)


def run_prediction(options: PredictionOptions, console: TextIO | None = None) -> Predictor:
    """Predict on everything and write the results into ``options.out``.

    Args:
        options: What to do.
        console: Where to show progress; None for nowhere.

    Raises:
        UserError: Also when some inputs could not be read; all others are finished before that.
        Stopped: A signal asked for the end; what is finished is written.
    """
    options.check()
    cells = cells_for(None, options.corruptions, options.severity)
    inputs = find_inputs(options.inputs)
    predictor = load_predictor(
        options.source,
        options.checkpoint,
        config=options.config,
        cfg_options=options.cfg_options,
        device=options.device,
        normalization=options.normalization,
        trust=options.trust,
        allow_mismatch=options.allow_mismatch,
    )
    _Run(options, cells, predictor, console).run(inputs)
    return predictor


class _Run:
    def __init__(
        self,
        options: PredictionOptions,
        cells: Sequence[Cell],
        predictor: Predictor,
        console: TextIO | None,
    ) -> None:
        self.options, self.cells, self.predictor = options, cells, predictor
        self.out, self.console = Path(options.out), console
        look = Look(predictor.style, options.opacity, options.score, options.side_by_side)
        self.files = PredictionFiles(self.out, [cell.key for cell in cells], look)
        self.pipelines = [
            PredictionPipeline(predictor.config, cell, options.seed) for cell in cells
        ]
        self.done: dict[str, dict[str, Any]] = {}
        self.names: set[str] = set()
        self.unread: list[str] = []
        self.left = options.limit

    def run(self, inputs: Sequence[Input]) -> None:
        with self._records() as records, stop_on_signals() as stop:
            inputs = [one for one in inputs if not self._is_done(one)]
            bar = tqdm(
                total=None if any(one.kind != 'image' for one in inputs) else len(inputs),
                desc='images', unit='image', file=self.console,
                disable=True if self.console is None else None,
            )  # fmt: skip
            kept = 'What was finished is kept; `resume` continues.'
            with (
                bar,
                explained(
                    self.predictor.config,
                    loader='test_dataloader',
                    after=lambda: kept,
                    folder=self.out,
                ),
            ):
                for is_image, some in itertools.groupby(inputs, lambda one: one.kind == 'image'):
                    if is_image:
                        self._images(list(some), records, bar, stop)
                    else:
                        for one in some:
                            self._video(one, records, bar, stop)
                    if stop.number or self.left == 0:
                        break
            if len(records):
                self.files.write_tables(self.predictor.config)
            if stop.number:
                raise Stopped(stop.number)
        require_all_read(self.unread, 'all other inputs were predicted')

    def _records(self) -> RecordFile:
        file, options = self.out / RECORDS, self.options
        there = file.is_file() and file.stat().st_size > 0
        if there and not (options.resume or options.overwrite):
            raise UserError(
                f'{self.out} holds predictions. Pass `resume` to skip what is finished, '
                '`overwrite` to replace them, or another `out`.'
            )
        identity = {
            **self.predictor.identity,
            'corruptions': [cell.key for cell in self.cells],
            'seed': options.seed,
            'opacity': options.opacity,
            'score': options.score,
            'side_by_side': options.side_by_side,
        }

        def take(record: dict[str, Any]) -> str | None:
            self.done[record['key']] = record
            self.names.add(str(record.get('name')).casefold())
            return None

        return RecordFile(
            file, identity, take=take, overwrite=options.overwrite,
            advice='Pass `overwrite`, or another `out`',
        )  # fmt: skip

    def _is_done(self, one: Input) -> bool:
        record = self.done.get(one.key)
        if record is not None and record.get('content') != one.content:
            raise UserError(
                f'{one.source} has changed since it was predicted. Pass `overwrite`, or another '
                '`out`.'
            )
        return record is not None

    def _take_name(self, one: Input) -> str:
        name = name_for(one, self.names)
        self.names.add(name.casefold())
        return name

    def _load(self, source: Any, name: str, number: int = 0) -> list[Loaded]:
        return [pipeline.load(source, name, number) for pipeline in self.pipelines]

    def _images(
        self, inputs: Sequence[Input], records: RecordFile, bar: tqdm, stop: StopRequest
    ) -> None:
        def loaded() -> Iterator[_Work]:
            for one in inputs:
                if stop.number or self.left == 0:
                    return
                try:
                    images = self._load(one.source, one.source)
                except UserError as error:
                    self.unread.append(str(error))
                    bar.update(1)
                    continue
                self._count()
                about = {'key': one.key, 'content': one.content}
                yield _Work(one.source, self._take_name(one), images, about)

        for works in batches(loaded(), self.options.batch_size):
            for work, results in zip(works, self._predict(works), strict=True):
                panels = self._panels(work, results)
                files = self.files.write_image(work.name, panels)
                records.append({**work.more, **self._record(work, panels), 'files': files})
                bar.update(1)

    def _video(self, one: Input, records: RecordFile, bar: tqdm, stop: StopRequest) -> None:
        """Write a video with its frames' records; all of it, or up to the moment it is stopped."""
        try:
            video = Video(one)
        except UserError as error:
            if one.kind == 'camera':
                raise
            self.unread.append(str(error))
            return
        name = self._take_name(one)
        lines = self.out / 'videos' / f'{name}.jsonl'

        def loaded() -> Iterator[_Work]:
            for number, frame in enumerate(video):
                if stop.number or self.left == 0:
                    return
                self._count()
                work = _Work(one.source, name, self._load(frame, f'{name}/{number:06d}', number))
                work.more = {'frame': number, 'seconds': number / video.rate}
                yield work

        count, whole = 0, False
        with video, draft_of(lines) as draft, draft.open('w', encoding='utf-8') as stream:
            writers = self.files.videos(name, video.rate)
            try:
                for works in batches(loaded(), self.options.batch_size):
                    for work, results in zip(works, self._predict(works), strict=True):
                        panels = self._panels(work, results)
                        for writer, picture in zip(writers, self.files.draw(panels), strict=True):
                            writer.write(picture)
                        line = {**work.more, **self._record(work, panels)}
                        stream.write(json.dumps(plain(line), ensure_ascii=False) + '\n')
                        count += 1
                        bar.update(1)
                # A file that is not finished is predicted again; a camera ends with the signal.
                whole = count > 0 and (not stop.number or one.kind == 'camera')
            finally:
                for writer in writers:
                    writer.close(keep=whole)
            files = [str(writer.path.relative_to(self.out)) for writer in writers]
        if not whole:
            lines.unlink()
            if not stop.number:
                self.unread.append(f'video {one.source} has no frame that can be read.')
            return
        records.append(
            {
                'key': one.key, 'source': one.source, 'name': name, 'content': one.content,
                'frames': str(lines.relative_to(self.out)), 'count': count, 'files': files,
            }
        )  # fmt: skip

    def _count(self) -> None:
        if self.left is not None:
            self.left -= 1

    def _predict(self, works: Sequence[_Work]) -> Iterator[list[Result]]:
        """Yield the results of each work, by corruption."""
        by_cell = [
            self.predictor.run([work.loaded[place].sample for work in works])
            for place in range(len(self.cells))
        ]
        for results in zip(*by_cell, strict=True):
            yield list(results)

    def _panels(self, work: _Work, results: Sequence[Result]) -> list[Panel]:
        return [
            Panel(cell.label, loaded.image, result)
            for cell, loaded, result in zip(self.cells, work.loaded, results, strict=True)
        ]

    def _record(self, work: _Work, panels: Sequence[Panel]) -> dict[str, Any]:
        return {
            'source': work.source,
            'name': work.name,
            'size': list(panels[0].image.shape[:2]),
            'results': [
                result_record(panel.result, cell.key)
                for cell, panel in zip(self.cells, panels, strict=True)
            ],
        }


def batches(works: Iterable[_Work], size: int) -> Iterator[list[_Work]]:
    """Yield consecutive works together whose inputs have the same size, at most ``size``.

    Images of different sizes would have to be padded, which changes predictions.
    """
    batch: list[_Work] = []
    for work in works:
        if batch and (len(batch) == size or work.shape != batch[0].shape):
            yield batch
            batch = []
        batch.append(work)
    if batch:
        yield batch
