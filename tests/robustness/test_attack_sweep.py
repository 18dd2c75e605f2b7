"""Attacks in a sweep: names, files, identity, kills, and any number of workers and processes."""

from __future__ import annotations

import csv
import json

import forked
import numpy as np
import pytest
from mmengine.runner import Runner
from robustness_models import records, scores
from tool import CONFIGS, main_of

from cb_mm.apis import evaluate_robustness
from cb_mm.errors import UserError
from cb_mm.robustness.attack_report import check_same_attacks
from cb_mm.robustness.jobs import AttackCell, plan_cells, title

PLAN = ('--fgsm', 4, '--attack', 'bim=4', 'pgd=4', 'segpgd=4', 'pgd_l2=90', '--attack-steps', 2,
        '--repeats', 2, '--limit', 2, '--severity', 1, '--corruption', 'contrast')  # fmt: skip


def main(words) -> int:
    """The tool in this process."""
    return main_of('test.py')([str(word) for word in words])


def attack_files(out):
    """What attacks leave in a folder, byte by byte; pictures aside."""
    files = [*(out / 'attacks').iterdir(), out / 'attack_loss.csv', out / 'results.csv']
    return {file.name: file.read_bytes() for file in files}


@pytest.fixture(scope='module')
def attacked(seg, tmp_path_factory):
    """The plan, tested in one go in one process."""
    out = tmp_path_factory.mktemp('attacked') / 'out'
    assert main(seg.words(*PLAN, '--out', out)) == 0
    return out


def test_files_and_tables(attacked):
    found = records(attacked)
    passes = ['fgsm=4', 'bim=4', *(f'{name}_{k}' for name in ('pgd=4', 'segpgd=4', 'pgd_l2=90')
              for k in (0, 1))]  # fmt: skip
    assert [key for key in found if 'attack' in found[key]] == passes
    assert sorted(f.name for f in (attacked / 'attacks').iterdir()) == sorted(
        f'{key}.csv' for key in passes
    )
    assert found['pgd=4_0']['attack'] != found['pgd=4_1']['attack'], 'every repeat has its start'
    text = (attacked / 'results.md').read_text()
    for words in ('| FGSM ε=4', '| BIM ε=4', '| PGD ε=4', '| SegPGD ε=4', '| PGD L2 ε=90',
                  'BIM: 2 steps of 1 ε from the image itself', 'from a random start'):  # fmt: skip
        assert words in text
    assert {'attack_loss.csv', 'attack_loss.png', 'attack_loss.svg'} <= {
        file.name for file in attacked.iterdir()
    }
    with (attacked / 'results.csv').open() as stream:
        assert {'pgd', 'pgd_l2', 'segpgd'} <= {row['corruption'] for row in csv.DictReader(stream)}


def test_means_are_those_of_the_images(attacked):
    results = json.loads((attacked / 'results.json').read_text())
    cells = {cell['key']: cell for cell in results['cells']}
    for key in ('fgsm=4', 'pgd=4', 'pgd_l2=90'):
        files = [attacked / 'attacks' / f'{key}{end}.csv' for end in ('', '_0', '_1')]
        rows = [row for f in files if f.is_file() for row in csv.DictReader(f.open())]
        steps = [name for name in rows[0] if name.startswith('loss_')]
        curve = [np.mean([float(row[name]) for row in rows]) for name in steps]
        assert cells[key]['attack']['loss'] == pytest.approx(curve)
        kept = [float(row[f'loss_{row["kept_step"]}']) for row in rows]
        assert cells[key]['attack']['kept_loss'] == pytest.approx(np.mean(kept))
        norm = 'l2' if key.startswith('pgd_l2') else 'linf'
        distances = [float(row[norm]) for row in rows]
        assert cells[key]['attack'][norm] == max(distances) <= cells[key]['level'] + 1e-4
    with (attacked / 'attack_loss.csv').open() as stream:
        written = [row for row in csv.DictReader(stream) if row['attack'] == 'pgd=4']
    assert [float(row['loss']) for row in written] == cells['pgd=4']['attack']['loss']


def test_bim_with_one_step_scores_as_fgsm(seg, det, tmp_path):
    """With a detector too, whose loss samples boxes: both draw the same."""
    words = ('--fgsm', 4, '--attack', 'bim=4', '--attack-steps', 1, '--limit', 2)
    for model in (seg, det):
        out = tmp_path / model.task
        assert main(model.words(*words, '--out', out)) == 0
        found = records(out)
        for name in ('metrics', 'attack', 'per_class'):
            assert found['fgsm=4'][name] == found['bim=4'][name]
        files = [(out / 'attacks' / f'{name}=4.csv').read_bytes() for name in ('fgsm', 'bim')]
        assert files[0] == files[1]


@pytest.mark.slow
def test_killed_and_run_again_equals_undisturbed(seg, attacked, tmp_path):
    out = tmp_path / 'out'
    process = forked.Forked('test.py', *seg.words(*PLAN, '--out', out), cwd=tmp_path)
    file = out / 'results.jsonl'  # the header, clean images, contrast, FGSM, BIM and a pass of PGD
    assert forked.wait_for(lambda: file.exists() and file.read_bytes().count(b'\n') >= 6)
    process.kill()
    finished = file.read_bytes().rpartition(b'\n')[0].split(b'\n')
    assert 6 <= len(finished) < 11, 'killed too late to show anything'
    again = forked.run('test.py', *seg.words(*PLAN, '--out', out), cwd=tmp_path)
    assert again.code == 0, again.err
    assert f'{len(finished) - 1} of 10 passes, by an earlier run; resuming' in again.out
    assert scores(out) == scores(attacked)
    assert attack_files(out) == attack_files(attacked)
    assert [r.get('attack') for r in records(out).values()] == [
        r.get('attack') for r in records(attacked).values()
    ]


@pytest.mark.slow
def test_workers_and_processes_do_not_change_an_attack(seg, attacked, tmp_path):
    workers = ('--cfg-options', 'test_dataloader.num_workers=2')
    done = forked.run('test.py', *seg.words(*PLAN, '--out', tmp_path / 'w', *workers), cwd=tmp_path)
    assert done.code == 0, done.err
    two = forked.run_ranks('test.py', *seg.words(*PLAN, '--out', tmp_path / 'p'), cwd=tmp_path)
    assert [rank.code for rank in two] == [0, 0], two
    for name in ('w', 'p'):
        assert attack_files(tmp_path / name) == attack_files(attacked)


def test_other_settings_are_another_test(seg, attacked, tmp_path, capsys):
    changes = {
        '--attack-steps': 3,
        '--attack-step-size': 0.7,
        '--attack-restarts': 2,
    }
    for option, value in changes.items():
        assert main(seg.words(*PLAN, option, value, '--out', attacked)) == 2
        name = option[2:].replace('-', '_')
        assert f'different: {name} (' in capsys.readouterr().err
    assert main(seg.words(*PLAN, '--no-random-start', '--out', attacked)) == 2
    assert 'different: ' in capsys.readouterr().err


def test_different_attacks_are_not_compared(seg, attacked, tmp_path, capsys):
    out = ('--out', tmp_path / 'out', '--compare', attacked / 'results.json')
    assert main(seg.words(*PLAN, '--attack-steps', 3, *out)) == 2
    said = capsys.readouterr().err
    assert 'attacked with another bim: attack_steps is 2 there and 3 here' in said
    results = json.loads((attacked / 'results.json').read_text())
    identity = results['identity']
    check_same_attacks(identity, results)
    check_same_attacks({**identity, 'cells': ['clean', 'fgsm=4'], 'attack_settings': None}, results)
    started = {**identity['attack_settings'], 'attack_restarts': 2}
    check_same_attacks({'cells': ['bim=4', 'pgd=8'], 'attack_settings': started}, results)
    with pytest.raises(UserError, match='another pgd: attack_restarts is 1 there and 2 here'):
        check_same_attacks({'cells': ['pgd=4'], 'attack_settings': started}, results)
    assert main(seg.words(*PLAN, *out)) == 0
    assert '| PGD L2 ε=90' in (tmp_path / 'out' / 'results.md').read_text().split('minus')[1]


WRONG = {
    ('--attack', 'pgdd=4'): '--attack pgdd=4: unknown attack. Did you mean "pgd"',
    ('--attack', 'pgd'): 'after "=" comes ε in grey levels',
    ('--attack', 'pgd=four'): 'after "=" comes ε in grey levels',
    ('--attack', 'pgd=256'): 'from 0 to 255',
    ('--attack', 'pgd_l2=-1'): '0 or more',
    ('--attack', 'pgd=nan'): 'from 0 to 255',
    ('--attack', 'pgd=4', '--attack-steps', '0'): '--attack-steps 0: at least 1',
    ('--attack', 'pgd=4', '--attack-step-size', '0'): '--attack-step-size 0: a step is a share',
    ('--attack', 'pgd=4', '--attack-restarts', '0'): '--attack-restarts 0: at least 1',
    ('--attack', 'bim=4', '--attack-restarts', '2'): 'every restart would be the same',
    ('--attack', 'bim=4', '--no-random-start'): '--no-random-start has nothing to set',
    ('--fgsm', '4', '--attack-steps', '5'): '--attack-steps has nothing to set',
    ('--attack-restarts', '3'): '--attack-restarts has nothing to set',
}


@pytest.mark.parametrize('words', WRONG, ids=' '.join)
def test_wrong_words_get_one_message(seg, words, tmp_path, capsys):
    assert main(seg.words('--out', tmp_path / 'out', *words)) == 2
    said = capsys.readouterr().err
    assert said.startswith('error: ')
    assert WRONG[words] in said
    assert said.count('\n') == 1
    assert not (tmp_path / 'out').exists()


def test_an_attack_on_pixels_of_a_detector(det, tmp_path, capsys):
    assert main(det.words('--attack', 'segpgd=4', '--out', tmp_path / 'out')) == 2
    said = capsys.readouterr().err
    assert '--attack segpgd: SegPGD is for segmentation models of mmseg, and MaskRCNN' in said
    assert not (tmp_path / 'out').exists()


def test_cells():
    cells = plan_cells(None, [], None, [2], ['fgsm=2', 'cospgd=1,2'])
    assert [cell.key for cell in cells] == ['clean', 'fgsm=2', 'cospgd=1', 'cospgd=2']
    assert [cell.random for cell in cells] == [False, False, True, True]
    assert isinstance(cells[2], AttackCell)
    assert title('cospgd_l2', 64.0) == 'CosPGD L2 ε=64'
    with pytest.raises(UserError, match='from 0 to 255'):
        plan_cells(None, [], None, [300])


@pytest.mark.slow
def test_pgd_is_not_weaker_than_fgsm_on_real_images(shared, tmp_path):
    """DeiT-Ti on images of ImageNet: the mean loss is higher, the accuracy is not."""
    words = (
        CONFIGS / 'imagenet' / 'imagenet_vit_ti.py',
        shared / 'weights' / 'deit_tiny_patch16_224_in1k.safetensors',
        *('--data-root', shared / 'data' / 'imagenet_val', '--limit', 8, '--repeats', 1),
        *('--fgsm', 1, '--attack', 'pgd=1', 'pgd_l2=150', '--attack-steps', 5),
        *('--out', tmp_path / 'out', '--cfg-options', 'test_dataloader.num_workers=0'),
        'test_dataloader.persistent_workers=False',
    )
    assert main(words) == 0
    found = records(tmp_path / 'out')
    one, many = found['fgsm=1'], found['pgd=1_0']
    assert many['attack']['kept_loss'] > one['attack']['kept_loss'] > one['attack']['loss'][0]
    assert many['metrics']['top1'] <= one['metrics']['top1'] < found['clean']['metrics']['top1']
    assert max(one['attack']['linf'], many['attack']['linf']) <= 1 + 1e-4
    assert found['pgd_l2=150_0']['attack']['l2'] <= 150 + 1e-3


def test_the_loop_of_a_host_and_the_api_attack_alike(seg, tmp_path):
    options = dict(attacks=['cospgd=4'], attack_steps=1, attack_restarts=2, repeats=1, limit=1)
    config = seg.prepared()
    config.test_cfg = dict(type='RobustnessTestLoop', out=str(tmp_path / 'loop'), **options)
    config.load_from, config.work_dir = str(seg.checkpoint), str(tmp_path / 'work')
    means = Runner.from_cfg(config).test()
    report = evaluate_robustness(seg.config, seg.checkpoint, data_root=seg.data, **options)
    assert means['cospgd=4/mIoU'] == report.cells[1].metrics['mIoU']['mean']
    assert report.cells[1].title == 'CosPGD ε=4'
    name = 'attacks/cospgd=4_0.csv'
    assert report.files[name] == (tmp_path / 'loop' / name).read_bytes()
    assert len(report.files[name].splitlines()) == 3, 'one image, two restarts'
