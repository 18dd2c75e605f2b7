"""The documentation: links resolve, and the complete examples run."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import cv2
import forked
import numpy as np
import pages
import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from tool import REPO

from cb_mm.config.loading import load_config, replace_sync_bn

PICTURES = REPO / 'docs' / 'pictures'
page_name = pytest.mark.parametrize('page', pages.PAGES, ids=lambda page: page.name)


def links(page: Path) -> list[str]:
    text = pages.prose(page)
    return re.findall(r'\]\(([^)\s]+)\)', text) + re.findall(r'(?:src|href)="([^"]+)"', text)


def test_pages_are_found():
    assert {'README.md', 'training.md', 'backbone.md'} <= {page.name for page in pages.PAGES}
    assert REPO / 'examples' / 'README.md' in pages.PAGES


@page_name
def test_links_and_pictures_resolve(page):
    for link in links(page):
        if link.startswith(('http://', 'https://', 'mailto:')):
            continue
        path, _, anchor = link.partition('#')
        target = page.parent / path if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in pages.anchors(target), link


def test_tests_that_the_pages_name_exist():
    """SECURITY.md names the test of each promise; `…` and a bare `::name` mean the file before."""
    files = {file.name: file.read_text() for file in (REPO / 'tests').rglob('test_*.py')}
    count = 0
    for page in pages.PAGES:
        module = ''
        named = r'`(?:tests/[\w/]*?)?(test_\w+\.py|…(?=::)|(?=::))(?:::(test_\w+))?`'
        for found in re.finditer(named, page.read_text()):
            module = found[1] if found[1].endswith('.py') else module
            assert module in files, f'{page.name}: {module}'
            assert not found[2] or f'def {found[2]}(' in files[module], f'{page.name}: {found[0]}'
            count += page.name == 'SECURITY.md'
    assert count > 40


def test_every_picture_is_shown():
    shown = {(page.parent / link).resolve() for page in pages.PAGES for link in links(page)}
    assert [path.name for path in PICTURES.iterdir() if path.resolve() not in shown] == []


def test_every_page_can_be_reached():
    """From the README, by links."""
    reached, todo = set(), [REPO / 'README.md']
    while todo:
        page = todo.pop()
        if page in reached or page.suffix != '.md':
            continue
        reached.add(page)
        todo += [(page.parent / link.partition('#')[0]).resolve() for link in links(page)]
    assert set((REPO / 'docs').glob('*.md')) <= reached


@page_name
def test_named_files_exist(page):
    """Every tool, config and benchmark that a page names in a command."""
    for name in re.findall(
        r'(?:tools|benchmarks|configs|examples)/\w+\.(?:py|sh)\b', page.read_text()
    ):
        assert (REPO / name).exists(), name


@pytest.mark.parametrize(('name', 'scope'), [('my_segmentor', 'mmseg'), ('my_detector', 'mmdet')])
def test_example_configs_build(name, scope, tmp_path):
    """docs/backbone.md; that they train is in test_docs_commands.py."""
    config = load_config(write_page_file('backbone.md', f'{name}.py', tmp_path))
    replace_sync_bn(config)
    init_default_scope(scope)
    model = MODELS.build(config.model)
    maps = model.backbone(torch.randn(1, 3, 64, 64))
    assert [tuple(m.shape[-2:]) for m in maps] == [(16, 16), (8, 8), (4, 4), (2, 2)]


def write_page_file(page: str, name: str, folder: Path) -> Path:
    """A file that a page shows, beside a folder ``configs``."""
    found = [
        b for b in pages.blocks(REPO / 'docs' / page) if (b.mark, b.names) == ('file', (name,))
    ]
    if not (folder / 'configs').exists():
        (folder / 'configs').symlink_to(REPO / 'configs')
    (folder / name).write_text(found[0].text)
    return folder / name


#: A small model, for a step that takes a second.
SMALL = """
_base_ = ['{base}']
model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dim=48, depth=4, num_heads=3), out_indices=(0, 1, 2, 3)
    ),
    {model}
)
alone = dict(num_workers=0, persistent_workers=False)
train_dataloader = alone
val_dataloader = alone
test_dataloader = alone
train_cfg = dict(max_{unit}=1)
"""


def train_small(folder: Path, base: str, model: str, unit: str, *options: str) -> forked.Done:
    text = SMALL.format(base=base, model=model, unit=unit)
    (folder / 'small.py').write_text(text)
    words = ('small.py', '--work-dir', 'work', '--cfg-options', *options)
    done = forked.run('train.py', *words, cwd=folder)
    assert done.code == 0, done.err[-3000:]
    return done


@pytest.mark.slow
def test_segmentation_data_of_ones_own(tmp_path):
    """docs/data.md: the config there trains on files in the layout there."""
    random = np.random.default_rng(0)
    for split in ('train', 'val'):
        for kind in ('images', 'labels'):
            (tmp_path / 'data/mine' / kind / split).mkdir(parents=True)
        for i in range(2):
            labels = random.choice([0, 1, 2, 255], (64, 64)).astype(np.uint8)
            image = random.integers(0, 256, (64, 64, 3), np.uint8)
            cv2.imwrite(str(tmp_path / f'data/mine/images/{split}/{i}.jpg'), image)
            cv2.imwrite(str(tmp_path / f'data/mine/labels/{split}/{i}.png'), labels)
    write_page_file('data.md', 'my_scenes.py', tmp_path)
    heads = """
    data_preprocessor=dict(size=(64, 64)),
    decode_head=dict(in_channels=[48] * 4, channels=16),
    auxiliary_head=dict(in_channels=48, channels=16),"""
    done = train_small(
        tmp_path, 'my_scenes.py', heads, 'iters',
        'train_dataloader.dataset.pipeline.2.scale=(64,64)',
        'train_dataloader.dataset.pipeline.3.crop_size=(64,64)',
        'val_dataloader.dataset.pipeline.1.scale=(64,64)',
    )  # fmt: skip
    assert re.search(r'\|\s+background\s+\|', done.out + done.err)
    assert (tmp_path / 'work/iter_1.pth').exists()


@pytest.mark.slow
def test_detection_data_of_ones_own(scenes, tmp_path):
    data = tmp_path / 'data/mine'
    data.mkdir(parents=True)
    for split in ('train', 'val'):
        (data / split).symlink_to(scenes.coco / f'{split}2017')
        (data / f'{split}.json').symlink_to(scenes.coco / f'annotations/instances_{split}2017.json')
    write_page_file('data.md', 'my_objects.py', tmp_path)
    train_small(
        tmp_path, 'my_objects.py', 'neck=dict(in_channels=[48] * 4),', 'epochs',
        'train_dataloader.dataset.pipeline.3.transforms.0.0.scales=[(96,64)]',
        'train_dataloader.dataset.pipeline.3.transforms.1.2.scales=[(96,64)]',
        'train_dataloader.dataset.indices=2', 'val_dataloader.dataset.indices=1',
        'val_dataloader.dataset.pipeline.1.scale=(96,64)',
    )  # fmt: skip
    assert (tmp_path / 'work/epoch_1.pth').exists()


#: What troubleshooting.md quotes of others than cb_mm.
FOREIGN = {
    'operator torchvision::nms does not exist',
    'ImportError: libGL.so.1: cannot open shared object file',
    "No module named 'mmcv._ext'",
    'mmsegmentation is not installed, please install mmsegmentation manually',
    'SyncBatchNorm expected input tensor to be on GPU',
    'srun: command not found',
    'address already in use',
    '… is used for get external …',
    'mmengine does not support to load cb_mm config',
}


def said_by_us() -> str:
    """Every piece of text in the sources, and every message that the docs show."""
    pieces = [(REPO / 'docs' / 'messages.md').read_text()]
    pieces += [path.read_text() for path in (REPO / 'tools').glob('*.sh')]
    for path in (REPO / 'cb_mm').rglob('*.py'):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                pieces.append(node.value)
    said = re.sub(r'\s+', ' ', '\0'.join(pieces).replace('\\"', '"'))
    # Users of the tools see an option where the library names a parameter.
    return re.sub(r'`([a-z_]+)`', lambda name: f'--{name[1].replace("_", "-")}', said)


def test_troubleshooting_quotes_what_is_said():
    page, ours, quotes = REPO / 'docs' / 'troubleshooting.md', said_by_us(), []
    for row in re.findall(r'^\| (.+?) \| ', page.read_text(), re.M):
        quotes += re.findall(r'`([^`]+)`', row)
    assert len(quotes) > 25
    parts = [
        part
        for quote in quotes
        if quote not in FOREIGN and not quote.startswith('_base_')
        for part in re.split(r'\s*(?:…|\b[NM]\b)\s*', quote)
    ]
    assert [part for part in parts if len(part) > 3 and part not in ours] == []


def test_the_table_of_faults_is_the_stored_one():
    stored = (REPO / 'benchmarks' / 'results' / 'faults.md').read_text()
    assert stored in (REPO / 'docs' / 'benchmarks.md').read_text()
    assert '| **all** | ' in stored
