"""`evaluate_robustness`, and the loop that runs it from the tools of other projects."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import forked
import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner
from mmseg.evaluation import IoUMetric
from robustness_models import SmallModel
from tool import main_of

from cb_mm.apis import evaluate_robustness
from cb_mm.checkpoints.label_set import KEY
from cb_mm.checkpoints.load_model import load_model
from cb_mm.checkpoints.provenance import Provenance
from cb_mm.engine.hooks.sample_guard import guard
from cb_mm.errors import UserError

TEST = {'corruptions': ['gaussian_noise=40'], 'repeats': 2}
WORDS = ['--corruption', 'gaussian_noise=40', '--repeats', '2']


@pytest.fixture(scope='module')
def small(seg) -> SmallModel:
    return seg


@pytest.fixture(scope='module')
def by_tool(small, tmp_path_factory) -> Path:
    """What tools/test.py writes."""
    out = tmp_path_factory.mktemp('tool') / 'out'
    assert main_of('test.py')(small.words(*WORDS, '--out', out)) == 0
    return out


def figures(folder: Path) -> dict:
    """All that must be equal, to the last digit, between two tests of one model."""
    scores = {file.name: file.read_bytes() for file in (folder / 'scores').iterdir()}
    cells = json.loads((folder / 'results.json').read_text())['cells']
    return {'cells': [{**cell, 'seconds': 0} for cell in cells], 'scores': scores}


def test_a_config_object(small, by_tool, tmp_path, capfd):
    config = small.prepared()
    before = config.to_dict()
    capfd.readouterr()
    report = evaluate_robustness(config, small.checkpoint, **TEST)
    assert capfd.readouterr() == ('', ''), 'nothing is printed unless asked'
    assert config.to_dict() == before, 'the Config is not modified'
    assert [cell.key for cell in report.cells] == ['clean', 'gaussian_noise=40']
    assert report.cells[1].n == 2
    assert report.cells[1].metrics['mIoU']['mean'] < report.cells[0].metrics['mIoU']['mean']
    assert set(report.per_image) == {'clean', 'gaussian_noise=40_0', 'gaussian_noise=40_1'}
    assert len(report.per_image['clean']) == 4
    report.save(tmp_path)
    assert figures(tmp_path) == figures(by_tool)
    assert (tmp_path / 'results.md').read_text() == report.table() + '\n'
    written = {str(file.relative_to(by_tool)) for file in by_tool.rglob('*') if file.is_file()}
    kept = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob('*') if file.is_file()}
    assert kept == {name for name in written if not Path(name).name.startswith('.')}


@pytest.mark.parametrize('loader', ['built', 'of a run', 'config', 'data set', 'model.cfg'])
def test_a_built_model(loader, small, by_tool, tmp_path, capfd):
    config = small.prepared()
    model = load_model(config, small.checkpoint).train()
    given = {'metrics': config.test_evaluator}
    if loader in ('built', 'of a run'):
        given['data_loader'] = Runner.build_dataloader(config.test_dataloader)
        if loader == 'of a run':  # training has put guards around the loading steps
            guard(given['data_loader'])
        steps = [type(step).__name__ for step in given['data_loader'].dataset.pipeline.transforms]
    elif loader == 'config':
        given['data_loader'] = config.test_dataloader
    elif loader == 'data set':
        given['data_loader'] = config.test_dataloader.dataset
    else:  # as mmseg's init_model leaves it
        model.cfg, given = config, {}
    capfd.readouterr()
    report = evaluate_robustness(model, **given, **TEST)
    assert capfd.readouterr() == ('', '')
    report.save(tmp_path)
    assert figures(tmp_path) == figures(by_tool), 'to the last digit'
    assert model.training
    if loader in ('built', 'of a run'):
        after = [type(step).__name__ for step in given['data_loader'].dataset.pipeline.transforms]
        assert after == steps, "the host's data set is not changed"


def test_out_is_resumed(small, tmp_path):
    first = evaluate_robustness(small.prepared(), small.checkpoint, out=tmp_path, **TEST)
    again = evaluate_robustness(small.prepared(), small.checkpoint, out=tmp_path, **TEST)
    assert first.folder == tmp_path
    assert again.files['results.jsonl'] == first.files['results.jsonl'], 'no pass is run again'


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'limit': 0}, '`limit` 0: at least one image is needed.'),
        ({'cfg_options': ['x']}, '`cfg_options` takes key=value pairs; "x" is not one.'),
        ({'checkpoint': None}, '`checkpoint` is missing: a config has no weights.'),
        (
            {'data_loader': 3},
            '`data_loader`: int is neither a torch DataLoader nor a config of one.',
        ),
    ],
)
def test_errors_name_the_parameter(options, message, small):
    with pytest.raises(UserError) as found:
        evaluate_robustness(
            small.prepared(), options.pop('checkpoint', small.checkpoint), **options
        )
    assert str(found.value) == message


def test_a_built_model_says_what_it_lacks(small):
    model = load_model(small.prepared(), small.checkpoint)
    with pytest.raises(UserError, match=r'^`data_loader` is missing'):
        evaluate_robustness(model)
    with pytest.raises(UserError, match=r'^`checkpoint`: the model is built'):
        evaluate_robustness(model, small.checkpoint)


@pytest.mark.slow
def test_the_tool_of_mmseg_runs_a_suite(small, by_tool, tmp_path):
    figures_by_host = run_upstream_tool('mmseg', small, tmp_path)
    assert figures_by_host == figures(by_tool), 'to the last digit'


@pytest.mark.slow
def test_the_tool_of_mmdet_runs_a_suite(det, tmp_path):
    out = tmp_path / 'ours'
    assert main_of('test.py')(det.words(*WORDS, '--out', out)) == 0
    ours = figures(out)
    assert 0 < ours['cells'][1]['metrics']['bbox_mAP']['mean'] < 100, 'there is a score to compare'
    assert run_upstream_tool('mmdet', det, tmp_path) == ours, 'to the last digit'


def run_upstream_tool(name: str, small: SmallModel, tmp_path: Path) -> dict:
    """Run a suite with the tools/test.py that a package of OpenMMLab ships; return its figures."""
    package = importlib.import_module(name)
    config = small.prepared('custom_imports.imports=[cb_mm]')
    config.test_cfg = dict(
        type='RobustnessTestLoop', corruptions=TEST['corruptions'], repeats=2,
        out=str(tmp_path / 'out'),
    )  # fmt: skip
    file = tmp_path / 'host.py'
    config.dump(file)
    tool = Path(package.__file__).parent / '.mim' / 'tools' / 'test.py'
    words = [file, small.checkpoint, '--work-dir', tmp_path / 'work']
    # mmdet's tool imports mmcv's ops before it reads the config, which imports cb_mm.
    done = forked.run('-c', f'import cb_mm\n{tool.read_text()}', *words, cwd=tmp_path)
    assert done.code == 0, done.err[-3000:]
    assert '| Gaussian noise σ=40 | 2 |' in done.out + done.err
    return figures(tmp_path / 'out')


def test_the_loop_refuses_weights_of_another_model(small, tmp_path):
    content = torch.load(small.checkpoint, weights_only=True)
    name = next(name for name in content['state_dict'] if 'decode_head' in name)
    del content['state_dict'][name]
    torch.save(content, tmp_path / 'less.pth')
    config = small.prepared()
    config.test_cfg = dict(type='RobustnessTestLoop', suite='clean')
    config.load_from, config.work_dir = str(tmp_path / 'less.pth'), str(tmp_path / 'work')
    runner = Runner.from_cfg(config)
    with pytest.raises(UserError, match=r'less\.pth'):
        runner.test()


def test_the_loop_takes_a_model_with_test_time_augmentation(small, tmp_path):
    """As mmseg's tool makes it for `--tta`; the record is of the model inside."""
    config = small.prepared()
    model = load_model(config, small.checkpoint)
    meta = {KEY: Provenance.of_model(model).to_meta()}
    torch.save({'state_dict': model.state_dict(), 'meta': meta}, tmp_path / 'recorded.pth')
    loads, *rest = config.test_dataloader.dataset.pipeline
    flips = [dict(type='RandomFlip', prob=0.0), dict(type='RandomFlip', prob=1.0)]
    steps = [[step] for step in rest[:-1]]
    augmented = dict(type='TestTimeAug', transforms=[*steps, flips, [rest[-1]]])
    config.test_dataloader.dataset.pipeline = [loads, augmented]
    config.model = dict(type='SegTTAModel', module=config.model)
    config.custom_hooks = [dict(type='ProvenanceHook')]
    config.test_cfg = dict(
        type='RobustnessTestLoop', suite='clean', limit=1, out=str(tmp_path / 'out')
    )
    config.load_from, config.work_dir = str(tmp_path / 'recorded.pth'), str(tmp_path / 'work')
    assert Runner.from_cfg(config).test()['clean/mIoU'] > 0
    config.model.module.data_preprocessor.mean = [0.0, 0.0, 0.0]
    config.work_dir = str(tmp_path / 'other')
    runner = Runner.from_cfg(config)
    with pytest.raises(UserError, match=r'recorded\.pth was trained with images of mean'):
        runner.test()


def test_the_loop_says_what_options_of_the_hosts_tool_do_not_do(small, tmp_path):
    """`--show-dir` and `--out` of mmseg's tool, `--out` of mmdet's."""
    config = small.prepared()
    config.default_hooks.visualization = dict(type='SegVisualizationHook', draw=True)
    config.test_evaluator.output_dir = str(tmp_path / 'labels')
    config.test_cfg = dict(
        type='RobustnessTestLoop', suite='clean', limit=1, out=str(tmp_path / 'out')
    )
    config.load_from, config.work_dir = str(small.checkpoint), str(tmp_path / 'work')
    config.experiment_name = 'options'  # mmengine names a log by config and second otherwise
    runner = Runner.from_cfg(config)
    with pytest.raises(UserError, match=r'no single evaluator: .* `--out`'):
        runner.test_evaluator  # noqa: B018
    runner.test()
    (log,) = (tmp_path / 'work').glob('*/*.log')
    said = log.read_text()
    assert 'draws no predictions' in said
    assert f'{tmp_path / "labels"} holds those of the last pass alone' in said


def test_the_loop_takes_weights_of_other_classes_only_if_told(small, tmp_path):
    content = torch.load(small.checkpoint, weights_only=True)
    config = small.prepared()
    classes = Runner.build_dataloader(config.test_dataloader).dataset.metainfo['classes']
    content['meta'] = {'dataset_meta': {'classes': list(classes)[::-1]}}
    torch.save(content, tmp_path / 'reversed.pth')
    found = {}
    for allow in (False, True):
        config = small.prepared()
        config.custom_hooks = []  # as in another project: the hook of ours would refuse it too
        config.test_cfg = dict(
            type='RobustnessTestLoop', suite='clean', limit=1, allow_mismatch=allow,
            out=str(tmp_path / f'out{allow}'),
        )  # fmt: skip
        config.load_from = str(tmp_path / 'reversed.pth')
        config.work_dir = str(tmp_path / f'work{allow}')
        runner = Runner.from_cfg(config)
        if allow:
            found = runner.test()
        else:
            with pytest.raises(UserError, match=r'reversed\.pth: class .* was number'):
                runner.test()
    assert found['clean/mIoU'] > 0


def test_built_metrics_are_used_as_they_are(small):
    config = small.prepared()
    model = load_model(config, small.checkpoint)
    given = {'data_loader': config.test_dataloader, 'limit': 1, 'suite': 'clean'}
    dice = IoUMetric(iou_metrics=['mDice'])
    (cell,) = evaluate_robustness(model, metrics=dice, **given).cells
    assert cell.metrics['mDice']['mean'] > 0
    with pytest.raises(UserError, match='but not both'):
        evaluate_robustness(model, metrics=[dice, {'type': 'IoUMetric'}], **given)


def test_a_config_without_a_file(small, by_tool, tmp_path):
    config = Config(small.prepared().to_dict())
    report = evaluate_robustness(config, small.checkpoint, **TEST)
    report.save(tmp_path)
    assert figures(tmp_path) == figures(by_tool)
