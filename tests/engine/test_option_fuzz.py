"""Any words on the command line of any tool: exit code 0 or 2, never a traceback.

First any words at all, which mostly fail early; then a training and a test that work, of which one
option at a time, of the config or of the command line, is given another value.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mmengine.config import Config
from mmengine.utils import ManagerMixin
from tool import CONFIGS, SMALL_MASK_RCNN, SMALL_UPERNET, TOOLS, main_of, write_config

from cb_mm.config import restricted as safe_config

ALL = sorted(path.name for path in TOOLS.glob('[!_]*.py'))
#: A tool that trains whatever it is told is only read, not run.
RUN = [name for name in ALL if name not in ('demo.py', 'check_gpu.py')]
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
    before = Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)
    safe_config.disable()


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


# One option at a time, on a base that works.

BASES = {
    ('train.py', 'seg'): (
        'small.py', '--data-root', 'data/ade20k', '--work-dir', 'work', '--cfg-options',
        'train_cfg.max_iters=1', 'train_cfg.val_interval=1', 'train_dataloader.batch_size=2',
        'val_dataloader.dataset.indices=1',
    ),
    ('train.py', 'det'): (
        'detector.py', '--data-root', 'data/coco', '--work-dir', 'work', '--cfg-options',
        'train_cfg.max_epochs=1', 'train_cfg.val_interval=1', 'train_dataloader.dataset.indices=2',
    ),
    ('test.py', 'seg'): (
        'small.py', 'seg.pth', '--data-root', 'data/ade20k', '--out', 'out', '--limit', '1',
        '--cfg-options'),
    ('test.py', 'det'): (
        'detector.py', 'det.pth', '--data-root', 'data/coco', '--out', 'out', '--limit', '1',
        '--cfg-options'),
}  # fmt: skip
READ_BY = {
    'train.py': (
        'model', 'train_dataloader', 'val_dataloader', 'optim_wrapper', 'param_scheduler',
        'default_hooks', 'train_cfg', 'val_cfg', 'val_evaluator', 'env_cfg', 'randomness',
        'log_processor', 'auto_scale_lr', 'visualizer', 'custom_hooks',
    ),
    'test.py': ('model', 'test_dataloader', 'test_cfg', 'test_evaluator', 'env_cfg', 'randomness'),
}  # fmt: skip
VALUES = (None, -1, 0, 'x', [], {}, 2.5, (0, 0), [1, 'a'], True)
#: Seen to end in a traceback; what the message must name.
NAMED = [
    ('train.py', 'seg', 'train_dataloader.batch_size=-1', 'train_dataloader'),
    ('train.py', 'seg', 'val_evaluator.iou_metrics=[bad]', 'val_evaluator'),
    ('train.py', 'seg', 'model.test_cfg.mode=slide', 'model.test_cfg'),
    ('train.py', 'seg', 'train_dataloader.dataset.pipeline.3.crop_size=(480,480)', 'crop_size'),
    ('train.py', 'seg', 'train_dataloader.dataset.pipeline.2.scale=(0,0)', 'Resize(scale=(0, 0)'),
    ('train.py', 'seg', 'train_dataloader.dataset.pipeline.5=None', 'pipeline.5'),
    ('train.py', 'seg', 'param_scheduler.0.power=x', 'param_scheduler.0 (PolyLR)'),
    ('train.py', 'seg', 'model.decode_head.align_corners=0', 'model.decode_head (FastUPerHead)'),
    ('train.py', 'seg', 'model.decode_head.in_index=(0,0)', 'len(in_channels) == len(in_index)'),
    ('train.py', 'det', 'model.rpn_head.loss_cls.loss_weight=x', 'model.rpn_head.loss_cls'),
    ('train.py', 'det', 'model.roi_head.bbox_head.loss_bbox=5', 'model.roi_head.bbox_head'),
    ('train.py', 'det', 'model.test_cfg.rcnn.mask_thr_binary=x', 'model.test_cfg.rcnn'),
    ('test.py', 'seg', 'test_dataloader.batch_size=-1', 'test_dataloader.batch_size=-1'),
    ('test.py', 'seg', 'test_evaluator.iou_metrics=[bad]', 'test_evaluator'),
    ('test.py', 'seg', 'model.test_cfg.mode=slide', 'model.test_cfg'),
    ('test.py', 'seg', 'test_dataloader.dataset.pipeline.1.scale=(0,0)', 'Resize(scale=(0, 0)'),
    ('test.py', 'det', 'test_dataloader.dataset.data_prefix=x', 'test_dataloader.dataset'),
    ('test.py', 'det', 'model.test_cfg.rpn.nms=0', 'model.test_cfg.rpn'),
]  # fmt: skip


def options_of(node: object, path: tuple = ()) -> Iterator[str]:
    """Every place in a config, with dots; lists of numbers and of names are one place."""
    nested = isinstance(node, dict) or (
        isinstance(node, (list, tuple)) and any(isinstance(value, dict) for value in node)
    )
    items = node.items() if isinstance(node, dict) else enumerate(node) if nested else ()
    for key, value in items:
        if '.' not in str(key) and key != 'classes':
            yield from options_of(value, (*path, str(key)))
    if path:
        yield '.'.join(path)


@pytest.fixture(scope='module')
def base(tmp_path_factory, scenes):
    """Two small configs with their data and a checkpoint each; ``run(tool, task, *options)``."""
    folder = tmp_path_factory.mktemp('base')
    write_config(folder, SMALL_UPERNET)
    write_config(folder, SMALL_MASK_RCNN, 'detector.py')
    (folder / 'data').symlink_to(scenes.ade20k.parent)
    mains = {tool: main_of(tool) for tool in READ_BY}
    loaders = {'train.py': ('train', 'val'), 'test.py': ('test',)}

    def run(tool: str, task: str, *options: str, words: tuple = ()) -> tuple[int, str]:
        for name in ('work', 'out'):
            shutil.rmtree(folder / name, ignore_errors=True)
        _forget_instances(ManagerMixin)
        alone = [
            f'{part}_dataloader.{setting}'
            for part in loaders[tool]
            for setting in ('num_workers=0', 'persistent_workers=False')
        ]
        signal.alarm(120)
        try:
            return call(mains[tool], [*BASES[tool, task], *alone, *options, *words])
        finally:
            signal.alarm(0)

    before = Path.cwd(), signal.signal(signal.SIGALRM, _hangs)
    os.chdir(folder)
    for task in ('seg', 'det'):
        code, error = run('train.py', task)
        assert code == 0, error
        (made,) = Path('work').glob('*_1.pth')
        made.rename(f'{task}.pth')
    yield run
    os.chdir(before[0])
    signal.signal(signal.SIGALRM, before[1])


def _forget_instances(kind: type) -> None:
    """As a new process does: mmengine keeps visualizers and loggers by name."""
    for one in kind.__subclasses__():
        vars(one).get('_instance_dict', {}).clear()
        _forget_instances(one)


def _hangs(*_: object) -> None:
    raise AssertionError('it has not ended after two minutes')


def check_end(case: object, code: int, error: str) -> None:
    """It worked, or there is one message."""
    assert code in (0, 2), (case, error)
    assert 'Traceback' not in error, (case, error)
    if code == 2:
        assert len([line for line in error.splitlines() if 'error: ' in line]) == 1, (case, error)


@pytest.mark.slow
@pytest.mark.parametrize(('tool', 'task', 'option', 'named'), NAMED)
def test_an_option_that_does_not_fit_is_named(base, tool, task, option, named):
    code, error = base(tool, task, option)
    check_end(option, code, error)
    assert code == 2, option
    assert named in error
    assert 'usage:' not in error


@pytest.mark.slow
@pytest.mark.parametrize(('tool', 'task'), BASES)
def test_one_option_of_the_config_at_a_time(base, tool, task):
    """The base itself works; 12 of its options, drawn once and for all, have another value."""
    assert base(tool, task)[0] == 0
    config = Config.fromfile(BASES[tool, task][0]).to_dict()
    places = [p for key in READ_BY[tool] if key in config for p in options_of({key: config[key]})]
    draw = random.Random(f'{tool} {task}')
    for _ in range(12):
        option = f'{draw.choice(places)}={draw.choice(VALUES)}'.replace(', ', ',')
        check_end(option, *base(tool, task, option))


@pytest.mark.slow
@pytest.mark.parametrize('tool', READ_BY)
def test_one_option_of_the_command_line_at_a_time(base, tool):
    """Every option that takes a value, with two that it was not made for."""
    draw = random.Random(tool)
    for action in parser_of(tool)._actions:
        name = (action.option_strings or [''])[-1]
        if not name or action.nargs == 0 or name == '--cfg-options':
            continue
        for value in draw.sample(['-1', '0', 'nan', 'x', '9' * 30, '', 'a=b'], 2):
            check_end((name, value), *base(tool, 'seg', words=(name, value)))
