"""The model index: as the configs say, shown on the page, and in the wheel where mim looks."""

from __future__ import annotations

import functools
import importlib.util
import re
import subprocess
import sys
import zipfile

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from tool import CONFIGS, REPO

from cb_mm.config.loading import apply_schedule, load_config, replace_sync_bn

SPEC = importlib.util.spec_from_file_location('model_zoo', REPO / 'benchmarks' / 'model_zoo.py')
model_zoo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(model_zoo)
COLLECTIONS, MODEL_LIST = model_zoo.load_index()
each_model = pytest.mark.parametrize('model', MODEL_LIST, ids=lambda model: model['Name'])


def docstring(model: dict) -> str:
    return (REPO / model['Config']).read_text().split('"""')[1]


def metrics(model: dict) -> dict[str, float]:
    return {
        f'{result["Dataset"]} {name}': value
        for result in model.get('Results', [])
        for name, value in result['Metrics'].items()
    }


@functools.cache
def parameters(config: str) -> int:
    """Of the model that the config builds; without memory for them."""
    built = load_config(REPO / config)
    replace_sync_bn(built)
    init_default_scope(built.default_scope)
    # mmdet's PVT looks at numbers while it is built.
    with torch.device('cpu' if 'pvt_s' in config else 'meta'):
        return sum(p.numel() for p in MODELS.build(built.model).parameters())


def test_every_config_with_every_schedule_is_a_model():
    expected = set()
    for file in CONFIGS.rglob('*.py'):
        if not {'_base_', 'demo'} & set(file.parts):
            config = Config.fromfile(file, import_custom_modules=False)
            for schedule in {config.schedule, *config.get('schedules', {})}:
                expected.add((f'{file.stem}_{schedule}', str(file.relative_to(REPO)), schedule))
    found = [(m['Name'], m['Config'], m['Metadata']['Schedule']) for m in MODEL_LIST]
    assert set(found) == expected
    assert len(found) == len(expected) == 2 * (9 + 2 + 4 + 6) + 7 + 5 + 9 + 2 + 12 + 4 + 9 + 12 + 2


@each_model
def test_says_what_the_config_says(model):
    if model['In Collection'] in ('ViT', 'BBViT'):
        pytest.importorskip('mmpretrain', reason='classification needs mmpretrain')
    if model['In Collection'] == 'ViLT':
        pytest.importorskip('transformers')
    data = model['Metadata']
    config = load_config(REPO / model['Config'])
    apply_schedule(config, data['Schedule'])
    assert data.get('Iterations') == config.train_cfg.get('max_iters')
    assert data.get('Epochs') == config.train_cfg.get('max_epochs')
    assert data['Batch Size'] == config.auto_scale_lr.base_batch_size
    assert data['Parameters'] == parameters(model['Config'])
    broadcast = config.model.backbone.get('broadcast')
    ending = {None: '', 'cb': ' + CB', 'cb_s': ' + CB_S'}[broadcast]
    tokens = config.model.backbone.get('tokens')  # of ViLT
    ending += f' ({tokens})' if tokens else ''
    assert re.fullmatch(rf'[\w/-]+{re.escape(ending)}', data['Backbone'])
    assert data['Backbone'] in docstring(model)
    assert data['Training Data'].removesuffix('-1k') in docstring(model)


@pytest.mark.parametrize('config', sorted({model['Config'] for model in MODEL_LIST}))
def test_figures_of_the_paper_are_those_of_the_docstring(config):
    """All of them, in the same order: that of the default schedule first."""
    models = [model for model in MODEL_LIST if model['Config'] == config]
    sentence = re.search(r"[Tt]he paper's \((Table \w+)\): (.*)", docstring(models[0]))
    stated = [float(number) for number in re.findall(r'\d+\.\d+', sentence[2] if sentence else '')]
    if sentence:
        columns = {'Table 5': 4, 'Table 6': 2, 'Table 7': 6, 'Table S12': 4}
        assert len(stated) == columns.get(sentence[1], 1)
    listed = [metrics(model) for model in models]
    assert [
        value for found in listed for name, value in found.items() if ' Paper ' in name
    ] == stated
    if len(models) > 1:
        assert models[0]['Metadata']['Schedule'] == load_config(REPO / config).schedule


@each_model
def test_a_figure_is_the_papers_or_measured_by_us(model):
    """No figure under the plain name of a metric without word of how we measured it."""
    ours = [name for name in metrics(model) if ' Paper ' not in name]
    assert bool(ours) == (model['Metadata']['Measured by us'] != 'not yet')
    assert ('Measured by us: not yet' in docstring(model)) == (not ours)
    assert 'Weights' not in model  # none are public


def test_the_page_is_the_one_of_the_metafiles():
    page = (REPO / 'docs' / 'model_zoo.md').read_text()
    assert page == model_zoo.page(), 'run python benchmarks/model_zoo.py'
    assert '| ViT-S + CB | ADE20K | 53.55 | 40k | mIoU 41.9 | not yet | ' in page
    assert page.count(' --schedule 40k` |') == page.count(' --schedule 160k` |') == 21


def test_a_figure_of_ours_has_its_column():
    model = dict(
        MODEL_LIST[0],
        Metadata=dict(MODEL_LIST[0]['Metadata'], **{'Measured by us': 'command'}),
        Results=[dict(Dataset='ADE20K', Metrics={'Paper mIoU': 1.5, 'mIoU': 2.5})],
    )
    assert '| mIoU 1.5 | mIoU 2.5: command |' in model_zoo.row(model, several=False)


@pytest.fixture(scope='module')
def built(tmp_path_factory):
    """A folder with the list of the source distribution, and the wheel, unpacked."""
    folder = tmp_path_factory.mktemp('built')
    done = subprocess.run(
        [
            *(sys.executable, 'setup.py', '--quiet', 'egg_info', '--egg-base', folder),
            *('build', '--build-base', folder / 'build', 'bdist_wheel', '--dist-dir', folder),
        ],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob('*.whl')
    assert wheel.name.endswith('-py3-none-any.whl')  # nothing was compiled
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / 'installed')
    return folder


def originals() -> set[str]:
    files = [file for name in ('configs', 'tools') for file in (REPO / name).rglob('*')]
    files += [REPO / 'model-index.yml', REPO / 'docs' / 'model_zoo.md']
    return {
        file.relative_to(REPO).as_posix()
        for file in files
        if file.is_file() and '__pycache__' not in file.parts
    }


def test_the_wheel_holds_what_mim_looks_for(built):
    inside = built / 'installed' / 'cb_mm' / '.mim'
    found = {f.relative_to(inside).as_posix() for f in inside.rglob('*') if f.is_file()}
    assert found == originals()
    assert (inside / 'configs/upernet_vit_s_cb.py').read_text() == (
        CONFIGS / 'upernet_vit_s_cb.py'
    ).read_text()
    config = load_config(inside / 'configs' / 'upernet_vit_s_cb.py')  # its bases are there too
    assert config.model.backbone.broadcast == 'cb'


def test_the_source_distribution_holds_it_too(built):
    listed = (built / 'cb_mm.egg-info' / 'SOURCES.txt').read_text().splitlines()
    assert originals() <= set(listed)


@pytest.mark.parametrize('where', ['checkout', 'wheel'])
def test_the_reader_of_mim_understands_it(where, built):
    """mim reads with this package, and names the columns of its search after these keys."""
    modelindex = pytest.importorskip('modelindex')
    root = REPO if where == 'checkout' else built / 'installed' / 'cb_mm' / '.mim'
    index = modelindex.load(str(root / 'model-index.yml'))
    assert index.check(silent=True) == []
    assert [model.name for model in index.models] == [model['Name'] for model in MODEL_LIST]
    for model in index.models:
        assert (root / model.config).is_file()
        assert (root / model.full_model.readme).is_file()
        assert model.full_model.paper['URL'] in (
            'https://arxiv.org/abs/2210.08457',
            'https://github.com/Shiva-sankaran/SparseAttentionViT',
        )
    chosen = next(model for model in index.models if model.name == 'upernet_vit_s_cb_160k')
    assert chosen.results[0].metrics == {'Paper mIoU': 43.9}
    assert chosen.metadata.data['Measured by us'] == 'not yet'
