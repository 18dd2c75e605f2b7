"""mmdet must be importable whatever lies beside it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cb_mm import mmpretrain_guard


def test_mmdet_imports_beside_mmpretrain_and_transformers():
    pytest.importorskip('mmpretrain')
    pytest.importorskip('transformers')
    script = 'import cb_mm, mmdet.models, mmpretrain.models; print("imported")'
    done = subprocess.run([sys.executable, '-c', script], capture_output=True, text=True)
    assert done.stdout.strip().endswith('imported'), done.stderr[-2000:]


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
