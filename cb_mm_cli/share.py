"""Share a trained model with its config and a model card, or fetch one that was shared.

Examples:
  python tools/share.py push CONFIG CHECKPOINT hf://OWNER/NAME --results OUT/results.json
  python tools/share.py push CONFIG CHECKPOINT FOLDER --data 'ADE20K' --licence apache-2.0
  python tools/share.py pull hf://OWNER/NAME --out FOLDER

hf://OWNER/NAME is a repository on the Hugging Face Hub; anything else is a local folder. The card
states data, iterations, broadcast, normalisation, and the scores of the results with their
intervals. A new repository is private unless --public is given.
"""

from __future__ import annotations

import argparse

from .options import add_safe_config, add_trust_checkpoint, api_parser, in_options


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = api_parser(__doc__)
    add = parser.add_argument
    add('job', choices=('push', 'pull'), metavar='push|pull', help='share, or fetch')
    add('words', nargs='+', metavar='WORD', help='push: CONFIG CHECKPOINT TARGET; pull: SOURCE')
    add('--out', metavar='DIR', help='pull: the folder for the files')
    add('--results', metavar='FILE', help='push: results.json of a test of this checkpoint')
    add('--data', metavar='TEXT', help='push: what it was trained on, in your words')
    add('--licence', '--license', metavar='NAME', dest='licence', help='push: of the weights, '
        'such as apache-2.0')  # fmt: skip
    add('--name', metavar='NAME', help='push: what to call it (after the config)')
    add('--public', action='store_true', help='push: make a new repository public')
    add('--revision', metavar='NAME', help='pull: branch, tag or commit')
    add('--token', metavar='TOKEN', help='of the Hub (the stored one; better HF_TOKEN)')
    add_safe_config(parser)
    add_trust_checkpoint(parser)
    args = parser.parse_args(argv)
    wanted = {'push': 3, 'pull': 1}[args.job]
    if len(args.words) != wanted:
        what = 'CONFIG CHECKPOINT TARGET' if args.job == 'push' else 'SOURCE'
        parser.error(f'{args.job} takes {what}')
    only = {'push': {'out', 'revision'}, 'pull': {'results', 'data', 'licence', 'name', 'public',
            'safe_config', 'trust_checkpoint'}}[args.job]  # fmt: skip
    wrong = sorted(only & set(vars(args)))
    if wrong:
        parser.error(f'{args.job} has no --{wrong[0].replace("_", "-")}')
    if args.job == 'pull' and 'out' not in args:
        parser.error('pull needs --out')
    return args


def run(args: argparse.Namespace) -> None:
    """Share or fetch, and print where the files are."""
    from cb_mm.apis import load_from_hub, push_to_hub

    options = dict(vars(args))
    job, words, out = options.pop('job'), options.pop('words'), options.pop('out', None)
    if job == 'push':
        print(f'shared: {push_to_hub(*words, **options).address}')
    else:
        for path in load_from_hub(*words, **options).save(out):
            print(path)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 when all is well, 2 when the user must fix something."""
    args = parse(argv)
    from cb_mm.errors import exit_code

    return exit_code(lambda: run(args), in_options)
