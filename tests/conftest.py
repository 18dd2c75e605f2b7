"""What every test file shares."""

from __future__ import annotations

from pathlib import Path

import pytest

import cb_mm  # noqa: F401  (before any test imports mmcv.ops: it supplies the ops)

REPO = Path(__file__).resolve().parent.parent


@pytest.fixture(scope='session')
def shared() -> Path:
    """The folder of real images and weights beside the repository; skips where it is absent."""
    folder = REPO.parent / 'shared'
    if not (folder / 'data').is_dir():
        pytest.skip('needs the folder of real images and weights beside the repository')
    return folder


@pytest.fixture(scope='session')
def scenes(tmp_path_factory):
    """A very small embedded data set, in both layouts."""
    from cb_mm.data import write_scenes

    root = tmp_path_factory.mktemp('data') / 'scenes'
    return write_scenes(root, train=8, val=4, size=(64, 96))


@pytest.fixture(autouse=True, scope='module')
def no_scope_is_left_over():
    """mmengine keeps the last default scope for ever; the next file must not depend on it."""
    yield
    from mmengine.registry import DefaultScope

    DefaultScope._instance_dict.clear()
