"""Every command of the documentation is right, and those that are marked run as they stand.

A command belongs to one of the kinds below; one that fits none is a failure, not an omission.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import forked
import pages
import pytest
import torch.distributed.run
from packaging.requirements import Requirement
from tool import REPO, TOOLS, environment, link_configs

from cb_mm.config import recipes
from cb_mm.config.loading import load_config
from cb_mm.robustness.jobs import plan_cells
from cb_mm_cli import analyze_attention, visualize_attention
from cb_mm_cli.command import COMMANDS as SUBCOMMANDS

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip('tomli')

COMMANDS = [command for page in pages.PAGES for command in pages.block_commands(page)]
MENTIONED = [command for page in pages.PAGES for command in pages.other_commands(page)]
_SCRIPTS: dict[Path, dict] = {}


class Parsed(Exception):
    """The words of a command were accepted."""


def parse(script: Path, words: list[str]) -> argparse.Namespace:
    """What the script's own parser makes of the words; its message is the failure."""
    assert script.is_file(), f'{script} does not exist'
    # A script without a parser takes no words, and calling it would run it.
    if not re.search(r'import main, parse\b|argparse', script.read_text()):
        assert not words, words
        return argparse.Namespace()
    if script not in _SCRIPTS:
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(script.parent)
            _SCRIPTS[script] = runpy.run_path(str(script))
    names = _SCRIPTS[script]
    original = argparse.ArgumentParser.parse_args

    def parse_only(parser: argparse.ArgumentParser, *args: object) -> None:
        raise Parsed(original(parser, *args))

    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            function = names.get('parse_args') or names.get('parse')
            if function is not None:
                return function(words)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(argparse.ArgumentParser, 'parse_args', parse_only)
                patch.setattr(sys, 'argv', [str(script), *words])
                names['main']()
    except Parsed as parsed:
        return parsed.args[0]
    except SystemExit as stop:
        if stop.code:
            raise AssertionError(errors.getvalue()) from stop
        return argparse.Namespace()  # --help
    raise AssertionError(f'{script.name} has no parser')


# The kinds of commands. Each checks the words that follow its own.


def of_python(words: list[str]) -> None:
    if words[:2] == ['-m', 'pytest']:
        for word in words[2:]:
            assert not word.startswith('tests/') or (REPO / word).exists(), word
    elif words[:2] == ['-m', 'cb_mm.doctor']:
        assert words[2:] in ([], ['--json'])
    else:
        script = REPO / words[0]
        assert script.parent.name in ('tools', 'benchmarks', 'examples'), f'python {words[0]}'
        check_options(parse(script, words[1:]))


def check_options(args: argparse.Namespace) -> None:
    """What parsers leave to the library: keys of the config, names of corruptions."""
    config = REPO / str(getattr(args, 'config', ''))
    if config.is_file():
        loaded = load_config(config, getattr(args, 'cfg_options', None) or ())
        schedule = getattr(args, 'schedule', None)
        assert schedule in (None, loaded.get('schedule'), *loaded.get('schedules', {}))
    if isinstance(getattr(args, 'corruption', None), list) and hasattr(args, 'fgsm'):
        plan_cells(args.suite, args.corruption, args.severity, args.fgsm)


def of_cb_mm(words: list[str]) -> None:
    assert words[0] in (*SUBCOMMANDS, '--help', '--version'), words[0]
    if len(words) == 1:  # a sentence names it
        return
    module = importlib.import_module(f'cb_mm_cli.{SUBCOMMANDS[words[0]][0]}')
    if words[0] == 'attention':
        measured = words[1] == 'measure'
        module = analyze_attention if measured else visualize_attention
        words = words if words[1] not in ('draw', 'measure') else words[1:]
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            args = module.parse(words[1:])
    except SystemExit as stop:
        if stop.code:
            raise AssertionError(errors.getvalue()) from stop
        return
    recipe = recipes.recipe_file(str(getattr(args, 'config', '')))
    if recipe is not None:
        args.config = recipe
    check_options(args)


def of_torchrun(words: list[str]) -> None:
    args = torch.distributed.run.get_args_parser().parse_args(words)
    of_python([args.training_script, *args.training_script_args])


def of_other_launchers(words: list[str]) -> None:
    """``srun --ntasks=2 python …``, ``mpirun -n 2 python …``."""
    of_python(words[words.index('python') + 1 :])


def of_make(words: list[str]) -> None:
    # --assume-old: with -n alone make would still run the recipe that builds the environment.
    done = subprocess.run(
        ['make', '--dry-run', '--assume-old=env', *words], cwd=REPO, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def of_pip(words: list[str]) -> None:
    assert words[0] == 'install', words[0]
    extras = tomllib.loads((REPO / 'pyproject.toml').read_text())['project'][
        'optional-dependencies'
    ]
    parser = argparse.ArgumentParser()
    parser.add_argument('-c', '--constraint')
    parser.add_argument('--force-reinstall', action='store_true')
    parser.add_argument('--no-deps', action='store_true')
    parser.add_argument('-e', '--editable')
    parser.add_argument('requirements', nargs='*')
    args = parser.parse_args(words[1:])
    assert args.constraint is None or (REPO / args.constraint).is_file()
    given = [*args.requirements, *([args.editable] if args.editable else [])]
    # The checkout or a release file, with extras.
    own = [re.sub(r'^(\./cb_mm-[^/]*\.whl|\.)(?=\[|$)', 'cb_mm', word) for word in given]
    for requirement in map(Requirement, own):
        if requirement.name == 'cb_mm':
            assert requirement.extras <= set(extras), requirement


def of_mim(words: list[str]) -> None:
    """``mim train cb_mm CONFIG …`` hands its words on to tools/train.py; `run` names any tool."""
    job, package, *rest = words
    assert package == 'cb_mm', package
    if job in ('train', 'test'):
        parser = argparse.ArgumentParser()
        for option in ('--launcher', '--gpus', '--checkpoint'):  # mim's own
            parser.add_argument(option)
        own, rest = parser.parse_known_args(rest)
        rest[1:1] = [own.checkpoint] if own.checkpoint else []
        check_options(parse(TOOLS / f'{job}.py', [f'configs/{rest[0]}', *rest[1:]]))
    elif job == 'run':
        check_options(parse(TOOLS / f'{rest[0]}.py', rest[1:]))
    else:
        assert job == 'search', job


def of_the_shell(words: list[str]) -> None:
    """Nothing to check but what follows from the page."""


KINDS: dict[str, Callable[[list[str]], None]] = {
    r'(\.venv/bin/)?python': of_python,
    r'torchrun': of_torchrun,
    r'srun|mpirun': of_other_launchers,
    r'make': of_make,
    r'cb-mm': of_cb_mm,
    r'pip': of_pip,
    r'mim': of_mim,
    r'cd|ls|cat|head|unzip|git|pre-commit|export|scancel|tests/cluster/install.sh': of_the_shell,
}


@pytest.fixture(scope='module')
def printing_programs(tmp_path_factory) -> dict[str, str]:
    """A python and an srun that print what they are asked to start."""
    folder = tmp_path_factory.mktemp('programs')
    for name in ('python', 'srun'):
        (folder / name).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        (folder / name).chmod(0o755)
    # Within a job, the scripts for Slurm start srun; outside of one they would submit it first.
    path = f'{folder}:{os.environ["PATH"]}'
    return {'PATH': path, 'PYTHON': 'python', 'SLURM_JOB_ID': '1'}


def check_script(command: pages.Command, programs: dict[str, str]) -> None:
    """Run one of tools/*.sh; what it would start must be right."""
    script, *words = command.words
    env = {**environment(), **programs, **command.variables}
    done = subprocess.run([str(REPO / script), *words], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    started = done.stdout.split('\n')[:-1]
    tool = next(i for i, word in enumerate(started) if word.endswith(('/train.py', '/test.py')))
    check_options(parse(Path(started[tool]), started[tool + 1 :]))


def ids(command: pages.Command) -> str:
    return f'{command.page.name}: {command.text}'


@pytest.mark.parametrize('command', [*COMMANDS, *MENTIONED], ids=ids)
def test_command_is_right(command, printing_programs):
    first, *words = command.words
    if re.fullmatch(r'tools/\w+\.sh', first):
        return check_script(command, printing_programs)
    kinds = [check for name, check in KINDS.items() if re.fullmatch(name, first)]
    assert kinds, f'no kind of command: {command.text}'
    return kinds[0](words)


@pytest.mark.parametrize('page', pages.PAGES, ids=lambda page: page.name)
def test_no_block_is_missed(page):
    """An indented fence, another name for a shell, or a misspelt mark would hide commands."""
    opened = re.findall(r'^[ >]*```(\w+)', page.read_text(), re.M)
    found = [block.language for block in pages.blocks(page)]
    assert opened == [language for language in found if language]
    assert not {'sh', 'shell', 'zsh'} & set(found), 'call it bash'
    assert {block.mark for block in pages.blocks(page)} <= {'', 'runs', 'file'}


def test_commands_are_found():
    assert len(COMMANDS) > 30
    assert len(MENTIONED) > 30
    assert {'python', 'make', 'pip', 'torchrun'} <= {command.words[0] for command in COMMANDS}


# What is marked runs.

RUNNING = [
    page for page in pages.PAGES if any(b.mark in ('runs', 'file') for b in pages.blocks(page))
]


@pytest.mark.slow
@pytest.mark.parametrize('page', RUNNING, ids=lambda page: page.name)
def test_marked_blocks_run(page, tmp_path, monkeypatch):
    """In order, in one folder that has what a checkout has; only the demo's recipes are smaller."""
    for name in ('tools', 'examples'):
        (tmp_path / name).symlink_to(REPO / name)
    link_configs(tmp_path)
    monkeypatch.chdir(tmp_path)
    for block in pages.blocks(page):
        if block.mark == 'file':
            (tmp_path / block.names[0]).write_text(block.text)
        elif block.mark == 'runs':
            run_block(block, tmp_path)


def run_block(block: pages.Block, folder: Path) -> None:
    if block.language == 'python':
        exec(compile(block.text, str(block.page), 'exec'), {})
    else:
        for command in pages.split_commands(block.page, block.text):
            run_command(command, folder)
    for name in block.names:
        assert (folder / name).exists(), name


def run_command(command: pages.Command, folder: Path) -> None:
    first, *words = command.words
    script = first == 'python' and words[0].endswith('.py')
    if script or first == 'cb-mm':
        tool, words = (str(REPO / words[0]), words[1:]) if script else (first, words)
        done = forked.run(tool, *words, cwd=folder)
        assert done.code == 0, f'{command.text}\n{done.out[-2000:]}\n{done.err[-2000:]}'
    else:
        path = f'{Path(sys.executable).parent}:{os.environ["PATH"]}'
        done = subprocess.run(
            ['bash', '-c', command.text],
            cwd=folder,
            env={**environment(), 'PATH': path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f'{command.text}\n{done.stdout}\n{done.stderr}'


@pytest.mark.parametrize(
    'block',
    [block for page in pages.PAGES for block in pages.blocks(page, 'python')],
    ids=lambda block: f'{block.page.name}: {block.text.splitlines()[0]}',
)
def test_python_compiles(block):
    compile(block.text, str(block.page), 'exec')
