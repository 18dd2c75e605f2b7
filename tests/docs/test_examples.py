"""The examples run from any folder, as small as they go, and show what they say."""

from __future__ import annotations

import json
import re

import forked
import pytest
from tool import REPO

EXAMPLES = REPO / 'examples'

pytestmark = pytest.mark.slow


def run(name: str, *words: object, cwd) -> str:
    done = forked.run(str(EXAMPLES / name), *words, cwd=cwd)
    assert done.code == 0, f'{done.out[-2000:]}\n{done.err[-2000:]}'
    return done.out


def test_readme_lists_them_all():
    listed = re.findall(r'^\| \[(\w+\.py)\]', (EXAMPLES / 'README.md').read_text(), re.M)
    assert sorted(listed) == sorted(path.name for path in EXAMPLES.glob('*.py'))


def test_train_and_test(tmp_path):
    out = run('train_and_test.py', '--iterations', 2, '--batch', 2, cwd=tmp_path)
    results = tmp_path / 'example_out/train_and_test/robustness/results.json'
    cells = json.loads(results.read_text())['cells']
    assert [cell['corruption'] for cell in cells] == [
        'clean', 'gaussian_noise', 'gaussian_noise', 'gaussian_blur',
    ]  # fmt: skip
    printed = re.findall(r'^(.+?) +mIoU (\d+\.\d\d)$', out, re.M)
    assert printed == [(c['title'], f'{c["metrics"]["mIoU"]["mean"]:.2f}') for c in cells]


def test_own_mmseg_config(tmp_path):
    out = run('own_mmseg_config.py', '--iterations', 4, cwd=tmp_path)
    assert re.search(r'^ADE_val_00000001.jpg, 192 x 256 pixels: \w+', out, re.M)
    folder = tmp_path / 'example_out/own_mmseg_config'
    assert "type='ViTCB'" in (folder / 'config.py').read_text()
    assert (folder / 'train/iter_4.pth').exists()


def test_own_mmdet_config(tmp_path):
    out = run('own_mmdet_config.py', '--pictures', 4, cwd=tmp_path)
    assert re.search(r'\.jpg: \d+ boxes with masks', out)
    assert (tmp_path / 'example_out/own_mmdet_config/train/epoch_1.pth').exists()


def test_attention(tmp_path):
    out = run('attention.py', cwd=tmp_path)
    entropies = re.findall(r'^blocks\.\d+\.attn +entropy (\S+) of (\S+), reach', out, re.M)
    assert len(entropies) == 12
    assert all(0 < float(entropy) <= float(bound) for entropy, bound in entropies)
    page = tmp_path / 'example_out/attention/pictures/ADE_val_00000001.html'
    assert page.stat().st_size > 100_000
    assert (page.with_name('ADE_val_00000001_grid.png')).exists()


@pytest.mark.parametrize(
    ('words', 'more', 'unchanged'),
    [((), '0 more', False), (('--broadcast', 'cb_s', '--layers', 'all'), '2,304 more', True)],
)
def test_any_model(words, more, unchanged, tmp_path):
    out = run('any_model.py', *words, cwd=tmp_path)
    assert out.count('removed again: the output is as before') == 2
    assert more in out
    changes = [float(value) for value in re.findall(r'changes by (\S+)%', out)]
    assert len(changes) == 2
    assert all((change == 0) == unchanged for change in changes)
    assert not list(tmp_path.iterdir())
