"""Speed of the corruptions, compared with the package imagecorruptions (imagecorruptions-imaug).

Both run in turns on the same image (512 x 683 by default), and we compare the medians of the turns.
Everything runs in one thread, and time is CPU time: other work on the machine is not counted.
Random corruptions draw new noise at every turn. A crop of ImageNet and an image of Cityscapes are
measured too, at severity 3 alone.

Examples:
  python benchmarks/corruption_speed.py
  python benchmarks/corruption_speed.py --image street.jpg --rounds 30 --out /tmp
  python benchmarks/corruption_speed.py --corruption gaussian_noise shot_noise gaussian_blur

Writes corruption_speed.json and corruption_speed.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
OTHER_SIZES = ((224, 224, 15), (1024, 2048, 3))  # height, width, turns
OTHER_SEVERITY = 3
# Our elastic_transform, that of ImageNet-C, also has an affine map, which theirs has not.
PEER_NAMES = {'elastic_displacement': 'elastic_transform'}
LIBRARIES = ('numpy', 'opencv-python-headless', 'scipy', 'pillow', 'imagecorruptions-imaug')


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        '--image', metavar='FILE', help='measure on this image (default: a synthetic one)'
    )
    parser.add_argument('--corruption', nargs='+', metavar='NAME', help='only these (all)')
    parser.add_argument('--rounds', type=int, default=9, metavar='N', help='turns each (9)')
    parser.add_argument(
        '--out', default=str(HERE / 'results'), metavar='DIR', help='folder of the results'
    )
    args = parser.parse_args(argv)
    if args.rounds < 1:
        parser.error('--rounds must be at least 1')
    return args


def made_up_image(height: int = 512, width: int = 683):
    """Return a synthetic image with the grey levels and edges of a photograph, always the same."""
    import numpy as np

    from cb_mm.corruption.functional.weather import cloud

    rng = np.random.default_rng(0)
    layers = [cloud(height, width, 1.4, rng) for _ in range(4)]
    image = np.dstack([np.where(layers[3] > 0.5, layer, 1 - layer) for layer in layers[:3]])
    return (255 * image).astype(np.uint8)


def measure(image, name: str, severity: int, rounds: int) -> dict:
    """Measure the seconds of one corruption at one severity, ours and theirs in turns."""
    import imagecorruptions
    import numpy as np

    from cb_mm.corruption import CORRUPTIONS, corrupt, noise_generator

    level = CORRUPTIONS[name].level_of(severity)
    peer_name = PEER_NAMES.get(name, name)
    peer = peer_name in imagecorruptions.get_corruption_names('all')

    def ours(turn: int) -> None:
        rng = noise_generator(0, turn, 'image', name, level)
        corrupt(image, name, rng, level=level)

    def theirs(turn: int) -> None:
        imagecorruptions.corrupt(image, severity=severity, corruption_name=peer_name)

    jobs = {'ours': ours, 'theirs': theirs} if peer else {'ours': ours}
    seconds: dict[str, list[float]] = {key: [] for key in jobs}
    np.random.seed(0)  # noqa: NPY002  (theirs draws from the global generator)
    for turn in range(rounds + 1):
        for key, job in jobs.items():
            start = time.process_time()
            job(turn)
            seconds[key].append(time.process_time() - start)
    # The first turn compiles, fills tables and caches; it is not counted.
    row = {f'{key}_ms': 1e3 * statistics.median(values[1:]) for key, values in seconds.items()}
    row['first_ms'] = 1e3 * seconds['ours'][0]
    row['ratio'] = row['theirs_ms'] / row['ours_ms'] if peer else None
    return {'corruption': name, 'severity': severity, 'level': level, **row}


def machine() -> dict:
    """Return what the times depend on: processor, versions of the libraries, commit."""
    from parts.about import code_version

    lines = Path('/proc/cpuinfo')
    names = lines.read_text().splitlines() if lines.exists() else []
    models = [line.partition(':')[2].strip() for line in names if line.startswith('model name')]
    versions = {}
    for library in LIBRARIES:
        try:
            versions[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return {
        'processor': models[0] if models else platform.machine(),
        'cores': os.cpu_count(),
        'threads': 1,
        'python': platform.python_version(),
        **versions,
        'code': code_version(),
    }


def table(report: dict) -> str:
    """Return the results as Markdown: one line per corruption, the median over its severities."""
    about = report['machine']
    height, width = report['image']['height'], report['image']['width']
    lines = [
        '# Speed of the corruptions',
        '',
        '`python benchmarks/corruption_speed.py`',
        '',
        f'Milliseconds of CPU time for one image of {height} x {width}, median of '
        f'{report["rounds"]} turns, both packages in turns in one run. "Theirs" is '
        f'imagecorruptions-imaug {about.get("imagecorruptions-imaug", "?")}. The ratio of a '
        'severity is theirs / ours.',
        '',
        f'{about["processor"]}, {about["cores"]} cores, one thread, '
        + ', '.join(f'{name} {about[name]}' for name in ('python', *LIBRARIES[:4]) if name in about)
        + '.',
        '',
        '| corruption | ours, severity 1 / 3 / 5 | theirs, severity 1 / 3 / 5 | ratio, severity 1 '
        'to 5 | median ratio |',
        '|---|---|---|---|---|',
    ]
    for name in dict.fromkeys(row['corruption'] for row in report['rows']):
        rows = [row for row in report['rows'] if row['corruption'] == name]
        ours = ' / '.join(f'{rows[index]["ours_ms"]:.1f}' for index in (0, 2, 4))
        theirs, ratios, middle = '–', '–', '–'
        if rows[0]['ratio'] is not None:
            theirs = ' / '.join(f'{rows[index]["theirs_ms"]:.1f}' for index in (0, 2, 4))
            ratios = ' '.join(f'{row["ratio"]:.1f}' for row in rows)
            middle = f'{statistics.median(row["ratio"] for row in rows):.1f}×'
        lines.append(f'| {name} | {ours} | {theirs} | {ratios} | {middle} |')
    first = max(report['rows'], key=lambda row: row['first_ms'])
    lines += [
        '',
        'The first call at a level costs a little more (noise tables are built once per level); '
        f'the most expensive first call took {first["first_ms"]:.0f} ms ({first["corruption"]}). '
        "The paper's blurs, 1 and 2 pixels, are severities 1 and 2 of gaussian_blur; noise costs "
        'about the same at any level.',
        '',
    ]
    if report['other_sizes']:
        lines += other_sizes(report['other_sizes'])
    return '\n'.join(lines)


def other_sizes(reports: list[dict]) -> list[str]:
    """Return the lines of Markdown about the other sizes: one per corruption."""
    sizes = [f'{size["height"]} x {size["width"]}' for size in reports]
    lines = [
        f'Other sizes, at severity {OTHER_SEVERITY}: ours, theirs, ratio; medians of '
        f'{" and ".join(str(size["rounds"]) for size in reports)} turns.',
        '',
        f'| corruption | {" | ".join(sizes)} |',
        f'|---|{"---|" * len(sizes)}',
    ]
    for rows in zip(*(size['rows'] for size in reports), strict=True):
        cells = [
            f'{row["ours_ms"]:.1f}, –'
            if row['ratio'] is None
            else f'{row["ours_ms"]:.1f}, {row["theirs_ms"]:.1f}, {row["ratio"]:.1f}×'
            for row in rows
        ]
        lines.append(f'| {rows[0]["corruption"]} | {" | ".join(cells)} |')
    return [*lines, '']


def run(args: argparse.Namespace) -> None:
    """Measure, print the table, write both files."""
    import cv2

    from cb_mm.corruption import CORRUPTIONS, SEVERITIES, find_corruption
    from cb_mm.errors import UserError
    from cb_mm.fileio.images import read_image

    try:
        import imagecorruptions  # noqa: F401
    except ImportError:
        raise UserError(
            'the benchmark compares with imagecorruptions: pip install imagecorruptions-imaug'
        ) from None
    cv2.setNumThreads(1)
    image = read_image(args.image) if args.image else made_up_image()
    names = [find_corruption(name).name for name in args.corruption or CORRUPTIONS]
    others = () if args.image else OTHER_SIZES
    report = {
        'image': {'height': image.shape[0], 'width': image.shape[1]},
        'rounds': args.rounds,
        'machine': machine(),
        'rows': [
            measure(image, name, severity, args.rounds) for name in names for severity in SEVERITIES
        ],
        'other_sizes': [
            {
                'height': height,
                'width': width,
                'rounds': rounds,
                'rows': [
                    measure(made_up_image(height, width), name, OTHER_SEVERITY, rounds)
                    for name in names
                ],
            }
            for height, width, rounds in others
        ],
    }
    print(table(report))
    for name, text in (('json', json.dumps(report, indent=1) + '\n'), ('md', table(report))):
        file = Path(args.out) / f'corruption_speed.{name}'
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f'.{file.name}.part')
        with draft.open('w', encoding='utf-8') as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(file)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 0 on success, 2 on a user error."""
    args = parse_args(argv)
    os.environ['OPENBLAS_NUM_THREADS'] = '1'  # numpy reads it when it is imported
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args))


if __name__ == '__main__':
    sys.exit(main())
