"""Images that nobody expects: one pixel wide, or with a name that is no UTF-8."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image
from robustness_models import records
from tool import main_of

from cb_mm.corruption import CORRUPTIONS, corrupt
from cb_mm.corruption.functional.weather import cloud

THIN = [(1, 20000), (20000, 1)]


def call(tool: str, *words: object) -> int:
    return main_of(tool)([str(word) for word in words])


@pytest.mark.parametrize('shape', THIN, ids=str)
def test_every_corruption_of_a_thin_image(shape):
    """Fog drew a square of 32768 x 32768 for it."""
    image = np.full((*shape, 3), 90, np.uint8)
    for name in CORRUPTIONS:
        changed = corrupt(image, name, np.random.default_rng(0), severity=5)
        assert (changed.shape, changed.dtype) == (image.shape, image.dtype), name


@pytest.mark.parametrize('shape', [(1, 1), (3, 300), (257, 40), (400, 700), (1, 1500)], ids=str)
def test_the_corner_of_a_cloud_is_that_of_the_whole(shape):
    side = 1 << (max(shape) - 1).bit_length()
    whole = cloud(side, side, 1.7, np.random.default_rng(0))
    corner = cloud(*shape, 1.7, np.random.default_rng(0))
    assert np.array_equal(corner, whole[: shape[0], : shape[1]])


@pytest.mark.parametrize('shape', THIN, ids=str)
def test_a_thin_image_is_named_or_drawn(seg, shape, tmp_path, capsys):
    data = tmp_path / 'data'
    shutil.copytree(seg.data, data)
    image = min((data / 'images' / 'validation').iterdir())
    cv2.imwrite(str(image), np.full((*shape, 3), 90, np.uint8))
    cv2.imwrite(str(min((data / 'annotations' / 'validation').iterdir())), np.ones(shape, np.uint8))
    code = call('test.py', seg.config, seg.checkpoint, '--data-root', data, '--limit', 1,
                '--out', tmp_path / 'out')  # fmt: skip
    error = capsys.readouterr().err
    # Made smaller in proportion, nothing is left of it.
    assert code == 2
    assert f'error: image {image}' in error
    assert 'Traceback' not in error
    words = (seg.config, seg.checkpoint, image, '--format', 'png', '--size', '32x32', '--out')
    assert call('visualize_attention.py', *words, tmp_path / 'shown') == 0
    with Image.open(tmp_path / 'shown' / f'{image.stem}_heads_layer3.png') as picture:
        assert max(picture.size) < 4000
    assert call('corrupt.py', image, '--severity', 1, '--out', tmp_path / 'sheet') == 0
    (sheet,) = (tmp_path / 'sheet').iterdir()
    assert max(cv2.imread(str(sheet)).shape) < 30_000


@pytest.fixture
def odd(seg, tmp_path) -> tuple[Path, Path]:
    """A data set, and an image in it whose name is Latin-1."""
    data = tmp_path / 'data'
    shutil.copytree(seg.data, data)
    for part, suffix in (('annotations', b'.png'), ('images', b'.jpg')):
        folder = data / part / 'validation'
        file = os.fsdecode(os.path.join(os.fsencode(folder), b'caf\xe9' + suffix))
        try:
            min(folder.iterdir()).rename(file)
        except OSError:
            pytest.skip('this file system takes UTF-8 alone')
    return data, Path(file)


def test_a_name_that_is_no_utf8_in_a_sweep(seg, odd, tmp_path):
    out = tmp_path / 'out'
    words = (seg.config, seg.checkpoint, '--data-root', odd[0], '--corruption', 'gaussian_noise=9',
             '--repeats', 1, '--fgsm', 1, '--save-corrupted', tmp_path / 'saved',
             '--show-dir', tmp_path / 'shown', '--out', out)  # fmt: skip
    assert call('test.py', *words) == 0
    assert len(records(out)) == 3
    assert 'caf\\udce9.jpg,' in (out / 'scores' / 'clean.csv').read_text()
    assert call('test.py', *words) == 0, 'it is found again'


def test_a_name_that_is_no_utf8_in_the_attention_tools(seg, odd, tmp_path, capsys):
    out = tmp_path / 'out'
    words = (seg.config, seg.checkpoint, odd[1], '--format', 'svg', '--out', out)
    for _ in range(2):
        assert call('analyze_attention.py', *words) == 0
    lines = (out / 'images.jsonl').read_text().splitlines()
    assert json.loads(lines[1])['image'].endswith('caf\\udce9.jpg')
    assert len(lines) == 2
    capsys.readouterr()
    assert call('visualize_attention.py', *words, '--html') == 0
    assert 'caf\\udce9.html' in capsys.readouterr().out


def test_a_name_that_is_no_utf8_in_the_check_of_data(odd, tmp_path, capsys):
    odd[1].unlink()
    words = ('--dataset', 'ade20k', odd[0], '--json', tmp_path / 'found.json')
    assert call('check_data.py', *words) in (0, 1)
    assert re.search(r'caf\\\w+\.png', capsys.readouterr().out)
    assert 'caf' in (tmp_path / 'found.json').read_text()
