"""--safe-config: data pass, programs are refused before a line of them runs."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tool import CONFIGS, SMALL_MASK_RCNN, SMALL_UPERNET, write_config

from cb_mm import safe_config
from cb_mm.errors import UserError

SHIPPED = sorted(CONFIGS.glob('*.py'))


def test_all_shipped_configs_are_data():
    assert len(SHIPPED) >= 17
    for file in SHIPPED:
        config = safe_config.load(file)
        assert 'model' in config, file


@pytest.mark.parametrize('text', [SMALL_UPERNET, SMALL_MASK_RCNN])
def test_ordinary_configs_pass(tmp_path, text):
    write_config(tmp_path, text)
    file = tmp_path / 'mine.py'
    file.write_text('''
"""A docstring."""
_base_ = ['small.py']
lr: float = -1e-3
sizes = [*(1, 2), 3]
other = dict(a=lr, **dict(b=list((1, 2))), c=sizes[0], d={'x': None, 'y': {1, 2}})
inherited = _base_.model.backbone
model = dict(backbone=dict(drop_path_rate=0.1))
''')
    config = safe_config.load(file)
    assert config.other == dict(a=-1e-3, b=[1, 2], c=1, d=dict(x=None, y={1, 2}))
    assert config.inherited.type == 'ViTCB'


PROGRAMS = [
    'import os',
    'from os import system',
    "__import__('os').system('touch PWNED')",
    "x = __import__('os').system('touch PWNED')",
    'x = open("PWNED", "w")',
    'x = eval',
    'x = [c for c in ().__class__.__base__.__subclasses__()]',
    'x = (lambda: 0)()',
    'x = f"{1}"',
    'x = 2 ** 9999999',
    'x = [0] * 10',
    'def f(): pass',
    'class A: pass',
    'for i in (1, 2): pass',
    'while True: pass',
    'with open("PWNED", "w") as f: pass',
    'x = 1 if True else 2',
    'x = (y := 1)',
    'assert False',
    'del x',
    'x.y = 1',
    'x[0] = 1',
    'a, b = 1, 2',
    'dict = 1\nx = dict(a=1)',
    'x = dict.fromkeys((1, 2))',
    'x = dict(a=print)',
    "x = '{{$HOME:PWNED}}'",
    "x = '{{ fileDirname }}'",
    '# {{$X:1}}',
    "_base_ = ['evil.py']",
    "_base_ = 'mmseg::_base_/default_runtime.py'",
    "_base_ = 'https://example.org/a.py'",
    "_base_ = ['mine.py']",
    '_base_ = 3',
    'x = _base_.__class__',
    '@print\ndef f(): pass',
    'x = await y',
    'x = (1',
    'x = "\0"',
    'x = ' + '[' * 5000 + ']' * 5000,
    "custom_imports = dict(imports=['antigravity'])",
    "custom_imports = dict(imports='os')",
    "custom_imports = ['os']",
    "model = dict(type='os.system', command='touch PWNED')",
    "optim_wrapper = dict(constructor='subprocess.call')",
    "model = dict(type='mmengine.config.Config.fromfile')",
    "model = dict(a=[dict(b=dict(type='torch.hub.load'))])",
    "default_scope = 'antigravity'",
    "model = dict(type='X', _scope_='antigravity')",
    "train_dataloader = dict(dataset=dict(ann_file='data.pkl'))",
    "train_dataloader = dict(dataset=dict(ann_file='data.YAML'))",
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


def test_other_formats_are_refused(tmp_path):
    for name in ('a.yaml', 'a.json'):
        (tmp_path / name).write_text('{}')
        with pytest.raises(UserError, match=r'not a \.py file'):
            safe_config.load(tmp_path / name)


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('abcé\'"\n\\{', max_size=8).filter(lambda text: '{{' not in text),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner)
    | st.dictionaries(st.sampled_from(['a', 'b', 'c']), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=200, deadline=None, derandomize=True)
@given(value=_values)
def test_whatever_is_data_is_read_as_it_is(value, tmp_path_factory):
    text = f'x = {value!r}\ny = dict(z=x)\n'
    if '{{' in text:
        return
    file = tmp_path_factory.getbasetemp() / 'data.py'
    file.write_text(text, encoding='utf-8')
    safe_config.check_file(file, [])
    names: dict = {}
    exec(file.read_text(encoding='utf-8'), names)  # what mmengine does with it
    assert names['x'] == value


@settings(max_examples=500, deadline=None, derandomize=True)
@given(words=st.lists(st.sampled_from([*'abx_=()[]{}.,:*\'"\\#\n 01', 'import ', 'dict', '_base_']),
                      max_size=40))  # fmt: skip
def test_no_text_whatever_makes_it_fall_over(words, tmp_path_factory):
    """500 texts: data, or refused with one message."""
    file = tmp_path_factory.getbasetemp() / 'any.py'
    file.write_text(''.join(words), encoding='utf-8')
    with contextlib.suppress(UserError):
        safe_config.check_file(file, [])


def test_enabled_nothing_is_built_by_its_import_path(tmp_path):
    """Also where another key than ``type`` names the class."""
    script = """
from cb_mm import safe_config
from cb_mm.config import load_config
from mmengine.registry import HOOKS, MODELS
assert HOOKS.get('os.system') is not None  # mmengine's way
safe_config.enable()
for name in ('os.system', 'mmengine.config.Config', 'mmengine.dump'):
    assert HOOKS.get(name) is None and MODELS.get(name) is None, name
assert HOOKS.get('mmengine.LoggerHook') is not None
import sys
load_config(sys.argv[1], ['train_cfg.max_iters=3'])
"""
    words = [sys.executable, '-c', script, str(CONFIGS / 'upernet_vit_ti_cb.py')]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
