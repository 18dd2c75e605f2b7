"""benchmarks/study.py: what it plans, how it judges, what it says of what is missing."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import tarfile
from pathlib import Path

import forked
import pytest
import torch
from mmengine.config import Config
from tiny_imagenet import write_pictures
from tool import REPO

sys.path.insert(0, str(REPO / 'benchmarks'))
from parts.camvid import find_camvid
from parts.records import Records
from parts.study_comparisons import FAMILIES, judge
from parts.study_data import StudyData
from parts.study_plan import QUESTIONS, Run, registered
from parts.study_report import BEGIN, END, report
from parts.study_work import Worker, _Job
from parts.tool_call import call_tool

from cb_mm.checkpoints.shipped import shipped_folder
from cb_mm.errors import UserError

main = runpy.run_path(str(REPO / 'benchmarks' / 'study.py'))['main']
PAGE = REPO / 'docs' / 'study.md'
RESULTS = REPO / 'benchmarks' / 'results'


def test_the_registered_runs():
    """The counts of docs/study.md, each run once; a question's first seed before its second."""
    runs = registered()
    assert len({run.key for run in runs}) == len(runs) == 1 + 16 + 10 + 36 + 9 + 12
    arms = {(run.question, run.arm) for run in runs}
    assert arms == {(name, arm) for name, question in QUESTIONS.items() for arm in question.arms}
    assert [run.key for run in runs[1:6]] == [
        'cifar/none/0', 'cifar/cb/0', 'dense/none/0', 'dense/cb/0', 'cifar/none/1'
    ]  # fmt: skip
    places = {run.key: place for place, run in enumerate(runs)}
    for seed in range(5):  # dense starts from what cifar has trained
        assert places[f'cifar/cb/{seed}'] < places[f'dense/cb/{seed}']


def test_every_comparison_is_of_registered_runs():
    keys = {run.key for run in registered()}
    count = 0
    for family in FAMILIES:
        for comparison in family.comparisons:
            for seed in range(comparison.seeds):
                assert {f'{key}/{seed}' for key in comparison.plus + comparison.minus} <= keys
            count += 1
    assert count == 1 + 6 + 1 + 7 + 3 + 2 + 2


def record(value: float, **scores: object) -> dict:
    return {'scores': {'clean': value, **scores}, 'minutes': 1.0}


def weights(values: dict[str, tuple[float, ...]]) -> dict:
    return {
        f'weights/deit_{way}/{seed}': record(value)
        for way, each in values.items()
        for seed, value in enumerate(each)
    }


WAYS = ('cb_s', 'cb_s_10', 'cb_s_100', 'last_1', 'last_2', 'last_3', 'blend')
(DEIT,) = [family for family in FAMILIES if family.title == 'DeiT-Ti, together']


def test_a_family_is_judged_together_and_only_when_it_is_whole():
    plain, near = (60.0, 61.0, 62.0), (60.2, 60.9, 62.1)
    values = {'plain': plain, **dict.fromkeys(WAYS, near)}
    values['last_2'] = tuple(v - d for v, d in zip(plain, (2.0, 2.02, 2.04), strict=True))
    rows = {
        row.comparison.plus[0].partition('deit_')[2]: row for row in judge(DEIT, weights(values))
    }
    found = rows['last_2']
    # Differences -2, -2.02, -2.04: t = -2.02 / (0.02 / sqrt 3) with 2 degrees of freedom.
    assert found.found.mean == pytest.approx(-2.02)
    assert found.p == pytest.approx(3.27e-5, rel=0.01)
    assert found.adjusted == pytest.approx(7 * found.p)
    assert found.verdict == 'lower'
    assert rows['blend'].verdict == 'not shown'
    # One seed of one way is missing: no way counts.
    values['blend'] = near[:2]
    rows = {
        row.comparison.plus[0].partition('deit_')[2]: row for row in judge(DEIT, weights(values))
    }
    assert rows['blend'].verdict == '2 of 3 seeds'
    assert rows['last_2'].verdict == 'the others are missing'
    assert rows['last_2'].adjusted is None
    assert judge(DEIT, {})[0].verdict == 'not run yet'


def test_the_gain_of_few_heads_is_a_difference_of_differences():
    (family,) = [each for each in FAMILIES if each.question == 'heads']
    runs = {
        'heads/cb_1/0': record(66), 'heads/none_1/0': record(60),
        'cifar/cb/0': record(71), 'cifar/none/0': record(69),
    }  # fmt: skip
    one, six = judge(family, runs)
    assert (one.found.n, one.found.mean) == (1, 4.0)  # (66 - 60) - (71 - 69)
    assert six.found is None


def test_the_report_says_what_is_missing():
    text = report(weights({'plain': (60.0, 62.0), 'blend': (61.0, 62.0)}))
    assert 'Not finished: 4 of 36 runs' in text
    assert '| blend, α learned per layer − plain | mIoU, whole images | 2 of 3 | +0.50 |' in text
    assert '| DeiT-Ti: plain | 2 | 61.00 (1.41) |' in text
    assert text.count('Not begun: 0 of') == 5


def test_the_baseline_has_intervals_over_images():
    cells = {'clean': [70.0, 67.0, 73.0], 'fgsm=2': [9.0, 7.0, 11.0]}
    family = {'clean': [70.0, 67.0, 73.0], 'fog@1': [50.0, 47.0, 53.0], 'fog@3': [40.0, 37.0, 43.0]}
    scores = dict(top1=cells, top5=cells, real=[77.0, 74.0, 80.0], imagenet_c=family)
    text = report({'baseline/deit_ti/0': {'scores': scores, 'minutes': 60}})
    assert 'coarsely quantised' in text
    assert '| top-1, fgsm=2 | 9.0 (7.0 to 11.0) |' in text
    assert '| fog | 50.0 (47.0 to 53.0) | – | 40.0 (37.0 to 43.0) | – | – | 45.0 |' in text


def test_results_of_a_trial_are_not_mixed_with_the_study(tmp_path):
    file = tmp_path / 'study.json'
    Records(file, {'trial': True}).add('cifar/cb/0', record(1))
    assert Records(file, {'trial': True}).runs == {'cifar/cb/0': record(1)}
    with pytest.raises(UserError, match='other settings'):
        Records(file, {'trial': False})


def test_two_studies_may_write_one_file(tmp_path):
    one, other = (Records(tmp_path / 'study.json', {}) for _ in range(2))
    one.add('cifar/cb/0', record(1))
    other.add('cifar/cb/1', record(2))
    assert sorted(Records(tmp_path / 'study.json', {}).runs) == ['cifar/cb/0', 'cifar/cb/1']


@pytest.fixture(scope='module')
def shared_folder(tmp_path_factory):
    """CIFAR-10's archive and CamVid's folders, of three images each; weights that nobody reads."""
    root = tmp_path_factory.mktemp('shared')
    pictures = root / 'pictures'
    for part in ('train', 'test'):
        write_pictures(pictures / part, ('cat', 'dog'), 2, size=(32, 32))
    (root / 'data').mkdir()
    with tarfile.open(root / 'data' / 'cifar10.tar.gz', 'w:gz') as tar:
        for part in ('train', 'test'):
            tar.add(pictures / part, part)
    for part in ('train', 'val'):
        for name in (f'images/{part}/a.jpg', f'annotations/{part}/a.png'):
            (root / 'data' / 'camvid' / name).parent.mkdir(parents=True, exist_ok=True)
            (root / 'data' / 'camvid' / name).touch()
    return root


def written(shared: Path, work: Path, question: str, arm: str) -> Config:
    """The config of a run, whose training is not started."""
    job = _Job(Worker(StudyData(shared, work), work), Run(question, arm, 1))

    class Stop(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stop

    job.call = stop
    for name in ('deit_tiny', 'vit_tiny'):
        (shared / 'weights').mkdir(exist_ok=True)
        (shared / 'weights' / f'{name}_patch16_224_in1k.safetensors').touch()
    with pytest.raises(Stop):
        job.do()
    return Config.fromfile(job.config)


def test_ways_differ_in_the_broadcast_alone(shared_folder, tmp_path):
    found, rates = {}, {}
    rest = []
    for way in ('plain', 'cb_s_100', 'last_2', 'blend'):
        config = written(shared_folder, tmp_path / way, 'weights', f'deit_{way}')
        content = config.to_dict()
        backbone = content['model']['backbone']
        found[way] = (backbone.pop('broadcast'), backbone.pop('layers', None))
        keys = content['optim_wrapper']['paramwise_cfg']['custom_keys']
        rates[way] = keys.pop('broadcast.scale').get('lr_mult')
        rest.append(content)
    assert found == {
        'plain': (None, None),
        'cb_s_100': ('cb_s', 'all'),
        'last_2': ('cb', [10, 11]),
        'blend': ('cb_blend', 'all'),
    }
    assert rates == {'plain': None, 'cb_s_100': 100, 'last_2': None, 'blend': 10}
    assert all(content == rest[0] for content in rest)
    assert rest[0]['randomness']['seed'] == 1
    mean = rest[0]['model']['data_preprocessor']['mean']
    assert mean == [123.675, 116.28, 103.53]
    config = written(shared_folder, tmp_path / 'a', 'weights', 'augreg_plain')
    assert config.model.data_preprocessor.mean == [127.5, 127.5, 127.5]


def test_few_heads_differ_in_the_heads_alone(shared_folder, tmp_path):
    three = written(shared_folder, tmp_path, 'cifar', 'cb').to_dict()
    one = written(shared_folder, tmp_path, 'heads', 'cb_1').to_dict()
    arch = one['model']['backbone']['arch']
    assert arch['num_heads'] == 1
    arch['num_heads'] = 3
    assert one == three
    assert three['train_cfg']['max_epochs'] == 8
    assert three['param_scheduler'][1]['end'] == 8


def test_dense_needs_the_backbones_of_cifar(shared_folder, tmp_path, capsys):
    words = [
        'dense',
        '--seeds',
        1,
        '--shared',
        shared_folder,
        '--out',
        tmp_path,
        '--work',
        tmp_path,
    ]
    assert main([str(word) for word in words]) == 2
    error = capsys.readouterr().err
    assert 'do the runs of cifar first' in error
    assert '2 of 2 runs failed: dense/none/1, dense/cb/1' in error


def test_dense_starts_from_the_published_weights_of_seed_0(shared_folder, tmp_path):
    job = _Job(Worker(StudyData(shared_folder, tmp_path), tmp_path), Run('dense', 'cb', 0))
    name = job._backbone_of_cifar()
    assert name == 'cb_mm/vit_micro_cifar10_cb'
    assert (shipped_folder(name) / 'README.md').is_file()


def test_dense_has_the_backbone_of_cifar(shared_folder, tmp_path):
    before = tmp_path / 'cifar' / 'cb' / '1'
    before.mkdir(parents=True)
    (before / 'epoch_8.pth').touch()
    model = written(shared_folder, tmp_path, 'dense', 'cb').model
    trained = Config.fromfile(REPO / 'configs/cifar10/cifar10_vit_micro_cb.py').model
    assert model.backbone.arch == trained.backbone.arch
    assert (model.backbone.broadcast, model.backbone.layers) == ('cb', 'upper')
    assert model.data_preprocessor.mean == trained.data_preprocessor.mean


def test_archives_are_unpacked_once(shared_folder, tmp_path):
    data = StudyData(shared_folder, tmp_path)
    (tmp_path / 'data' / '.cifar10' / 'left').mkdir(parents=True)  # by a kill
    root = data.cifar10()
    names = {file.relative_to(root).parts[:2] for file in root.rglob('*') if file.is_file()}
    assert names == {(part, name) for part in ('train', 'test') for name in ('cat', 'dog')}
    assert data.cifar10() == root
    with pytest.raises(UserError, match=r'imagenette\.tar with --shared'):
        data.imagenette()


@pytest.mark.parametrize(('words', 'message'), [
    (['cifra'], 'cifra is not one of baseline, cifar'),
    (['--arms', 'cbs'], '--arms: cbs is not one of'),
    (['--jobs', '0'], '--jobs must be at least 1'),
])  # fmt: skip
def test_a_wrong_word_is_named(words, message, capsys):
    with pytest.raises(SystemExit):
        main(words)
    assert message in capsys.readouterr().err


def test_a_list_starts_nothing(tmp_path, capsys):
    assert main(['sparse', '--list', '--out', str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == '0 of 9 done'
    assert list(tmp_path.iterdir()) == []


def some_of_the_real_data(shared: Path, root: Path) -> Path:
    """Every hundredth image of CIFAR-10, and all of CamVid."""
    (root / 'data').mkdir(parents=True)
    (root / 'data' / 'camvid').symlink_to(shared / 'data' / 'camvid')
    name = 'data/cifar10.tar.gz'
    with tarfile.open(shared / name) as whole, tarfile.open(root / name, 'w:gz') as some:
        for number, member in enumerate(whole):
            if member.isfile() and number % 100 == 0:
                some.addfile(member, whole.extractfile(member))
    return root


def call_forked(tool: str, *words: object, log: Path) -> None:
    """Call a tool as `call_tool` does, from the warm process."""
    if tool == 'analyze_attention.py':  # one call is that of the study itself
        return call_tool(tool, *words, log=log)
    done = forked.run(tool, *words, cwd=log.parent)
    assert done.code == 0, done.err
    return None


@pytest.mark.slow
def test_from_the_start_to_the_report(shared, tmp_path, capsys, monkeypatch):
    """CIFAR-10 and then CamVid, two steps of each, on real images."""
    monkeypatch.setattr('parts.study_work.call_tool', call_forked)
    data = some_of_the_real_data(shared, tmp_path / 'shared')
    words = ['cifar', 'dense', '--seeds', '0', '--arms', 'cb', '--trial', '--jobs', '1',
             '--shared', str(data), '--work', str(tmp_path)]  # fmt: skip
    assert main(words) == 0
    text = capsys.readouterr().out
    runs = json.loads((tmp_path / 'results' / 'study.json').read_text())['runs']
    assert sorted(runs) == ['cifar/cb/0', 'dense/cb/0']
    scores = runs['cifar/cb/0']['scores']
    assert len(scores['entropy']) == len(scores['distance']) == 8
    assert list(scores['fgsm']) == ['clean', 'fgsm=1', 'fgsm=2', 'fgsm=4']
    assert runs['cifar/cb/0']['torch'] == torch.__version__
    assert str(tmp_path) not in json.dumps(runs)
    # Where the results are, nothing is done again: the work may even be gone.
    (tmp_path / 'cifar').rename(tmp_path / 'gone')
    assert main(words) == 0
    assert not (tmp_path / 'cifar').exists()
    assert text.endswith(capsys.readouterr().out)


def test_the_page_has_the_stored_results():
    """The tables of the study and of the earlier ones are those of the stored results."""
    page = PAGE.read_text()
    written = page.partition(BEGIN)[2].partition(END)[0].strip()
    if (RESULTS / 'study.json').is_file():
        runs = json.loads((RESULTS / 'study.json').read_text())['runs']
        assert set(runs) <= {run.key for run in registered()}
        assert written == report(runs).strip() == (RESULTS / 'study.md').read_text().strip()
    else:
        assert written == 'No run has finished yet.'
    for name in ('camvid_study.md', 'coco_check.md'):
        for line in (RESULTS / name).read_text().splitlines():
            assert line.lstrip('#').strip() in page, name


def test_the_text_is_older_than_the_results():
    """The commit that registers the study comes before the first one with a result."""

    def commits(*words: str) -> list[str]:
        command = ['git', '-C', str(REPO), 'log', '--reverse', '--format=%ct', *words]
        return subprocess.run(command, capture_output=True, text=True).stdout.split()

    text = commits('-S', 'A comparison counts as shown', '--', 'docs/study.md')
    results = commits('--', 'benchmarks/results/study.json')
    if not text or not results:
        pytest.skip('no history, or no result yet')
    assert int(text[0]) <= int(results[0])


def test_camvid_is_found_in_both_layouts(tmp_path):
    """Both layouts, both formats; an image without a label map is no data set."""
    for images, labels in (('images/{}', 'annotations/{}'), ('{}', '{}annot')):
        for suffix in ('.jpg', '.png'):
            root = tmp_path / f'{len(images)}{suffix}'
            for split in ('train', 'val'):
                for folder, ending in ((images, suffix), (labels, '.png')):
                    (root / folder.format(split)).mkdir(parents=True, exist_ok=True)
                    (root / folder.format(split) / f'a{ending}').touch()
            source = find_camvid(root).config(crop=224, scale=(480, 360), batch=4)
            dataset = source['val_dataloader']['dataset']
            assert dataset['img_suffix'] == suffix
            assert dataset['data_prefix'] == dict(
                img_path=images.format('val'), seg_map_path=labels.format('val')
            )
            (root / images.format('val') / f'b{suffix}').touch()
            with pytest.raises(UserError, match='label maps'):
                find_camvid(root)
