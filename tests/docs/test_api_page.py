"""The Python examples of the docs and of the README run as they are written."""

from __future__ import annotations

import re

import pytest
from tool import REPO, link_configs


def blocks(page: str) -> list[str]:
    text = (REPO / page).read_text()
    found = re.findall(r'```python\n(.*?)```', text, re.S)
    return [block for block in found if 'custom_imports' not in block]  # which is a config


@pytest.mark.slow
def test_examples_run_one_after_another(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    link_configs(tmp_path)
    page = blocks('docs/api.md')
    assert len(page) == 8
    names: dict = {}
    for block in page:
        exec(compile(block, 'docs/api.md', 'exec'), names)
    printed = capsys.readouterr().out
    assert 'iter_4.pth' in printed
    assert 'nats' in printed
    assert (tmp_path / 'robustness' / 'results.md').is_file()
    assert list((tmp_path / 'attention').glob('*.html'))
    assert list((tmp_path / 'predictions').rglob('overlays/*.png'))
    assert (tmp_path / 'model.onnx').is_file()
    # The README's example, with the model and the data that are there.
    (example,) = [block for block in blocks('README.md') if 'evaluate_robustness' in block]
    call = "'upernet_vit_s_cb', 'CHECKPOINT', suite='table9'"
    assert call in example
    small = "config, run.checkpoint, suite='table9', repeats=1, limit=1, data_root=scenes.ade20k"
    exec(compile(example.replace(call, small), 'README.md', 'exec'), names)
    assert '| Gaussian noise' in capsys.readouterr().out
    assert (tmp_path / 'table9' / 'robustness.png').is_file()
