"""The pictures that are drawn from a demo, here from one that was never trained."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from PIL import Image
from tool import REPO

from cb_mm.config.loading import load_config, replace_sync_bn


@pytest.mark.slow
def test_every_picture_comes_from_the_run(scenes, tmp_path, monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location('drawing', REPO / 'docs' / 'draw_pictures.py')
    drawing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawing)
    run = tmp_path / 'demo_out'
    (run / 'train').mkdir(parents=True)
    (run / 'scenes').mkdir()
    (run / 'scenes' / 'ade20k').symlink_to(scenes.ade20k)
    monkeypatch.setattr(sys, 'argv', ['draw_pictures.py', str(run), '--out', str(tmp_path)])
    with pytest.raises(SystemExit, match='run `make demo` first'):
        drawing.main()
    config = load_config(drawing.CONFIG)
    init_default_scope('mmseg')
    replace_sync_bn(config)
    torch.manual_seed(0)
    torch.save(MODELS.build(config.model).state_dict(), run / 'train' / 'iter_1.pth')
    drawing.main()
    assert capsys.readouterr().out.count('mIoU') == 5
    drawn = {
        file.name: np.asarray(Image.open(file).convert('RGB')) for file in tmp_path.glob('*.png')
    }
    assert set(drawn) == {
        'hero.png', 'getting_started_predictions.png', 'getting_started_attention.png'
    }  # fmt: skip
    assert all(len(np.unique(pixels.reshape(-1, 3), axis=0)) > 500 for pixels in drawn.values())
