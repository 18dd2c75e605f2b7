"""What every test file shares."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import pytest

# Before any test imports mmcv.ops: cb_mm supplies the ops. safe_io is on, as in every tool.
import cb_mm.safe_io  # noqa: F401

# A shell ignores Ctrl-C for its background jobs, and nohup SIGHUP; the tests send both.
if threading.current_thread() is threading.main_thread():
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, usual)

REPO = Path(__file__).resolve().parent.parent


@pytest.fixture(scope='session')
def shared() -> Path:
    """The folder of real images and weights beside the repository; skips where it is absent."""
    folder = REPO.parent / 'shared'
    if not (folder / 'data').is_dir():
        pytest.skip('needs the folder of real images and weights beside the repository')
    return folder


@pytest.fixture(scope='session')
def images(request) -> tuple[Path, Path]:
    """Data roots of real images in the layouts of ADE20K and COCO; of drawn ones without them."""
    data = REPO.parent / 'shared' / 'data'
    if data.is_dir():
        return data / 'ade20k_mini', data / 'coco_mini'
    drawn = request.getfixturevalue('scenes')
    return drawn.ade20k, drawn.coco


@pytest.fixture(scope='session')
def scenes(tmp_path_factory):
    """A very small embedded data set, in both layouts."""
    from cb_mm.datasets import write_scenes

    root = tmp_path_factory.mktemp('data') / 'scenes'
    return write_scenes(root, train=8, val=4, size=(64, 96))


@pytest.fixture(autouse=True, scope='module')
def nothing_is_left_over():
    """The next file must not depend on this one.

    mmengine keeps the last default scope for ever; torch compiles a function that it has compiled
    for another size anew, for any size, and then stumbles over the gradient of bicubic resizing.
    """
    yield
    from mmengine.registry import DefaultScope

    DefaultScope._instance_dict.clear()
    if 'torch._dynamo' in sys.modules:
        sys.modules['torch._dynamo'].reset()
