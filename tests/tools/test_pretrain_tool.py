"""Pre-training end to end: train, resume, start a segmentor, test on every set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from forked import run
from run_files import assert_same, logged
from tiny_imagenet import SYNSETS, small_steps, write_imagenet, write_pictures
from tool import CONFIGS, config_file, main_of

pytest.importorskip('mmpretrain', reason='classification needs mmpretrain')

from cb_mm.checkpoints.read import read_checkpoint
from cb_mm.errors import UserError
from cb_mm.robustness.sweep import SweepOptions, sweep

CONFIG = config_file('imagenet_vit_ti_cb')
PLAIN = config_file('imagenet_vit_ti')


@pytest.fixture(scope='module')
def data(tmp_path_factory) -> Path:
    return write_imagenet(tmp_path_factory.mktemp('data') / 'imagenet')


def train(config: Path, data: Path, work: Path, *words: object, options: list[str] | None = None):
    options = [*small_steps(), 'train_cfg.max_epochs=2', *(options or [])]
    return run(
        'train.py', config, '--data-root', data, '--work-dir', work, *words,
        '--cfg-options', *options, cwd=work.parent,
    )  # fmt: skip


@pytest.fixture(scope='module')
def trained(tmp_path_factory, data) -> Path:
    work = tmp_path_factory.mktemp('trained') / 'work'
    done = train(CONFIG, data, work)
    assert done.code == 0, done.err[-3000:]
    assert 'accuracy/top1' in done.out
    assert len(logged(work)) == 6
    return work


def test_the_checkpoint_says_what_it_was_trained_with(trained):
    record = read_checkpoint(trained / 'epoch_2.pth')['meta']['cb_mm']
    classes, settings = record.pop('classes'), record.pop('settings')
    assert record == {
        'broadcast': 'cb',
        'layers': [6, 7, 8, 9, 10, 11],
        'position': 'end',
        'mean': [123.675, 116.28, 103.53],
        'std': [58.395, 57.12, 57.375],
        'channel_order': 'RGB',
        'reduce_zero_label': None,
    }
    assert (len(classes), classes[0]) == (1000, 'tench, Tinca tinca')
    assert settings['backbone.out_type'] == ['cls']


def test_resumed_equals_undisturbed(trained, data, tmp_path):
    """With Mixup, CutMix, RandAugment, erasing and drop path; with other numbers of workers."""
    done = train(
        CONFIG, data, tmp_path / 'work', '--resume', trained / 'epoch_1.pth',
        options=['train_dataloader.num_workers=2'],
    )  # fmt: skip
    assert done.code == 0, done.err[-3000:]
    a, b = (read_checkpoint(work / 'epoch_2.pth') for work in (trained, tmp_path / 'work'))
    for part in ('state_dict', 'optimizer', 'param_schedulers'):
        assert_same(a[part], b[part], part)


SEGMENT = [
    'train_cfg.max_iters=1', 'train_dataloader.batch_size=2', 'train_dataloader.num_workers=0',
    'train_dataloader.persistent_workers=False', 'val_dataloader.num_workers=0',
    'val_dataloader.persistent_workers=False', 'model.data_preprocessor.size=(64,64)',
    'train_dataloader.dataset.pipeline.2.scale=(128,64)',
    'train_dataloader.dataset.pipeline.3.crop_size=(64,64)',
    'val_dataloader.dataset.pipeline.1.scale=(128,64)',
]  # fmt: skip


def test_it_starts_a_segmentor_untouched(trained, scenes, tmp_path):
    done = run(
        'train.py', CONFIGS / 'upernet_vit_ti_cb.py', '--init', trained / 'epoch_2.pth',
        '--data-root', scenes.ade20k, '--work-dir', tmp_path / 'work', '--cfg-options', *SEGMENT,
        cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0, done.err[-3000:]
    line = next(line for line in done.out.splitlines() if line.startswith('weights'))
    # All 150 tensors of the ViT; the pyramid's 11 are the segmentor's own.
    assert 'under state_dict backbone.): loaded 150/161' in line
    assert 'missing as expected: pyramid.' in line
    assert 'NOT EXPECTED' not in line
    assert 'trained with cb in layers 6-11, position end' in line
    assert 'CAUTION' not in line


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        (['upernet_vit_ti', '--init', '{ckpt}'], 'this model has no broadcast'),
        (['upernet_vit_ti_cb', '--init', '{ckpt}', '--cfg-options',
          'model.backbone.layers=all'], 'this model has cb in layers 0-11'),
        (['imagenet_vit_ti', '--resume', '{ckpt}', '--cfg-options',
          'train_dataloader.batch_size=4', 'model.backbone.img_size=32'],
         '--allow-mismatch'),
        (['imagenet_vit_ti_cb'], 'fewer than a batch of 128'),
        (['upernet_vit_ti_cb', '--normalization', 'weights'], 'there are no weights'),
        (['upernet_vit_ti_cb', '--normalization', 'imagnet'], 'Did you mean "imagenet"?'),
        (['imagenet_vit_ti_cb', '--cfg-options', 'model.head.num_classes=3'],
         'its label is 207, but the model has 3 classes'),
    ],
)  # fmt: skip
def test_mistakes_get_one_clear_message(
    words, message, trained, data, scenes, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr('logging.raiseExceptions', False)
    words = [word.format(ckpt=trained / 'epoch_2.pth') for word in words]
    root = scenes.ade20k if 'upernet' in words[0] else data
    words = [str(config_file(words[0])), '--data-root', str(root), *words[1:]]
    words += [] if '--cfg-options' in words else ['--cfg-options']
    words += ['train_dataloader.num_workers=0', 'train_dataloader.persistent_workers=False']
    main = main_of('train.py')
    assert main(['--work-dir', str(tmp_path / 'work'), *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert 'Traceback' not in error


# --- testing --------------------------------------------------------------------------------------

SMALL_TEST = [option for option in small_steps() if option.startswith(('test_', 'model.'))]


def measure(trained: Path, out: Path, root: Path, options: list[str] = (), **more) -> dict:
    sweep(
        SweepOptions(
            config=str(CONFIG), checkpoint=str(trained / 'epoch_2.pth'), data_root=str(root),
            out=str(out), cfg_options=[*SMALL_TEST, *options], repeats=2, **more,
        )
    )  # fmt: skip
    return json.loads((out / 'results.json').read_text())


@pytest.fixture
def _quiet(monkeypatch):
    monkeypatch.setattr('logging.raiseExceptions', False)


@pytest.mark.usefixtures('_quiet')
def test_corruptions_and_attack(trained, data, tmp_path):
    results = measure(
        trained, tmp_path / 'out', data, corruption=['occlusion=0.5', 'gaussian_noise=10'],
        fgsm=[0.0, 8.0], save_corrupted=str(tmp_path / 'seen'), show_dir=str(tmp_path / 'show'),
    )  # fmt: skip
    assert results['headline'] == ['top1']
    cells = {cell['key']: cell for cell in results['cells']}
    assert list(cells) == ['clean', 'occlusion=0.5', 'gaussian_noise=10', 'fgsm=0', 'fgsm=8']
    for cell in cells.values():
        for name in ('top1', 'top5'):
            assert (
                cell['metrics'][name]['mean']
                == pytest.approx(cell['upstream'][f'accuracy/{name}'], abs=1e-3)
                or cell['random']
            )
    assert cells['clean']['metrics']['top1'] == cells['fgsm=0']['metrics']['top1'] | {
        'values': cells['clean']['metrics']['top1']['values']
    }
    # One line an image, 0 or 100 each; their mean is the accuracy.
    lines = (tmp_path / 'out' / 'scores' / 'clean.csv').read_text().splitlines()
    assert lines[0] == 'image,top1,top5'
    assert len(lines) == 7
    values = [float(line.split(',')[1]) for line in lines[1:]]
    assert set(values) <= {0.0, 100.0}
    assert sum(values) / 6 == pytest.approx(cells['clean']['metrics']['top1']['mean'])
    # The occlusion is the centre of the crop that the model sees.
    import cv2
    import numpy as np

    picture = cv2.imread(str(next((tmp_path / 'seen' / 'occlusion=0.5').rglob('*.png'))))
    assert picture.shape == (32, 32, 3)
    black = np.argwhere((picture == 0).all(axis=2))
    assert (black.min(axis=0).tolist(), black.max(axis=0).tolist()) == ([8, 8], [23, 23])
    assert len(list((tmp_path / 'show').rglob('*.png'))) == 6 * 5
    assert 'top-5' in (tmp_path / 'out' / 'results.md').read_text()


@pytest.mark.usefixtures('_quiet')
def test_other_test_sets(trained, tmp_path):
    v2 = write_pictures(tmp_path / 'v2', ('0', '1', '10', '2'), 1)
    results = measure(trained, tmp_path / 'o1', v2, test_set='imagenet-v2')
    assert results['identity']['images'] == 4
    a = write_pictures(tmp_path / 'a', SYNSETS[1:], 2)
    results = measure(trained, tmp_path / 'o2', a, test_set='imagenet-a')
    # Two classes compete: every image is right within the best five.
    assert results['cells'][0]['metrics']['top5']['mean'] == 100.0
    real = tmp_path / 'in' / 'val' / SYNSETS[0]
    write_pictures(tmp_path / 'in' / 'val', SYNSETS[:1], 3)
    for k, file in enumerate(sorted(real.iterdir())):
        file.rename(real / f'ILSVRC2012_val_{k + 1:08d}.JPEG')
    labels = tmp_path / 'real.json'
    labels.write_text(json.dumps([list(range(1000)), [], list(range(1000))]))
    results = measure(
        trained, tmp_path / 'o3', tmp_path / 'in', [f'test_evaluator.real_labels={labels}'],
        test_set='imagenet-real',
    )  # fmt: skip
    assert results['cells'][0]['metrics']['top1']['mean'] == 100.0
    scores = (tmp_path / 'o3' / 'scores' / 'clean.csv').read_text().splitlines()
    assert [line.split(',')[1] for line in scores[1:]] == ['100.0', '', '100.0']


@pytest.mark.usefixtures('_quiet')
def test_testing_another_model_is_an_error(trained, data, tmp_path):
    options = dict(checkpoint=str(trained / 'epoch_2.pth'), data_root=str(data),
                   out=str(tmp_path / 'out'), cfg_options=SMALL_TEST)  # fmt: skip
    with pytest.raises(UserError, match='was trained with cb in layers 6-11'):
        sweep(SweepOptions(config=str(PLAIN), **options))
    with pytest.raises(UserError, match='Did you mean "imagenet-v2"'):
        sweep(SweepOptions(config=str(CONFIG), test_set='imagenet-v', **options))
    other = [*SMALL_TEST, 'model.data_preprocessor.mean=[127.5,127.5,127.5]']
    with pytest.raises(UserError, match='`normalization` weights'):
        sweep(SweepOptions(config=str(CONFIG), normalization='half', **options))
    sweep(SweepOptions(config=str(CONFIG), **{**options, 'cfg_options': other}))  # it follows
    same = json.loads((tmp_path / 'out' / 'results.json').read_text())
    options['out'] = str(tmp_path / 'own')
    sweep(SweepOptions(config=str(CONFIG), **options))
    own = json.loads((tmp_path / 'own' / 'results.json').read_text())
    assert same['cells'][0]['metrics'] == own['cells'][0]['metrics']
    options['out'] = str(tmp_path / 'out2')
    sweep(SweepOptions(config=str(PLAIN), allow_mismatch=True, **options))
    assert (tmp_path / 'out2' / 'results.json').is_file()
