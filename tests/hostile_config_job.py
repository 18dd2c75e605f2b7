"""Read configs from a JSON file, one after the other, and do with them what a tool would do.

    python hostile_config_job.py CASES.json FOLDER RESULTS.jsonl [--safe]

Writes one line of JSON per case: what came of it, and whether the marker PWNED appeared.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

from mmengine.config import Config

from cb_mm.config import restricted as safe_config
from cb_mm.config.loading import apply_schedule, load_config
from cb_mm.errors import UserError

SECONDS = 20
#: As others read a config that was dumped: as a program.
read_program = Config.fromfile


class Evil:
    """Touches the marker when it is unpickled."""

    def __reduce__(self) -> tuple:
        return os.system, ('touch PWNED',)


def lay_out(folder: Path) -> None:
    """Write what the configs name."""
    folder.mkdir()
    touch = "import os\nos.system('touch PWNED')\n"
    for name in ('evil.py', 'mc.py'):
        (folder / name).write_text(touch)
    for name in ('evil.pkl', 'evil.pickled', 'image.nii'):
        (folder / name).write_bytes(pickle.dumps(Evil()))
    (folder / 'compiler').write_text('#!/bin/sh\ntouch PWNED\nexit 1\n')
    (folder / 'compiler').chmod(0o755)
    (folder / 'evil.yaml').write_text('!!python/object/apply:os.system ["touch PWNED"]\n')
    (folder / 'evil.json').write_text('{}')
    (folder / 'a.odgt').write_text('')
    (folder / 'instances.json').write_text('{"images": [], "annotations": [], "categories": []}')
    (folder / 'empty.json').write_text('{"images": [], "annotations": [], "categories": []}')
    (folder / 'empty.py').write_text('')
    (folder / 'one.py').write_text('a0 = dict(z=1)\n')
    (folder / 'loop.py').write_text("_base_ = ['loop.py']\n")
    for i in range(60):
        base = f'chain_{i + 1}.py'
        (folder / f'chain_{i}.py').write_text(f'_base_ = [{base!r}]\n')
        base = f'twice_{i + 1}.py'
        (folder / f'twice_{i}.py').write_text(f'_base_ = [{base!r}, {base!r}]\n')
    (folder / 'twice_15.py').write_text('')
    os.mkfifo(folder / 'pipe.py')
    os.mkfifo(folder / 'pipe.json')
    (folder / 'zero.json').symlink_to('/dev/zero')
    (folder / 'folder.py').mkdir()
    (folder / 'zero.py').symlink_to('/dev/zero')
    (folder / 'bytes.py').write_bytes(bytes(range(256)) * 100)
    (folder / 'thesis').mkdir()
    (folder / 'thesis' / 'thesis.tex').write_text('mine')


def use(content: Any, config: Any) -> None:
    """Build what the config names, read a file with it, and dump it as mmengine does."""
    from mmengine.registry import DATASETS, HOOKS, MODELS, TASK_UTILS, TRANSFORMS, VISBACKENDS

    for one in content.get('pipeline', ()):
        TRANSFORMS.build(one)(dict(img_path='image.nii'))
    if 'task' in content:
        TASK_UTILS.build(content['task'])
    if 'detector' in content:
        MODELS.build(content['detector'])
    if 'dataset' in content:
        DATASETS.build(dict(content['dataset'], pipeline=[], lazy_init=False))
    if 'backend' in content:
        VISBACKENDS.build(content['backend']).add_config(config)
    if 'hook' in content:
        HOOKS.get(content['hook']['type'])(content['hook']['_args'])
    for name in content.get('schedules', {}):
        apply_schedule(config, name)
    if 'compile' in config:  # as mmengine's Runner does
        import torch

        torch.compile(lambda x: (2 * x).sin(), **config.compile.to_dict())(torch.ones(8))
    config.dump('dumped.py')
    again = read_program('dumped.py')
    if 'later' in again:
        HOOKS.get(again.later.type)(again.later._args)


def run(text: str, folder: Path) -> str:
    """Write one config, read it, and use it; return what came of it."""
    (folder / 'mine.py').write_bytes(text.encode('utf-8', 'surrogatepass'))
    try:
        config = load_config('mine.py')
    except UserError as error:
        return 'refused' if len(str(error)) < 700 and '\n' not in str(error) else 'long message'
    try:
        use(config.to_dict(), config)
    except UserError:
        return 'refused later'
    except Exception as error:  # no data, or not this kind of file: after the attack
        return f'used: {type(error).__name__}: {error}'[:300]
    return 'used'


def main() -> None:
    """Run the cases of the file."""
    cases = json.loads(Path(sys.argv[1]).read_text())
    folder, results = Path(sys.argv[2]), Path(sys.argv[3])
    lay_out(folder)
    os.chdir(folder)
    os.environ['HOME'] = str(folder)
    if '--safe' in sys.argv:
        safe_config.enable()
    import mmdet.utils
    import mmseg.utils

    for module in (mmdet, mmseg):
        module.utils.register_all_modules(init_default_scope=False)
    before = _memory()
    for name, text in cases.items():
        signal.alarm(SECONDS)  # ends the process by a signal
        start = time.monotonic()
        try:
            outcome = run(text, folder)
        except BaseException as error:
            outcome = f'fell over: {type(error).__name__}: {error}'[:300]
        pwned = [file for file in ('PWNED', 'PWNED.py') if (folder / file).exists()]
        deleted = not (folder / 'thesis' / 'thesis.tex').exists()
        for file in pwned:
            (folder / file).unlink()
        sys.modules.pop('mc', None)
        signal.alarm(0)
        gib = _memory() - before
        result = dict(name=name, outcome=outcome, pwned=pwned, deleted=deleted, gib=gib,
                      seconds=time.monotonic() - start)  # fmt: skip
        with results.open('a') as stream:
            stream.write(json.dumps(result) + '\n')


def _memory() -> float:
    """The most that this process has used so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == '__main__':
    main()
