"""mmdet must be importable whatever lies beside it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cb_mm.compat import mmcv_ops, mmpretrain_guard
from cb_mm.compat.families import current_family


@pytest.mark.parametrize(
    'first',
    [
        pytest.param(
            'from mmseg.apis import init_model; from mmdet.apis import DetInferencer; import cb_mm',
            marks=pytest.mark.skipif(
                current_family() == 'openmmlab' and mmcv_ops.source() == 'torchvision',
                reason="the original mmseg and mmdet cannot be imported without mmcv's ops",
            ),
        ),
        # Beside mmpretrain and transformers, where they are installed.
        'import cb_mm, mmdet.models; from importlib.util import find_spec;'
        'find_spec("mmpretrain") and __import__("mmpretrain.models");'
        'from mmdet.apis import DetInferencer; from mmseg.apis import init_model',
    ],
)
def test_mmseg_and_mmdet_import_in_any_order(first):
    """Scripts that know nothing of cb_mm work in the environment that `make env` builds."""
    done = subprocess.run([sys.executable, '-c', first], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize('home', ['pytorch_utils', 'modeling_utils'])
def test_the_function_is_looked_for_where_mmpretrain_imports_it(tmp_path, home):
    user = tmp_path / 'mmpretrain' / 'models' / 'multimodal' / 'blip'
    user.mkdir(parents=True)
    (user / 'language_model.py').write_text(f'from transformers.{home} import anything\n')
    other = tmp_path / 'transformers'
    other.mkdir()
    folders = tmp_path / 'mmpretrain', other
    (other / f'{home}.py').write_text('def prune(): ...\n')
    assert not mmpretrain_guard._fit(*folders)
    (other / f'{home}.py').write_text('def find_pruneable_heads_and_indices(): ...\n')
    assert mmpretrain_guard._fit(*folders)
