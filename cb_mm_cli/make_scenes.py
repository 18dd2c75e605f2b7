"""Write the embedded data set, procedural scenes in ADE20K and COCO layout, to a folder.

No download, no weights: real JPEG, PNG and JSON files to try every tool with.

Examples:
  python tools/make_scenes.py data/scenes
  python tools/make_scenes.py data/scenes_big --train 2000 --val 200 --size 256 320 --seed 1

then:
  DIR/ade20k  is a data root for semantic segmentation  (16 classes, ADE20K's names and labels)
  DIR/coco    is a data root for instance segmentation  (6 things, COCO's names and ids)

The same options give the same files. Called again for a finished folder, it returns at once.
"""

from __future__ import annotations

import argparse
import time

from .options import in_options, tool_parser


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = tool_parser(__doc__)
    parser.add_argument('dir', metavar='DIR', help='folder to make (new or empty)')
    parser.add_argument('--train', type=int, default=200, metavar='N', help='default: 200 pictures')
    parser.add_argument('--val', type=int, default=50, metavar='N', help='default: 50 pictures')
    parser.add_argument(
        '--size', type=int, nargs=2, default=(192, 256), metavar=('H', 'W'), help='default: 192 256'
    )
    parser.add_argument('--seed', type=int, default=0, help='default: 0')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run the tool; 0 when the data set exists, 2 when the user must fix something."""
    args = parse(argv)
    from tqdm import tqdm

    from cb_mm.datasets import write_scenes
    from cb_mm.errors import exit_code

    def job() -> None:
        start = time.perf_counter()
        paths = write_scenes(
            args.dir,
            train=args.train,
            val=args.val,
            size=tuple(args.size),
            seed=args.seed,
            # disable=None: no bar where the output is not a terminal
            progress=lambda jobs: tqdm(jobs, 'scenes', leave=False, disable=None),
        )
        seconds = time.perf_counter() - start
        print(f'{args.train} training and {args.val} validation pictures, {seconds:.1f} s')
        print(f'  semantic segmentation (ADE20K layout): {paths.ade20k}')
        print(f'  instance segmentation (COCO layout):   {paths.coco}')

    return exit_code(job, in_options)
