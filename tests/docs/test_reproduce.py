"""docs/reproduce.md: a row for everything in the papers, and commands whose models build."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import re
import shutil
from pathlib import Path

import pages
import pytest
from tool import REPO

PAGE = REPO / 'docs' / 'reproduce.md'
TEXT = PAGE.read_text()
SPEC = importlib.util.spec_from_file_location('counts', REPO / 'benchmarks/parameter_counts.py')
counts = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(counts)

ITEMS = [
    *(f'Table {n}' for n in range(1, 12)),
    *(f'Table S{n}' for n in range(12, 18)),
    *(f'Figure {n}' for n in range(1, 11)),
    *('Figure S11', 'Figure S12', 'Sparse Table 1', 'Sparse Table 2', 'Sparse Table 3'),
    'Sparse Figure 1',
]
#: Drawings, and pictures of other papers.
WITHOUT = {'Figure 1', 'Figure 2', 'Figure 6', 'Figure S12'}
#: Table and config whose count does not round to the paper's; the page says why.
DIFFERENT = {
    *(('Table 5', f'configs/imagenet/imagenet_vit_s{kind}.py') for kind in ('', '_cb', '_cb_s')),
    ('Table 6', 'configs/upernet_vit_s_cb_s.py'),
    *(
        ('sparse-attention paper, Table 1', f'configs/imagenette/imagenette_{name}.py')
        for name in ('vit_tiny', 'bbvit_tiny', 'bbvit_tiny_368', 'bbvit_moderate')
    ),
}
COMMANDS = [command.words for command in pages.block_commands(PAGE)]
CONFIGS = sorted({word for words in COMMANDS for word in words if word.startswith('configs/')})
TRAININGS = [words for words in COMMANDS if words[1] == 'tools/train.py']
#: One of each config; the others are the same model with another schedule.
FIRST = list({words[2]: words for words in reversed(TRAININGS)}.values())[::-1]
CURVES = [words for words in COMMANDS if words[1] == 'tools/plot_curves.py']


def form(words: list[str]) -> tuple[str, ...]:
    """What distinguishes commands: the tool, the kind of model, the options and the test set."""
    kinds = [str(Path(word).parent) for word in words if word.startswith('configs/')]
    test_set = words[words.index('--test-set') + 1] if '--test-set' in words else ''
    return words[1], *kinds, *(word for word in words if word.startswith('--')), test_set


#: One of each form.
OTHERS = list(
    {
        form(words): words
        for words in COMMANDS
        if words[1].startswith('tools/')
        and words[1] not in ('tools/train.py', 'tools/ablation.py', 'tools/plot_curves.py')
    }.values()
)


def section(item: str) -> str:
    found = re.search(rf'^## {re.escape(item)}\n(.*?)(?=^## |\Z)', TEXT, re.M | re.S)
    return found[1] if found else ''


def test_everything_has_one_row():
    rows = re.findall(
        r'^\| ((?:Sparse )?(?:Table|Figure) S?\d+) \| .* \| (.*?) \| .* \| .* \|$',
        TEXT.partition('## Parameters')[0],
        re.M,
    )
    assert [item for item, _ in rows] == ITEMS
    for item, link in rows:
        if item in WITHOUT:
            assert link == 'none: a picture'
        else:
            assert link == f'[commands](#{item.lower().replace(" ", "-")})'
            assert re.search(r'^python ', section(item), re.M), item
    assert len(COMMANDS) > 80


@pytest.mark.parametrize('config', CONFIGS)
def test_configs_build(config):
    """Without memory for their weights."""
    if 'vqa' in config:
        pytest.importorskip('transformers')
    elif 'upernet' not in config and 'mask_rcnn' not in config:
        pytest.importorskip('mmpretrain')
    assert parameters(config) > 1e6


@functools.cache
def parameters(config: str) -> int:
    # mmdet's PVT computes with its weights while it is built.
    return counts.count(config, device='cpu' if 'pvt_s' in config else 'meta')


def test_parameter_counts_are_stored_and_shown():
    records = json.loads((counts.RESULTS / 'parameter_counts.json').read_text())
    stored = [
        (r['table'], r['model'], r['paper'], r['config'], tuple(r['options'])) for r in records
    ]
    assert stored == counts.rows()
    assert counts.table(records) == (counts.RESULTS / 'parameter_counts.md').read_text()
    assert counts.table(records) in TEXT
    assert all(counts.agrees(*pair) for pair in ((5_717_416, '5.7'), (127_049_999, '127.0')))
    assert not any(counts.agrees(*pair) for pair in ((22_050_664, '22.0'), (45_445_130, '45.5')))
    different = {
        (r['table'], r['config']) for r in records if not counts.agrees(r['parameters'], r['paper'])
    }
    assert different == DIFFERENT
    for record in records:
        if '376' in record['model']:
            assert counts.agrees(record['parameters'], record['paper'])
        elif 'tiny' not in record['config'] and '.' in record['paper']:
            assert abs(record['parameters'] / 1e6 - float(record['paper'])) < 0.06
    again = [r for r in records if r['config'].endswith(('vit_ti_cb_s.py', 'bbvit_tiny.py'))]
    again += [r for r in records if r['model'] == '(C)']
    assert len(again) == 6
    for record in again:
        found = counts.count(record['config'], tuple(record['options']))
        assert found == record['parameters']


@pytest.fixture(scope='module')
def folder(tmp_path_factory, scenes):
    """Where the commands of the page run."""
    pytest.importorskip('mmpretrain')
    from page_folder import PageFolder

    found = PageFolder(tmp_path_factory.mktemp('page'), scenes)
    found.add_weights()
    return found


@pytest.fixture
def _there(folder, monkeypatch):
    monkeypatch.chdir(folder.root)
    # mmengine's loggers keep the streams of earlier tests, which are closed by now.
    monkeypatch.setattr('logging.raiseExceptions', False)
    # Configs are written and logged without line breaks: laying them out takes half of the time.
    monkeypatch.setattr('yapf.yapflib.yapf_api.FormatCode', lambda text, **_: (text, True))


@pytest.mark.usefixtures('_there')
@pytest.mark.parametrize('words', FIRST, ids=' '.join)
def test_training_makes_an_iteration(words, folder):
    """The command as it stands, on a few images and with a narrow model."""
    if 'vqa' in words[2]:
        pytest.importorskip('transformers')
    checkpoint = folder.train(words)
    assert checkpoint.is_file()
    (loss,) = folder.losses(checkpoint)
    assert 0 < loss < 100


def test_other_schedules_are_the_same_model():
    """So that an iteration of one of them is enough."""
    from cb_mm.apis.calls import options_from
    from cb_mm.engine.training import TrainOptions, prepare_config
    from cb_mm_cli.train import parse

    others = [words for words in TRAININGS if words not in FIRST]
    assert len(others) == 9
    for words in others:
        first = next(one for one in FIRST if one[2] == words[2])
        prepared = []
        for one in (first, words):
            options = options_from(TrainOptions, vars(parse(one[2:])))
            options.config, options.data_root = str(REPO / options.config), None
            prepared.append(prepare_config(options, options.schedule))
        assert [one.train_cfg.max_iters for one in prepared] == [40_000, 160_000]
        assert prepared[0].model == prepared[1].model
        assert prepared[1].work_dir == f'work_dirs/{Path(words[2]).stem}_160k'


@pytest.mark.usefixtures('_there')
@pytest.mark.parametrize('words', OTHERS, ids=' '.join)
def test_other_commands_run(words, folder):
    """One of each form, with checkpoints of the page's own training commands."""
    if 'vqa' in ' '.join(words):
        pytest.importorskip('transformers')
    for config, weights in itertools.pairwise(words):
        if config.startswith('configs/'):
            training = next(one for one in TRAININGS if one[2] == config)
            checkpoint = folder.train(training)
            if '/' in weights:  # the page says where training leaves it
                assert Path(weights).parent == checkpoint.parent.relative_to(folder.root)
            folder.name(checkpoint, weights)
    if 'out/vit/results.json' in words and not Path('out/vit/results.json').is_file():
        first = next(one for one in COMMANDS if 'out/vit' in one)
        training = next(one for one in TRAININGS if one[2] == first[2])
        folder.name(folder.train(training), first[3])
        assert folder.run(first) == 0
    assert folder.run(words) == 0


def test_no_command_ends_where_another_one_did():
    """The attention tools refuse a folder that has another run's records."""
    figures = [
        ' '.join(words) for words in COMMANDS if 'attention.py' in words[1] or 'softmax' in words[1]
    ]
    folders = [words.partition('--out ')[2] for words in figures]
    assert len(set(folders)) == len(figures) == 6


@pytest.mark.usefixtures('_there')
def test_curves_are_drawn(folder):
    """From the folders that training and the ablation of Figure 3 write."""
    from cb_mm.apis.ablations import ABLATIONS

    pair = [w for w in TRAININGS if re.search('imagenet_vit_s(_cb)?.py', w[2])]
    runs = [folder.train(words).parent for words in pair]
    for row in ABLATIONS['figure3'].rows:
        shutil.copytree(runs[0], Path('work_dirs', 'ablation_figure3', row.folder))
    drawn = 0
    for words in CURVES:
        expanded = [str(f) for word in words for f in sorted(Path().glob(word)) or [word]]
        assert folder.run(expanded) == 0
        assert Path('curves.png').stat().st_size > 0
        Path('curves.png').unlink()
        drawn += len(expanded)
    assert drawn == (2 + 3) + (2 + 2 + 3)


def test_ablations_are_known():
    """test_ablation.py trains a step of every row."""
    from cb_mm.apis.ablations import ABLATIONS

    named = [words[2] for words in COMMANDS if words[1] == 'tools/ablation.py']
    assert sorted(named) == sorted(ABLATIONS)
