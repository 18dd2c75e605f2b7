"""Write the stored results into docs/benchmarks.md: each table, and the commit that it comes from.

A table stands between `<!-- NAME -->` and `<!-- end -->`; everything else on the page is written by
hand. What was not measured yet is said.

Examples:
  python benchmarks/page.py
  python benchmarks/page.py --results /tmp/results --page /tmp/page.md
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from parts.markdown import table

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / 'docs' / 'benchmarks.md'
RESULTS = HERE / 'results'
KINDS = ('time', 'multiplications', 'memory')
MARKED = re.compile(r'<!-- (\w+) -->\n.*?<!-- end -->', re.DOTALL)


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument('--results', type=Path, default=RESULTS, metavar='DIR')
    parser.add_argument('--page', type=Path, default=PAGE, metavar='FILE')
    return parser.parse_args(argv)


def upernet(content: Mapping[str, Any]) -> str:
    """Tabulate upernet_speed.py: forward, then the training step."""
    texts = []
    for kind in ('forward', 'training step'):
        head = [kind, 'GMAC', 'CPU s (fastest)', 'peak MiB', 'ours / it (of fastest)']
        rows = []
        for name, row in content['rows'].items():
            if kind not in row:
                continue
            found, ratio = row[kind], row[kind]['ours_to_this']
            rows.append([
                name, f'{row["multiplications"] / 1e9:.0f}',
                f'{found["cpu_median_s"]:.2f} ({found["cpu_fastest_s"]:.2f})',
                f'{found["peak_bytes"] / 2**20:,.0f}',
                f'{ratio["ratio"]:.2f} ({ratio["of_fastest"]:.2f})',
            ])  # fmt: skip
        texts.append(table(head, rows))
    return '\n\n'.join(texts)


def backbone(content: Mapping[str, Any]) -> str:
    """Tabulate backbone_speed.py."""
    kinds = ('forward', 'forward and backward')
    rows = [
        [name, *(f'{1e3 * row[k]["cpu_median_s"]:.0f} ({1e3 * row[k]["cpu_fastest_s"]:.0f})'
                 for k in kinds)]
        for name, row in content['rows'].items()
    ]  # fmt: skip
    ratios = [
        [pair, *(f'{found[k]["ratio"]:.2f} ({found[k]["of_fastest"]:.2f})' for k in kinds)]
        for pair, found in content['ratios'].items()
        if pair.startswith('ViTCB, CB')
    ]
    return '\n\n'.join([
        table(['', *(f'{kind}, CPU ms (fastest)' for kind in kinds)], rows),
        table(['median of the per-turn ratios (of the fastest)', *kinds], ratios),
    ])  # fmt: skip


def start_up(content: Mapping[str, Any]) -> str:
    """Tabulate start_up.py; our tools, which are alike, as one row."""
    seconds = {name: row['cpu_median_s'] for name, row in content['rows'].items()}
    tools = [value for name, value in seconds.items() if re.match(r'tools/[a-z]', name)]
    rows = [['any of `tools/*.py --help`, the slowest', f'{max(tools):.2f}']]
    rows += [[f'`{name}`', f'{value:.2f}'] for name, value in seconds.items()
             if not name.startswith('tools/')]  # fmt: skip
    return table(['command', 'CPU s'], rows)


def growth(content: Mapping[str, Any]) -> str:
    """Tabulate growth.py over the number of tokens."""
    rows = [
        [
            f'{row["tokens"]:,}', f'{1e3 * row["cpu_median_s"]:.0f}',
            f'{row["peak_bytes"] / 2**20:.0f}', f'{row["multiplications"] / 1e9:.1f}',
        ]
        for row in content['tokens']['rows']
    ]  # fmt: skip
    slopes = {of: content[of]['exponent'] for of in ('tokens', 'width', 'batch')}
    fits = [[of, *(f'{one[k]:.2f}' if k in one else '–' for k in KINDS)]
            for of, one in slopes.items()]  # fmt: skip
    return '\n\n'.join([
        table(['tokens', 'CPU ms', 'peak MiB', 'GMAC'], rows),
        table(['fitted exponent over the', *KINDS], fits),
    ])  # fmt: skip


def targets(results: Path) -> str:
    """Tabulate what was aimed at: before, after, and the aim. What is missing is left out."""
    rows = []
    for title, command, aim, value in TARGETS:
        after, before = (value(folder) for folder in (results, results / 'before'))
        if after is not None:
            was = '–' if before is None else f'{before:.2f}'
            met = 'yes' if after <= aim else 'no'
            rows.append([title, f'`{command}`', was, f'{after:.2f}', f'≤ {aim:.2f}', met])
    return table(['what', 'command', 'before', 'now', 'aim', 'met'], rows)


def _read(folder: Path, stem: str) -> Any:
    file = folder / f'{stem}.json'
    return json.loads(file.read_text()) if file.is_file() else None


def _upernet(kind: str, folder: Path) -> float | None:
    content = _read(folder, 'upernet_speed_small')
    peer = content and content['rows']['mmseg, our pyramid'].get(kind)
    return peer['ours_to_this']['ratio'] if peer else None


def _whole_job(job: str, folder: Path) -> float | None:
    content = _read(folder, 'whole_jobs_segmentation')
    if content is None:
        return None
    every = [record for one in content['rounds'] for record in one]
    ours, theirs = (
        statistics.median(
            r['step_s'] for r in every if (r['job'], r['workers'], r['arm']) == (job, 0, arm)
        )
        for arm in ('cb_mm', 'the host')
    )
    return ours / theirs


def _guards(folder: Path) -> float | None:
    content = _read(folder, 'guard_cost')
    return content and 1 + content['share']


def _four_gigabytes(folder: Path) -> float | None:
    content = _read(folder, 'large_images')
    run = content and content['runs'].get('slide')
    return run['peak_bytes'] / 2**32 if run else None


def _sweep(folder: Path) -> float | None:
    content = _read(folder, 'sweep_parts')
    runs = content['runs'].values() if content else ()
    return max((min(run['to_larger'].values()) for run in runs), default=None)


def _mask_rcnn(kind: str, folder: Path) -> float | None:
    content = _read(folder, 'mask_rcnn_speed')
    run = content and content['runs'].get(f'small, {kind}')
    return run['rows']['mmdet']['first_to_this']['ratio'] if run else None


#: Title, command, aim, and how the value is read from a folder of results; all are ratios.
TARGETS: tuple[tuple[str, str, float, Callable[[Path], float | None]], ...] = (
    ('UperNet ViT-S, forward, of mmseg', 'upernet_speed.py', 0.42, partial(_upernet, 'forward')),
    ('a training step, of mmseg', 'upernet_speed.py', 0.48, partial(_upernet, 'training step')),
    ('`tools/train.py`, an iteration, of mmseg', 'whole_jobs.py', 0.55,
     partial(_whole_job, 'train')),
    ('`tools/test.py`, an image, of mmseg', 'whole_jobs.py', 0.60, partial(_whole_job, 'test')),
    ('the same step with guards and replay, of without', 'guard_cost.py', 1.03, _guards),
    ('Mask R-CNN ViT-S, forward, of mmdet', 'mask_rcnn_speed.py', 1.00,
     partial(_mask_rcnn, 'forward')),
    ('a training step, of mmdet', 'mask_rcnn_speed.py', 1.00,
     partial(_mask_rcnn, 'training step')),
    ('`tools/test.py` at 2048 × 1024, of 4 GiB', 'large_images.py', 1.00, _four_gigabytes),
    ('a sweep, of the larger of loading and testing', 'sweep_parts.py', 1.10, _sweep),
)  # fmt: skip

#: Name on the page -> results file, and how it becomes a table; None: its Markdown file is one.
TABLES: dict[str, tuple[str, Callable[[Mapping[str, Any]], str] | None]] = {
    'upernet_small': ('upernet_speed_small', upernet),
    'upernet_tiny': ('upernet_speed_tiny', upernet),
    'upernet_peers': ('upernet_peers', None),
    'backbone': ('backbone_speed', backbone),
    'start_up': ('start_up', start_up),
    'whole_jobs_segmentation': ('whole_jobs_segmentation', None),
    'whole_jobs_detection': ('whole_jobs_detection', None),
    'guard_cost': ('guard_cost', None),
    'growth': ('growth', growth),
    'mask_rcnn': ('mask_rcnn_speed', None),
    'large_images': ('large_images', None),
    'sweep_parts': ('sweep_parts', None),
    'sweep_time': ('sweep_time', None),
    'attention_memory': ('attention_memory', None),
}


def section(name: str, results: Path) -> str:
    """Return one table, and what it was measured with."""
    if name == 'targets':
        return targets(results)
    stem, render = TABLES[name]
    file = results / f'{stem}.json'
    if not file.is_file():
        return 'Not measured yet.'
    content = json.loads(file.read_text())
    text = render(content) if render else file.with_suffix('.md').read_text().strip()
    return f'{text}\n\n*{"; ".join(sorted(sources(content)))}*'


def sources(content: Any) -> set[str]:
    """Return the commit and processor of all that is in a results file."""
    if isinstance(content, list):
        return set().union(*map(sources, content))
    if not isinstance(content, dict):
        return set()
    found = set().union(*(sources(one) for key, one in content.items() if key != 'machine'))
    if about := content.get('machine'):
        code = about.get('code') or 'an earlier version'
        found.add(f'{code}, {about["processor"]}, {about["cores"]} cores')
    return found


def page(text: str, results: Path) -> str:
    """Return the page with the tables of these results."""
    return MARKED.sub(
        lambda found: f'<!-- {found[1]} -->\n{section(found[1], results)}\n<!-- end -->', text
    )


def main(argv: list[str] | None = None) -> int:
    """Write the page."""
    args = parse_args(argv)
    args.page.write_text(page(args.page.read_text(), args.results))
    return 0


if __name__ == '__main__':
    sys.exit(main())
