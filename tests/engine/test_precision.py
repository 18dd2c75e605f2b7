"""--precision: what is set for a run, what is put back after it, and what is refused."""

from __future__ import annotations

import contextlib

import forked
import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from run_files import logged
from single_process_group import as_launched
from tool import SMALL_UPERNET, write_config

import cb_mm.engine.optim.precision as module
from cb_mm.checkpoints.read import read_checkpoint
from cb_mm.engine.optim.precision import (
    Precision,
    choose_precision,
    default_precision,
    use_half,
)
from cb_mm.engine.training import RunOptions, prepare_config
from cb_mm.errors import UserError

MATMUL, CUDNN = torch.backends.cuda.matmul, torch.backends.cudnn


def settings() -> tuple[bool, bool]:
    return MATMUL.allow_tf32, CUDNN.allow_tf32


@pytest.fixture
def gpu(monkeypatch):
    """What a machine with an A100 says about it; nothing runs there."""
    monkeypatch.setattr(module, 'get_device', lambda: 'cuda')
    monkeypatch.setattr(torch.cuda, 'get_device_capability', lambda: (8, 0))
    monkeypatch.setattr(torch.cuda, 'get_device_name', lambda: 'a GPU')
    monkeypatch.setattr(torch.cuda, 'is_bf16_supported', lambda including_emulation=True: True)
    return monkeypatch


@pytest.mark.parametrize(
    ('name', 'expected'),
    [('fp32', (False, False)), ('tf32', (True, True)), ('bf16', (True, True))],
)
def test_the_settings_last_as_long_as_the_run(name, expected):
    before = settings()
    assert before == (False, True), "torch's default: convolutions in TF32, products not"
    with contextlib.suppress(KeyError), Precision(name, 'cuda').products():
        assert settings() == expected
        raise KeyError
    assert settings() == before
    with Precision(name, 'cpu').products():
        assert settings() == before, 'a run on the CPU changes nothing'


@pytest.mark.skipif(not hasattr(CUDNN, 'conv'), reason='an older torch has one set of names only')
def test_settings_by_their_newer_names_are_kept():
    newer = (MATMUL, CUDNN.conv, CUDNN.rnn)
    before = [one.fp32_precision for one in newer]
    try:
        MATMUL.fp32_precision, CUDNN.conv.fp32_precision, CUDNN.rnn.fp32_precision = (
            'tf32', 'ieee', 'tf32',
        )  # fmt: skip
        with pytest.raises(RuntimeError, match='mix'):
            settings()
        with Precision('fp32', 'cuda').products():
            assert settings() == (False, False)
        assert [one.fp32_precision for one in newer] == ['tf32', 'ieee', 'tf32']
    finally:
        MATMUL.allow_tf32, CUDNN.allow_tf32 = False, True
    assert settings() == (False, True)
    assert before[1:] == [one.fp32_precision for one in newer[1:]]


def test_defaults(gpu):
    assert default_precision() == Precision('tf32', 'cuda', chosen=False)
    assert 'the default on CUDA, see `precision`' in str(default_precision())
    gpu.setattr(torch.cuda, 'get_device_capability', lambda: (7, 5))
    assert default_precision().name == 'fp32'
    gpu.setattr(module, 'get_device', lambda: 'cpu')
    assert default_precision().name == 'fp32'


def test_amp_is_the_older_name(gpu):
    assert choose_precision(None, amp=True) == Precision('fp16', 'cuda')
    assert choose_precision('fp16', amp=True) == Precision('fp16', 'cuda')
    assert choose_precision(None) is None
    with pytest.raises(UserError, match='`amp` means `precision` fp16 here'):
        choose_precision('bf16', amp=True)


@pytest.mark.parametrize('name', ['tf32', 'bf16'])
def test_a_gpu_without_it(gpu, name):
    gpu.setattr(torch.cuda, 'get_device_capability', lambda: (7, 0))
    gpu.setattr(torch.cuda, 'is_bf16_supported', lambda including_emulation=True: False)
    with pytest.raises(UserError, match=rf'`precision` {name}.*a GPU'):
        choose_precision(name)


def test_what_is_refused():
    with pytest.raises(UserError, match=r'needs an NVIDIA GPU.*the device is cpu'):
        choose_precision('tf32')
    with pytest.raises(UserError, match='fp8 is not one of fp32, tf32, bf16, fp16'):
        choose_precision('fp8')
    with pytest.raises(UserError, match='works with OptimWrapper; the config has Mine'):
        use_half(Config(dict(optim_wrapper=dict(type='Mine'))), Precision('bf16', 'cpu'))


@pytest.mark.parametrize(
    ('name', 'device', 'wrapper'),
    [
        ('fp32', 'cuda', 'OptimWrapper'),
        ('tf32', 'cuda', 'OptimWrapper'),
        ('bf16', 'cuda', 'Bfloat16OptimWrapper'),
        ('bf16', 'cpu', 'Bfloat16OptimWrapper'),
        ('fp16', 'cuda', 'AmpOptimWrapper'),
        ('fp16', 'cpu', 'Float16CpuOptimWrapper'),
    ],
)
def test_the_wrapper_of_the_optimizer(name, device, wrapper):
    """bfloat16 has float32's range: it needs no loss scaler, and gets none."""
    config = Config(dict(optim_wrapper=dict(type='OptimWrapper', optimizer=dict(type='SGD', lr=1))))
    use_half(config, Precision(name, device))
    assert config.optim_wrapper.type == wrapper
    assert config.optim_wrapper.get('loss_scale') == (
        'dynamic' if wrapper == 'AmpOptimWrapper' else None
    )
    if device == 'cpu':
        built = build_optim_wrapper(torch.nn.Linear(2, 2), config.optim_wrapper)
        assert hasattr(built, 'loss_scaler') == (name == 'fp16')
        assert ('loss_scaler' in built.state_dict()) == (name == 'fp16')


@pytest.fixture(scope='module')
def float16_run(scenes, tmp_path_factory):
    """In float16, channels last, wrapped for several processes; bfloat16 is in test_train.py."""
    folder = tmp_path_factory.mktemp('float16')
    config = write_config(folder, SMALL_UPERNET)
    done = forked.run(
        'train.py', config, '--data-root', scenes.ade20k, '--work-dir', folder / 'work',
        '--precision', 'fp16', '--channels-last', '--launcher', 'pytorch', '--cfg-options',
        'train_cfg.max_iters=2', 'val_cfg=None', 'val_dataloader=None', 'val_evaluator=None',
        'train_dataloader.batch_size=2', 'train_dataloader.num_workers=0',
        'train_dataloader.persistent_workers=False', cwd=folder, before=as_launched,
    )  # fmt: skip
    assert done.code == 0, done.err
    return folder / 'work', done


@pytest.mark.slow
def test_training_in_float16_on_the_cpu(float16_run):
    work, done = float16_run
    assert 'cpu × 1, fp16 (float16 autocast' in done.out
    assert all(0 < loss < 20 for loss in logged(work).values())
    optimizer = read_checkpoint(work / 'iter_2.pth')['optimizer']
    assert optimizer['loss_scaler']['scale'] > 1


@pytest.mark.slow
def test_ddp_finds_the_weights_in_the_channels_last_format(float16_run):
    """Otherwise torch warns that it copies the gradients of every step."""
    _, done = float16_run
    assert 'Grad strides do not match' not in done.err
    assert 'batch    2 = 2 × 1 processes' in done.out


def test_memory_is_pinned_where_cuda_copies_from_it(tmp_path, monkeypatch):
    config = write_config(tmp_path, SMALL_UPERNET + 'val_dataloader.update(pin_memory=False)\n')
    options = RunOptions(config)
    assert 'pin_memory' not in prepare_config(options).train_dataloader
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    prepared = prepare_config(options)
    assert prepared.train_dataloader.pin_memory
    assert not prepared.val_dataloader.pin_memory, "the config's own word counts"
