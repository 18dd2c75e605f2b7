"""The one loader: exact weights, and everything that a record in a checkpoint says."""

from __future__ import annotations

import copy
import json
import logging
import shutil
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.registry import MODELS, DefaultScope, init_default_scope
from mmengine.runner import BaseLoop
from old_checkpoint import ALL, CHECKPOINT, CONFIG, DONE
from tool import CONFIGS, main_of, write_config

from cb_mm.attention.subject import load_subject
from cb_mm.checkpoints.label_set import KEY, LabelSet
from cb_mm.checkpoints.load_model import load_model
from cb_mm.checkpoints.match import require_finite, weights_digest, weights_in
from cb_mm.checkpoints.model_settings import differences, settings_of
from cb_mm.checkpoints.normalization import set_normalization
from cb_mm.checkpoints.provenance import Provenance
from cb_mm.checkpoints.read import read_checkpoint
from cb_mm.config.loading import replace_sync_bn
from cb_mm.engine.hooks.provenance import ProvenanceHook
from cb_mm.errors import UserError

CLASSES = ['road', 'sky', 'tree']
NORM = dict(type='SyncBN', requires_grad=True)
PREPROCESSOR = dict(
    type='SegDataPreProcessor', mean=[120.0] * 3, std=[60.0] * 3, bgr_to_rgb=True, size=(32, 32)
)
SEGMENTOR = dict(
    type='EncoderDecoder',
    data_preprocessor=PREPROCESSOR,
    backbone=dict(
        type='ViTCB', arch=dict(embed_dim=24, depth=4, num_heads=4), img_size=32, broadcast='cb',
        layers='upper', out_indices=(0, 1, 2, 3), pyramid_norm_cfg=NORM,
    ),
    decode_head=dict(
        type='UPerHead', in_channels=[24] * 4, in_index=[0, 1, 2, 3], channels=8, num_classes=3,
        pool_scales=(1, 2, 3, 6), norm_cfg=NORM, align_corners=False, dropout_ratio=0.1,
        loss_decode=dict(type='CrossEntropyLoss'),
    ),
    auxiliary_head=dict(
        type='FCNHead', in_channels=24, in_index=2, channels=8, num_convs=1, num_classes=3,
        norm_cfg=NORM, align_corners=False, loss_decode=dict(type='CrossEntropyLoss'),
    ),
    test_cfg=dict(mode='whole'),
)  # fmt: skip
DATA = dict(
    type='BaseSegDataset',
    data_root='.',
    metainfo=dict(classes=CLASSES),
)


def config_with(**changes: Any) -> Config:
    """The config with changes such as ``model__backbone__norm_out=True``."""
    whole = Config(
        dict(
            default_scope='mmseg',
            model=copy.deepcopy(SEGMENTOR),
            test_dataloader=dict(dataset=copy.deepcopy(DATA)),
        )
    )
    whole.merge_from_dict({key.replace('__', '.'): value for key, value in changes.items()})
    return whole


@pytest.fixture(scope='module')
def trained(tmp_path_factory) -> Path:
    """A checkpoint of the config as it is, as the hook writes it."""
    init_default_scope('mmseg')
    torch.manual_seed(0)
    model = MODELS.build(config_with().model)
    record = Provenance.of_model(model).to_meta() | LabelSet(tuple(CLASSES), False).to_meta()
    file = tmp_path_factory.mktemp('trained') / 'a.pth'
    torch.save({'meta': {KEY: record}, 'state_dict': model.state_dict()}, file)
    return file


def test_the_same_model(trained):
    given = config_with()
    before = copy.deepcopy(given.to_dict())
    model = load_model(given, trained)
    assert given.to_dict() == before
    assert not model.training
    assert not any(isinstance(part, torch.nn.SyncBatchNorm) for part in model.modules())
    assert model.dataset_meta['classes'] == tuple(CLASSES)
    weights = torch.load(trained, weights_only=True)['state_dict']
    assert weights
    for key, value in model.state_dict().items():
        assert torch.equal(value, weights[key]), key


def test_a_part_alone(trained):
    part = load_model(config_with(), trained, 'backbone')
    whole = load_model(config_with(), trained).backbone
    images = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for one, other in zip(part(images), whole(images), strict=True):
            assert torch.equal(one, other)


#: change of the config -> words of the message: the setting, its value then and now
OTHER_MODELS = {
    'broadcast': (dict(model__backbone__broadcast=None), ['cb in layers 2-3', 'no broadcast']),
    'layers': (dict(model__backbone__layers='all'), ['cb in layers 2-3', 'cb in layers 0-3']),
    'position': (dict(model__backbone__position='front'), ['position end', 'position front']),
    'heads': (
        dict(model__backbone__arch__num_heads=3),
        ['backbone.blocks.*.attn.num_heads was 4 and is 3 here'],
    ),
    'out_indices': (
        dict(model__backbone__out_indices=(3, 2, 1, 0)),
        ['backbone.out_indices was [0, 1, 2, 3] and is [3, 2, 1, 0] here'],
    ),
    'norm_out': (dict(model__backbone__norm_out=True), ['backbone.norm_out was False and is True']),
    'prefix': (
        dict(model__backbone__prefix_in_mean=False),
        ['backbone.blocks.*.mlp.broadcast.skip_tokens was 0 and is 1 here'],
    ),
    'sparse attention': (
        dict(model__backbone__attention='W'),
        ["backbone.blocks.*.attn.type was 'Attention' and is 'SparseAttention' here"],
    ),
    'activation': (
        dict(model__backbone__arch__act_layer='relu'),
        ["backbone.blocks.*.mlp.act.type was 'GELU' and is 'ReLU' here"],
    ),
    'in_index': (
        dict(model__decode_head__in_index=[3, 2, 1, 0]),
        ['decode_head.in_index was [0, 1, 2, 3] and is [3, 2, 1, 0] here'],
    ),
    'pool_scales': (
        dict(model__decode_head__pool_scales=(1, 2, 3, 5)),
        ['decode_head.psp_modules.pool_scales was [1, 2, 3, 6] and is [1, 2, 3, 5] here'],
    ),
    'align_corners': (
        dict(model__decode_head__align_corners=True),
        ['decode_head.align_corners was False and is True here'],
    ),
    'channels': (
        dict(model__data_preprocessor__bgr_to_rgb=False),
        ['data_preprocessor.channel_order was RGB and is BGR here'],
    ),
    'norm': (
        dict(model__decode_head__norm_cfg=dict(type='BN', eps=1e-3)),
        ['decode_head.bottleneck.bn.eps was 1e-05 and is 0.001 here'],
    ),
    'classes': (
        dict(test_dataloader__dataset__metainfo__classes=['sky', 'road', 'tree']),
        ["class 'sky' was number 1 in training and is number 0 here"],
    ),
}


@pytest.mark.parametrize('name', OTHER_MODELS)
def test_another_model_of_the_same_shapes_is_refused(trained, name):
    changes, words = OTHER_MODELS[name]
    with pytest.raises(UserError) as error:
        load_model(config_with(**changes), trained)
    for word in (*words, 'a.pth', 'mismatch` if you mean it'):
        assert word in str(error.value)
    assert '\n' not in str(error.value)
    load_model(config_with(**changes), trained, allow_mismatch=True)


@pytest.mark.parametrize('name', OTHER_MODELS)
def test_a_part_is_compared_with_its_own_settings(trained, name):
    """Of a backbone, all that is the backbone's and the images'; heads and classes play no part."""
    changes, words = OTHER_MODELS[name]
    if 'decode_head' in words[0] or name == 'classes':
        load_model(config_with(**changes), trained, 'backbone')
        return
    with pytest.raises(UserError) as error:
        load_model(config_with(**changes), trained, 'backbone')
    assert all(word in str(error.value) for word in words)


SAME_MODELS = {
    'BN': dict(model__decode_head__norm_cfg=dict(type='BN')),
    'default spelled out': dict(
        model__decode_head__threshold=None, model__backbone__position='end'
    ),
    'tuple': dict(model__decode_head__in_index=(0, 1, 2, 3), model__backbone__layers=[2, 3]),
    'negative': dict(model__backbone__out_indices=[-4, -3, -2, -1]),
    'training': dict(
        model__backbone__with_cp=True, model__backbone__drop_path_rate=0.3,
        model__backbone__frozen_stages=2, model__decode_head__dropout_ratio=0.0,
        model__decode_head__ignore_index=7, model__backbone__scale_init=0.5,
    ),
    'start': dict(
        model__backbone__init_cfg=dict(type='Pretrained', checkpoint='nowhere.pth'),
        model__pretrained=None,
    ),
    'loss': dict(
        model__decode_head__loss_decode=dict(
            type='FocalLoss', use_sigmoid=True, loss_weight=3.0
        ),
    ),
    'faster head': dict(model__decode_head__type='FastUPerHead'),
    'scope': dict(model__decode_head__type='mmseg.UPerHead'),
    'size of crops': dict(
        model__data_preprocessor__size=(64, 64), model__test_cfg=dict(
            mode='slide', crop_size=(32, 32), stride=(16, 16)
        ),
    ),
    'auxiliary head': dict(
        model__auxiliary_head__in_index=1, model__auxiliary_head__align_corners=True
    ),
    'class renamed': dict(test_dataloader__dataset__metainfo__classes=['Road', 'air', 'trees']),
    'data of no classes': dict(test_dataloader__dataset__metainfo=dict(_delete_=True)),
}  # fmt: skip


@pytest.mark.parametrize('name', SAME_MODELS)
def test_innocent_differences_pass(trained, name):
    model = load_model(config_with(**SAME_MODELS[name]), trained)
    assert model.dataset_meta['classes'] == tuple(CLASSES), 'as in training'


class Loop(BaseLoop):
    """A loop that is built: the hook tells by that what a runner is about to do."""

    def __init__(self, classes: list[str]) -> None:
        self.dataloader = SimpleNamespace(dataset=SimpleNamespace(metainfo=dict(classes=classes)))

    def run(self) -> None: ...


def runner_of(config: Config, resume: bool, **loops: Any) -> SimpleNamespace:
    init_default_scope('mmseg')
    replace_sync_bn(config)
    built = dict.fromkeys(('_train_loop', '_val_loop', '_test_loop')) | loops
    model = MODELS.build(config.model)
    return SimpleNamespace(cfg=dict(load_from='a.pth'), model=model, _resume=resume, **built)


def test_the_hook_compares_all_when_a_run_is_resumed_or_tested(trained):
    """And only what the weights rest on when a model is fine-tuned from ``load_from``."""
    content = read_checkpoint(trained)
    shuffled = Loop(['sky', 'road', 'tree'])
    other = config_with(model__backbone__norm_out=True)
    heads = config_with(model__backbone__arch__num_heads=3)
    for resume, loop in ((True, '_train_loop'), (False, '_val_loop'), (False, '_test_loop')):
        hook = ProvenanceHook()
        hook.after_load_checkpoint(
            runner_of(config_with(), resume, **{loop: Loop(CLASSES)}), content
        )
        with pytest.raises(UserError, match='norm_out was False'):
            hook.after_load_checkpoint(runner_of(other, resume, **{loop: Loop(CLASSES)}), content)
        runner = runner_of(config_with(), resume, **{loop: shuffled})
        with pytest.raises(UserError, match="class 'sky' was number 1"):
            hook.after_load_checkpoint(runner, content)
        ProvenanceHook(allow_mismatch=True).after_load_checkpoint(runner, content)
    hook.after_load_checkpoint(runner_of(other, False, _train_loop=shuffled), content)
    with pytest.raises(UserError, match='num_heads was 4 and is 3'):
        hook.after_load_checkpoint(runner_of(heads, False, _train_loop=shuffled), content)


@pytest.mark.parametrize('swap', ['bgr_to_rgb', 'rgb_to_bgr', None])
def test_attention_is_of_the_channels_that_the_model_sees(trained, swap):
    """Either option swaps them, whatever it is called."""
    changes = {'model__data_preprocessor__bgr_to_rgb': False}
    changes |= {f'model__data_preprocessor__{swap}': True} if swap else {}
    subject = load_subject(config_with(**changes), trained, allow_mismatch=swap is None)
    image = np.zeros((32, 32, 3), np.uint8)
    image[..., 0] = 240  # red
    seen = []
    subject.model.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    subject.run(image, lambda *_: None)
    assert seen[0][0, :, 0, 0].tolist() == ([2, -2, -2] if swap else [-2, -2, 2])


def test_normalization(trained):
    with pytest.raises(UserError, match=r'std 60, 60, 60; the config has .* std 61, 60, 60'):
        load_model(config_with(model__data_preprocessor__std=[61.0, 60.0, 60.0]), trained)
    load_model(config_with(model__data_preprocessor__std=[60.01] * 3), trained)  # rounding
    other = config_with(model__data_preprocessor__mean=[127.5] * 3)
    for part in (None, 'backbone'):
        for allow in (False, True):
            with pytest.raises(UserError, match='`normalization` weights'):
                load_model(other, trained, part, allow_mismatch=allow)
    set_normalization(other, 'weights', str(trained))
    model = load_model(other, trained)
    assert model.data_preprocessor.mean.flatten().tolist() == [120.0] * 3


def test_a_preprocessor_beside_the_model(trained):
    """mmpretrain's and mmseg's configs may have it there; mmengine's Runner puts it inside."""
    given = config_with()
    given.data_preprocessor = given.model.pop('data_preprocessor')
    assert load_model(given, trained).data_preprocessor.mean.flatten().tolist() == [120.0] * 3
    given.data_preprocessor.mean = [1.0] * 3
    with pytest.raises(UserError, match='`normalization` weights'):
        load_model(given, trained, 'backbone')


@pytest.mark.parametrize('part', [None, 'backbone'])
def test_other_weights_are_refused(trained, tmp_path, part):
    content = torch.load(trained, weights_only=True)
    weights = content['state_dict']
    broken = {key: value.clone() for key, value in weights.items()}
    broken['backbone.norm.weight'][0] = float('nan')
    cases = {
        'are missing from it': {k: v for k, v in weights.items() if 'patch_embed' not in k},
        'unknown here': {**weights, 'backbone.blocks.9.x': torch.zeros(1)},
        r'is \[2\] there': {**weights, 'backbone.norm.weight': torch.zeros(2)},
        'not all finite': broken,
    }
    for message, state in cases.items():
        torch.save({**content, 'state_dict': state}, tmp_path / 'b.pth')
        with pytest.raises(UserError, match=message):
            load_model(config_with(), tmp_path / 'b.pth', part)


def test_names_that_other_writers_leave(trained, tmp_path):
    """Data parallelism puts `module.` in front; files of old torch do not count batches."""
    weights = torch.load(trained, weights_only=True)['state_dict']
    counts = [key for key in weights if key.endswith('num_batches_tracked')]
    assert counts
    renamed = {f'module.{key}': weights[key] for key in weights if key not in counts}
    torch.save({'state_dict': renamed, 'meta': {}}, tmp_path / 'b.pth')
    found = load_model(config_with(), tmp_path / 'b.pth').state_dict()
    assert all(torch.equal(found[key], weights[key]) for key in weights if key not in counts)
    one = torch.ones(1)
    assert weights_in({'a.module.b': one, 'module.c': one, 'epoch': 3}) == {
        'a.module.b': one, 'c': one,
    }  # fmt: skip
    assert weights_in({'state_dict': [one]}) == {}


def test_values_and_digests_of_every_kind():
    with pytest.raises(UserError, match='a are not all finite'):
        require_finite({'a': torch.tensor([complex(0, float('nan'))])}, 'x.pth')
    require_finite({'a': torch.tensor([1j]), 'b': torch.tensor([1])}, 'x.pth')

    def digest(**tensors: torch.Tensor) -> str:
        model = torch.nn.Module()
        for name, tensor in tensors.items():
            model.register_buffer(name, tensor)
        return weights_digest(model)

    zeros = torch.zeros(2, 2)
    others = [
        digest(a=zeros + 1), digest(b=zeros), digest(a=zeros.int()), digest(a=zeros.flatten()),
        digest(a=zeros, b=zeros),
    ]  # fmt: skip
    assert len({digest(a=zeros), *others}) == 6
    assert digest(a=zeros.clone()) == digest(a=zeros)


def test_labels_that_are_given_count_more_than_those_of_the_config(trained):
    other = LabelSet(('sky', 'road', 'tree'))
    with pytest.raises(UserError, match="class 'sky' was number 1"):
        load_model(config_with(), trained, labels=other)
    load_model(config_with(), trained, labels=LabelSet(('Road', 'SKY', 'tree')))


def test_classes_of_others_are_compared(trained, tmp_path):
    """mmengine writes them; mmdet's first 3.x checkpoints in capital letters."""
    weights = torch.load(trained, weights_only=True)['state_dict']
    for meta in (
        {'dataset_meta': {'classes': ('sky', 'road', 'tree')}},
        {'dataset_meta': {'CLASSES': ['sky', 'road', 'tree']}},
        {'CLASSES': ('sky', 'road', 'tree')},
    ):
        torch.save({'meta': meta, 'state_dict': weights}, tmp_path / 'b.pth')
        with pytest.raises(UserError, match="class 'road' was number 1"):
            load_model(config_with(), tmp_path / 'b.pth')
        load_model(config_with(), tmp_path / 'b.pth', 'backbone')  # has no classes


def test_labels():
    known = LabelSet(('a', 'b_c', 'd'), True)
    assert LabelSet(('a', 'B c', 'd'), True).contradiction(known) == ''
    assert LabelSet(('a', 'x'), None).contradiction(known) == ''
    assert LabelSet().contradiction(known) == known.contradiction(LabelSet()) == ''
    assert 'reduce_zero_label=True in training and has False' in LabelSet(
        ('a', 'b_c', 'd'), False
    ).contradiction(known)
    assert "'a' was number 0" in LabelSet(('background', 'a', 'b_c'), True).contradiction(known)
    for name in ('Traffic Light', 'traffic-light', 'TRAFFIC_LIGHT'):  # one class, however written
        moved = LabelSet(('car', name)).contradiction(LabelSet(('traffic_light', 'car')))
        assert "'car' was number 1" in moved
        alone = LabelSet(('x', name)).contradiction(LabelSet(('traffic_light', 'car')))
        assert f'{name!r} was number 0' in alone
    twice = LabelSet(('crane', 'x', 'crane'))
    assert twice.contradiction(twice) == ''
    assert twice.contradiction(LabelSet(('crane', 'x', 'bird'))) == '', 'one of them is there'


def test_labels_of_a_config():
    """Those of the test data, under the names that the config gives them, without building it."""

    def loader(kind: str, *classes: str) -> dict:
        metainfo = dict(metainfo=dict(classes=classes)) if classes else {}
        return dict(dataset=dict(type=kind, data_root='nowhere', **metainfo))

    scope = dict(default_scope='mmseg')
    both = dict(test_dataloader=loader('ADE20KDataset', 'a', 'b'),
                train_dataloader=loader('ADE20KDataset', 'c', 'd'), **scope)  # fmt: skip
    assert LabelSet.of_config(Config(both)).classes == ('a', 'b')
    del both['test_dataloader']
    assert LabelSet.of_config(Config(both)).classes == ('c', 'd')
    stock = Config(dict(test_dataloader=loader('ADE20KDataset'), **scope))
    known = LabelSet.of_config(stock).classes
    assert (len(known), known[0]) == (150, 'wall'), 'those of the class itself'
    stock.test_dataloader.dataset.type = 'mmdet.CocoDataset'
    assert LabelSet.of_config(stock).classes[:2] == ('person', 'bicycle')
    stock.test_dataloader.dataset.type = 'BaseSegDataset'
    assert LabelSet.of_config(stock).classes == ()


def test_classes_of_a_stock_data_set_are_compared(trained, tmp_path):
    """A config that names a data set of mmseg and no classes has those of the data set."""
    content = torch.load(trained, weights_only=True)
    content['meta'][KEY]['classes'] = ['building', 'wall', 'sky']
    torch.save(content, tmp_path / 'b.pth')
    given = config_with()
    given.test_dataloader.dataset = dict(type='ADE20KDataset', data_root='nowhere')
    with pytest.raises(UserError, match="class 'wall' was number 1 in training and is number 0"):
        load_model(given, tmp_path / 'b.pth')


# --- a backbone by itself -------------------------------------------------------------------------


def bare(**options: Any) -> Config:
    arch = dict(embed_dim=24, depth=2, num_heads=2)
    backbone = dict(
        type='ViTCB', arch=arch, img_size=32, out_indices=(0, 1), pyramid=False, **options
    )
    return Config(dict(model=backbone))


@pytest.fixture
def classifier(tmp_path) -> Path:
    """A ViT of timm with its head."""
    from timm.models.vision_transformer import VisionTransformer

    model = VisionTransformer(img_size=32, embed_dim=24, depth=2, num_heads=2, num_classes=5)
    file = tmp_path / 'timm.pth'
    torch.save(model.state_dict(), file)
    return file


@pytest.fixture
def logged(monkeypatch) -> list[str]:
    """What mmengine's logger says; its stream may be that of a test before."""
    lines: list[str] = []
    logger = MMLogger.get_current_instance()

    def note(record: logging.LogRecord) -> None:
        if record.levelno >= logging.INFO:
            lines.append(record.getMessage())

    monkeypatch.setattr(logger, 'callHandlers', note)
    return lines


def test_a_classifiers_head_is_left_out_in_one_line(classifier, logged):
    model = load_model(bare(), classifier)
    weights = torch.load(classifier, weights_only=True)
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    assert logged == [f'weights: {classifier}: left out as expected: head.weight, head.bias']


def test_nothing_else_is_left_out(classifier):
    content = torch.load(classifier, weights_only=True)
    torch.save({**content, 'blocks.7.norm1.bias': torch.zeros(24)}, classifier)
    with pytest.raises(UserError, match=r'unknown here .such as blocks\.7\.norm1\.bias'):
        load_model(bare(), classifier)
    torch.save(content, classifier)
    given = bare()
    given.model.pyramid = [4, 2]
    with pytest.raises(UserError, match='set pyramid=False'):
        load_model(given, classifier)


def test_bare_config_in_the_attention_tool(classifier, tmp_path, logged):
    from PIL import Image

    config = tmp_path / 'bare.py'
    config.write_text(
        "custom_imports = dict(imports=['cb_mm'])\n"
        "model = dict(type='ViTCB', arch=dict(embed_dim=24, depth=2, num_heads=2), img_size=32, "
        'out_indices=(0, 1), pyramid=False)\n'
    )
    Image.new('RGB', (32, 32), (200, 90, 10)).save(tmp_path / 'a.png')
    words = [config, classifier, tmp_path / 'a.png', '--format', 'png', '--out', tmp_path / 'out']
    assert main_of('visualize_attention.py')([str(word) for word in words]) == 0
    assert "ImageNet's mean and std are used" in logged[0]
    assert (tmp_path / 'out' / 'a.json').is_file()


def test_the_names_of_the_model_inside_timm_cb(tmp_path):
    import timm

    torch.save(timm.create_model('test_vit', num_classes=3).state_dict(), tmp_path / 'a.pth')
    config = Config(dict(model=dict(type='TimmCB', model_name='test_vit', pyramid=False)))
    model = load_model(config, tmp_path / 'a.pth')
    weights = torch.load(tmp_path / 'a.pth', weights_only=True)
    assert all(torch.equal(value, weights[key]) for key, value in model.model.state_dict().items())
    assert DefaultScope.get_current_instance().scope_name == 'mmengine', 'the config names none'
    # Its own names, and a head that is left out: those of the model inside are not looked for.
    whole = {**model.state_dict(), 'head.weight': torch.zeros(3, 4)}
    torch.save(whole, tmp_path / 'whole.pth')
    again = load_model(config, tmp_path / 'whole.pth').state_dict()
    assert all(torch.equal(value, whole[key]) for key, value in again.items())


class Foreign:
    """A class that safe reading knows nothing of."""


def test_trust_is_for_the_file_that_is_loaded(trained, tmp_path):
    content = torch.load(trained, weights_only=True)
    torch.save({**content, 'extra': Foreign()}, tmp_path / 'b.pth')
    with pytest.raises(UserError, match='trust_checkpoint'):
        load_model(config_with(), tmp_path / 'b.pth')
    load_model(config_with(), tmp_path / 'b.pth', trust=True)


# --- detectors, and backbones of others -----------------------------------------------------------


def test_settings_of_a_detector():
    """Anchors and coders are no modules, but they turn numbers into boxes."""
    from tool import SMALL_MASK_RCNN

    def built(**changes: Any) -> dict:
        config = Config.fromstring(SMALL_MASK_RCNN.replace('{configs}', str(CONFIGS)), '.py')
        config.merge_from_dict({f'model.{key}': value for key, value in changes.items()})
        init_default_scope('mmdet')
        return settings_of(MODELS.build(config.model))

    plain = built()
    assert json.loads(json.dumps(plain)) == plain
    for key, value, name in (
        ('rpn_head.anchor_generator.scales', [3], 'rpn_head.prior_generator.scales'),
        ('rpn_head.bbox_coder.target_stds', [2.0] * 4, 'rpn_head.bbox_coder.stds'),
        ('roi_head.bbox_roi_extractor.featmap_strides', [8, 16, 32, 64],
         'roi_head.bbox_roi_extractor.featmap_strides'),
    ):  # fmt: skip
        assert name in [found for found, *_ in differences(plain, built(**{key: value}))]
    innocent = {
        'test_cfg.rcnn.score_thr': 0.3, 'train_cfg.rcnn.sampler.num': 8,
        'rpn_head.loss_bbox.loss_weight': 2.0, 'data_preprocessor.pad_size_divisor': 64,
    }  # fmt: skip
    assert list(differences(plain, built(**innocent))) == []


def test_settings_are_plain_values():
    class Kind(Enum):
        FAST = 'fast'

    model = torch.nn.ModuleDict({'part': torch.nn.Linear(1, 1)})
    model.part.kind, model.part.shape = Kind.FAST, torch.Size([2, 3])
    model.part.helper = object()  # nothing that a checkpoint could keep
    found = settings_of(model)
    assert (found['part.kind'], found['part.shape']) == (['fast'], [[2, 3]])
    assert 'part.helper' not in found
    model.unused_parts = ('part',)  # a model says what its predictions do without
    assert not [name for name in settings_of(model) if name.startswith('part.')]
    assert list(differences({'eps': [1e-5]}, {'eps': [1.001e-5]})) == [
        ('eps', '1e-05', '1.001e-05')
    ]
    assert list(differences({'eps': [1e-5]}, {'eps': [1e-5 * (1 + 1e-9)], 'new': [1]})) == []


def test_cb_around_a_backbone_of_others_is_recorded():
    backbone = dict(
        type='mmdet.PyramidVisionTransformer', embed_dims=8, num_layers=[1, 1, 1, 1],
        num_heads=[1, 1, 1, 1], pretrain_img_size=32,
    )  # fmt: skip
    model = MODELS.build(dict(type='WithCB', backbone=backbone, broadcast='cb', layers='all'))
    record = Provenance.of_model(model)
    assert (record.broadcast, record.layers) == ('cb', (0, 1, 2, 3))


# --- checkpoints of version 0.1 -------------------------------------------------------------------


@pytest.fixture
def old(tmp_path) -> tuple[Path, Path]:
    """A config, and a copy of a checkpoint that version 0.1 wrote for it."""
    file = shutil.copy(CHECKPOINT, tmp_path / 'iter_2.pth')
    return write_config(tmp_path, CONFIG, 'old.py'), Path(file)


def test_an_old_record_is_read(old):
    from cb_mm.config.loading import load_config

    record = Provenance.of_checkpoint(read_checkpoint(old[1]))
    assert (record.broadcast, record.layers, record.position) == ('cb', (1,), 'end')
    assert record.mean
    assert (record.settings, record.channel_order) == ({}, None)
    config = load_config(old[0])
    assert load_model(config, old[1]).dataset_meta['classes'][:2] == ('building', 'sky')
    load_model(config, old[1], 'backbone')
    config.model.backbone.broadcast = None
    with pytest.raises(UserError, match='was trained with cb in layers 1'):
        load_model(config, old[1])


def test_an_old_checkpoint_is_tested(old, scenes, tmp_path):
    words = [
        *old, '--data-root', scenes.ade20k, '--out', tmp_path / 'out', '--cfg-options',
        'test_dataloader.num_workers=0', 'test_dataloader.persistent_workers=False',
    ]  # fmt: skip
    assert main_of('test.py')([str(word) for word in words]) == 0
    results = json.loads((tmp_path / 'out' / 'results.json').read_text())
    assert results['cells'][0]['metrics']['mIoU']['mean'] is not None


@pytest.mark.slow
def test_a_start_is_read_and_told_once(old, scenes, tmp_path, capsys, monkeypatch):
    read: list[str] = []

    def counted(path, trust=False):
        read.append(str(path))
        return read_checkpoint(path, trust)

    monkeypatch.setattr('cb_mm.checkpoints.sources.read_checkpoint', counted)
    words = [
        old[0], '--data-root', scenes.ade20k, '--work-dir', tmp_path / 'work', '--init', old[1],
        '--cfg-options', 'train_cfg.max_iters=1', 'train_dataloader.num_workers=0',
        'train_dataloader.persistent_workers=False', 'val_dataloader.num_workers=0',
        'val_dataloader.persistent_workers=False', '--normalization', 'weights',
    ]  # fmt: skip
    assert main_of('train.py')([str(word) for word in words]) == 0
    assert read == [str(old[1])], 'for its normalisation, the weights and the start report'
    shown = [line for line in capsys.readouterr().out.splitlines() if 'loaded 41/41' in line]
    assert [line.split()[0] for line in shown] == ['weights']
    (log,) = (tmp_path / 'work').glob('*/*.log')
    assert log.read_text().count('loaded 41/41') == 1


@pytest.mark.slow
def test_an_old_checkpoint_is_resumed_and_gets_the_whole_record(old, scenes, tmp_path):
    words = [old[0], '--data-root', scenes.ade20k, '--work-dir', tmp_path / 'work', '--resume',
             old[1], '--cfg-options', 'train_dataloader.num_workers=0',
             'train_dataloader.persistent_workers=False', 'val_dataloader.num_workers=0',
             'val_dataloader.persistent_workers=False']  # fmt: skip
    assert main_of('train.py')([str(word) for word in words]) == 0
    content = read_checkpoint(tmp_path / 'work' / f'iter_{ALL}.pth')
    assert content['meta']['iter'] == ALL > DONE
    record = content['meta'][KEY]
    assert record['classes'][:2] == ['building', 'sky']
    assert record['reduce_zero_label'] is True
    assert record['channel_order'] == 'RGB'
    assert record['settings']['backbone.blocks.*.attn.num_heads'] == [2]
    assert record['settings']['decode_head.type'] == ['UPerHead']
    # And what is new in it is compared: the same training cannot be resumed with other classes.
    order = list(reversed(record['classes']))
    words += [f'train_dataloader.dataset.metainfo.classes={json.dumps(order)}'.replace(' ', '')]
    words[words.index(old[1])] = tmp_path / 'work' / f'iter_{ALL}.pth'
    words[words.index(tmp_path / 'work')] = tmp_path / 'other'
    assert main_of('train.py')([str(word) for word in words]) == 2


ODD = [
    5, -1, 2.5, True, 'a\nb', '\x1b[31m', 'x' * 5000, [1, 'a'], [[1], [2]], [None], {'a': 1},
    [float('nan')], 1 + 2j, slice(1, 2), torch.ones(2, 2), np.arange(3), [torch.ones(2)],
]  # fmt: skip


@pytest.mark.parametrize(
    'part', ['broadcast', 'layers', 'position', 'mean', 'std', 'channel_order', 'settings']
)
def test_a_record_of_any_shape_is_one_line(part, trained, tmp_path):
    """Anyone can have written it: it is refused, whether as damaged or as another model's."""
    content = torch.load(trained, weights_only=True)
    file = tmp_path / 'odd.pth'
    for value in ODD:
        if part == 'settings':
            value = content['meta'][KEY]['settings'] | {'backbone.blocks.*.type': [value]}
        record = {**content['meta'][KEY], part: value}
        torch.save({**content, 'meta': {KEY: record}}, file)
        with pytest.raises(UserError, match=r'odd\.pth') as caught:
            load_model(config_with(), file)
        assert str(caught.value).isprintable(), value
        assert len(str(caught.value)) < 3000
