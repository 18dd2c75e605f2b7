"""tools/train.py end to end: real processes, real files, real checkpoints."""

from __future__ import annotations

from pathlib import Path

import forked
import pytest
import torch
from run_files import assert_same, logged
from tool import CONFIGS, SMALL_MASK_RCNN, SMALL_UPERNET, main_of, run, write_config

from cb_mm.checkpoints.read import read_checkpoint


def train(config: Path, data: Path, work: Path, *more: object) -> forked.Done:
    words = ('--data-root', data, '--work-dir', work, *more)
    return forked.run('train.py', config, *words, cwd=work.parent)


@pytest.fixture(scope='module')
def undisturbed(tmp_path_factory, scenes):
    """A small UperNet run from start to end, without workers, as a user starts it."""
    folder = tmp_path_factory.mktemp('undisturbed')
    config = write_config(folder, SMALL_UPERNET)
    done = run(
        'train.py', config, '--data-root', scenes.ade20k, '--work-dir', folder / 'work',
        '--cfg-options', 'train_dataloader.num_workers=0',
        'train_dataloader.persistent_workers=False', cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, done


@pytest.mark.slow
def test_trains_validates_and_says_what_it_does(undisturbed, scenes):
    folder, done = undisturbed
    for words in ('config', 'small.py (demo schedule, 6 iterations)', 'cpu × 1', 'lr       0.0005',
                  'random: no weights given (--init)', str(folder / 'work'), 'mIoU'):  # fmt: skip
        assert words in done.stdout, done.stdout[-3000:]
    content = read_checkpoint(folder / 'work' / 'iter_6.pth')
    assert content['meta']['iter'] == 6
    assert all(0 < value < 20 for value in logged(folder / 'work').values())
    assert len(logged(folder / 'work')) == 6
    assert list(logged(folder / 'work', 'mIoU')) == [6]


@pytest.mark.slow
def test_killed_and_resumed_equals_undisturbed(undisturbed, scenes, tmp_path):
    """With other numbers of workers, and with the newest checkpoint cut off by the kill."""
    whole, _ = undisturbed
    config = write_config(tmp_path, SMALL_UPERNET)
    work = tmp_path / 'work'
    workers = ['train_dataloader.num_workers=2']
    words = ('--data-root', scenes.ade20k, '--work-dir', work, '--cfg-options', *workers)
    process = forked.Forked('train.py', config, *words, cwd=tmp_path)
    assert forked.wait_for((work / 'iter_4.pth').exists)
    process.kill()
    newest = work / 'iter_4.pth'
    newest.write_bytes(newest.read_bytes()[:5000])
    for file in work.glob('iter_6.pth'):
        file.unlink()

    resumed = train(config, scenes.ade20k, work, '--resume', '--cfg-options', *workers)
    assert resumed.code == 0, resumed.err
    assert 'skipped: ' in resumed.out
    assert 'iter_2.pth at iteration 2' in resumed.out
    a, b = (read_checkpoint(folder / 'work' / 'iter_6.pth') for folder in (whole, tmp_path))
    for part in ('state_dict', 'optimizer', 'param_schedulers'):
        assert_same(a[part], b[part], part)


PLAIN = """
# Nothing random, and no norm that looks across the batch: gloo has no SyncBN.
norm = dict(_delete_=True, type='GN', num_groups=4, requires_grad=True)
model = dict(
    backbone=dict(pyramid_norm_cfg=norm, drop_path_rate=0.0),
    decode_head=dict(norm_cfg=norm, dropout_ratio=0.0),
    auxiliary_head=dict(norm_cfg=norm, dropout_ratio=0.0),
)
plain_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='Resize', scale=(48, 48), keep_ratio=False),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(dataset=dict(pipeline=plain_pipeline))
"""


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path, scenes):
    write_config(tmp_path, SMALL_UPERNET, 'base.py')
    config = write_config(tmp_path, "_base_ = ['base.py']\n" + PLAIN)
    for processes, run_all in ((1, forked.run), (2, forked.run_ranks)):
        done = run_all(
            'train.py', config, '--data-root', scenes.ade20k, '--work-dir',
            tmp_path / str(processes), '--cfg-options',
            f'train_dataloader.batch_size={4 // processes}', cwd=tmp_path,
        )  # fmt: skip
        done = done[0] if processes > 1 else done
        assert done.code == 0, done.err[-3000:]
        assert f'cpu × {processes}' in done.out
    one, two = logged(tmp_path / '1'), logged(tmp_path / '2')
    assert one.keys() == two.keys() == set(range(1, 7))
    for i in one:
        assert two[i] == pytest.approx(one[i], abs=1e-3)
    a, b = (read_checkpoint(tmp_path / n / 'iter_6.pth')['state_dict'] for n in '12')
    for key in a:
        torch.testing.assert_close(a[key], b[key], atol=2e-3, rtol=1e-2)


@pytest.fixture(scope='module')
def detector(tmp_path_factory, scenes):
    folder = tmp_path_factory.mktemp('detector')
    config = write_config(folder, SMALL_MASK_RCNN)
    done = train(config, scenes.coco, folder / 'work')
    assert done.code == 0, done.err[-3000:]
    return folder, done


@pytest.mark.slow
def test_mask_rcnn_trains_and_validates(detector):
    folder, done = detector
    assert 'coco/segm_mAP' in done.out
    assert (folder / 'work' / 'epoch_2.pth').exists()
    assert all(0 < value < 50 for value in logged(folder / 'work').values())


@pytest.mark.slow
def test_epochs_resume_exactly(detector, scenes, tmp_path):
    """Stopped after the first epoch, the second one comes out the same."""
    folder, _ = detector
    config = write_config(tmp_path, SMALL_MASK_RCNN)
    first = folder / 'work' / 'epoch_1.pth'
    done = train(config, scenes.coco, tmp_path / 'work', '--resume', first)
    assert done.code == 0, done.err[-3000:]
    a, b = (read_checkpoint(f / 'work' / 'epoch_2.pth') for f in (folder, tmp_path))
    assert_same(a['state_dict'], b['state_dict'])
    assert_same(a['optimizer'], b['optimizer'])


@pytest.mark.slow
def test_inferencers_of_mmseg_and_mmdet(undisturbed, detector, scenes, tmp_path):
    """Scripts that know only mmseg or mmdet, from another folder."""
    segment, detect = undisturbed[0], detector[0]
    image = next((scenes.ade20k / 'images' / 'validation').glob('*.jpg'))
    script = tmp_path / 'script.py'
    script.write_text(f"""
import cb_mm  # the original releases cannot import their own inferencers without mmcv's ops
from mmseg.apis import MMSegInferencer
from mmdet.apis import DetInferencer

def main(words):
    segmentor = MMSegInferencer('{segment}/small.py', '{segment}/work/iter_6.pth', device='cpu')
    result = segmentor('{image}')
    assert result['predictions'].shape == (64, 96), result
    detector = DetInferencer('{detect}/small.py', '{detect}/work/epoch_2.pth', device='cpu')
    result = detector('{image}')
    assert set(result['predictions'][0]) >= {{'labels', 'scores', 'bboxes'}}
    print('ok')
    return 0
""")
    done = forked.run(str(script), cwd=tmp_path)
    assert done.code == 0, done.err[-3000:]
    assert done.out.strip().endswith('ok')


@pytest.mark.slow
def test_real_recipes_on_real_files(shared, tmp_path):
    """The leaf configs, with real weights, on real images; smaller crops to spare the CPU."""
    weights = shared / 'weights' / 'vit_tiny_patch16_224_in1k.safetensors'
    common = ['default_hooks.logger.interval=1', 'train_dataloader.num_workers=0',
              'train_dataloader.persistent_workers=False', 'train_dataloader.batch_size=1',
              'val_dataloader.num_workers=0',
              'val_dataloader.persistent_workers=False']  # fmt: skip
    cases = {
        'upernet_vit_ti_cb': ('ade20k_mini', [
            'train_cfg.max_iters=2', 'train_cfg.val_interval=2', 'train_dataloader.batch_size=2',
            'train_dataloader.dataset.pipeline.2.scale=(256,96)',
            'train_dataloader.dataset.pipeline.3.crop_size=(96,96)',
            'model.data_preprocessor.size=(96,96)', 'default_hooks.checkpoint.interval=2',
            'val_dataloader.dataset.pipeline.1.scale=(256,96)']),
        'mask_rcnn_vit_ti_cb': ('coco_mini', [
            'train_cfg.max_epochs=1', 'val_dataloader.dataset.indices=2',
            'train_dataloader.dataset.indices=2',
            'val_dataloader.dataset.pipeline.1.scale=(160,96)',
            'train_dataloader.dataset.pipeline.3.transforms.0.0.scales=[(160,96)]',
            'train_dataloader.dataset.pipeline.3.prob=[1.0,0.0]']),
    }  # fmt: skip
    for name, (data, options) in cases.items():
        work = tmp_path / name
        done = train(CONFIGS / f'{name}.py', shared / 'data' / data, work, '--init', weights,
                     '--cfg-options', *common, *options)  # fmt: skip
        assert done.code == 0, done.err[-3000:]
        assert 'loaded 150/' in done.out
        assert list(work.glob('*_[12].pth'))
        values = logged(work)
        assert values
        assert all(0 < value < 20 for value in values.values())


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        (['configs/upernet_vit_s_bc.py'], 'Did you mean "upernet_vit_s_cb.py"?'),
        (['configs/upernet_vit_s_cb.py'], 'data/ade/ADEChallengeData2016'),
        (['configs/upernet_vit_s_cb.py', '--sed', '3'], 'unrecognized arguments: --sed'),
        (['configs/upernet_vit_s_cb.py', '--schedule', '40K'], 'Did you mean "40k"?'),
        (['configs/mask_rcnn_vit_ti.py', '--schedule', '3x'], 'It has: 1x.'),
        (['configs/upernet_vit_s_cb.py', '--cfg-options', 'modle.x=1'], 'Did you mean "model"?'),
        (['configs/upernet_vit_s_cb.py', '--cfg-options', 'model.backbone.broadcats=cb'],
         'Did you mean "broadcast"?'),
        (['configs/upernet_vit_s_cb.py', '--cfg-options', 'model.decode_head.chanels=5'],
         'Did you mean "channels"?'),
        (['configs/upernet_vit_s_cb.py', '--cfg-options', 'model.test_cfg.strid=5'],
         'Did you mean "stride"?'),
        (['configs/upernet_vit_s_cb.py', '--cfg-options', 'data_root=x'], 'has no effect'),
        (['configs/upernet_vit_s_cb.py', '--cfg-options', 'train_cfg'], 'key=value'),
        (['configs/upernet_vit_s_cb.py', '--data-root', 'nowhere'], 'nowhere is not a folder'),
        (['configs/upernet_vit_s_cb.py', '--data-root', '{scenes}', '--init', 'no.pth'], 'no.pth'),
        (['configs/upernet_vit_s_cb.py', '--data-root', '{scenes}', '--resume', 'no.pth'],
         'no.pth does not exist'),
        (['configs/upernet_vit_s_cb.py', '--launcher', 'pytorch', '--data-root', '{scenes}'],
         'torchrun'),
        (['configs/upernet_vit_s_cb.py', '--cfg-options', 'strategy.type=FSDPStrategy'],
         'strategy = FSDPStrategy is not supported here'),
        (['configs/upernet_vit_s_cb.py', '--cfg-options', 'strategy.type=DeepSpeedStrategy'],
         'strategy = DeepSpeedStrategy is not supported here'),
        (['configs/upernet_vit_s_cb.py', '--cfg-options', 'runner_type=FlexibleRunner'],
         'runner_type = FlexibleRunner is not supported here'),
    ],
)  # fmt: skip
def test_mistakes_get_one_clear_message(words, message, scenes, tmp_path, capsys, monkeypatch):
    # mmengine's loggers keep the streams of earlier tests, which are closed by now.
    monkeypatch.setattr('logging.raiseExceptions', False)
    for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK'):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    words = [w.replace('configs/', f'{CONFIGS}/').format(scenes=scenes.ade20k) for w in words]
    main = main_of('train.py')
    try:
        code = main([*words, '--work-dir', str(tmp_path / 'work')])
    except SystemExit as stop:  # argparse's own way
        code = stop.code
    error = capsys.readouterr().err
    assert code == 2, error
    assert message in error
    assert 'Traceback' not in error


@pytest.mark.slow
def test_a_used_work_directory_is_not_overwritten(undisturbed, scenes):
    folder, _ = undisturbed
    done = train(folder / 'small.py', scenes.ade20k, folder / 'work')
    assert done.code == 2
    assert 'iter_6.pth' in done.err
    assert '--resume' in done.err
    assert 'Traceback' not in done.err


@pytest.mark.slow
def test_a_resumed_run_says_that_its_lr_is_the_checkpoints(scenes, tmp_path):
    """--auto-scale-lr counts accumulated batches, and is about the start of a run alone."""
    config = write_config(tmp_path, SMALL_UPERNET)
    words = (config, '--data-root', scenes.ade20k, '--work-dir', tmp_path / 'work')
    single = ('--auto-scale-lr', '--cfg-options', 'train_dataloader.num_workers=0',
              'train_dataloader.persistent_workers=False', 'train_cfg.val_interval=9',
              'auto_scale_lr.base_batch_size=8')  # fmt: skip
    done = forked.run('train.py', *words, *single, 'train_cfg.max_iters=2',
                      'train_dataloader.batch_size=2', 'optim_wrapper.accumulative_counts=2',
                      cwd=tmp_path)  # fmt: skip
    assert done.code == 0, done.err
    for line in ('(2 iterations; the lr follows the demo schedule of 6)',
                 'batch    4 = 2 × 1 processes × 2 accumulated', 'lr       0.00025',
                 'note     lr was scaled to this batch from 8'):  # fmt: skip
        assert line in done.out
    done = forked.run('train.py', *words, '--resume', *single, 'train_cfg.max_iters=4',
                      'param_scheduler.0.end=9', 'optim_wrapper.optimizer.weight_decay=0.5',
                      cwd=tmp_path)  # fmt: skip
    assert done.code == 0, done.err
    assert "(4 iterations; the lr follows the checkpoint's schedule)" in done.out
    assert "weights  the checkpoint's\n" in done.out
    (kept,) = [line for line in done.out.splitlines() if line.startswith('kept')]
    assert "the checkpoint's end 6 (9 in the config)" in kept
    assert 'weight_decay 0.01 (0.5 in the config)' in kept
    assert 'lr       0.00025' in done.out
    assert "lr and its schedule are the checkpoint's" in done.out
    assert 'was scaled' not in done.out
    for name in ('iter_2.pth', 'iter_4.pth'):
        groups = read_checkpoint(tmp_path / 'work' / name)['optimizer']['param_groups']
        assert max(group['initial_lr'] for group in groups) == 0.00025


@pytest.mark.slow
def test_loggers_amp_and_scaled_lr(scenes, tmp_path):
    config = write_config(tmp_path, SMALL_UPERNET)
    done = train(config, scenes.ade20k, tmp_path / 'work', '--logger', 'tensorboard', '--amp',
                 '--channels-last', '--auto-scale-lr', '--seed', 7, '--cfg-options',
                 'train_cfg.max_iters=2', 'train_dataloader.batch_size=2')  # fmt: skip
    assert done.code == 0, done.err[-3000:]
    assert 'lr       0.00025' in done.out
    assert 'scaled to this batch from 4' in done.out
    assert list((tmp_path / 'work').rglob('events.out.tfevents*'))
