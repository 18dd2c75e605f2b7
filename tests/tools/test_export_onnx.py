from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import forked
import pytest
import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from tool import main_of

from cb_mm.apis.onnx_export import (
    Difference,
    SegmentorLogits,
    any_size_pooling,
    compare,
    require_close,
)
from cb_mm.checkpoints.load_model import load_model
from cb_mm.checkpoints.normalization import set_normalization
from cb_mm.checkpoints.provenance import KEY, Provenance
from cb_mm.errors import UserError

REPO = Path(__file__).resolve().parents[2]
TOOL = REPO / 'tools' / 'export_onnx.py'

CONFIG = """
custom_imports = dict(imports=['cb_mm'], allow_failed_imports=False)
norm_cfg = dict(type='SyncBN', requires_grad=True)
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(type='SegDataPreProcessor', mean=[1., 2., 3.], std=[4., 5., 6.],
                           bgr_to_rgb=True, pad_val=0, seg_pad_val=255),
    backbone=dict(type='ViTCB', arch=dict(embed_dim=48, depth=2, num_heads=3), broadcast='cb_s',
                  scale_init=0.5, layers='all', out_indices=(0, 0, 1, 1), img_size=64,
                  pyramid_norm_cfg=norm_cfg,
                  init_cfg=dict(type='Pretrained', checkpoint='not_needed_here.pth')),
    decode_head=dict(type='UPerHead', in_channels=[48] * 4, in_index=[0, 1, 2, 3], channels=32,
                     num_classes=5, norm_cfg=norm_cfg, pool_scales=(1, 2, 3, 6),
                     align_corners=False, loss_decode=dict(type='CrossEntropyLoss')),
    train_cfg=dict(), test_cfg=dict(mode='whole'))
"""


@pytest.fixture(scope='module')
def trained(tmp_path_factory) -> tuple[Path, Path]:
    """Config and checkpoint of a small segmentor whose every tensor is away from its start.

    By its record the checkpoint was trained with another mean and with BGR.
    """
    folder = tmp_path_factory.mktemp('onnx')
    config, checkpoint = folder / 'seg.py', folder / 'seg.pth'
    config.write_text(CONFIG)
    init_default_scope('mmseg')
    torch.manual_seed(0)
    model = MODELS.build(Config.fromfile(config).model)
    for name, value in model.state_dict().items():
        if value.is_floating_point():
            value.normal_(std=0.2)
            if 'running_var' in name:
                value.abs_().add_(0.5)
    text = CONFIG.replace('mean=[1.', 'mean=[9.').replace('bgr_to_rgb=True', 'bgr_to_rgb=False')
    recorded = MODELS.build(Config.fromstring(text, '.py').model)
    meta = {KEY: Provenance.of_model(recorded).to_meta()}
    torch.save({'state_dict': model.state_dict(), 'meta': meta}, checkpoint)
    return config, checkpoint


def load(trained: tuple[Path, Path]) -> torch.nn.Module:
    config = Config.fromfile(trained[0])
    set_normalization(config, None, str(trained[1]), False)
    return load_model(config, trained[1], scope='mmseg', allow_mismatch=True)


def run(*words: object) -> forked.Done:
    return forked.run('export_onnx.py', *words, cwd=REPO.parent)


@pytest.fixture(scope='module')
def exported(trained, tmp_path_factory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp('out') / 'deep' / 'model.onnx'
    done = run(*trained, '--out', out, '--check-sizes', '64x96', '80x72', '--allow-mismatch')
    assert done.code == 0, done.err[-3000:]
    return out, done.out


@pytest.mark.slow
def test_tool_says_the_differences(exported):
    out, printed = exported
    lines = printed.strip().splitlines()[-3:]
    for line, size in zip(lines, ('64x96', '80x72'), strict=False):
        name, _, error = line.partition(': largest difference to torch ')
        assert name == size
        assert 0 <= float(error.split(',')[0]) < 1e-3
        assert 0 <= float(error.split()[1]) < 1e-4
    assert lines[2] == f'written: {out}'
    assert [file.name for file in out.parent.iterdir()] == ['model.onnx']  # nothing left behind


@pytest.mark.slow
@pytest.mark.parametrize(
    'shape', [(1, 64, 64), (3, 64, 64), (1, 97, 131), (2, 48, 160), (1, 224, 224), (1, 16, 300)]
)
def test_any_batch_and_size(trained, exported, shape):
    """Sizes that were not used in the export: with and without padding, square or not."""
    import onnxruntime

    batch, height, width = shape
    images = torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(1))
    model = SegmentorLogits(load(trained)).eval()
    session = onnxruntime.InferenceSession(str(exported[0]), providers=['CPUExecutionProvider'])
    with torch.no_grad():
        expected = model(images)
    assert expected.shape == (batch, 5, height, width)
    result = torch.from_numpy(session.run(['logits'], {'images': images.numpy()})[0])
    torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_metadata_says_what_the_input_needs(exported):
    """The mean is the checkpoint's; the order of the channels was asked for."""
    import onnx

    props = {p.key: json.loads(p.value) for p in onnx.load(exported[0]).metadata_props
             if p.key in ('mean', 'std', 'channel_order')}  # fmt: skip
    assert props == {'mean': [9, 2, 3], 'std': [4, 5, 6], 'channel_order': 'RGB'}


@pytest.mark.parametrize('size', [1, 2, 3, 6, (2, 5), (None, 3)])
@pytest.mark.parametrize('shape', [(1, 1), (4, 4), (7, 12), (23, 30)])
def test_pooling_by_matrices_is_adaptive_pooling(size, shape):
    x = torch.randn(2, 3, *shape, generator=torch.Generator().manual_seed(0))
    pool = torch.nn.AdaptiveAvgPool2d(size)
    original = F.adaptive_avg_pool2d
    with any_size_pooling():
        assert F.adaptive_avg_pool2d is not original
        result = pool(x)
    assert F.adaptive_avg_pool2d is original
    torch.testing.assert_close(result, pool(x))


def test_logits_are_those_of_the_segmentor(trained):
    """Whole-image inference of mmseg itself, before it resizes to the original image."""
    segmentor = load(trained)
    images = torch.randn(2, 3, 80, 96, generator=torch.Generator().manual_seed(0))
    metas = [{'ori_shape': (80, 96), 'img_shape': (80, 96), 'pad_shape': (80, 96)}] * 2
    with torch.no_grad():
        expected = segmentor.whole_inference(images, metas)
        torch.testing.assert_close(SegmentorLogits(segmentor)(images), expected)


def test_wrong_checkpoints_are_refused(trained, tmp_path):
    config = Config.fromfile(trained[0])
    content = torch.load(trained[1])['state_dict']
    shapes = {**content, 'decode_head.conv_seg.bias': torch.zeros(3)}
    fewer = {key: value for key, value in content.items() if 'conv_seg' not in key}
    more = {**content, 'neck.weight': torch.zeros(2)}
    for number, (wrong, word) in enumerate(
        [
            (shapes, 'conv_seg.bias'),
            (fewer, 'missing from it'),
            (more, 'neck.weight'),
        ]
    ):
        torch.save({'state_dict': wrong}, tmp_path / f'{number}.pth')
        with pytest.raises(UserError, match=word):
            load_model(config, tmp_path / f'{number}.pth', scope='mmseg')


def variant(folder: Path, name: str, old: str, new: str) -> tuple[Path, Path]:
    """The config with a change, and a checkpoint of it that has the record."""
    text = CONFIG.replace("broadcast='cb_s',\n                  scale_init=0.5", "broadcast='cb'")
    assert old in text
    config, checkpoint = folder / f'{name}.py', folder / f'{name}.pth'
    config.write_text(text.replace(old, new))
    init_default_scope('mmseg')
    model = MODELS.build(Config.fromfile(config).model)
    meta = {KEY: Provenance.of_model(model).to_meta()}
    torch.save({'state_dict': model.state_dict(), 'meta': meta}, checkpoint)
    return config, checkpoint


def test_a_checkpoint_of_another_model_is_refused(tmp_path, capsys):
    """The tensors fit each time; what was trained is another function."""
    main = main_of('export_onnx.py')
    files = {
        'cb': variant(tmp_path, 'cb', "'cb'", "'cb'"),
        'plain': variant(tmp_path, 'plain', "'cb'", 'None'),
        'bgr': variant(tmp_path, 'bgr', 'bgr_to_rgb=True', 'bgr_to_rgb=False'),
    }
    for config, checkpoint, message in (
        ('plain', 'cb', 'was trained with cb in layers 0-1, position end, but this model has no'),
        ('cb', 'plain', 'was trained with no broadcast, but this model has cb in layers 0-1'),
        ('cb', 'bgr', 'data_preprocessor.channel_order was BGR and is RGB here'),
    ):
        words = [files[config][0], files[checkpoint][1], '--out', tmp_path / 'x.onnx']
        assert main([str(word) for word in words]) == 2
        error = capsys.readouterr().err
        assert error.startswith('error: ')
        assert message in error
        assert error.count('\n') == 1
    assert not (tmp_path / 'x.onnx').exists()


@pytest.mark.slow
def test_another_model_is_seen_to_differ(trained, exported):
    model = SegmentorLogits(load(trained)).eval()
    torch.nn.init.zeros_(model.segmentor.backbone.blocks[0].mlp.broadcast.scale)
    differences = compare(model, exported[0], [(64, 96)])
    with pytest.raises(UserError, match='at 64x96 onnxruntime differs'):
        require_close(differences, 1e-4, exported[0])


@pytest.mark.parametrize('largest', [1.0, float('nan'), float('inf')])
def test_differences_are_a_share_of_the_largest_logit(largest):
    require_close({(8, 8): Difference(1e-3, 500.0)}, 1e-4, Path('a.onnx'))
    with pytest.raises(UserError, match=r'a\.onnx was not written'):
        require_close({(8, 8): Difference(largest, 500.0)}, 1e-4, Path('a.onnx'))


def test_tool_refuses_with_one_message(trained, tmp_path):
    done = run(trained[0], tmp_path / 'none.pth', '--out', tmp_path / 'a.onnx')
    assert done.code == 2
    assert 'does not exist' in done.err
    assert 'Traceback' not in done.err
    assert not (tmp_path / 'a.onnx').exists()


def test_help_needs_nothing_heavy():
    done = subprocess.run(
        [sys.executable, '-X', 'importtime', str(TOOL), '--help'],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert '--check-sizes' in done.stdout
    assert not any(name in done.stderr for name in ('| torch', '| numpy', '| mmengine'))


@pytest.mark.parametrize('size', ['64', '0x3', 'axb', '64x-1'])
def test_sizes_are_checked(size):
    done = run('a.py', 'b.pth', '--out', 'c.onnx', '--check-sizes', size)
    assert done.code == 2
    assert 'HEIGHTxWIDTH' in done.err
