"""Any words on the command line of any tool: exit code 0 or 2, never a traceback."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mmengine.registry import registry as registry_module
from tool import CONFIGS, TOOLS, main_of

from cb_mm import safe_config

ALL = sorted(path.name for path in TOOLS.glob('[!_]*.py'))
#: A tool that trains whatever it is told is only read, not run.
RUN = [name for name in ALL if name != 'demo.py']
HOSTILE = [
    '', ' ', '-1', '0', '1', '3', '2.5', '1e309', 'nan', '-inf', '9' * 30, '٣', '1x1', '0x0', '1,2',
    'cls', 'a' * 5000, '=', 'a=b', '=1', 'a.b=[', 'model.backbone=3', 'model.backbone.arch=base',
    'train_cfg=None', 'randomness.seed=x', 'optim_wrapper.type=Nope', 'model={}', '[', '{', '%s',
    "__import__('os')", 'a\nb', '-', '--', '\udcff', '𝕏', '~', '/dev/null', '/proc/nope', 'folder',
    'garbage', 'folder/none', 'config.py', 'broken.py', 'empty.py', 'png', 'gaussian_noise=5',
    'fog', 'clean', 'table9', 'cpu', 'cuda:99', 'vit_tiny_patch16_224', 'resnet18', 'cb_mm', '40k',
]  # fmt: skip


def parser_of(tool: str) -> argparse.ArgumentParser:
    """The parser that a tool makes."""
    main = main_of(tool)
    found = []

    class Found(Exception):
        pass

    def caught(self, *_: object, **__: object) -> None:
        found.append(self)
        raise Found

    original = argparse.ArgumentParser.parse_args
    argparse.ArgumentParser.parse_args = caught
    try:
        with contextlib.suppress(Found):
            main([])
    finally:
        argparse.ArgumentParser.parse_args = original
    return found[0]


def command_lines(tool: str) -> st.SearchStrategy:
    """Lists of words: its positionals and any of its options, each with any values."""
    value = st.sampled_from(HOSTILE) | st.text(max_size=6).filter(lambda text: '\0' not in text)
    parts, positionals = [], []
    for action in parser_of(tool)._actions:
        choices = [str(choice) for choice in action.choices or ()]
        word = value | st.sampled_from(choices) if choices else value
        if isinstance(action, (argparse._StoreTrueAction, argparse._HelpAction)):
            words = st.just([])
        elif isinstance(action.nargs, int):
            words = st.lists(word, min_size=action.nargs, max_size=action.nargs)
        else:
            words = st.lists(word, min_size=0 if action.nargs == '?' else 1, max_size=2)
        if not action.option_strings:
            positionals.append(words)
        elif not isinstance(action, argparse._HelpAction):
            names = st.sampled_from(action.option_strings)
            parts.append(st.tuples(names, words).map(lambda pair: [pair[0], *pair[1]]))
    options = st.lists(st.one_of(parts), max_size=4) if parts else st.just([])
    both = st.tuples(st.tuples(*positionals), options)
    return both.map(lambda found: [w for group in (*found[0], *found[1]) for w in group])


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """A place with a config of missing data, broken ones, and a file that is no image."""
    folder = tmp_path_factory.mktemp('fuzz') / 'a' / 'b'
    (folder / 'folder').mkdir(parents=True)
    (folder / 'garbage').write_bytes(bytes(range(256)))
    base = CONFIGS / 'upernet_vit_ti_cb.py'
    (folder / 'config.py').write_text(f"_base_ = ['{base}']\nmodel = dict(type='Nope')\n")
    (folder / 'broken.py').write_text('model = dict(')
    (folder / 'empty.py').write_text('')
    before = Path.cwd(), safe_config._on, registry_module.get_object_from_string
    os.chdir(folder)
    yield folder
    os.chdir(before[0])
    safe_config._on, registry_module.get_object_from_string = before[1:]


def call(main, words: list[str]) -> tuple[int, str]:
    """As a shell does, with the streams that Python gives to a program."""
    out = io.TextIOWrapper(io.BytesIO(), 'utf-8', errors='strict')
    err = io.TextIOWrapper(io.BytesIO(), 'utf-8', errors='backslashreplace')
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as stop:
            code = stop.code
    err.flush()
    return code, err.buffer.getvalue().decode()


@pytest.mark.parametrize('tool', ALL)
def test_parsing(tool, folder):
    """200 command lines each: parsed, or refused by argparse with code 2."""
    parser = parser_of(tool)

    @settings(max_examples=200, deadline=None, derandomize=True,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(command_lines(tool))
    def check(words: list[str]) -> None:
        code, error = call(lambda w: parser.parse_args(w) and 0, words)
        assert code in (0, 2), (words, error)

    check()


@pytest.mark.parametrize('tool', RUN)
def test_running(tool, folder, monkeypatch):
    """150 command lines each, that cannot succeed for want of data: one message and code 2."""
    monkeypatch.setattr('logging.raiseExceptions', False)
    for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK'):
        monkeypatch.delenv(name, raising=False)
    main = main_of(tool)
    # The one tool that needs nothing: it has less to do, unless the words say otherwise.
    first = ['--train', '1', '--val', '1', '--size', '32', '32'] if 'scenes' in tool else []

    @settings(max_examples=150, deadline=None, derandomize=True,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(command_lines(tool))
    def check(words: list[str]) -> None:
        code, error = call(main, [*first, *words])
        assert code in (0, 2), (words, error)
        assert 'Traceback' not in error, (words, error)
        if code == 2:
            assert 'error: ' in error, (words, error)

    check()
