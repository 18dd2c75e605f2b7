"""Published classifiers as they are, and the mean and std that belong to weights."""

from __future__ import annotations

import json
import warnings

import pytest
import timm
import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import DATASETS
from PIL import Image
from timm.data import create_transform

from cb_mm.checkpoints.label_set import KEY
from cb_mm.checkpoints.load_model import load_model
from cb_mm.checkpoints.normalization import NORMALIZATIONS, set_normalization
from cb_mm.checkpoints.provenance import Provenance
from cb_mm.checkpoints.published import published_normalization
from cb_mm.checkpoints.read import read_checkpoint
from cb_mm.config.loading import load_config
from cb_mm.errors import UserError

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
