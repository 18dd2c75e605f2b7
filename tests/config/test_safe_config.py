"""--safe-config: data pass as mmengine reads them, programs are refused and never run."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any

import cv2
import forked
import mmengine
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mmengine.config import Config
from tool import CONFIGS, SMALL_MASK_RCNN, SMALL_UPERNET, main_of, write_config

from cb_mm.config import restricted as safe_config
from cb_mm.config.loading import apply_schedule, load_config
from cb_mm.config.restricted.files import Reader
from cb_mm.errors import UserError

SHIPPED = sorted(CONFIGS.glob('*.py'))


@pytest.fixture
def enabled():
    safe_config.enable()
    yield
    safe_config.disable()


def exactly(value: Any) -> Any:
    """A value with its types and the order of its keys, to be compared."""
    if isinstance(value, dict):
        return 'dict', [(key, exactly(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [exactly(item) for item in value]
    return type(value).__name__, value


def upstream(package: str, step: int) -> list[Path]:
    """Every so many of the configs that come with a package."""
    folder = Path(importlib.util.find_spec(package).origin).parent / '.mim' / 'configs'
    files = sorted(folder.rglob('*.py'))
    assert len(files) > 500
    return files[::step]


def test_all_shipped_configs_are_read_as_mmengine_reads_them():
    assert len(SHIPPED) >= 17
    for file in SHIPPED:
        read = safe_config.read(file)
        expected = Config.fromfile(file, import_custom_modules=False)
        assert exactly(read.to_dict()) == exactly(expected.to_dict()), file
        assert read.text == expected.text
        assert read.filename == expected.filename


@pytest.mark.parametrize('package', ['mmseg', 'mmdet', 'mmpretrain'])
def test_other_packages_configs_are_read_as_mmengine_reads_them(package):
    compared = 0
    for file in upstream(package, step=40):
        try:
            values = Reader().read(file)
        except UserError:
            continue
        expected = Config.fromfile(file, import_custom_modules=False)
        assert exactly(Config(values).to_dict()) == exactly(expected.to_dict()), file
        compared += 1
    assert compared >= 18


BASE = """
a = dict(b=1, c=[1, 2], d=dict(e=(3, 4)))
scales = [1, 2]
pipeline = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(4, 2))]
"""


@pytest.mark.parametrize(
    'text',
    [
        'x = [dict(scale=s * 0.5, **_base_.a) for s in _base_.scales]',
        'x = {f"layers.{i}.norm": dict(lr=0.1) for i in range(3) for _ in (1, 2)}',
        'x = {{_base_.a}}\ny = dict(z={{_base_.a.d}}, w=[{{_base_.a.c}}])',
        'a = dict(_delete_=True, f=1)',
        'a = dict(d=dict(_delete_=True, f=1))',
        "d = _base_.a\nd.d.update(dict(f=1), g=2)\nd.pop('b')\nx = dict(y=d)\ndel _base_.scales",
        "p = _base_.pipeline\np[-1]['scale'] = (8, 4)\n_base_.a.d.e = [1]\nx = p[::-1]",
        'depths = [2, 6]\nx = sum(depths) // len(depths) + int(0.5 * 3) - round(2.5) % 2 ** 3',
        "x = {f's.{i}.b.{j}': 1 for i, n in enumerate([1, 2]) for j in range(n)}",
        "x = 'a' + 'b' * 2\ny = [0] * 3 + [*_base_.scales]\nz = (1,) + (2,)\nw = not True",
        "__hidden = 1\nx, y = 1, 'two'\ndel x",
        "x = dict(_base_.a, g=1)\ny = {**_base_.a, 'b': 2}\nz = tuple([1])\nw = list((1,))",
        'x = y = [1]\ny[0] = 2',
    ],
)
def test_what_it_computes_is_what_python_computes(tmp_path, text):
    (tmp_path / 'base.py').write_text(BASE)
    file = tmp_path / 'mine.py'
    file.write_text(text if '_base_ = ' in text else f"_base_ = ['base.py']\n{text}\n")
    expected = Config.fromfile(file).to_dict()
    assert exactly(Config(Reader().read(file)).to_dict()) == exactly(expected)


def test_a_base_in_a_package(tmp_path):
    """With the package as the scope of what it names, as mmengine does it."""
    (tmp_path / 'mine.py').write_text("_base_ = ['mmseg::_base_/default_runtime.py']\nx = 1\n")
    config = safe_config.read(tmp_path / 'mine.py')
    assert config.visualizer.type == 'SegLocalVisualizer'
    assert config.visualizer._scope_ == 'mmseg'
    assert config.x == 1


@pytest.mark.parametrize('text', [SMALL_UPERNET, SMALL_MASK_RCNN])
def test_ordinary_configs_pass(tmp_path, text):
    write_config(tmp_path, text)
    file = tmp_path / 'mine.py'
    file.write_text('''
"""A docstring."""
_base_ = ['small.py']
lr = -1e-3
sizes = [*(1, 2), 3]
other = dict(a=lr, **dict(b=list((1, 2))), c=sizes[0], d={'x': None, 'y.z': 1, 3: 4})
inherited = _base_.model.backbone
model = dict(backbone=dict(drop_path_rate=0.1))
''')
    config = safe_config.load(file)
    assert config.other == dict(a=-1e-3, b=[1, 2], c=1, d={'x': None, 'y.z': 1, 3: 4})
    assert config.inherited.type == 'ViTCB'


PROGRAMS = [
    'import os',
    'from os import system',
    "__import__('os').system('touch PWNED')",
    "x: __import__('os').system('touch PWNED') = 1",
    'x: int = 1',
    'x = open("PWNED", "w")',
    'x = eval',
    'x = (lambda: 0)()',
    "x = f'{[1]}'",
    'x = 2 ** 9999999',
    'x = 1 if True else 2',
    'a, b = 1, 2, 3',
    'dict = 1\nx = dict(a=1)',
    'range = [1]',
    'x = [i for i in [1] if i]',
    'x = dict.fromkeys((1, 2))',
    'x = {1, 2}',
    "_base_ = ['evil.py']",
    "_base_ = 'https://example.org/a.py'",
    "_base_ = ['mine.py']",
    'x = ' + '[' * 5000 + ']' * 5000,
    "custom_imports = dict(imports=['antigravity'])",
    "model = dict(type='os.system', command='touch PWNED')",
    "model = dict(type='mmengine.config.Config.fromfile')",
    "model = dict(a=[dict(b=dict(type='torch.hub.load'))])",
    "model = dict(test_cfg=dict(nms=dict(type='__import__(1)')))",
    "default_scope = 'antigravity'",
]


@pytest.mark.parametrize('text', PROGRAMS)
def test_anything_else_is_refused_and_not_run(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'evil.py').write_text("import os\nos.system('touch PWNED')\n")
    (tmp_path / 'mine.py').write_text(f'"""Mine."""\n{text}\n')
    with pytest.raises(UserError, match=r'mine\.py|evil\.py') as caught:
        safe_config.load(Path('mine.py'))
    assert len(str(caught.value)) < 500
    assert not (tmp_path / 'PWNED').exists()
    assert 'antigravity' not in sys.modules


def test_the_line_is_named(tmp_path):
    (tmp_path / 'mine.py').write_text('a = 1\nb = dict(\n    c=1,\n    d=open("x"))\n')
    with pytest.raises(UserError, match=r'mine\.py, line 4: "open\(\'x\'\)" is more than data'):
        safe_config.load(tmp_path / 'mine.py')


def test_the_place_of_a_refused_value_is_named(tmp_path):
    (tmp_path / 'mine.py').write_text("a = dict(b=[1, dict(work_dir='/etc')])\n")
    with pytest.raises(UserError, match=r'its a\.b\.1\.work_dir is "/etc"; a safe config writes'):
        safe_config.load(tmp_path / 'mine.py')


def test_other_formats_are_refused(tmp_path):
    for name in ('a.yaml', 'a.json'):
        (tmp_path / name).write_text('{}')
        with pytest.raises(UserError, match=r'not a \.py file'):
            safe_config.load(tmp_path / name)


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('abcé\'"\n\\{', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner)
    | st.dictionaries(st.sampled_from(['a', 'b', 'c.d', 'e-f', 7]), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=200, deadline=None, derandomize=True)
@given(value=_values)
def test_whatever_is_data_is_read_as_it_is_and_dumped_as_data(value, tmp_path_factory):
    file = tmp_path_factory.getbasetemp() / 'data.py'
    file.write_text(f'x = {value!r}\ny = dict(z=x)\n', encoding='utf-8')
    config = safe_config.read(file)
    assert exactly(config.to_dict()['x']) == exactly(value)
    config.dump(str(file))
    assert safe_config.read(file).to_dict() == config.to_dict()


@settings(max_examples=300, deadline=None, derandomize=True)
@given(key=st.text('ab.-/ \'"\\#(){}\n\r\t:=,;0é\u2028', min_size=1, max_size=6))
def test_a_key_is_refused_or_survives_the_dump(key, tmp_path_factory):
    """The dump is a program: a key must not come out of it as anything else."""
    file = tmp_path_factory.getbasetemp() / 'keys.py'
    file.write_text(f'x = {{{key!r}: 1}}\n', encoding='utf-8')
    try:
        config = safe_config.read(file)
    except UserError as error:
        assert 'is not a plain name' in str(error)  # noqa: PT017
        return
    config.dump(str(file))
    assert safe_config.read(file).to_dict() == {'x': {key: 1}}


@settings(max_examples=500, deadline=None, derandomize=True)
@given(words=st.lists(st.sampled_from([*'abx_=()[]{}.,:*\'"\\#\n 01', 'import ', 'dict', '_base_',
                                       ' for a in ', 'range', 'del ', '.update', ' + ', ' ** ']),
                      max_size=40))  # fmt: skip
def test_no_text_whatever_makes_it_fall_over(words, tmp_path_factory):
    """500 texts: data, or refused with one message."""
    file = tmp_path_factory.getbasetemp() / 'any.py'
    file.write_text(''.join(words), encoding='utf-8')
    with contextlib.suppress(UserError):
        safe_config.read(file)


def doubling(folder: Path) -> Path:
    lines = ['a0 = [1, 2]', *(f'a{i + 1} = [a{i}, a{i}]' for i in range(27))]
    (folder / 'doubling.py').write_text('\n'.join(lines))
    return folder / 'doubling.py'


def test_a_config_that_doubles_itself_is_refused(tmp_path, enabled):
    with pytest.raises(UserError, match='more than 100,000 values'):
        load_config(doubling(tmp_path))


def test_a_config_that_doubles_itself_is_refused_without_the_option_too(tmp_path):
    """Otherwise mmengine copies 2^28 values."""
    with pytest.raises(UserError, match=r'doubling\.py: it has more than 1,000,000 values'):
        load_config(doubling(tmp_path))
    (tmp_path / 'round.py').write_text('a = []\na.append(a)\n')
    with pytest.raises(UserError, match=r'round\.py: it has a list or dict that contains itself'):
        load_config(tmp_path / 'round.py')


@pytest.mark.parametrize(
    'option',
    [
        'model.backbone.type=os.system',
        'work_dir=/etc',
        'default_hooks.checkpoint.out_dir=/tmp',
        'train_dataloader.dataset.ann_file=x.pkl',
        'test_evaluator.collect_dir=/home',
        'env_cfg.dist_cfg.backend=evil',
    ],
)
def test_options_are_checked_too(enabled, option):
    with pytest.raises(UserError, match=r'`safe_config`.*with `cfg_options`: its'):
        load_config(CONFIGS / 'upernet_vit_ti_cb.py', [option])


def test_options_that_are_data_pass(enabled):
    options = ['train_cfg.max_iters=3', 'model.backbone.drop_path_rate=0.3', 'work_dir=work/a']
    config = load_config(CONFIGS / 'upernet_vit_ti_cb.py', options)
    assert (config.train_cfg.max_iters, config.work_dir) == (3, 'work/a')


def test_what_a_schedule_puts_together_is_checked(tmp_path, enabled):
    """Each half alone is data."""
    (tmp_path / 'mine.py').write_text(
        "x = dict(type='MOTChallengeMetric')\nschedules = dict(a={'x.outfile_prefix': 'thesis'})\n"
    )
    config = load_config(tmp_path / 'mine.py')
    with pytest.raises(UserError, match=r'x\.outfile_prefix is refused'):
        apply_schedule(config, 'a')


def test_files_that_can_run_code_are_not_read(tmp_path, enabled):
    mmengine.dump([1, 2], tmp_path / 'a.pkl')
    mmengine.dump(dict(a=[1]), tmp_path / 'a.yaml')
    (tmp_path / 'b.yaml').write_text('!!python/object/apply:os.getcwd []')
    assert mmengine.load(tmp_path / 'a.yaml') == dict(a=[1])
    for file, how in (('a.pkl', None), ('b.yaml', None), ('a.yaml', 'pkl')):
        with pytest.raises(UserError, match='`safe_config`'):
            mmengine.load(tmp_path / file, file_format=how)
    safe_config.disable()
    assert mmengine.load(tmp_path / 'a.pkl') == [1, 2]


def test_what_never_ends_or_is_elsewhere_is_not_read(tmp_path, enabled):
    """Data sets put names together that a config does not have."""
    os.mkfifo(tmp_path / 'pipe.json')
    (tmp_path / 'zero').symlink_to('/dev/zero')
    files = [tmp_path / 'pipe.json', tmp_path / 'zero', '/proc/self/environ']
    for name in (*files, *(f'{kind}://localhost:9/a' for kind in ('http', 'https', 's3'))):
        with pytest.raises(UserError, match='`safe_config`'):
            mmengine.fileio.get(name)
    with pytest.raises(UserError, match='address of https'):
        mmengine.fileio.FileClient.infer_client(uri='https://localhost:9/a')
    safe_config.disable()
    backend = mmengine.fileio.get_file_backend('https://localhost:9/a')
    assert isinstance(backend, mmengine.fileio.HTTPBackend)


TOOLS = {
    'train.py': ['mine.py'],
    'test.py': ['mine.py', 'none.pth'],
    'benchmark.py': ['mine.py'],
    'export_onnx.py': ['mine.py', 'none.pth', '--out', 'x.onnx'],
    'analyze_attention.py': ['mine.py', 'none.pth', 'none.png'],
    'visualize_attention.py': ['mine.py', 'none.pth', 'none.png'],
    'softmax_gradient.py': ['mine.py', 'none.pth', 'none.png'],
    'predict.py': ['mine.py', 'none.pth', 'none.png'],
    'check_data.py': ['mine.py'],
    'corrupt.py': ['--dataset', 'mine.py', '--suite', 'table9', '--out', 'copy'],
    'ablation.py': ['table1', '--config', 'mine.py'],
    'share.py': ['push', 'mine.py', 'none.pth', 'shared'],
}


@pytest.mark.parametrize('tool', TOOLS)
def test_every_tool_reads_configs_this_way(tool, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'mine.py').write_text("x: __import__('os').system('touch PWNED') = 1\n")
    (tmp_path / 'none.pth').write_bytes(b'')
    cv2.imwrite('none.png', np.zeros((32, 32, 3), np.uint8))
    try:
        assert main_of(tool)([*TOOLS[tool], '--safe-config']) == 2
    finally:
        safe_config.disable()
    assert 'error: --safe-config: mine.py, line 1: ' in capsys.readouterr().err
    assert not (tmp_path / 'PWNED').exists()


@pytest.mark.slow
def test_enabled_nothing_is_built_by_its_import_path(tmp_path):
    """Also where another key than ``type`` names the class."""
    script = """
from cb_mm.config import restricted as safe_config
from cb_mm.config.loading import load_config
from mmengine.registry import HOOKS, MODELS
assert HOOKS.get('os.system') is not None  # mmengine's way
safe_config.enable()
for name in ('os.system', 'mmengine.config.Config', 'mmengine.dump'):
    assert HOOKS.get(name) is None and MODELS.get(name) is None, name
assert HOOKS.get('mmengine.LoggerHook') is not None
import sys
load_config(sys.argv[1], ['train_cfg.max_iters=3'])
"""
    done = forked.run('-c', script, CONFIGS / 'upernet_vit_ti_cb.py', cwd=tmp_path)
    assert done.code == 0, done.err


def test_configs_of_the_guide_to_own_data_are_only_data(enabled, tmp_path):
    """What is trained as the guide says can be shared: whoever fetches it evaluates no program."""
    page = (CONFIGS.parent / 'docs' / 'own_data.md').read_text()
    found = re.findall(r'<!-- file: (\S+) -->\n```python\n(.*?)```', page, re.S)
    assert len(found) == 2
    for name, text in found:
        (tmp_path / name).write_text(text)
        config = load_config(tmp_path / name)
        assert config.train_dataloader.dataset.data_root.rstrip('/') == 'mine'
