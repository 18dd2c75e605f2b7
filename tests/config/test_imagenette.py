"""The configs of the sparse-attention paper: its counts, its recipe, and a run that resumes."""

from __future__ import annotations

import math

import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from one_step import one_step
from tiny_imagenet import write_imagenet
from tool import CONFIGS, REPO, config_file

pytest.importorskip('mmpretrain', reason='classification needs mmpretrain')

from cb_mm.config.length import set_length
from cb_mm.config.loading import load_config
from cb_mm.engine.training import TrainOptions, train
from cb_mm.evaluation.validation_loss import ValidationLoss
from cb_mm.models.attention.sparse_pattern import SparsePattern, make_plan

#: config -> millions of parameters, parts of the pattern
ROWS = {
    'imagenette_vit_tiny': (6.68, None),
    'imagenette_bbvit_tiny': (5.90, 'R+W+G'),
    'imagenette_bbvit_tiny_r': (5.90, 'R'),
    'imagenette_bbvit_tiny_w': (5.90, 'W'),
    'imagenette_bbvit_tiny_g': (5.90, 'G'),
    'imagenette_bbvit_tiny_r_w': (5.90, 'R+W'),
    'imagenette_bbvit_tiny_w_g': (5.90, 'W+G'),
    'imagenette_bbvit_tiny_r_g': (5.90, 'R+G'),
    'imagenette_vit_tiny_368': (7.49, None),
    'imagenette_bbvit_tiny_368': (6.71, 'R+W+G'),
    'imagenette_vit_moderate': (51.72, None),
    'imagenette_bbvit_moderate': (45.45, 'R+W+G'),
}
#: Makes a step of any of them cheap.
SMALL = [
    'model.backbone.img_size=32',
    'model.backbone.arch.embed_dim=32',
    'model.backbone.arch.num_heads=2',
    'model.backbone.arch.depth=2',
    'model.backbone.arch.patch_size=4',
    'model.head.in_channels=32',
    'model.head.num_classes=3',
    *(
        f'{split}_dataloader.{option}'
        for split in ('train', 'val', 'test')
        for option in ('num_workers=0', 'persistent_workers=False', 'batch_size=4')
    ),
    *(f'{split}_dataloader.dataset.pipeline.1.scale=(32,32)' for split in ('train', 'val', 'test')),
    'train_dataloader.dataset.pipeline.2.scale=32',
    'default_hooks.logger.interval=1',
]


def test_all_rows_have_a_config_that_says_how_to_run_it():
    assert {file.stem for file in (CONFIGS / 'imagenette').glob('*.py')} == set(ROWS)
    for name in ROWS:
        file = config_file(name)
        assert f'tools/train.py {file.relative_to(REPO)}' in file.read_text()
        assert 'Measured by us: not yet' in file.read_text()


@pytest.mark.parametrize('name', ROWS)
def test_parameters_and_pattern(name):
    config, (millions, parts) = load_config(config_file(name)), ROWS[name]
    init_default_scope('mmpretrain')
    with torch.device('meta'):
        model = MODELS.build(config.model)
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, abs=5e-3)
    size = 368 if '368' in name or 'moderate' in name else 184
    assert config.model.backbone.img_size == size
    for split in ('train', 'val', 'test'):
        pipeline = config[f'{split}_dataloader'].dataset.pipeline
        assert tuple(pipeline[1].scale) == (size, size)
        assert config[f'{split}_dataloader'].dataset.labels == 'sorted'
    if parts is None:
        assert 'attention' not in config.model.backbone
        return
    pattern = SparsePattern.read(config.model.backbone.attention)
    present = {'R': pattern.random, 'W': pattern.window, 'G': pattern.global_ends}
    assert '+'.join(letter for letter, there in present.items() if there) == parts
    assert (pattern.random or 3, pattern.window or 3, pattern.block) == (3, 3, 10)
    assert not any('attn.proj' in key for key in model.state_dict())


def test_the_pattern_covers_what_the_code_of_the_paper_covers():
    """53 runs of 10: two see all, 49 see 8 runs, and two see 7."""
    pattern = SparsePattern.read(
        load_config(config_file('imagenette_bbvit_tiny')).model.backbone.attention
    )
    plan = make_plan(pattern, (23, 23), 1)
    assert plan.pairs == 100 * (2 * 53 + 49 * 8 + 2 * 7)
    runs = plan.mask().unflatten(0, (53, 10)).unflatten(2, (53, 10))
    assert runs.all(dim=3).all(dim=1).sum() == 512  # whole runs


def test_recipe():
    config = load_config(config_file('imagenette_bbvit_tiny'))
    assert config.optim_wrapper.optimizer == dict(type='Adam', lr=1e-3)
    (plateau,) = config.param_scheduler
    assert (plateau.type, plateau.factor, plateau.patience) == ('ReduceOnPlateauLR', 0.1, 10)
    assert plateau.monitor == 'validation/cross_entropy'
    assert config.train_cfg.max_epochs == 200
    assert config.train_dataloader.batch_size * 4 == config.auto_scale_lr.base_batch_size == 64
    assert config.default_hooks.checkpoint.save_best == 'accuracy/top1'
    arch = config.model.backbone.arch
    assert (arch.mlp_ratio, arch.pos_drop_rate, arch.proj_drop_rate) == (2, 0.1, 0.1)
    set_length(config, epochs=40)
    assert config.param_scheduler[0].patience == 2  # it is scaled like the rest


def test_validation_loss_by_hand():
    metric = ValidationLoss()
    samples = [
        {'pred_score': torch.tensor([0.25, 0.5, 0.25]), 'gt_label': torch.tensor([1])},
        {'pred_score': torch.tensor([1.0, 0.0, 0.0]), 'gt_label': torch.tensor([0])},
    ]
    metric.process(None, samples)
    assert metric.evaluate(2)['validation/cross_entropy'] == pytest.approx(math.log(2) / 2)
    metric.process(None, [{**samples[1], 'gt_label': torch.tensor([2])}])
    assert 80 < metric.evaluate(1)['validation/cross_entropy'] < 100  # far, and finite


@pytest.mark.parametrize('name', ROWS)
def test_every_config_trains_a_step(name):
    loss = one_step(config_file(name), SMALL)[1]
    assert loss == pytest.approx(math.log(3), abs=0.7)


def test_resumed_run_equals_an_uninterrupted_one(tmp_path, monkeypatch):
    """With random runs drawn at every forward pass, and a learning rate that falls on a plateau."""
    monkeypatch.setattr('logging.raiseExceptions', False)  # mmengine keeps streams of other tests
    data = write_imagenet(tmp_path / 'data')

    def run(name: str, resume: str | None = None):
        return train(
            TrainOptions(
                config=str(config_file('imagenette_bbvit_tiny')),
                data_root=str(data),
                work_dir=str(tmp_path / name),
                resume=resume,
                # No epoch can improve that much: the rate falls after the third.
                cfg_options=[
                    *SMALL,
                    'param_scheduler.0.patience=1',
                    'param_scheduler.0.threshold=0.99',
                    'train_cfg.max_epochs=4',
                    'default_hooks.checkpoint.max_keep_ckpts=-1',
                ],
            )
        )

    whole = run('whole')
    # Written before the validation that lets the rate fall: it has to be repeated.
    again = run('again', str(tmp_path / 'whole' / 'epoch_3.pth'))
    rates = [each.optim_wrapper.param_groups[0]['lr'] for each in (whole, again)]
    assert rates[0] == rates[1] == pytest.approx(1e-4)
    other = again.model.state_dict()
    for key, value in whole.model.state_dict().items():
        assert torch.equal(value, other[key]), key
    assert whole.message_hub.get_scalar('val/validation/cross_entropy').current() > 0
