"""What checkpoints say they were trained with, and what follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from mmengine.config import Config

from cb_mm.checkpoints.backbone_weights import load_weights
from cb_mm.checkpoints.normalization import (
    NORMALIZATIONS,
    normalization_caution,
    normalization_of,
    set_normalization,
)
from cb_mm.checkpoints.provenance import KEY, Provenance, check_exact
from cb_mm.errors import UserError
from cb_mm.models import ViTCB

ARCH = {'embed_dim': 24, 'depth': 4, 'num_heads': 2, 'img_size': 32}


def vit(broadcast: str | None = None, **options) -> ViTCB:
    return ViTCB(ARCH, broadcast=broadcast, out_indices=(1, 3), pyramid=False, **options)


def save(path: Path, model: ViTCB, record: bool = True) -> Path:
    meta = {KEY: Provenance.of_model(model).to_meta()} if record else {}
    weights = {f'backbone.{key}': value for key, value in model.state_dict().items()}
    torch.save({'meta': meta, 'state_dict': weights}, path)
    return path


def test_the_record_survives_safe_reading(tmp_path):
    from cb_mm.checkpoints.read import read_checkpoint

    file = save(tmp_path / 'a.pth', vit('cb', layers='all', position='mid'))
    record = Provenance.of_checkpoint(read_checkpoint(file))
    assert (record.broadcast, record.layers, record.position) == ('cb', (0, 1, 2, 3), 'mid')
    assert record == Provenance.of_model(vit('cb', layers='all', position='mid'))
    assert record.settings['backbone.blocks.*.attn.num_heads'] == [2]
    assert str(record) == 'cb in layers 0-3, position mid'
    assert Provenance.of_checkpoint({'state_dict': {}}) is None
    assert Provenance.of_model(torch.nn.Linear(1, 1)).broadcast is None


@pytest.mark.parametrize('broadcast', ['cb', 'cb_gate', 'cb_hybrid', 'se'])
def test_plain_weights_into_cb_are_told_in_one_line(tmp_path, broadcast):
    file = save(tmp_path / 'plain.pth', vit(), record=False)
    line = str(load_weights(vit(broadcast), file))
    assert '\n' not in line
    for words in (
        'CAUTION: these weights carry no record of training with CB',
        f'{broadcast} in layers 2-3',
        'docs/pretraining.md',  # what to expect
        'pre-train with CB', 'take CB_S', 'train for longer',  # what to do
    ):  # fmt: skip
        assert words in line


@pytest.mark.parametrize(
    ('broadcast', 'options'), [(None, {}), ('cb_s', {}), ('cb_s', {'layers': 'all'})]
)
def test_no_caution_where_nothing_changes(tmp_path, broadcast, options):
    file = save(tmp_path / 'plain.pth', vit(), record=False)
    assert 'CAUTION' not in str(load_weights(vit(broadcast, **options), file))
    recorded = save(tmp_path / 'ours.pth', vit())
    assert 'CAUTION' not in str(load_weights(vit(broadcast, **options), recorded))


def test_cb_s_that_does_not_start_at_zero_is_told(tmp_path):
    file = save(tmp_path / 'plain.pth', vit(), record=False)
    assert 'CAUTION' in str(load_weights(vit('cb_s', scale_init=0.5), file))


def test_the_same_broadcast_is_fine(tmp_path):
    file = save(tmp_path / 'cb.pth', vit('cb'))
    line = str(load_weights(vit('cb'), file))
    assert 'trained with cb in layers 2-3, position end' in line
    assert 'CAUTION' not in line
    # Detection leaves CB out in the blocks that feed the FPN, as the paper does.
    line = str(load_weights(vit('cb', skip_out_layers=True), file))
    assert 'left out here in layers 3' in line
    assert 'CAUTION' not in line


MISMATCHES = {
    'layers': (vit('cb'), lambda: vit('cb', layers='all')),
    'position': (vit('cb'), lambda: vit('cb', position='mid')),
    'kind': (vit('cb'), lambda: vit('cb_gate')),
    'cb to plain': (vit('cb'), lambda: vit()),
    'plain to cb': (vit(), lambda: vit('cb')),
}


def test_cb_s_of_the_old_default_layers_is_told_how_to_load(tmp_path):
    """CB_S was once in the upper layers by default; a checkpoint says which it has."""
    file = save(tmp_path / 'a.pth', vit('cb_s', layers='upper'))
    with pytest.raises(UserError, match=r'layers 2-3, .* layers 0-3, .* write layers=\[2, 3\]'):
        load_weights(vit('cb_s'), file)
    assert 'CAUTION' not in str(load_weights(vit('cb_s', layers=[2, 3]), file))


@pytest.mark.parametrize('name', MISMATCHES)
def test_a_mismatch_is_an_error_unless_asked_for(tmp_path, name):
    source, make = MISMATCHES[name]
    file, model = save(tmp_path / 'a.pth', source), make()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(UserError, match='`allow_mismatch`') as error:
        load_weights(model, file)
    assert str(Provenance.of_model(source)) in str(error.value)
    assert str(Provenance.of_model(model)) in str(error.value)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    report = load_weights(model, file, allow_broadcast_mismatch=True)
    assert report.loaded == len(source.state_dict())
    if name != 'cb to plain':
        assert 'CAUTION' in str(report)


def test_init_cfg_can_ask_for_it(tmp_path):
    file = str(save(tmp_path / 'a.pth', vit('cb')))
    cfg = dict(type='Pretrained', checkpoint=file)
    with pytest.raises(UserError, match='was trained with cb'):
        vit(init_cfg=cfg).init_weights()
    model = vit(init_cfg={**cfg, 'allow_broadcast_mismatch': True})
    model.init_weights()
    assert 'as requested' in model.weights_report.note


def test_exact():
    class Model(torch.nn.Module):
        def __init__(self, backbone, mean):
            super().__init__()
            self.backbone = backbone
            self.data_preprocessor = torch.nn.Module()
            for name, value in (('mean', mean), ('std', 58.0)):
                self.data_preprocessor.register_buffer(name, torch.full((3, 1, 1), value))

    def content(model):
        return {'meta': {KEY: Provenance.of_model(model).to_meta()}}

    trained = content(Model(vit('cb'), 120.0))
    check_exact('a.pth', trained, Model(vit('cb'), 120.0))
    check_exact('a.pth', {}, Model(vit(), 1.0))  # nobody knows
    others = (
        vit(), vit('cb', layers='all'), vit('cb', skip_out_layers=True), vit('cb', position='mid'),
        vit('cb_gate'),
    )  # fmt: skip
    for other in others:
        with pytest.raises(UserError, match=r'a\.pth was trained with cb in layers 2-3'):
            check_exact('a.pth', trained, Model(other, 120.0))
        check_exact('a.pth', trained, Model(other, 120.0), allow=True)
    with pytest.raises(UserError, match='`normalization` weights'):
        check_exact('a.pth', trained, Model(vit('cb'), 127.5))


def test_a_start_must_have_the_same_heads(tmp_path):
    """Which blocks are read out is free; how queries and keys are cut into heads is not."""
    file = save(tmp_path / 'a.pth', vit())
    other = ViTCB({**ARCH, 'num_heads': 4}, out_indices=(0, 3), pyramid=False, norm_out=True)
    with pytest.raises(UserError, match=r'attn\.num_heads was 2 and is 4 here'):
        load_weights(other, file)
    load_weights(other, file, allow_broadcast_mismatch=True)
    load_weights(ViTCB(ARCH, out_indices=(0, 3), pyramid=False, norm_out=True), file)


# --- normalisation --------------------------------------------------------------------------------


def config() -> Config:
    prepare = dict(type='SegDataPreProcessor', mean=[1.0] * 3, std=[2.0] * 3)
    return Config(dict(model=dict(data_preprocessor=prepare)))


def test_normalization_by_name():
    changed = config()
    set_normalization(changed, None)
    assert changed.model.data_preprocessor.mean == [1.0] * 3
    set_normalization(changed, 'half')
    assert changed.model.data_preprocessor.mean == [127.5] * 3
    with pytest.raises(UserError, match='Did you mean "imagenet"'):
        set_normalization(config(), 'imagnet')
    with pytest.raises(UserError, match='no mean and std'):
        set_normalization(Config(dict(model=dict())), 'half')


@pytest.mark.parametrize(
    ('name', 'expected'),
    [
        ('deit_small_patch16_224', 'imagenet'),
        ('vit_small_patch16_224.augreg_in21k_ft_in1k', 'half'),
        ('vit_small_patch16_224.dino', 'imagenet'),
        ('vit_small_patch14_dinov2.lvd142m', 'imagenet'),
        ('vit_base_patch16_224.mae', 'imagenet'),
        ('deit3_small_patch16_224', 'imagenet'),
        ('vit_base_patch16_clip_224.openai', 'clip'),
    ],
)
def test_the_named_ones_are_what_timm_says(name, expected):
    """The table of docs/pretraining.md, against timm's own records; nothing is downloaded."""
    for ours, theirs in zip(NORMALIZATIONS[expected], normalization_of(name), strict=True):
        assert theirs == pytest.approx(ours, abs=1e-3)


def test_normalization_follows_the_weights(tmp_path):
    changed = config()
    set_normalization(changed, 'weights', 'vit_tiny_patch16_224')
    assert changed.model.data_preprocessor.std == [127.5] * 3
    file = save(tmp_path / 'a.pth', vit())
    with pytest.raises(UserError, match='does not say'):
        set_normalization(config(), 'weights', str(file))
    with pytest.raises(UserError, match='no weights'):
        set_normalization(config(), 'weights')
    record = Provenance(mean=(1.0, 2.0, 3.0), std=(4.0, 5.0, 6.0)).to_meta()
    torch.save({'meta': {KEY: record}, 'state_dict': {}}, file)
    set_normalization(changed, 'weights', str(file))
    assert changed.model.data_preprocessor.mean == [1.0, 2.0, 3.0]
    assert changed.model.data_preprocessor.std == [4.0, 5.0, 6.0]


@pytest.mark.parametrize('prefix', ['', 'timm/', 'hf-hub:timm/', 'hf_hub:timm/', 'hf-hub:'])
def test_the_hub_may_be_named_with_a_model_of_timm(prefix):
    """Nothing is read or downloaded: timm's own list says how its images were normalised."""
    mean, std = normalization_of(f'{prefix}vit_base_patch16_clip_224.openai')
    assert mean == pytest.approx(NORMALIZATIONS['clip'][0], abs=1e-3)
    assert std == pytest.approx(NORMALIZATIONS['clip'][1], abs=1e-3)


def test_a_preprocessor_without_mean_and_std(tmp_path):
    bare = Config(dict(model=dict(data_preprocessor=dict(type='SegDataPreProcessor'))))
    with pytest.raises(UserError, match='no mean and std'):
        set_normalization(bare, 'half')
    set_normalization(bare, None, str(tmp_path / 'never_read.pth'))
    assert dict(bare.model.data_preprocessor) == {'type': 'SegDataPreProcessor'}
    beside = Config(dict(model=dict(), data_preprocessor=dict(mean=[1.0] * 3, std=[2.0] * 3)))
    set_normalization(beside, 'half')
    assert beside.data_preprocessor == dict(mean=[127.5] * 3, std=[127.5] * 3)


class Segmentor(torch.nn.Module):
    """As much of a segmentor as has mean and std: those of AugReg."""

    def __init__(self, **options) -> None:
        super().__init__()
        self.backbone = vit(**options)
        self.data_preprocessor = torch.nn.Module()
        for name in ('mean', 'std'):
            self.data_preprocessor.register_buffer(name, torch.full((3, 1, 1), 127.5))


def test_caution_at_the_start_of_a_training(tmp_path):
    model = Segmentor()
    assert normalization_caution(model, None) == ''
    assert normalization_caution(model, 'vit_tiny_patch16_224') == ''
    imagenet = 'mean 123.675, 116.28, 103.53 and std 58.395, 57.12, 57.375'
    own = 'mean 127.5, 127.5, 127.5 and std 127.5, 127.5, 127.5'
    words = f'was trained with images of {imagenet}, the config has {own}; `normalization` weights'
    assert words in normalization_caution(model, 'deit_tiny_patch16_224')
    file = tmp_path / 'a.pth'
    for name, expected in (('imagenet', f'{file} {words}'), ('half', '')):
        mean, std = NORMALIZATIONS[name]
        weights = {f'backbone.{key}': value for key, value in vit().state_dict().items()}
        record = Provenance(mean=mean, std=std).to_meta()
        torch.save({'meta': {KEY: record}, 'state_dict': weights}, file)
        found = normalization_caution(Segmentor(), str(file))
        assert found.startswith(expected)
        assert bool(found) == bool(expected)
        model = Segmentor(init_cfg=dict(type='Pretrained', checkpoint=str(file)))
        model.backbone.init_weights()
        file.unlink()  # what was read when the model took it is enough
        assert normalization_caution(model, str(file)) == found
        # A name of timm counts more than a report of another file.
        assert words in normalization_caution(model, 'deit_tiny_patch16_224')
        assert normalization_caution(model, 'vit_tiny_patch16_224') == ''
