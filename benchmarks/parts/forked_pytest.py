"""pytest in processes that are forked from one with the libraries imported, but not cb_mm.

A run then starts within a second or two, and imports cb_mm, with whatever fault is in it, itself.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import time
import types
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

_LIBRARIES = (
    'torch', 'torchvision', 'timm', 'cv2', 'scipy.ndimage', 'scipy.stats', 'matplotlib.pyplot',
    'PIL.Image', 'hypothesis', 'mmengine.runner', 'mmcv.transforms', 'safetensors.torch', 'pytest',
)  # fmt: skip


@dataclass
class Test:
    """What is known of a test: its place, its cost, and the functions of cb_mm it enters."""

    id: str
    outcome: str
    slow: bool
    cpu: float
    wall: float
    entered: dict[str, list[str]] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """The test file."""
        return self.id.partition('::')[0]


def warm_up(tree: Path) -> None:
    """Import what the tests import, except cb_mm.

    mmdet needs the ops that cb_mm supplies: they are taken from ``tree`` and then forgotten.
    """
    import matplotlib

    matplotlib.use('Agg')
    for name in _LIBRARIES:
        importlib.import_module(name)
    package = types.ModuleType('cb_mm')
    package.__path__ = [str(tree / 'cb_mm')]
    sys.modules['cb_mm'] = package
    for name in ('mmcv_ops', 'mmpretrain_guard'):
        importlib.import_module(f'cb_mm.compat.{name}').install()
    for scope in ('mmseg', 'mmdet'):
        utils = importlib.import_module(f'{scope}.utils')
        utils.register_all_modules(init_default_scope=False)
    for name in [name for name in sys.modules if name.split('.')[0] == 'cb_mm']:
        del sys.modules[name]


def run(
    tree: Path,
    files: Sequence[str],
    report: Path,
    plugin: object,
    seconds: float,
    words: Sequence[str] = (),
) -> int:
    """Run test files of ``tree`` in a fork; the exit code of pytest, or -9 after ``seconds``.

    ``words`` are further words on pytest's command line.
    """
    child = os.fork()
    if child == 0:
        code = 70
        try:
            code = _child(tree, [*words, *files], report, plugin)
        finally:
            os._exit(code)
    end = time.monotonic() + seconds
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > end:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -9
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)  # what the tests left running
    return os.waitstatus_to_exitcode(status)


def _child(tree: Path, files: Sequence[str], report: Path, plugin: object) -> int:
    import pytest

    os.setsid()
    os.chdir(tree)
    log = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.path.insert(0, str(tree))
    os.environ.update(
        PYTHONPATH=str(tree), OMP_NUM_THREADS='1', PYTHONDONTWRITEBYTECODE='1', MPLBACKEND='Agg'
    )
    sys.dont_write_bytecode = True  # a stale .pyc would hide the next mutant
    temporary = report.with_suffix('.tmp')
    return int(
        pytest.main(
            ['-q', '-x' if plugin.stop else '-q', '-p', 'no:cacheprovider', '--durations=0',
             f'--basetemp={temporary}', *files], plugins=[plugin],
        )
    )  # fmt: skip


class Survey:
    """A plugin that writes what every test enters and costs, as JSON lines."""

    stop = False

    def __init__(self, tree: Path, out: Path) -> None:
        self.root, self.out = f'{tree}/', out
        self.entered: set[tuple[str, str]] = set()
        self.outcome = ''

    def _hear(self, frame: types.FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if code.co_filename.startswith(self.root):
            name = getattr(code, 'co_qualname', code.co_name).replace('.<locals>', '')
            self.entered.add((code.co_filename[len(self.root) :], name))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Begin to listen."""
        self.entered.clear()
        self.outcome, self.begin = 'passed', (_cpu(), time.monotonic())
        sys.settrace(self._hear)

    def pytest_runtest_logreport(self, report: object) -> None:
        """Note what becomes of the test."""
        if not report.passed and self.outcome == 'passed':
            self.outcome = report.outcome
        self.slow = 'slow' in report.keywords

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Write the line of the test."""
        sys.settrace(None)
        entered: dict[str, list[str]] = {}
        for file, name in sorted(self.entered):
            if file.startswith('cb_mm/'):
                entered.setdefault(file, []).append(name)
        cpu, wall = _cpu() - self.begin[0], time.monotonic() - self.begin[1]
        test = Test(nodeid, self.outcome, self.slow, round(cpu, 2), round(wall, 2), entered)
        with self.out.open('a') as stream:
            stream.write(json.dumps(asdict(test)) + '\n')


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Chosen:
    """A plugin that keeps the chosen tests, in their order, and notes those that fail."""

    def __init__(self, tree: Path, order: Sequence[str], note: Path, stop: bool = True) -> None:
        self.tree, self.note, self.stop = tree, note, stop
        self.places = {name: place for place, name in enumerate(order)}

    def pytest_collection_modifyitems(self, items: list) -> None:
        """Drop what was not chosen, and sort the rest."""
        import cb_mm

        if not cb_mm.__file__.startswith(str(self.tree)):
            raise RuntimeError(f'{cb_mm.__file__} is tested, not {self.tree}')
        items[:] = [item for item in items if item.nodeid in self.places]
        items.sort(key=lambda item: self.places[item.nodeid])

    def pytest_runtest_logreport(self, report: object) -> None:
        """Note a test that fails."""
        if report.failed:
            with self.note.open('a') as stream:
                stream.write(f'{report.nodeid}\n')
