"""Does Context Broadcasting pay? The registered study of docs/study.md: its runs and its tables.

Questions:
  baseline  the paper's baseline, DeiT-Ti, on 1,000 ImageNet images
  cifar     a small ViT from scratch on CIFAR-10, without a broadcast and with CB
  dense     these backbones in UperNet on CamVid
  weights   CB put into plain weights, on CamVid: which way pays?
  sparse    dense against sparse attention on Imagenette
  heads     few heads against many, without CB and with it

Examples:
  python benchmarks/study.py --shared DIR                  # all of it: about 30 core-hours
  python benchmarks/study.py cifar dense --shared DIR      # two questions
  python benchmarks/study.py --list                        # which runs are done
  python benchmarks/study.py --report                      # only write the tables
  python benchmarks/study.py --trial --shared DIR          # two steps of everything

Run again after a kill, it continues where it stopped, inside a run too. Runs are done in the
registered order, one thread each. A run in --out is not repeated, even if its checkpoints are gone.
Writes study.json after every run, and study.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from parts.options import BESIDE, parse_counts, study_parser
from parts.study_plan import QUESTIONS, Run, registered


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = study_parser(__doc__, 'study')
    add = parser.add_argument
    add('questions', nargs='*', metavar='QUESTION', help=f'which (all): {", ".join(QUESTIONS)}')
    add('--shared', type=Path, default=BESIDE, metavar='DIR', help='folder of data and weights')
    add('--arms', nargs='+', metavar='NAME', help='only these arms')
    add('--seeds', nargs='+', type=int, metavar='N', help='only these seeds')
    add('--jobs', type=int, default=2, metavar='N', help='runs at a time, one thread each (2)')
    add('--trial', action='store_true', help='two steps and a few images instead of everything; '
        'results go to the work folder')  # fmt: skip
    add('--list', action='store_true', help='list the runs and which are done')
    add('--report', action='store_true', help='only write the tables of what is done')
    args = parse_counts(parser, argv, ['jobs'])
    for name, given, known in (
        ('question', args.questions, QUESTIONS),
        ('--arms', args.arms or (), {arm for q in QUESTIONS.values() for arm in q.arms}),
    ):
        for word in given:
            if word not in known:
                parser.error(f'{name}: {word} is not one of {", ".join(sorted(known))}')
    if args.trial:
        args.out = args.work / 'results'
    return args


def chosen(args: argparse.Namespace) -> list[Run]:
    """Return the runs that the options choose, in the registered order."""
    return [
        run
        for run in registered()
        if run.question in (args.questions or QUESTIONS)
        and (args.arms is None or run.arm in args.arms)
        and (args.seeds is None or run.seed in args.seeds)
    ]


def study(args: argparse.Namespace) -> str:
    """Do all missing runs; return the text of the report."""
    from parts.records import Records
    from parts.study_report import list_runs, write_report

    runs = chosen(args)
    records = Records(args.out / 'study.json', {'trial': args.trial})
    if args.list:
        return list_runs(runs, records.runs)
    todo = [] if args.report else [run for run in runs if run.key not in records.runs]
    if todo:
        do_runs(todo, args, records)
    return write_report(records.runs, args.out)


def do_runs(todo: list[Run], args: argparse.Namespace, records) -> None:
    """Do these runs; one that fails does not stop the others."""
    from parts.side_by_side import side_by_side
    from parts.study_data import StudyData
    from parts.study_report import write_report
    from parts.study_work import Worker

    from cb_mm.errors import UserError

    data = StudyData(args.shared, args.work)
    data.prepare({run.question for run in todo})
    worker = Worker(data, args.work, args.trial)

    def do(run: Run):
        try:
            return worker.do(run)
        except UserError as error:
            return error

    failed = {}
    lengths = {run: QUESTIONS[run.question].minutes for run in todo}
    for run, record in side_by_side(do, lengths, worker.minute, args.jobs):
        if isinstance(record, UserError):
            print(f'{run.key} failed: {record}', file=sys.stderr, flush=True)
            failed[run.key] = record
            continue
        records.add(run.key, record)
        write_report(records.runs, args.out)
    if failed:
        names = [run.key for run in todo if run.key in failed]  # not as they ended
        raise UserError(
            f'{len(failed)} of {len(todo)} runs failed: {", ".join(names)}. The first: '
            f'{failed[names[0]]}'
        )


def main(argv: list[str] | None = None) -> int:
    """Run the study."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: print(study(args)))


if __name__ == '__main__':
    sys.exit(main())
