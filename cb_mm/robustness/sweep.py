"""Test a model on clean and corrupted images, and never lose a result.

The model is built and loaded once. Every finished pass is on disk before the next one starts, and
the same call resumes where it was stopped.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TextIO

import torch
from mmengine.config import Config
from mmengine.dist import (
    all_gather_object,
    broadcast_object_list,
    get_world_size,
    is_main_process,
)
from mmengine.evaluator import BaseMetric

from ..checkpoints.match import weights_digest
from ..checkpoints.normalization import set_normalization
from ..checkpoints.sources import source_digest
from ..compat import families as family
from ..config.explain import explaining_build_errors
from ..config.loading import replace_sync_bn
from ..corruption.frost_pictures import FrostPictures
from ..engine.acceleration import compile_parts, use_channels_last
from ..engine.failures import explained
from ..engine.optim.precision import Precision, choose_precision
from ..engine.processes import failing_together, joined_processes
from ..engine.signals import Stopped, stop_on_signals
from ..engine.training import check_data, prepare_config
from ..errors import UserError
from ..fileio.figures import check_formats
from ..fileio.result_files import read_json
from .attacks.catalogue import AttackSettings, check_model
from .comparison import check_comparable
from .console_log import QuietLog, quiet_console
from .extra_metrics import add_extra_metrics, check_names
from .identity import sweep_identity
from .jobs import AttackCell, Job, plan_cells, plan_jobs
from .page import write_page
from .passes import follow, lead
from .records import SweepRecords
from .report import write_report
from .results_file import read_compared
from .sweep_options import SweepOptions
from .tester import ModelUnderTest
from .worst_images import draw_worst_images, read_worst_images


@dataclass
class _Plan:
    """The validated request."""

    jobs: list[Job]
    other: Mapping[str, Any] | None
    reference: Mapping[str, Any] | None
    checkpoint: str
    config: Config = field(repr=False)
    precision: Precision | None
    metrics: Sequence[BaseMetric] | None


def sweep(options: SweepOptions, console: TextIO | None = None) -> Path | None:
    """Test, write a report, and return the folder of the results; None beside the main process.

    Args:
        options: What to test.
        console: Where to print progress; None for nowhere.

    Raises:
        Stopped: a signal asked for the end; there is a report of what is finished.
    """
    jobs, precision = _validate(options)
    with explaining_build_errors(options.name):
        config = prepare_config(options, test_set=options.test_set)
    with joined_processes(config):
        main = is_main_process()
        with failing_together():
            plan = _read(options, config, jobs, precision)
        with quiet_console(keep=main, console=console if main else None) as (log, _):
            with failing_together():
                tester = _build(options, plan)
                seed = options.seed or 0
                identity = sweep_identity(plan.config, plan.checkpoint, tester, plan.jobs, seed)
                if folder := _frost_folder(options, plan):
                    identity['frost_pictures'] = FrostPictures(folder).digest
                for name, read in (('compare', plan.other), ('reference', plan.reference)):
                    if read is not None:
                        check_comparable(identity, tester.dataset.metainfo, read, name)
            _require_same(identity)
            out = Path(options.out or _default_folder(plan.config, options, identity))
            if main:
                about = _about(plan.config, options, tester)
                _run(options, plan, tester, _records(out, identity, about, plan), log, console)
            else:
                with stop_on_signals() as stop:
                    follow(tester, stop)
    return out if main else None


def _require_same(identity: Mapping[str, Any]) -> None:
    """Refuse processes that would test something else: their disks may not be shared."""
    first, *others = all_gather_object(identity)
    for rank, one in enumerate(others, 1):
        differing = [name for name in {**first, **one} if one.get(name) != first.get(name)]
        if differing:
            raise UserError(
                f'process {rank} would test something else than process 0: {", ".join(differing)} '
                'differ. Machines whose disks are not shared need the same checkpoint, config and '
                'data.'
            )


def _validate(options: SweepOptions) -> tuple[list[Job], Precision | None]:
    """Refuse what cannot be tested, before anything is read."""
    settings = AttackSettings(
        **{one.name: getattr(options, one.name) for one in fields(AttackSettings)}
    )
    cells = plan_cells(
        options.suite,
        options.corruption,
        options.severity,
        options.fgsm,
        options.attacks,
        settings,
    )
    jobs = plan_jobs(cells, options.repeats)
    if options.frost_pictures is not None and all(cell.name != 'frost' for cell in cells):
        raise UserError('`frost_pictures` has no use: no frost is tested.')
    if options.limit is not None and options.limit < 1:
        raise UserError(f'`limit` {options.limit}: at least one image is needed.')
    if options.cache_mb < 0:
        raise UserError(f'`cache_mb` {options.cache_mb} is negative; 0 keeps nothing in memory.')
    for name in ('fgsm', 'attacks'):
        if getattr(options, name) and options.data_loader is not None:
            raise UserError(f'`{name}` needs the config of the data loader, not a built one.')
    check_formats(options.formats)
    check_names(options.extra_metrics)
    precision = choose_precision(options.precision, options.amp)
    if not (math.isfinite(options.detect) and options.detect > 0):
        raise UserError(f'`detect` {options.detect:g}: a difference in points, above 0, is needed.')
    return jobs, precision


def _read(
    options: SweepOptions, config: Config, jobs: list[Job], precision: Precision | None
) -> _Plan:
    """Refuse files that cannot be used, before anything is built; other machines have others."""
    if options.frost_pictures is not None:
        FrostPictures(options.frost_pictures)
    other = read_compared(options.compare) if options.compare else None
    reference = read_compared(options.reference, 'reference') if options.reference else None
    checkpoint = _weights(options)
    with explaining_build_errors(config):
        if options.checkpoint is not None and (options.model is None or options.normalization):
            set_normalization(
                config, options.normalization, str(options.checkpoint), options.trust_checkpoint
            )
        metrics = add_extra_metrics(config, options.metrics, options.extra_metrics)
        replace_sync_bn(config)  # it needs several GPUs, and in testing it does what BN does
        if options.data_loader is None:
            check_data(config, ['test'])
    return _Plan(jobs, other, reference, checkpoint, config, precision, metrics)


def _weights(options: SweepOptions) -> str:
    """Return the digest of the checkpoint, or of the weights that a built model has."""
    if options.checkpoint is None and options.model is not None:
        return weights_digest(options.model)
    return source_digest(options.checkpoint)


def _build(options: SweepOptions, plan: _Plan) -> ModelUnderTest:
    attacks = {job.cell.name: None for job in plan.jobs if isinstance(job.cell, AttackCell)}
    with explaining_build_errors(plan.config):
        tester = ModelUnderTest(
            plan.config,
            options.checkpoint,
            model=options.model,
            data_loader=options.data_loader,
            metrics=plan.metrics,
            trust=options.trust_checkpoint,
            seed=options.seed or 0,
            limit=options.limit,
            cache_bytes=options.cache_mb << 20,
            save_to=options.save_corrupted,
            show_to=options.show_dir,
            attacks=bool(attacks),
            precision=plan.precision,
            allow_mismatch=options.allow_mismatch,
            frost_pictures=_frost_folder(options, plan),
        )
    check_model(list(attacks), tester.model)
    if options.channels_last:
        use_channels_last(tester.model)
    if options.compile:
        compile_parts(tester.model)
    return tester


def _frost_folder(options: SweepOptions, plan: _Plan) -> str | None:
    """Return the folder with photographs of frost, if there is a pass that takes them."""
    wanted = options.frost_pictures is not None and any(j.cell.name == 'frost' for j in plan.jobs)
    return str(options.frost_pictures) if wanted else None


def _records(
    out: Path, identity: Mapping[str, Any], about: Mapping[str, Any], plan: _Plan
) -> SweepRecords:
    try:
        return SweepRecords(out / 'results.jsonl', identity, about, plan.jobs)
    except UserError:
        broadcast_object_list([None])  # the other processes wait for the plan
        raise


def _run(
    options: SweepOptions,
    plan: _Plan,
    tester: ModelUnderTest,
    records: SweepRecords,
    log: QuietLog,
    console: TextIO | None,
) -> None:
    """Run the passes, and report them; also those that are finished when a signal comes."""
    out = records.path.parent
    kept = 'What was finished is kept; the same command resumes.'
    with (
        records,
        explained(plan.config, loader='test_dataloader', after=lambda: kept, folder=out),
        stop_on_signals() as stop,
    ):
        log.open(out / 'test.log')
        try:
            lead(tester, plan.jobs, records, options, console, stop)
        except Stopped:
            if records.cells:
                _report(options, plan, records)
            raise
        text = _report(options, plan, records)
        if options.html:
            _write_page(tester, out, plan.other)
        if console is not None:
            print(f'\n{text}\n\nresults: {out}', file=console, flush=True)


def _report(options: SweepOptions, plan: _Plan, records: SweepRecords) -> str:
    return write_report(
        records.path.parent,
        records.header,
        records.cells,
        plan.other,
        options.formats,
        plan.reference,
        options.detect,
    )


def _write_page(tester: ModelUnderTest, out: Path, other: Mapping[str, Any] | None) -> None:
    results = read_json(out / 'results.json')
    theirs = read_worst_images(None if other is None else other.get('folder'))
    also = {name: one['key'] for name, one in theirs.items()}
    write_page(out, results, draw_worst_images(tester, results, out, also), other)


def _default_folder(config: Config, options: SweepOptions, identity: Mapping[str, Any]) -> Path:
    """Return one folder per command: another checkpoint or option never meets old results."""
    plain = not (options.corruption or options.fgsm or options.attacks)
    name = (options.suite or 'clean') if plain else 'custom'
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]
    return Path(config.work_dir) / f'test_{name}_{digest}'


def _about(config: Config, options: SweepOptions, tester: ModelUnderTest) -> dict[str, Any]:
    return {
        'config': options.name,
        'schedule': config.get('schedule'),
        'checkpoint': None if options.checkpoint is None else str(options.checkpoint),
        'dataset': str(config.test_dataloader.dataset.get('type')),
        'classes': list(tester.dataset.metainfo.get('classes') or ()),
        'suite': options.suite,
        'parameters': sum(p.numel() for p in tester.model.parameters()),
        'family': family.current_family(),
        'torch': torch.__version__,
        'device': next(tester.model.parameters()).device.type,
        'processes': get_world_size(),
    }
