"""Tools in processes that are forked from a warm one: a run costs a second or two, not ten.

The warm process is multiprocessing's fork server, started with one thread, so that forking it is
safe whatever the process of the tests has done.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tool import REPO, free_port, main_of

_HERE = Path(__file__).resolve().parent
_context = multiprocessing.get_context('forkserver')

#: Some virtual machines announce AMX, and end a process whose bfloat16 kernels use it.
WITHOUT_AMX = {'ONEDNN_MAX_CPU_ISA': 'AVX512_CORE_BF16'}


@dataclass
class Done:
    """A run that has ended: exit code (negative: the signal) and what it printed."""

    code: int
    out: str
    err: str


#: Those that nobody has waited for yet.
_running: set[Forked] = set()


@atexit.register
def _end_those_left() -> None:
    """Python itself waits at its end, for ever, for what a failed test has left behind."""
    for process in list(_running):
        process.kill()


class Forked:
    """A tool that is running.

    Args:
        tool: Such as ``train.py``; ``-c`` for a program in the first word, as of Python itself.
        words: Its words on the command line.
        cwd: The folder it runs in.
        before: Called in the new process, before the tool; it must be a function of a module.
        env: Variables of its environment. Modules that are imported already have read theirs.
    """

    def __init__(
        self,
        tool: str,
        *words: object,
        cwd: Path,
        before: Callable[[], None] | None = None,
        env: dict[str, str] | None = None,
    ) -> None:
        handle, name = tempfile.mkstemp(prefix='forked_')
        os.close(handle)
        self.files = Path(name), Path(f'{name}_err')
        arguments = tool, [str(word) for word in words], str(cwd), self.files, before, env or {}
        with _server_environment():
            self.process = _context.Process(target=_run, args=arguments)
            self.process.start()
        _running.add(self)

    def kill(self) -> None:
        """End it, and the processes that load its data, as a power cut would."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.join(60)
        _running.discard(self)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def wait(self, seconds: float = 300) -> Done:
        """Its end."""
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.kill()
        _running.discard(self)
        done = Done(self.process.exitcode, *(file.read_text() for file in self._written()))
        for file in self.files:
            file.unlink(missing_ok=True)
        return done

    def ended(self) -> bool:
        """Whether it has ended."""
        return self.process.exitcode is not None

    def _written(self) -> Iterator[Path]:
        for file in self.files:
            file.touch()
            yield file


def run(tool: str, *words: object, cwd: Path, seconds: float = 300, **options) -> Done:
    """Run a tool to its end; the options are those of `Forked`."""
    return Forked(tool, *words, cwd=cwd, **options).wait(seconds)


def start_ranks(tool: str, *words: object, cwd: Path | Sequence[Path], **options) -> list[Forked]:
    """Start a tool in two processes, as torchrun does, which would import torch once more.

    With two folders each has its own, as on machines whose disks are not shared.
    They end by themselves or not at all: nothing ends the other when one fails.
    """
    meeting = {'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(free_port())}
    words = (*words, '--launcher', 'pytorch')
    ranks = [{'RANK': rank, 'LOCAL_RANK': rank, 'WORLD_SIZE': '2', **meeting} for rank in '01']
    folders = [cwd, cwd] if isinstance(cwd, Path) else cwd
    return [
        Forked(tool, *words, cwd=folder, env=env, **options)
        for folder, env in zip(folders, ranks, strict=True)
    ]


def run_ranks(
    tool: str,
    *words: object,
    cwd: Path | Sequence[Path],
    seconds: float = 300,
    after: float = 300,
    **options,
) -> list[Done]:
    """Run a tool in two processes to their end.

    Args:
        tool: And the others: as of `start_ranks`.
        seconds: Until one of them has ended.
        after: From then until the other one has.
    """
    ranks = start_ranks(tool, *words, cwd=cwd, **options)
    wait_for(lambda: any(rank.ended() for rank in ranks), seconds)
    end = time.monotonic() + after
    return [rank.wait(max(end - time.monotonic(), 1)) for rank in ranks]


def a_minute() -> float:
    """The seconds that a minute's work takes beside what else the machine is doing."""
    return 60 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def call_ranks(function: Callable[..., None], *arguments: object, seconds: float = 300) -> None:
    """Call a function of a module in two processes, each with its rank first; they must succeed."""
    with _server_environment():
        ranks = [_context.Process(target=function, args=(rank, *arguments)) for rank in range(2)]
        for rank in ranks:
            rank.start()
    end = time.monotonic() + seconds
    for rank in ranks:
        rank.join(max(end - time.monotonic(), 1))
    codes = [rank.exitcode for rank in ranks]
    for rank in ranks:
        rank.kill()
    assert codes == [0, 0]


def _run(tool: str, words: list[str], cwd: str, files: tuple[Path, Path], before, env) -> None:
    # The server ignores that a module to be loaded beforehand cannot be: every run would be slow.
    assert 'warm' in sys.modules, 'tests/warm.py cannot be imported'
    os.setsid()
    os.chdir(cwd)
    os.environ.update(env)
    for stream, file in zip((1, 2), files, strict=True):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    try:
        if before is not None:
            before()
        code = _run_program(*words) if tool == '-c' else main_of(tool)(words)
    except SystemExit as stop:
        code = stop.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    raise SystemExit(code)


def _run_program(text: str, *words: str) -> int:
    sys.argv[:] = ['-c', *words]
    exec(compile(text, '<program>', 'exec'), {'__name__': '__main__'})
    return 0


@contextlib.contextmanager
def _server_environment() -> Iterator[None]:
    """What the server is started with; later on it makes no difference."""
    wanted = {
        'OMP_NUM_THREADS': '1',
        'PYTHONPATH': os.pathsep.join([str(REPO), str(_HERE), os.environ.get('PYTHONPATH', '')]),
    }
    before = {key: os.environ.get(key) for key in wanted}
    os.environ.update(wanted)
    _context.set_forkserver_preload(['warm'])
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


class KillAtEvent:
    """Ends the process at its n-th event among the files below a folder, before it happens.

    Events are what Python reports to audit hooks: opening for writing, renaming, removing.
    """

    def __init__(self, folder: Path, number: int, log: Path | None = None) -> None:
        self.folder, self.number, self.log = str(folder), number, log

    def __call__(self) -> None:
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple) -> None:
        if event == 'open':
            if not (isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)):
                return
        elif event not in ('os.rename', 'os.remove', 'os.truncate'):
            return
        if not str(args[0]).startswith(self.folder) or str(args[0]).endswith(('.log', '.json')):
            return
        self.number -= 1
        if self.log is not None:
            with open(self.log, 'a') as stream:
                stream.write(f'{event} {Path(str(args[0])).name}\n')
        if self.number == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class NoteOpens:
    """Writes a line into ``opened.txt`` for every opening of a file whose name ends so."""

    def __init__(self, end: str) -> None:
        self.end = end

    def __call__(self) -> None:
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple) -> None:
        if event == 'open' and str(args[0]).endswith(self.end):
            with open('opened.txt', 'a') as stream:
                stream.write(f'{args[0]}\n')


class KillWhileWriting:
    """Ends the process in the n-th write of a draft, with a part of it on the disk."""

    def __init__(self, number: int, share: float) -> None:
        self.number, self.share = number, share

    def __call__(self) -> None:
        write = Path.write_bytes

        def torn(path: Path, data: bytes) -> int:
            self.number -= path.name.endswith('.part')
            if self.number == 0:
                write(path, data[: int(len(data) * self.share)])
                os.kill(os.getpid(), signal.SIGKILL)
            return write(path, data)

        Path.write_bytes = torn


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> bool:
    """Wait until it is true; False when it does not come true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def exit_code(child: int, seconds: float = 120) -> int:
    """Return the exit code of a forked process; end it, and fail, when it does not end itself."""
    ended: list[int] = []

    def look() -> bool:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            ended.append(os.waitstatus_to_exitcode(status))
        return bool(pid)

    if not wait_for(look, seconds):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise AssertionError(f'the forked process has not ended within {seconds:g} seconds')
    return ended[0]


class FillDiskAt:
    """From the n-th draft on no file can grow: what a full disk or a quota does."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self) -> None:
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple) -> None:
        if event == 'open' and str(args[0]).endswith('.part'):
            self.number -= 1
            if self.number == 0:
                resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
