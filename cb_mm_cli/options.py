"""Options shared by several tools, each defined once.

Imports only argparse: ``--help`` and a typo are answered before anything heavy is loaded, and
importing ``cb_mm`` would load it.
"""

from __future__ import annotations

import argparse
import re
from typing import Any

#: Whether ``cb-mm`` was called, and not one of ``tools/*.py``: examples then name the command.
called_as_command = False

_COMMANDS = {
    'visualize_attention': 'attention',
    'analyze_attention': 'attention measure',
    'check_data': 'check-data',
    'check_gpu': 'check-gpu',
    'export_onnx': 'export',
    'make_scenes': 'scenes',
    'draw_patterns': 'patterns',
    'plot_curves': 'curves',
    'softmax_gradient': 'softmax-gradient',
}


class ToolParser(argparse.ArgumentParser):
    """A parser that knows by which option the user gives each parameter of the library."""

    #: The parser that read the command line of this process.
    used: ToolParser | None = None

    def __init__(self, **kwargs: Any) -> None:
        self.options: dict[str, str] = {}
        super().__init__(**kwargs)

    def add_argument(self, *args: Any, **kwargs: Any) -> argparse.Action:
        """Add an argument, as argparse does."""
        action = super().add_argument(*args, **kwargs)
        shown = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
        self.options[action.dest] = action.option_strings[0] if action.option_strings else shown
        return action

    def parse_args(self, *args: Any, **kwargs: Any) -> Any:
        """Read the command line, as argparse does."""
        ToolParser.used = self
        return super().parse_args(*args, **kwargs)


def in_options(message: str) -> str:
    """Put a message of the library, which names parameters, into the words of the command line.

    "`data_root` /x is not a folder" becomes "--data-root /x is not a folder". What the tool has no
    option for stays as it is.
    """
    options = ToolParser.used.options if ToolParser.used else {}
    return re.sub(r'`([a-z_]+)`', lambda found: options.get(found[1], found[0]), message)


def tool_parser(description: str | None) -> ToolParser:
    """Return a parser that shows the examples of a tool as they are written."""
    program = None
    if called_as_command and description:
        used = re.search(r'python tools/(\w+)\.py|cb-mm ([\w-]+)', description)
        if used:
            program = f'cb-mm {used[2] or _COMMANDS.get(used[1], used[1])}'
        description = as_command(description)
    return ToolParser(
        prog=program,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def as_command(text: str) -> str:
    """Turn examples of ``tools/*.py`` and files of ours into ``cb-mm`` and names of recipes."""

    def command(match: re.Match[str]) -> str:
        name = _COMMANDS.get(match[2], match[2])
        return f'cb-mm {name}' if match[1] else f'-m cb_mm_cli {name}'

    text = re.sub(r'(python )?\btools/(\w+)\.py', command, text)
    return re.sub(r'\bconfigs/(?:\w+/)?(\w+)\.py', r'\1', text)


def api_parser(description: str | None) -> ToolParser:
    """Return a parser for a tool that calls a function of ``cb_mm.apis`` with the given options.

    What was not given is not there: the defaults are those of the function.
    """
    parser = tool_parser(description)
    parser.argument_default = argparse.SUPPRESS
    return parser


def count(text: str) -> int:
    """Parse a whole number from 1."""
    if not re.fullmatch(r'[1-9]\d*', text, re.ASCII):
        raise argparse.ArgumentTypeError(f'{text!r} is not a whole number from 1')
    return int(text)


def image_size(text: str) -> tuple[int, int]:
    """Parse SIDE or HEIGHTxWIDTH."""
    match = re.fullmatch(r'([1-9]\d*)(?:x([1-9]\d*))?', text, re.ASCII)
    if not match:
        raise argparse.ArgumentTypeError(f'{text!r} is not a size such as 224 or 512x640')
    return int(match[1]), int(match[2] or match[1])


def add_safe_config(parser: argparse.ArgumentParser) -> None:
    """Add the option of a tool that reads configs."""
    parser.add_argument(
        '--safe-config', action='store_true', help='refuse a config that holds more than data'
    )


def add_cfg_options(parser: argparse.ArgumentParser, example: str) -> None:
    """Add the options of a tool that reads configs and changes them."""
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        metavar='KEY=VALUE',
        help=f'change the config, such as {example}',
    )
    add_safe_config(parser)


def add_trust_checkpoint(parser: argparse.ArgumentParser, files: str = 'a checkpoint') -> None:
    """Add the option of a tool that reads checkpoints."""
    parser.add_argument(
        '--trust-checkpoint',
        action='store_true',
        help=f'open {files} with more than weights inside, which can run any code',
    )


def add_matching(parser: argparse.ArgumentParser) -> None:
    """Add the options of a tool that loads weights: how they must match the config."""
    add = parser.add_argument
    add('--normalization', metavar='NAME', help='mean and std of the images: imagenet, half '
        '(127.5), clip, or weights to follow the weights')  # fmt: skip
    add('--allow-mismatch', '--allow-broadcast-mismatch', action='store_true',
        dest='allow_mismatch', help='take weights that were trained with ' 'another broadcast, '
             'other settings or other classes')  # fmt: skip


def add_running(parser: argparse.ArgumentParser, precision: str) -> None:
    """Add the options of training and testing: how the model runs, processes and input."""
    add = parser.add_argument
    add('--data-root', metavar='DIR', help="folder of the data set, instead of the config's")
    add('--precision', choices=['fp32', 'tf32', 'bf16', 'fp16'], help='how numbers are kept and '
        f'multiplied (default: {precision})')  # fmt: skip
    add('--amp', action='store_true', help='short for --precision fp16 on a GPU, bf16 on a CPU')
    add('--channels-last', action='store_true', help='the memory format that most convolutions '
        'prefer; same result')  # fmt: skip
    add('--compile', action='store_true', help='torch.compile for backbone, neck and heads: '
        'minutes at the start, less later; same result')  # fmt: skip
    add_matching(parser)
    add('--launcher', choices=['none', 'pytorch', 'slurm', 'mpi'],
        help='how the processes were started (default: none, one process)')  # fmt: skip
    add('--local_rank', '--local-rank', type=int, default=0, help=argparse.SUPPRESS)


def add_attention_models(parser: argparse.ArgumentParser, images: str, second: str) -> None:
    """Add the arguments of the attention tools: one model or two, and the images."""
    add = parser.add_argument
    add('config', metavar='CONFIG', help='config file, or name of a timm ViT')
    add('checkpoint', metavar='CHECKPOINT', help='its weights')
    add('images', nargs='+', metavar=images, help='image files or folders')
    add('--compare', nargs=2, metavar=('CONFIG', 'CHECKPOINT'), help=f'a second model, {second}')
    add('--names', nargs='+', metavar='NAME', help='what to call the models (after their configs)')


def add_formats(parser: argparse.ArgumentParser) -> None:
    """Add the option of every tool that draws figures."""
    parser.add_argument('--format', nargs='+', choices=('png', 'svg', 'pdf'), dest='formats',
                        help='of the figures (png svg)')  # fmt: skip


def attention_args(parser: argparse.ArgumentParser, argv: list[str] | None) -> argparse.Namespace:
    """Add what the attention tools share, size, folder and device, and read the command line."""
    add = parser.add_argument
    add('--size', type=image_size, metavar='N|HxW',
        help="resize every image (each image's own size)")  # fmt: skip
    add_formats(parser)
    add('--out', default='attention', metavar='DIR', help='folder (attention)')
    add('--device', metavar='DEVICE', help='cpu, cuda, ... (a GPU if there is one)')
    add_matching(parser)
    add_safe_config(parser)
    add_trust_checkpoint(parser)
    args = parser.parse_args(argv)
    models = 2 if 'compare' in args else 1
    if 'names' in args and len(args.names) != models:
        parser.error(f'--names: give {models}, one for each model')
    return args
