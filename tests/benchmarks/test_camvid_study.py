"""benchmarks/camvid_study.py: a run of its smallest size, what it says, and when it refuses."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from mmengine.config import Config
from tool import REPO

sys.path.insert(0, str(REPO / 'benchmarks'))
from parts.camvid import find_camvid
from parts.camvid_report import _windows, lost, verdict
from parts.camvid_run import Run, Runner, Settings
from parts.records import Records
from parts.seed_by_seed import by_start, gap, score

from cb_mm.errors import UserError

main = runpy.run_path(str(REPO / 'benchmarks' / 'camvid_study.py'))['main']
SETTINGS = Settings(imagenet=20, scratch=30, batch=2, repeats=1, limit=None, attention_images=1)
CELLS = ('clean', 'gaussian_noise=5')


@pytest.fixture(scope='module')
def camvid(tmp_path_factory, scenes):
    """The scenes in CamVid's layout; label 11 stands for nothing, and occurs."""
    root = tmp_path_factory.mktemp('camvid')
    for split, name in (('training', 'train'), ('validation', 'val')):
        for kind in ('images', 'annotations'):
            (root / kind / name).mkdir(parents=True)
        for file in sorted((scenes.ade20k / 'images' / split).iterdir()):
            (root / 'images' / name / file.name).write_bytes(file.read_bytes())
            map_name = f'{file.stem}.png'
            labels = cv2.imread(str(scenes.ade20k / 'annotations' / split / map_name), 0)
            labels = (labels % 11).astype(np.uint8)
            labels[:4] = 11
            cv2.imwrite(str(root / 'annotations' / name / map_name), labels)
    return root


@pytest.mark.slow
def test_two_models_from_the_start_to_the_report(camvid, tmp_path, capsys):
    words = ['--camvid', camvid, '--work', tmp_path / 'work', '--out', tmp_path / 'out', '--starts',
             'scratch', '--models', 'none', 'cb', '--seeds', 1, '--scratch', 2, '--batch', 2,
             '--attention-images', 1]  # fmt: skip
    assert main([str(word) for word in words]) == 0
    text = capsys.readouterr().out
    assert '### From scratch, 2 iterations' in text
    assert 'one seed says nothing' in text
    results = json.loads((tmp_path / 'out' / 'camvid_study.json').read_text())
    assert sorted(results['runs']) == ['scratch/cb/0', 'scratch/none/0']
    for record in results['runs'].values():
        assert len(record['cells']) == 6
        assert len(record['entropy']) == len(record['reach']) == 12
        assert list(record['curve']) == ['1', '2']
        assert 0 <= record['windows'] <= 100
    assert (tmp_path / 'out' / 'camvid_study.png').read_bytes().startswith(b'\x89PNG')
    folder = tmp_path / 'work' / 'scratch' / 'cb' / '0'
    whole, windows = (Config.fromfile(folder / name).model for name in ('config.py', 'windows.py'))
    assert whole.pop('test_cfg') == dict(mode='whole')
    assert windows.pop('test_cfg') == dict(mode='slide', crop_size=(224, 224), stride=(136, 128))
    assert whole == windows

    # Where the results are, nothing is done again: the work may even be gone.
    (tmp_path / 'work').rename(tmp_path / 'gone')
    assert main([str(word) for word in words]) == 0
    assert not (tmp_path / 'work').exists()
    assert capsys.readouterr().out == text[text.index('###') :]


def test_models_differ_in_the_broadcast_alone(camvid, tmp_path):
    runner = Runner(SETTINGS, camvid, tmp_path, tmp_path)
    configs = {
        model: Config.fromfile(runner._config(Run('imagenet', model, 0))).to_dict()
        for model in ('none', 'cb', 'cb_all', 'cb_s')
    }
    found = {}
    for model, config in configs.items():
        backbone = config['model']['backbone']
        found[model] = (backbone.pop('broadcast'), backbone.pop('layers', None))
    assert found == {
        'none': (None, None),
        'cb': ('cb', 'upper'),
        'cb_all': ('cb', 'all'),
        'cb_s': ('cb_s', 'all'),
    }
    assert all(config == configs['none'] for config in configs.values())


@pytest.mark.parametrize('suffix', ['.jpg', '.png'])
@pytest.mark.parametrize(('images', 'labels'), [('images/{}', 'annotations/{}'), ('{}', '{}annot')])
def test_layouts_of_camvid(images, labels, suffix, tmp_path):
    """Both layouts, both formats; an image without a label map is no data set."""
    for split in ('train', 'val'):
        for folder, ending in ((images, suffix), (labels, '.png')):
            (tmp_path / folder.format(split)).mkdir(parents=True)
            (tmp_path / folder.format(split) / f'a{ending}').touch()
    dataset = find_camvid(tmp_path).config(crop=224, scale=(480, 360), batch=4)['val_dataloader']
    dataset = dataset['dataset']
    assert dataset['img_suffix'] == suffix
    assert dataset['data_prefix'] == dict(
        img_path=images.format('val'), seg_map_path=labels.format('val')
    )
    (tmp_path / images.format('val') / f'b{suffix}').touch()
    with pytest.raises(UserError, match='label maps'):
        find_camvid(tmp_path)


def record(clean: float, noise: float) -> dict:
    values = dict(zip(CELLS, (clean, noise), strict=True))
    return {'cells': {key: {'title': key, 'mIoU': value} for key, value in values.items()}}


RUNS = {
    'scratch/none/0': record(40, 30),
    'scratch/none/1': record(44, 33),
    'scratch/cb/0': record(41, 33),
    'scratch/cb/1': record(46, 38),
    'scratch/cb/2': record(90, 90),  # without a counterpart
}


def test_models_are_compared_seed_by_seed():
    models = by_start(RUNS)['scratch']
    clean = gap(models, 'cb', score('clean'))
    # Differences 1 and 2: mean 1.5, t(1 degree of freedom) 12.706 × 0.7071 / sqrt(2) = 6.353.
    assert (clean.n, clean.mean) == (2, 1.5)
    assert clean.high == pytest.approx(1.5 + 6.353, abs=1e-3)
    assert verdict(clean) == 'two seeds are too few'
    # Noise costs none 10 and 11 points, CB 8 and 8.
    assert gap(models, 'cb', lost).mean == pytest.approx(-2.5)
    assert gap(models, 'cb_s', lost) is None


@pytest.mark.parametrize(('values', 'word'), [
    ((3, 3.1, 3.2), 'better'),
    ((-3, -3.1, -3.2), 'worse'),
    ((-3, 0, 3.1), 'no difference shown'),
    ((3, 3.1), 'two seeds are too few'),
])  # fmt: skip
def test_an_interval_beside_zero_is_a_difference(values, word):
    runs = {
        f'scratch/{model}/{seed}': record(value, 0)
        for seed, value in enumerate(values)
        for model, value in (('none', 0), ('cb', value))
    }
    assert verdict(gap(by_start(runs)['scratch'], 'cb', score('clean'))) == word


def test_runs_without_windows_are_left_out_of_their_table():
    """Runs of none at seeds 1 and 2, of CB at all three; CB_S has none."""
    runs = {
        f'scratch/{model}/{seed}': record(0, 0)
        for model in ('none', 'cb', 'cb_s')
        for seed in range(3)
    }
    assert _windows(by_start(runs)['scratch']) == []
    for key, value in {'none/1': 30, 'none/2': 31, 'cb/0': 99, 'cb/1': 32, 'cb/2': 33}.items():
        runs[f'scratch/{key}']['windows'] = value
    _, text = _windows(by_start(runs)['scratch'])
    assert '| none | 2 | 30.50 (sd 0.71) |' in text
    gap_of_two = '+2.00 | +2.00 to +2.00 | two seeds are too few |'
    assert f'| CB, upper layers | 3 | 54.67 (sd 38.40) | {gap_of_two}' in text
    assert 'CB_S' not in text


def test_runs_of_other_settings_are_not_mixed(tmp_path):
    file = tmp_path / 'camvid_study.json'
    Records(file, vars(SETTINGS)).add('scratch/cb/0', record(1, 1))
    assert Records(file, vars(SETTINGS)).runs == {'scratch/cb/0': record(1, 1)}
    with pytest.raises(UserError, match='other settings'):
        Records(file, {**vars(SETTINGS), 'scratch': 31})


@pytest.mark.parametrize(
    ('missing', 'message'), [('camvid', '--camvid'), ('weights', 'no file'), ('runs', 'nothing to')]
)
def test_what_is_missing_is_named(missing, message, camvid, tmp_path, capsys):
    words = ['--out', tmp_path, '--work', tmp_path / 'work', '--weights', tmp_path / 'none.pth']
    words += ['--camvid', tmp_path if missing == 'camvid' else camvid]
    words += ['--report'] if missing == 'runs' else []
    assert main([str(word) for word in words]) == 2
    assert message in capsys.readouterr().err


def test_stored_results_are_of_this_study():
    """The tables in the docs are those of the stored results."""
    results = REPO / 'benchmarks' / 'results'
    if not (results / 'camvid_study.json').is_file():
        pytest.skip('no results are stored')
    runs = json.loads((results / 'camvid_study.json').read_text())['runs']
    assert all(Path(key).parts[1] in ('none', 'cb', 'cb_all', 'cb_s') for key in runs)
    page = (REPO / 'docs' / 'study.md').read_text()
    for name in ('camvid_study.md', 'coco_check.md'):
        assert (results / name).read_text().strip() in page, name
