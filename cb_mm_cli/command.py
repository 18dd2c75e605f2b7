"""``cb-mm COMMAND ...``: find the module of a command and hand the other words to its ``main``."""

from __future__ import annotations

import difflib
import importlib
import sys
import warnings
from importlib import metadata

from . import options

#: Each command: its module here, and one line about it. A new command is one line.
COMMANDS = {
    'train': ('train', 'train a model from a config or a recipe'),
    'test': ('test', 'test it: clean, under corruption, or attacked'),
    'predict': ('predict', 'predict on images, folders, videos or a camera'),
    'attention': ('attention', 'draw or measure the attention of a model'),
    'corrupt': ('corrupt', 'draw what the corruptions do to an image'),
    'check-data': ('check_data', 'check a data set before it is used'),
    'export': ('export_onnx', 'export a trained segmentor to ONNX'),
    'benchmark': ('benchmark', 'measure parameters, time and memory of models'),
    'ablation': ('ablation', 'run an ablation of the paper, its table beside ours'),
    'curves': ('plot_curves', 'draw the loss and accuracy curves of training runs'),
    'softmax-gradient': ('softmax_gradient', 'measure how steep softmax is on attention rows'),
    'share': ('share', 'share a trained model on the Hugging Face Hub, or fetch one'),
    'configs': ('configs', 'list the recipes, copy one'),
    'doctor': ('doctor', 'say what is installed, and whether it fits together'),
    'check-gpu': ('check_gpu', 'check a machine with GPUs, and write one page about it'),
    'scenes': ('make_scenes', 'write the embedded data set, to try everything with'),
    'patterns': ('draw_patterns', 'draw sparse attention patterns'),
    'upstream': ('upstream', "run a tool of mmseg's, mmdet's or mmpretrain's with our recipes"),
}

_USAGE = """usage: cb-mm COMMAND ...

Vision Transformers with Context Broadcasting for mmsegmentation and mmdetection: train, test under
corruption, look at the attention.

commands:
{commands}

"cb-mm COMMAND --help" explains a command, with examples. Start here:
  cb-mm scenes scenes                                # a small data set, drawn by the program
  cb-mm train demo_upernet_vit_ti_cb --data-root scenes/ade20k --work-dir demo
  cb-mm test demo_upernet_vit_ti_cb demo/iter_400.pth --data-root scenes/ade20k --suite table9
"""


def main(argv: list[str] | None = None) -> int:
    """Run a command; its exit code, or 2 for one that does not exist."""
    words = sys.argv[1:] if argv is None else list(argv)
    if not words or words[0] in ('-h', '--help', 'help'):
        print(usage(), end='')
        return 0 if words else 2
    name, *rest = words
    if name == '--version':
        print(f'cb_mm {metadata.version("cb_mm")}')
        return 0
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f' Did you mean "{near[0]}"?' if near else f' It has: {", ".join(COMMANDS)}.'
        print(f'error: cb-mm has no command "{name}".{hint}', file=sys.stderr)
        return 2
    options.called_as_command = True
    # Where cb_mm cannot be used, importing it warns; here the reason is the error, said once.
    warnings.filterwarnings('ignore', 'cb_mm cannot be used here', RuntimeWarning)
    try:
        return importlib.import_module(f'.{COMMANDS[name][0]}', __package__).main(rest)
    except Exception:
        unusable = getattr(sys.modules.get('cb_mm'), '_failure', None)
        if unusable is None:
            raise
        print(f'error: {unusable}', file=sys.stderr)
        return 2
    finally:
        options.called_as_command = False


def usage() -> str:
    """Return the list of commands."""
    width = max(map(len, COMMANDS))
    lines = [f'  {name:<{width}}  {about}' for name, (_, about) in COMMANDS.items()]
    return _USAGE.format(commands='\n'.join(lines))
