"""Published classifiers as they are, and the mean and std that belong to weights."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from huggingface_hub import constants
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import DATASETS, MODELS, init_default_scope
from original_arrays import npz
from PIL import Image
from safetensors.torch import save_file
from timm.data import create_transform
from tiny_imagenet import write_imagenet
from tool import REPO

from cb_mm.checkpoints.label_set import KEY
from cb_mm.checkpoints.load_model import load_model
from cb_mm.checkpoints.normalization import NORMALIZATIONS, set_normalization
from cb_mm.checkpoints.provenance import Provenance
from cb_mm.checkpoints.published import published_normalization, recorded_normalization
from cb_mm.checkpoints.read import read_checkpoint
from cb_mm.checkpoints.sources import is_hub_name, timm_name
from cb_mm.config.loading import load_config
from cb_mm.errors import UserError
from cb_mm_cli.command import main

pytest.importorskip('mmpretrain')
ARCH = dict(embed_dim=48, depth=2, num_heads=3)


@pytest.mark.parametrize(
    ('name', 'expected'),
    [
        ('deit_tiny_patch16_224_in1k.safetensors', 'imagenet'),
        ('deit_tiny_patch16_224-a1311bcf.pth', 'imagenet'),
        ('vit_tiny_patch16_224_in1k.safetensors', 'half'),
        ('vit_small_patch16_224.dino.safetensors', 'imagenet'),
        ('vit_small_patch16_224.augreg_in21k_ft_in1k.bin', 'half'),
        ('vit_small_patch16_224.pth', None),  # AugReg's or DINO's
        ('vit_tiny_patch16_2240.pth', None),
        ('model.safetensors', None),
    ],
)
def test_the_name_of_a_file(name, expected, tmp_path):
    found = published_normalization(tmp_path / name)
    assert (found is None) == (expected is None)
    if found:
        for ours, theirs in zip(NORMALIZATIONS[expected], found, strict=True):
            assert theirs == pytest.approx(ours, abs=1e-3)


def test_timms_notes_beside_a_file(tmp_path):
    notes = {'pretrained_cfg': {'mean': [0.5] * 3, 'std': [0.25] * 3}}
    (tmp_path / 'config.json').write_text(json.dumps(notes))
    assert published_normalization(tmp_path / 'model.safetensors') == ((127.5,) * 3, (63.75,) * 3)
    (tmp_path / 'config.json').write_text('{}')  # of something else
    assert published_normalization(tmp_path / 'model.safetensors') is None


def small_config() -> Config:
    config = load_config('imagenet_vit_ti')
    config.model.backbone.arch = dict(ARCH)
    config.model.head.update(num_classes=7, in_channels=48)
    config.model.train_cfg = None
    return config


@pytest.fixture
def published(tmp_path):
    """A classifier of timm's, in a file whose name says which."""
    torch.manual_seed(0)
    model = timm.models.VisionTransformer(num_classes=7, **ARCH).eval()
    for name, value in (('deit_tiny_patch16_224.pth', {'model': model.state_dict()}),
                        ('mine.pth', model.state_dict())):  # fmt: skip
        torch.save(value, tmp_path / name)
    return model, tmp_path


def test_a_classifier_keeps_its_head(published):
    model, folder = published
    config = small_config()
    loaded = load_model(config, folder / 'deit_tiny_patch16_224.pth')
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        ours = loaded.head(loaded.backbone(images))
        torch.testing.assert_close(ours, model(images), rtol=0, atol=1e-5)


def test_without_a_head_or_a_normalisation(published, tmp_path):
    model, folder = published
    config = small_config()
    with pytest.raises(UserError, match='Pass `normalization` imagenet'):
        set_normalization(config, None, str(folder / 'mine.pth'))
    set_normalization(config, 'half', str(folder / 'mine.pth'))
    load_model(config, folder / 'mine.pth')
    model.reset_classifier(0)
    torch.save(model.state_dict(), tmp_path / 'bare.pth')
    with pytest.raises(UserError, match='has no classifier'):
        load_model(config, tmp_path / 'bare.pth')
    with pytest.raises(UserError, match='another kind of model'):
        load_model(load_config('upernet_vit_ti'), tmp_path / 'bare.pth')


def test_what_does_not_belong_to_the_weights_is_said(published, tmp_path, capsys):
    """On the console, although mmengine's log goes to a file; and only where there is something."""
    file = str(published[1] / 'deit_tiny_patch16_224.pth')
    Image.new('RGB', (32, 32)).save(tmp_path / 'a.png')
    for name, broadcast in (('plain', None), ('cb', 'cb')):
        config = small_config()
        config.model.backbone.update(broadcast=broadcast, layers='all')
        config.dump(tmp_path / f'{name}.py')
    said = {}
    for case in (
        ('plain',), ('plain', '--normalization', 'half'), ('plain', '--normalization', 'imagenet'),
        ('cb',), ('cb', '--allow-mismatch'),
    ):  # fmt: skip
        name, *words = case
        config, image, out = (str(tmp_path / one) for one in (f'{name}.py', 'a.png', 'out'))
        assert main(['predict', config, file, image, '--out', out, '--overwrite', *words]) == 0
        said[case] = [
            line for line in capsys.readouterr().err.splitlines() if line.startswith('caution: ')
        ]
    (other,), (plain,) = said.pop(('plain', '--normalization', 'half')), said.pop(('cb',))
    assert f'as asked for, but {file} was trained with mean 123.675' in other
    assert '--normalization weights follows it' in other
    assert f'{file} carries no record of training with CB, and this model has cb' in plain
    assert not any(said.values())


#: How mmpretrain keeps the config of a training, and what else belongs to a checkpoint of its.
RECORD = (
    'data_preprocessor = dict(mean=[127.5, 127.5, 127.5], num_classes=7,\n'
    '    std=[{}, 127.5, 127.5], to_rgb={})'
)


@pytest.fixture
def of_mmpretrain(published):
    """The weights of timm's classifier in mmpretrain's own, and what a checkpoint of it holds."""
    init_default_scope('mmpretrain')
    timms = published[0].state_dict()
    arch = dict(embed_dims=48, num_layers=2, num_heads=3, feedforward_channels=192)
    theirs = MODELS.build(dict(
        type='ImageClassifier',
        backbone=dict(type='VisionTransformer', arch=arch, img_size=224, patch_size=16),
        head=dict(type='VisionTransformerClsHead', num_classes=7, in_channels=48),
    )).eval()  # fmt: skip

    def timms_name(key: str) -> str:
        for old, new in (('backbone.', ''), ('head.layers.head.', 'head.'), ('layers.', 'blocks.'),
                         ('projection', 'proj'), ('ffn.blocks.0.0', 'mlp.fc1'),
                         ('ffn.blocks.1', 'mlp.fc2')):  # fmt: skip
            key = key.replace(old, new)
        inside = key.startswith('blocks.')
        return key.replace('ln', 'norm') if inside else key.replace('ln1', 'norm')

    theirs.load_state_dict({key: timms[timms_name(key)] for key in theirs.state_dict()})
    meta = {'cfg': RECORD.format(127.5, True), 'dataset_meta': {'classes': list('abcdefg')}}
    return theirs, {'meta': meta, 'state_dict': theirs.state_dict()}


def test_a_classifier_of_mmpretrain_keeps_its_head(published, of_mmpretrain, tmp_path):
    model = published[0]
    theirs, content = of_mmpretrain
    torch.save(content, tmp_path / 'a.pth')
    config = small_config()
    set_normalization(config, None, str(tmp_path / 'a.pth'))
    assert config.model.data_preprocessor.mean == [127.5] * 3
    loaded = load_model(config, tmp_path / 'a.pth')
    backbone = load_model(config, tmp_path / 'a.pth', 'backbone')
    assert loaded.dataset_meta['classes'] == tuple('abcdefg')
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        ours = loaded.head(loaded.backbone(images))
        torch.testing.assert_close(ours, model(images), rtol=0, atol=1e-5)
        torch.testing.assert_close(ours, theirs(images), rtol=0, atol=1e-5)
        for one, other in zip(backbone(images), loaded.backbone(images), strict=True):
            assert torch.equal(one, other)


def test_mmpretrains_own_config_takes_it_as_it_is(of_mmpretrain, tmp_path):
    theirs, content = of_mmpretrain
    del content['meta']['cfg']  # then nothing says how the images were normalised
    torch.save(content, tmp_path / 'a.pth')
    arch = dict(embed_dims=48, num_layers=2, num_heads=3, feedforward_channels=192)
    own = small_config()
    own.model['backbone'] = dict(type='VisionTransformer', arch=arch)
    set_normalization(own, None, str(tmp_path / 'a.pth'))
    loaded = load_model(own, tmp_path / 'a.pth').state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in theirs.state_dict().items())
    with pytest.raises(UserError, match='does not say how its images were normalised'):
        set_normalization(small_config(), None, str(tmp_path / 'a.pth'))
    with pytest.raises(UserError, match='another kind of model'):
        load_model(load_config('upernet_vit_ti'), tmp_path / 'a.pth')


@pytest.mark.parametrize(
    ('key', 'size', 'message'),
    [
        # a layer before the classifier, a distilled DeiT, the mean of the patches
        ('head.layers.pre_logits.weight', (48, 48), r'unknown here.*pre_logits'),
        ('head.layers.head_dist.weight', (7, 48), r'unknown here.*head_dist'),
        ('backbone.ln2.weight', (48,), r'unknown here.*ln2'),
        ('neck.fc.weight', (48, 48), r'unknown here.*neck'),
    ],
)
def test_other_classifiers_of_mmpretrain_are_refused(key, size, message, of_mmpretrain, tmp_path):
    content = of_mmpretrain[1]
    content['state_dict'][key] = torch.zeros(size)
    torch.save(content, tmp_path / 'a.pth')
    with pytest.raises(UserError, match=message):
        load_model(small_config(), tmp_path / 'a.pth')


def test_the_record_of_a_training_by_mmpretrain():
    half = ((127.5,) * 3, (127.5,) * 3)
    assert recorded_normalization({'meta': {'cfg': RECORD.format(127.5, True)}}) == half
    inside = f'model = dict({RECORD.format("1.275e2", True).replace(" = ", "=")})'
    old = RECORD.format(127.5, True).replace('data_preprocessor', 'img_norm_cfg')
    assert recorded_normalization({'meta': {'cfg': inside}}) == half
    assert recorded_normalization({'meta': {'config': old}}) == half
    for text in (
        RECORD.format(127.5, False),  # for blue, green and red
        RECORD.format('get()', True),
        RECORD.format(127.5, True)
        + f'\nmodel = dict({RECORD.format(1, True).replace(" = ", "=")})',
        'data_preprocessor = dict(mean=1, std=2, to_rgb=True)',
        RECORD.format('{[]: 1}', True),
        RECORD.format('9' * 400, True),
        RECORD.format(f'{"-" * 5000}1', True),
        'data_preprocessor = "(" (',
        '',
    ):
        assert recorded_normalization({'meta': {'cfg': text}}) is None, text
    assert recorded_normalization({}) is None


def hub_cache(folder: Path, name: str, weights: dict) -> Path:
    """Lay weights down as the hub's client does after a download."""
    cache = folder / f'models--timm--{name}'
    for part in ('refs', 'snapshots/abc'):
        (cache / part).mkdir(parents=True)
    (cache / 'refs/main').write_text('abc')
    save_file({key: value.contiguous() for key, value in weights.items()},
              cache / 'snapshots/abc/model.safetensors')  # fmt: skip
    return folder


@pytest.fixture(scope='module')
def tiny(tmp_path_factory):
    """A ViT-Ti of timm's in each layout: the real AugReg one where it is, else random weights."""
    file = REPO.parent / 'shared' / 'weights' / 'vit_tiny_patch16_224_in1k.safetensors'
    torch.manual_seed(0)
    model = timm.create_model('vit_tiny_patch16_224').eval()
    if file.is_file():
        model.load_state_dict(read_checkpoint(file))
    folder, weights = tmp_path_factory.mktemp('tiny'), model.state_dict()
    torch.save({'model': weights}, folder / 'vit_tiny_patch16_224.pth')
    np.savez(folder / 'Ti_16-imagenet2012.npz', **npz(weights))
    hub_cache(folder / 'hub', AUGREG, weights)
    return model, folder


@pytest.fixture
def offline(tiny, monkeypatch):
    """The cache of the hub is there, the hub is not."""
    monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(tiny[1] / 'hub'))
    monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', True)


AUGREG = 'vit_tiny_patch16_224.augreg_in21k_ft_in1k'
SOURCES = {
    'a file': 'vit_tiny_patch16_224.pth',
    'npz': 'Ti_16-imagenet2012.npz',
    'a name': f'timm/{AUGREG}',
}


def test_the_ways_to_write_a_name(tmp_path, monkeypatch):
    for start in ('', 'timm/', 'hf-hub:timm/', 'hf_hub:timm/'):
        assert timm_name(start + AUGREG) == AUGREG
        assert is_hub_name(start + AUGREG)
    assert timm_name('hf-hub:someone/own') is None
    assert is_hub_name('hf-hub:someone/own')
    assert not is_hub_name('someone/vit_tiny_patch16_224')
    monkeypatch.chdir(tmp_path)
    Path('vit_tiny_patch16_224').touch()
    assert not is_hub_name('vit_tiny_patch16_224'), 'a file of that name is the file'


@pytest.mark.parametrize('kind', SOURCES)
def test_every_source_gives_the_classifier_of_timm(kind, tiny, offline):
    model, folder = tiny
    source = SOURCES[kind]
    source = str(folder / source) if (folder / source).is_file() else source
    config = load_config('imagenet_vit_ti')
    set_normalization(config, None, source)
    prepare = config.model.data_preprocessor
    assert (prepare.mean, prepare.std) == ([127.5] * 3, [127.5] * 3)
    loaded = load_model(config, source)
    backbone = load_model(config, source, 'backbone')
    images = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        ours = loaded.head(loaded.backbone(images))
        torch.testing.assert_close(ours, model(images), rtol=0, atol=1e-4)
        for one, other in zip(backbone(images), loaded.backbone(images), strict=True):
            assert torch.equal(one, other)


def test_names_that_cannot_be_had(tiny, offline, tmp_path):
    config = load_config('imagenet_vit_ti')
    with pytest.raises(UserError, match="'deit_tiny_patch16_224' could not be fetched"):
        load_model(config, 'deit_tiny_patch16_224')
    for source in ('vit_tiny_patch16_224.augrag', 'timm/vit_tiny_patch16_224.augrag'):
        with pytest.raises(UserError, match=r'timm has no weights .*augrag.* It has: .*in1k'):
            set_normalization(config, None, source)
    with pytest.raises(UserError, match=r'neither a file .* Did you mean "vit_tiny_patch16_224"'):
        load_model(config, 'vit_tinny_patch16_224')


def test_a_layer_before_the_classifier(tiny, tmp_path):
    """Google's first ImageNet-21k files: the classifier is behind ``pre_logits``."""
    arrays = npz(tiny[0].state_dict())
    arrays['pre_logits/kernel'] = np.eye(192, dtype=np.float32)
    np.savez(tmp_path / 'ViT-Ti_16.npz', **arrays)
    with pytest.raises(UserError, match=r'ViT-Ti_16\.npz has no classifier'):
        load_model(load_config('imagenet_vit_ti'), tmp_path / 'ViT-Ti_16.npz')


@pytest.mark.slow
def test_the_tools_read_names_and_npz(tiny, offline, tmp_path, capsys):
    """The same scores, classes and maps from the hub's cache as from Google's file."""
    folder = tiny[1]
    data = write_imagenet(tmp_path / 'data', train=1, val=1)
    loader = ['test_dataloader.num_workers=0', 'test_dataloader.persistent_workers=False']
    found = []
    for number, source in enumerate((AUGREG, str(folder / 'Ti_16-imagenet2012.npz'))):
        out = tmp_path / str(number)
        given = ['imagenet_vit_ti', source]
        words = ['--data-root', str(data), '--out', str(out / 'test'), '--cfg-options', *loader]
        assert main(['test', *given, *words]) == 0, capsys.readouterr().err
        images = sorted(map(str, (data / 'val').glob('*/*.jpg')))
        assert main(['predict', *given, *images, '--out', str(out / 'predicted')]) == 0
        words = ['--size', '64', '--out', str(out / 'maps'), '--format', 'svg']
        assert main(['attention', *given, images[0], *words]) == 0
        found.append([
            *((out / name).read_text() for name in ('test/scores/clean.csv',
                                                    'predicted/predictions.csv')),
            next((out / 'maps').glob('*.csv')).read_text(),
        ])  # fmt: skip
    assert found[0] == found[1]


@pytest.mark.slow
def test_the_tools_read_mmpretrains_layout(published, of_mmpretrain, tmp_path, capsys):
    """The same scores, classes and maps as from the file in timm's layout."""
    content = of_mmpretrain[1]
    del content['meta']['dataset_meta']  # timm's file has no names of classes
    torch.save(content, tmp_path / 'theirs.pth')
    config = small_config()
    config.test_dataloader.update(num_workers=0, persistent_workers=False)
    config.test_dataloader.dataset.labels = 'sorted'
    config.dump(tmp_path / 'small.py')
    data = write_imagenet(tmp_path / 'data', train=1, val=1)
    image = str(next((data / 'val').glob('*/*.jpg')))
    found = []
    for name, words in (('theirs', []), ('mine', ['--normalization', 'half'])):
        out = tmp_path / name
        given = [str(tmp_path / 'small.py'), str(tmp_path / f'{name}.pth')]
        for tool, more in (
            ('test', ['--data-root', str(data)]),
            ('predict', [image]),
            ('attention', [image, '--size', '64', '--format', 'svg']),
        ):
            code = main([tool, *given, *more, *words, '--out', str(out / tool)])
            assert code == 0, capsys.readouterr().err
        found.append([
            *((out / file).read_text() for file in ('test/scores/clean.csv',
                                                    'predict/predictions.csv')),
            next((out / 'attention').glob('*.csv')).read_text(),
        ])  # fmt: skip
    assert found[0] == found[1]


@pytest.mark.parametrize(('name', 'count'), [('deit', 60), ('vit', 40)])
def test_real_weights_predict_what_timm_predicts(name, count, shared):
    """Resize 256 bicubic, centre crop 224: every image gets the class that timm gives it."""
    if not (shared / 'data' / 'imagenet_val').is_dir():
        pytest.skip('needs the ImageNet images beside the repository')
    file = shared / 'weights' / f'{name}_tiny_patch16_224_in1k.safetensors'
    config = load_config('imagenet_vit_ti')
    config.test_dataloader.dataset.data_root = str(shared / 'data' / 'imagenet_val')
    set_normalization(config, None, str(file))
    ours = load_model(config, file)
    dataset = DATASETS.build(config.test_dataloader.dataset)
    theirs = timm.create_model(f'{name}_tiny_patch16_224').eval()
    theirs.load_state_dict(read_checkpoint(file))
    cfg = theirs.pretrained_cfg
    transform = create_transform(
        (3, 224, 224), interpolation='bicubic', mean=cfg['mean'], std=cfg['std'], crop_pct=224 / 256
    )
    numbers = range(0, len(dataset), len(dataset) // count)[:count]
    with torch.no_grad():
        found = ours.test_step(pseudo_collate([dataset[i] for i in numbers]))
        files = [dataset.get_data_info(i)['img_path'] for i in numbers]
        inputs = torch.stack([transform(Image.open(path).convert('RGB')) for path in files])
        expected = theirs(inputs).softmax(1)
    scores = torch.stack([one.pred_score for one in found])
    assert torch.equal(scores.argmax(1), expected.argmax(1))
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-4)


def test_upstreams_init_model_warns_of_other_values(tmp_path):
    """With ``cb_mm.safe_io``, which the tests import as every tool does."""
    from mmseg.apis import init_model

    config = load_config('demo_upernet_vit_ti_cb')
    config.model.backbone.arch = dict(ARCH)
    config.model.backbone.out_indices = (0, 0, 1, 1)
    config.model.decode_head.update(in_channels=[48] * 4, channels=8, norm_cfg=dict(type='BN'))
    config.model.auxiliary_head.update(in_channels=48, channels=8, norm_cfg=dict(type='BN'))
    model = init_model(config, device='cpu')
    record = Provenance.of_model(model).to_meta()
    for mean, count in ((record['mean'], 0), ([127.5] * 3, 1)):
        meta = {KEY: {**record, 'mean': mean}, 'dataset_meta': {'classes': ('a',), 'palette': None}}
        torch.save({'meta': meta, 'state_dict': model.state_dict()}, tmp_path / 'a.pth')
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter('always')
            init_model(config, str(tmp_path / 'a.pth'), device='cpu')
        ours = [
            str(one.message) for one in caught if 'was trained with images of' in str(one.message)
        ]
        assert len(ours) == count
