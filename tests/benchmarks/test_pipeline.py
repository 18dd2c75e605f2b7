"""benchmarks/pipeline.py: what it says of its results, and when it refuses. The run is an hour."""

from __future__ import annotations

import json
import runpy
import sys
from types import SimpleNamespace

import pytest
from mmengine.config import Config
from tool import REPO

sys.path.insert(0, str(REPO / 'benchmarks'))
from parts.pipeline_report import compare, write_report

from cb_mm.errors import UserError

module = runpy.run_path(str(REPO / 'benchmarks' / 'pipeline.py'))
main = module['main']


def test_without_camvid_there_is_one_message(tmp_path, capsys):
    assert main(['--camvid', str(tmp_path), '--work', str(tmp_path / 'work')]) == 2
    error = capsys.readouterr().err
    assert f'CamVid is not at {tmp_path}' in error
    assert '--camvid' in error


def test_another_size_does_not_meet_old_results(shared, tmp_path, capsys):
    words = ['--camvid', str(shared / 'data/camvid'), '--work', str(tmp_path), '--report']
    assert main(words) == 2
    assert 'nothing to report yet' in capsys.readouterr().err
    assert main([*words, '--pretrain', '7']) == 2
    assert 'other settings' in capsys.readouterr().err


@pytest.mark.parametrize(('part', 'classes'), [('scenes', 16), ('camvid', 11)])
def test_both_halves_train_the_same_backbone(part, classes, tmp_path):
    for split in ('train', 'val'):
        for name in (f'images/{split}/a.jpg', f'annotations/{split}/a.png'):
            (tmp_path / name).parent.mkdir(parents=True)
            (tmp_path / name).touch()
    args = module['parse_args'](['--camvid', str(tmp_path), '--work', str(tmp_path / 'work')])
    file = module['Pipeline'](args)._config(tmp_path / 'run', part, 'cb', 30)
    config = Config.fromfile(file)
    assert config.model.backbone == dict(
        type='ViTCB', arch='tiny', img_size=128, out_indices=(3, 5, 7, 11), pyramid=False,
        drop_path_rate=0.0, broadcast='cb',
    )  # fmt: skip
    assert config.model.decode_head.num_classes == classes
    names = config.test_dataloader.dataset.metainfo.classes
    assert len(names) == classes
    assert config.train_cfg.max_iters == config.param_scheduler[1].end == 30


def run(value: float) -> dict[str, float]:
    return {'clean': value, 'gaussian_blur=1': value - 1}


CB = {(0, 0): run(12.0), (0, 1): run(13.0), (1, 0): run(11.0), (1, 1): run(18.0)}
PLAIN = {(0, 0): run(10.0), (0, 1): run(12.0), (1, 0): run(11.0)}


def test_differences_are_of_pairs():
    """2, 1 and 0; the run without a counterpart is left out."""
    row = compare(CB, PLAIN)['clean']
    assert row['pairs'] == {'0,0': 2.0, '0,1': 1.0, '1,0': 0.0}
    assert row['mean'] == pytest.approx(1.0)
    # t of 2 degrees of freedom is 4.3027; the standard error is 1 / sqrt(3).
    assert row['interval'] == pytest.approx([1 - 2.4841, 1 + 2.4841], abs=1e-3)
    assert row['by_pretraining_seed'] == {'0': 1.5, '1': 0.0}
    assert row['interval_over_pretraining_seeds'][0] < -5


def test_report(tmp_path):
    work = tmp_path / 'work'
    for variant, runs in (('cb', CB), ('plain', PLAIN)):
        for (p, f), values in runs.items():
            cells = [
                {'key': key, 'title': key, 'metrics': {'mIoU': {'mean': value}}}
                for key, value in values.items()
            ]
            # The last run of CB was stopped in the middle: it does not count.
            wanted = [*values, 'more'] if (variant, p, f) == ('cb', 1, 1) else list(values)
            folder = work / 'finetune' / f'{variant}_{p}_{f}' / 'test'
            folder.mkdir(parents=True)
            content = {'cells': cells, 'identity': {'cells': wanted}}
            (folder / 'results.json').write_text(json.dumps(content))
    layers = [{'all_heads': {'entropy': {'mean': 4.5}}}] * 12
    (work / 'entropy_0').mkdir()
    models = [{'name': name, 'layers': layers} for name in ('plain', 'CB')]
    (work / 'entropy_0' / 'summary.json').write_text(json.dumps({'models': models}))
    settings = dict(scenes=5, batch=2, pretrain=3, finetune=4, repeats=1, limit=None)
    text = write_report(SimpleNamespace(work=work, settings=settings), tmp_path / 'out')
    assert '| clean | +1.00 | -1.48 to +3.48 | +1.50 | +0.00 |' in text
    assert '| clean | 12.00 (sd 1.00) | 11.00 (sd 1.00) |' in text
    results = json.loads((tmp_path / 'out' / 'pipeline.json').read_text())
    assert '1,1' not in results['runs']['cb']
    assert (tmp_path / 'out' / 'pipeline.png').read_bytes().startswith(b'\x89PNG')
    with pytest.raises(UserError, match='nothing to report'):
        write_report(SimpleNamespace(work=tmp_path / 'none', settings=settings), tmp_path)
