"""Time of the Table 9 sweep, compared with one plain test per pass.

Compares processes as a user would start them, from start to exit, on the demo model (with random
weights, which do not change the time) and the embedded scenes:

- plain: as upstream does it, one process per pass: builds mmengine's Runner from the config, with
  ImageCorruption in the pipeline, and runs Runner.test(). One process is measured for each of the
  six cells and counted as often as its cell is repeated (18 passes for five repeats);
- sweep: tools/test.py --suite table9, one process for all 18 passes, with its report and plot.

The sweep runs between the plain processes, so that other load on the machine affects both. Both
must give the same scores. The times of the parts of a pass explain what remains.

Examples:
  python benchmarks/sweep_time.py
  python benchmarks/sweep_time.py --images 20 --out /tmp

Writes sweep_time.json and sweep_time.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parent
CONFIG = REPO / 'configs' / 'demo' / 'demo_upernet_vit_ti_cb.py'
REPEATS = 5


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument('--images', type=int, default=50, metavar='N', help='test images (50)')
    parser.add_argument(
        '--out', default=str(HERE / 'results'), metavar='DIR', help='folder of the results'
    )
    parser.add_argument('--job', help=argparse.SUPPRESS)  # what a child process does
    parser.add_argument('--folder', help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.images < 2:
        parser.error('--images must be at least 2')
    return args


def prepare(folder: Path, images: int) -> None:
    """Write the scenes, and a checkpoint of the demo model."""
    import torch
    from mmengine.registry import MODELS, init_default_scope

    from cb_mm.datasets import write_scenes
    from cb_mm.engine.training import RunOptions, prepare_config

    write_scenes(folder / 'scenes', train=1, val=images)
    config = prepare_config(RunOptions(str(CONFIG)))
    init_default_scope('mmseg')
    torch.manual_seed(0)
    model = MODELS.build(config.model)
    torch.save({'state_dict': model.state_dict(), 'meta': {}}, folder / 'demo.pth')


def prepared_config(folder: Path):
    """Return the demo config for these scenes."""
    from cb_mm.engine.training import RunOptions, prepare_config

    data = str(folder / 'scenes' / 'ade20k')
    return prepare_config(RunOptions(str(CONFIG), work_dir=str(folder / 'work'), data_root=data))


def test_plainly(folder: Path, cell: str) -> dict:
    """Test one cell as upstream does; runs in a separate process."""
    from mmengine.runner import Runner

    from cb_mm.corruption import SUITES, corrupt_dataset_cfg

    config = prepared_config(folder)
    corruption = next(c for c in SUITES['table9'] if c.key == cell).transform_cfg()
    if corruption:
        loading = config.test_dataloader
        loading.dataset = corrupt_dataset_cfg(loading.dataset, corruption)
    config.load_from = str(folder / 'demo.pth')
    runner = Runner.from_cfg(config)
    started = time.perf_counter()
    metrics = runner.test()
    return {'test_s': time.perf_counter() - started, 'mIoU': float(metrics['mIoU'])}


def time_parts(folder: Path) -> dict:
    """Time the parts of a pass with images in memory; runs in a separate process."""
    from cb_mm.corruption import SUITES
    from cb_mm.robustness.console_log import quiet_console
    from cb_mm.robustness.jobs import Job
    from cb_mm.robustness.tester import ModelUnderTest

    with quiet_console():
        config = prepared_config(folder)
        config.test_dataloader.num_workers = 0  # one after another, to be timed apart
        tester = ModelUnderTest(config, folder / 'demo.pth', cache_bytes=1 << 31)
        spent = {'model': 0.0}
        predict = tester.predict

        def timed(batch):
            started = time.perf_counter()
            outputs = predict(batch)
            spent['model'] += time.perf_counter() - started
            return outputs

        tester.predict = timed
        job = Job(next(c for c in SUITES['table9'] if c.key == 'gaussian_noise=5'))
        for name in ('first', 'later'):
            spent['model'], started = 0.0, time.perf_counter()
            tester.run(job)
            spent[f'{name}_pass'] = time.perf_counter() - started
        started = time.perf_counter()
        for _ in tester.loader.load(job):
            pass
        spent['loading'] = time.perf_counter() - started
    return spent


def start(words: list[str]) -> dict:
    """Run a process to its end; return its wall time and its CPU time including workers."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, cwd=REPO, check=False)
    if done.returncode:
        raise SystemExit(f'{" ".join(words)}\n{done.stderr}')
    after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - started
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {'process_s': seconds, 'processor_s': processor}


def own_job(folder: Path, name: str) -> dict:
    """Run one job of the benchmark in a separate process."""
    words = [sys.executable, str(Path(__file__).resolve()), '--job', name, '--folder', str(folder)]
    return {**start(words), **json.loads((folder / 'answer.json').read_text())}


def measure(folder: Path) -> dict:
    """Run all processes, one after another."""
    from cb_mm.corruption import SUITES

    cells = SUITES['table9']
    plain, sweep = {}, {}
    for number, cell in enumerate(cells):
        if number == len(cells) // 2:
            data = str(folder / 'scenes' / 'ade20k')
            words = [sys.executable, str(REPO / 'tools' / 'test.py'), str(CONFIG)]
            words += [str(folder / 'demo.pth'), '--suite', 'table9', '--data-root', data]
            sweep = start([*words, '--repeats', str(REPEATS), '--out', str(folder / 'out')])
        plain[cell.key] = own_job(folder, cell.key)
        plain[cell.key]['passes'] = REPEATS if cell.random else 1
    lines = (folder / 'out' / 'results.jsonl').read_text().splitlines()[1:]
    records = {record['key']: record for record in map(json.loads, lines)}
    for key, row in plain.items():
        record = records.get(f'{key}_0') or records[key]
        row['equal'] = record['upstream']['mIoU'] == row['mIoU']
    passes = sum(record['seconds'] for record in records.values())
    total = sum(row['process_s'] * row['passes'] for row in plain.values())
    tests = sum(row['test_s'] * row['passes'] for row in plain.values())
    processor = sum(row['processor_s'] * row['passes'] for row in plain.values())
    return {
        'passes': len(records),
        'plain_s': total,
        'plain_start_up_s': total - tests,
        'plain_testing_s': tests,
        'plain_processor_s': processor,
        'sweep_s': sweep['process_s'],
        'sweep_start_up_and_report_s': sweep['process_s'] - passes,
        'sweep_testing_s': passes,
        'sweep_processor_s': sweep['processor_s'],
        'ratio': sweep['process_s'] / total,
        'ratio_of_processor_time': sweep['processor_s'] / processor,
        'ratio_without_start_up': passes / tests,
        'figures_equal': all(row['equal'] for row in plain.values()),
        'plain': plain,
        'parts_of_a_pass': own_job(folder, 'parts'),
    }


def table(report: dict) -> str:
    """Return the result as Markdown."""
    parts = report['parts_of_a_pass']
    share = 100 * parts['model'] / parts['later_pass']
    rows = [
        ('start-up, report', report['plain_start_up_s'], report['sweep_start_up_and_report_s']),
        ('testing', report['plain_testing_s'], report['sweep_testing_s']),
        ('**all**', report['plain_s'], report['sweep_s']),
        ('CPU time', report['plain_processor_s'], report['sweep_processor_s']),
    ]
    lines = [
        f'Table 9 on the demo model, {report["images"]} images, {report["passes"]} passes; '
        f'{report["machine"]["cores"]} cores, torch threads: {report["machine"]["threads"]}.',
        '',
        '| seconds | one plain test per pass | one sweep | ratio |',
        '|---|---|---|---|',
        *(f'| {name} | {a:.1f} | {b:.1f} | {b / a:.2f} |' for name, a, b in rows),
        '',
        f'The scores of both are {"equal" if report["figures_equal"] else "NOT EQUAL"}. Most of '
        f'the remaining time is the model: it takes {share:.0f} % of a pass ({parts["model"]:.2f} '
        f'of {parts["later_pass"]:.2f} s without workers); loading and corrupting images that are '
        f'in memory takes {parts["loading"]:.2f} s. Every pass runs the model once per image, so '
        'this part cannot be shared.',
        '',
    ]
    return '\n'.join(lines)


def run(args: argparse.Namespace) -> None:
    """Measure, print the table, write both files."""
    from parts.about import machine

    from cb_mm.fileio.atomic import write_atomically

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, args.images)
        report = {
            'images': args.images,
            'machine': machine(),
            **measure(folder),
        }
    print(table(report))
    out = Path(args.out)
    write_atomically(out / 'sweep_time.json', json.dumps(report, indent=1) + '\n')
    write_atomically(out / 'sweep_time.md', table(report))


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 0 on success, 2 on a user error."""
    args = parse_args(argv)
    from cb_mm.errors import exit_code

    if args.job:
        folder = Path(args.folder)
        answer = time_parts(folder) if args.job == 'parts' else test_plainly(folder, args.job)
        (folder / 'answer.json').write_text(json.dumps(answer))
        return 0
    return exit_code(lambda: run(args))


if __name__ == '__main__':
    sys.exit(main())
