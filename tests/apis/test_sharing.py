"""Sharing through a folder: the same model comes back, with a card that says what it is."""

from __future__ import annotations

import re

import pickle_words
import pytest
import torch
from huggingface_hub import ModelCard, constants
from robustness_models import SmallModel
from tool import main_of

from cb_mm.apis import evaluate_robustness, load_from_hub, predict, push_to_hub
from cb_mm.checkpoints.label_set import LabelSet
from cb_mm.checkpoints.load_model import load_model
from cb_mm.checkpoints.provenance import Provenance
from cb_mm.checkpoints.read import read_checkpoint
from cb_mm.errors import UserError
from cb_mm.fileio.result_files import read_json


@pytest.fixture(scope='module')
def trained(tmp_path_factory, scenes) -> SmallModel:
    """A model whose checkpoint has what training writes, an optimizer's state among it."""
    model = SmallModel(tmp_path_factory.mktemp('share'), 'seg', scenes.ade20k)
    content = torch.load(model.checkpoint, weights_only=True)
    built = load_model(model.prepared(), model.checkpoint)
    record = Provenance.of_model(built).to_meta() | LabelSet.of_config(model.prepared()).to_meta()
    content['meta'] = {'cb_mm': record, 'iter': 1234}
    content['optimizer'] = {'secret': '/home/me'}
    torch.save(content, model.checkpoint)
    return model


@pytest.fixture(scope='module')
def shared(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp('shared')
    quick = ['test_dataloader.num_workers=0', 'test_dataloader.persistent_workers=False']
    evaluate_robustness(
        trained.config, trained.checkpoint, corruptions=['gaussian_noise=20'], repeats=2,
        data_root=trained.data, cfg_options=quick, out=folder / 'test',
    )  # fmt: skip
    words = ['push', trained.config, trained.checkpoint, folder / 'model', '--results',
             folder / 'test', '--data', 'drawn scenes', '--licence', 'apache-2.0']  # fmt: skip
    assert main_of('share.py')([str(word) for word in words]) == 0
    return folder


def test_the_model_comes_back_and_is_the_same(shared, trained, scenes):
    found = load_from_hub(shared / 'model')
    model = found.model()
    before = load_model(trained.prepared(), trained.checkpoint).state_dict()
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    content = read_checkpoint(found.checkpoint)
    made = Provenance.of_checkpoint(content)
    assert made == Provenance.of_checkpoint(read_checkpoint(trained.checkpoint))
    assert made.broadcast == 'cb'
    assert 'optimizer' not in content
    image = next((scenes.ade20k / 'images' / 'validation').glob('*.jpg'))
    (ours,) = predict(found.config, found.checkpoint, image)
    (theirs,) = predict(trained.prepared(), trained.checkpoint, image)
    assert (ours.result.labels == theirs.result.labels).all()
    assert model.cfg is found.config


def test_nothing_of_this_machine_is_shared(shared, trained):
    for file in (shared / 'model').iterdir():
        content = file.read_bytes()
        assert str(trained.folder).encode() not in content, file.name
        assert str(trained.data).encode() not in content, file.name
        assert b'/home/me' not in content


def test_the_card_says_what_it_is(shared):
    card = ModelCard.load(shared / 'model' / 'README.md')
    assert card.data.license == 'apache-2.0'
    assert card.data.pipeline_tag == 'image-segmentation'
    results = read_json(shared / 'test' / 'results.json')
    clean, noisy = (cell['metrics']['mIoU'] for cell in results['cells'])
    found = card.data.eval_results
    assert [one.metric_value for one in found] == [
        round(figure['mean'], 4) for figure in (clean, noisy)
    ]
    text = card.text
    half = (noisy['high'] - noisy['low']) / 2
    assert f'| {clean["mean"]:.2f} (images {clean["over_images"]["low"]:.2f} to ' in text
    assert f'{noisy["mean"]:.2f} ± {half:.2f}' in text
    for line in (
        r'\| broadcast \| cb in layers [\d-]+, position end \|',
        r'\| normalisation \| mean 1\d\d\.\d+, .* and std ',
        r'\| training data \| drawn scenes \|',
        r'\| training \| 1,234 iterations',
        r'\| classes \| 16: ',
    ):
        assert re.search(line, text), line


def test_results_of_another_checkpoint_are_refused(shared, trained, tmp_path):
    other = tmp_path / 'other.pth'
    content = torch.load(trained.checkpoint, weights_only=True)
    content['meta']['iter'] = 1
    torch.save(content, other)
    with pytest.raises(UserError, match=r'^`results` .* is of another checkpoint'):
        push_to_hub(trained.config, other, tmp_path / 'out', results=shared / 'test')
    pushed = push_to_hub(trained.config, other, tmp_path / 'out')
    assert 'Not measured' in pushed.card
    assert pushed.card == (tmp_path / 'out' / 'README.md').read_text()
    assert pushed.address == str(pushed.folder) == str(tmp_path / 'out')
    copied = {file.name for file in pushed.save(tmp_path / 'copy')}
    assert copied == {'config.py', 'model.safetensors', 'README.md'}


def test_a_config_of_a_stranger_is_not_run(shared, tmp_path):
    load_from_hub(shared / 'model').save(tmp_path)
    config = tmp_path / 'config.py'
    config.write_text(f'open({str(tmp_path / "PWNED")!r}, "w")\n' + config.read_text())
    with pytest.raises(UserError, match=r'^a shared config is read as data and never run: '):
        load_from_hub(tmp_path)
    assert not (tmp_path / 'PWNED').exists()


TEACHER = """
default_scope = 'mmdet'
detector = dict(
    type='RetinaNet', backbone=dict(type='ResNet', depth=18),
    neck=dict(type='FPN', in_channels=[64], out_channels=8, num_outs=1),
    bbox_head=dict(type='RetinaHead', num_classes=1, in_channels=8),
)
student = dict(type='KnowledgeDistillationSingleStageDetector', teacher_config={teacher})
model = dict(detector)
model.update(student)
"""


@pytest.mark.parametrize('teacher', [
    "'evil.py'", "dict(model=detector), teacher_ckpt='evil.pth'",
])  # fmt: skip
def test_building_a_strangers_model_runs_no_code(shared, tmp_path, monkeypatch, teacher):
    """A class reads the config and the checkpoint of a second model when it is built."""
    load_from_hub(shared / 'model').save(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'evil.py').write_text("open('PWNED', 'w')\nmodel = None\n")
    run = pickle_words.call('os.system', pickle_words.plain('touch PWNED'))
    (tmp_path / 'evil.pth').write_bytes(pickle_words.archive(pickle_words.table({'a': run})))
    (tmp_path / 'config.py').write_text(TEACHER.format(teacher=teacher))
    found = load_from_hub(tmp_path)
    with pytest.raises(UserError, match=r'evil\.p'):
        found.model()
    assert not (tmp_path / 'PWNED').exists()


def test_what_nobody_could_fetch_is_not_shared(trained, tmp_path):
    """A type that is not on the list of reviewed ones."""
    config = trained.prepared()
    config.default_hooks.visualization = dict(type='MyOwnHook')
    with pytest.raises(UserError, match=r'^a shared config is read as data .* "MyOwnHook"'):
        push_to_hub(config, trained.checkpoint, tmp_path / 'out')
    assert not (tmp_path / 'out').exists()


def test_what_is_not_there(trained, tmp_path, monkeypatch, capsys):
    with pytest.raises(UserError, match=r'is not a shared model: it has no config\.py'):
        load_from_hub(tmp_path)
    with pytest.raises(UserError, match=r'on the Hub it would be hf://nobody/nothing\.$'):
        load_from_hub('nobody/nothing')
    with pytest.raises(UserError, match=r'is not an address such as hf://OWNER/NAME'):
        load_from_hub('hf://only_one_word')
    # Nobody listens there.
    monkeypatch.setattr(constants, 'ENDPOINT', 'http://127.0.0.1:9')
    for name in ('http_proxy', 'https_proxy', 'all_proxy'):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv('HF_HOME', str(tmp_path / 'cache'))
    with pytest.raises(UserError, match=r'^hf://nobody/nothing could not be fetched .*network'):
        load_from_hub('hf://nobody/nothing')
    tool = main_of('share.py')
    words = ['push', str(trained.config), str(trained.checkpoint), 'hf://nobody/nothing']
    assert tool([*words, '--token', 'hf_x']) == 2
    said = capsys.readouterr().err
    assert 'hf://nobody/nothing could not be written' in said
    assert 'give a local folder' in said
    assert 'Traceback' not in said


def test_words_that_do_not_fit():
    tool = main_of('share.py')
    for words in (['push', 'a', 'b'], ['pull', 'x'], ['pull', 'x', '--out', 'y', '--public']):
        with pytest.raises(SystemExit, match='2'):
            tool(words)
