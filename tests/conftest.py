"""What every test file shares."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections import Counter
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


def pytest_collection_modifyitems(config, items):
    """Give the workers of xdist the files with most slow tests first, so that they end together.

    One file is one worker's, for its fixtures' sake (``--dist loadfile`` in the Makefile).
    """
    if hasattr(config, 'workerinput'):
        slow = Counter(item.path for item in items if item.get_closest_marker('slow'))
        items.sort(key=lambda item: -slow[item.path])


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


@pytest.fixture(scope='session')
def wheel(tmp_path_factory):
    """The built wheel, installed in an environment that does not see the checkout."""
    import installed

    return installed.install(tmp_path_factory.mktemp('wheel'))


@pytest.fixture(scope='session')
def seg(tmp_path_factory, scenes):
    """A small segmentor whose random weights find what is there; nobody changes its files."""
    from robustness_models import SmallModel

    return SmallModel(tmp_path_factory.mktemp('seg'), 'seg', scenes.ade20k)


@pytest.fixture(scope='session')
def det(tmp_path_factory, scenes):
    """A small detector, likewise."""
    from robustness_models import SmallModel

    return SmallModel(tmp_path_factory.mktemp('det'), 'det', scenes.coco)


@pytest.fixture(autouse=True, scope='module')
def nothing_is_left_over():
    """The next file must not depend on this one.

    mmengine keeps the last default scope for ever; torch compiles again, for any size, a function
    that it has compiled for another size, and then stumbles over the gradient of bicubic resizing.

    mmengine also collects garbage whenever it builds a data set, which takes a second once all the
    packages are there; what is imported is no garbage, and need not be looked at again.
    """
    gc.collect()
    gc.freeze()
    yield
    from mmengine.registry import DefaultScope

    DefaultScope._instance_dict.clear()
    if 'torch._dynamo' in sys.modules:
        sys.modules['torch._dynamo'].reset()
