"""Corruption in training: fair by default, deterministic, and labels stay where they are."""

from __future__ import annotations

import re
from pathlib import Path

import forked
import numpy as np
import pytest
from mmengine.registry import DATASETS, TRANSFORMS, init_default_scope
from PIL import Image, ImageOps
from run_files import assert_same
from tiny_imagenet import write_imagenet
from tool import CONFIGS, REPO, SMALL_UPERNET, write_config

from cb_mm.checkpoints.read import read_checkpoint
from cb_mm.config.loading import load_config, set_data_root
from cb_mm.corruption import SUITES, AugMix, RandomCorruption, corrupt
from cb_mm.corruption.augmentation import MOVING, training_corruptions
from cb_mm.corruption.mixing import GEOMETRIC, PHOTOMETRIC, apply_operation
from cb_mm.errors import UserError

EXTRA = ['speckle_noise', 'gaussian_blur', 'spatter', 'saturate']


def picture(seed: int = 0, shape: tuple[int, ...] = (40, 56, 3)) -> np.ndarray:
    """A few colours in large fields, and noise in a corner."""
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (4, 4, *shape[2:]), dtype=np.uint8).repeat(10, 0).repeat(14, 1)
    image[:9, :9] = rng.integers(0, 256, image[:9, :9].shape)
    return image


def seeded(transform, image: np.ndarray, seed: int = 1, **results) -> np.ndarray:
    np.random.seed(seed)  # noqa: NPY002  (what the samplers do for every sample)
    return transform({'img': image, **results})['img']


TRANSFORM = [
    RandomCorruption(prob=1),
    RandomCorruption(names=['fog', 'snow'], held_out=None, prob=1),
    AugMix(),
    AugMix(geometric=True, corruptions=['speckle_noise'], severity=8),
]
each = pytest.mark.parametrize('transform', TRANSFORM, ids=repr)


@each
@pytest.mark.parametrize('shape', [(40, 56, 3), (40, 56), (40, 56, 1)])
def test_same_seed_same_image(transform, shape):
    image = picture(shape=shape)
    before = image.copy()
    first = seeded(transform, image)
    assert (first.shape, first.dtype) == (shape, np.uint8)
    assert np.array_equal(first, seeded(transform, image))
    others = [seeded(transform, image, seed) for seed in range(2, 12)]
    assert len({one.tobytes() for one in others}) > 5
    assert np.array_equal(image, before)
    values = seeded(transform, image.astype(np.float32))
    assert values.dtype == np.float32
    assert np.array_equal(values, first)


@each
def test_colours_are_in_the_order_of_the_loader(transform):
    image = picture()
    found = seeded(transform, np.ascontiguousarray(image[..., ::-1]))
    rgb = seeded(transform, image, channel_order='rgb')
    assert np.array_equal(found[..., ::-1], rgb)


def test_the_chance_of_a_corruption():
    image = picture()
    for prob, low, high in ((0, 0, 0), (0.5, 60, 140), (1, 195, 200)):
        transform = RandomCorruption(names=['gaussian_noise'], held_out=None, prob=prob)
        changed = sum(not np.array_equal(seeded(transform, image, k), image) for k in range(200))
        assert low <= changed <= high


def test_the_corruption_is_one_of_the_functions():
    image, seen = picture(), set()
    transform = RandomCorruption(severities=[2, 4], prob=1)
    for seed in range(60):
        found = seeded(transform, image, seed, channel_order='rgb')
        np.random.seed(seed)  # noqa: NPY002
        entropy = np.random.randint(0, 2**31 - 1, size=4).tolist()  # noqa: NPY002
        rng = np.random.Generator(np.random.SFC64(entropy))
        rng.random()
        name, severity = EXTRA[rng.integers(4)], (2, 4)[rng.integers(2)]
        assert np.array_equal(found, corrupt(image, name, rng, severity=severity))
        seen.add((name, severity))
    assert len(seen) == 8


def test_what_is_tested_is_not_trained_on():
    assert training_corruptions('imagenet-c') == training_corruptions('coco-c') == EXTRA
    assert training_corruptions('cityscapes-c') == ['zoom_blur', 'pixelate']
    assert len(training_corruptions(None)) == 18
    for suite in (None, *SUITES):
        drawn = set(RandomCorruption(held_out=suite).names)
        assert not drawn & set(MOVING)
        assert suite is None or not drawn & {cell.name for cell in SUITES[suite]}
    told = 'fog is one of the corruptions of imagenet-c; .* held_out=None'
    for wrong in (dict(type='RandomCorruption', names=['fog']),
                  dict(type='AugMix', corruptions=['spatter', 'fog'])):  # fmt: skip
        with pytest.raises(UserError, match=told):
            TRANSFORMS.build(wrong)
        assert TRANSFORMS.build(dict(wrong, held_out=None))
    with pytest.raises(UserError, match='unknown suite'):
        RandomCorruption(held_out='imagenetc')


@pytest.mark.parametrize(
    'wrong',
    [
        dict(type='RandomCorruption', names=['gausian_noise']),
        dict(type='RandomCorruption', severities=[0]),
        dict(type='RandomCorruption', severities=[]),
        dict(type='RandomCorruption', prob=2),
        dict(type='AugMix', severity=11),
        dict(type='AugMix', width=0),
        dict(type='AugMix', width=2.5),
        dict(type='AugMix', depth=1.5),
        dict(type='AugMix', severity='3'),
        dict(type='AugMix', alpha=0),
        dict(type='AugMix', alpha=float('nan')),
        dict(type='AugMix', held_out='imagenet_c'),
        dict(type='AugMix', channel_order='gbr'),
    ],
)
def test_mistakes_are_named(wrong):
    with pytest.raises(UserError):
        TRANSFORMS.build(wrong)


def test_augmix_is_the_mixture_of_the_paper():
    """Computed once more, from Pillow and the same numbers."""
    image = picture(3)
    operations = {
        'autocontrast': lambda p, level: ImageOps.autocontrast(p),
        'equalize': lambda p, level: ImageOps.equalize(p),
        'posterize': lambda p, level: ImageOps.posterize(p, 4 - int(level * 4 / 10)),
        'solarize': lambda p, level: ImageOps.solarize(p, 256 - int(level * 256 / 10)),
    }
    assert tuple(operations) == PHOTOMETRIC
    for seed in range(5):
        found = AugMix(severity=3).change(image, np.random.default_rng(seed))
        rng = np.random.default_rng(seed)
        weights, share = rng.dirichlet([1, 1, 1]), rng.beta(1, 1)
        mixture = 0
        for weight in weights:
            chain = Image.fromarray(image)
            for _ in range(rng.integers(1, 4)):
                name = list(operations)[rng.integers(4)]
                chain = operations[name](chain, rng.uniform(0.1, 3))
            mixture = mixture + weight * np.asarray(chain, np.float64)
        expected = (1 - share) * image + share * mixture
        assert np.abs(found - expected).max() <= 0.501  # rounded


def test_photometric_operations_leave_everything_in_its_place():
    """Pixels of one colour have one colour afterwards: nothing moves, nothing blurs."""
    image = picture(5)
    colours, place = np.unique(image.reshape(-1, 3), axis=0, return_inverse=True)
    for seed in range(8):
        changed = seeded(AugMix(severity=10), image, seed, channel_order='rgb').reshape(-1, 3)
        one = np.zeros_like(colours)
        one[place.ravel()] = changed
        assert np.array_equal(one[place.ravel()], changed)


def test_geometric_operations_are_refused_where_labels_have_a_place():
    moving = AugMix(geometric=True)
    assert {*GEOMETRIC} < {*moving.operations}
    for name in GEOMETRIC:
        changed = apply_operation(picture(5), name, 10, np.random.default_rng(1))
        assert not np.array_equal(changed, picture(5))
    assert seeded(moving, picture(), gt_label=3).shape == (40, 56, 3)
    for key in ('gt_seg_map', 'gt_bboxes', 'gt_masks'):
        with pytest.raises(UserError, match=f'the sample has {key}'):
            seeded(moving, picture(), **{key: 0})
    for elastic in (AugMix(corruptions=['elastic_displacement']),
                    RandomCorruption(['elastic_transform'], held_out=None)):  # fmt: skip
        with pytest.raises(UserError, match=r'gt_seg_map.*elastic_.* moves the image'):
            seeded(elastic, picture(), gt_seg_map=0)


#: The config of docs/robust_training.md, with the base and the transform in place of its own.
DOCUMENTED = re.search(
    r'```python\n(_base_.*?)```', (REPO / 'docs' / 'robust_training.md').read_text(), re.S
)[1]


def own_config(folder: Path, base: str, transform: str) -> Path:
    text = DOCUMENTED.replace("'cb_mm::upernet_vit_s_cb.py'", repr(str(CONFIGS / base)))
    assert "dict(type='AugMix')" in text
    return write_config(folder, text.replace("dict(type='AugMix')", transform))


@pytest.mark.parametrize(
    'transform', ["dict(type='RandomCorruption', prob=1.0)", "dict(type='AugMix')"]
)
@pytest.mark.parametrize(
    'base', ['upernet_vit_ti.py', 'mask_rcnn_vit_ti.py', 'imagenet/imagenet_vit_ti.py']
)
def test_the_documented_config_changes_images_alone(base, transform, images, tmp_path):
    """In real data sets of all three tasks: the labels are those of the plain config."""
    if 'imagenet' in base:
        pytest.importorskip('mmpretrain', reason='classification needs mmpretrain')
        data = write_imagenet(tmp_path / 'imagenet')
    else:
        data = images['mask_rcnn' in base]
    samples = []
    for config in (CONFIGS / base, own_config(tmp_path, base, transform)):
        read = load_config(config)
        set_data_root(read, data)
        init_default_scope(read.default_scope)
        dataset = DATASETS.build(read.val_dataloader.dataset)
        dataset.pipeline = DATASETS.build(
            dict(read.val_dataloader.dataset, pipeline=read.train_dataloader.dataset.pipeline)
        ).pipeline
        np.random.seed(4)  # noqa: NPY002
        samples.append(dataset[0])
    plain, changed = samples
    assert plain['inputs'].shape == changed['inputs'].shape
    assert not plain['inputs'].equal(changed['inputs'])
    for key, value in plain['data_samples'].items():
        same = changed['data_samples'].get(key)
        if hasattr(value, 'data') and hasattr(value.data, 'equal'):
            assert value.data.equal(same.data)
        elif hasattr(value, 'equal'):
            assert value.equal(same)


@pytest.mark.slow
def test_resumed_training_with_corruption_equals_an_undisturbed_one(scenes, tmp_path):
    """Without workers from start to end, and with two, ended in the middle and resumed."""
    more = """
both = [dict(type='AugMix'), dict(type='RandomCorruption', prob=0.7)]
train_pipeline = [*train_pipeline[:-1], *both, train_pipeline[-1]]
train_dataloader = dict(batch_size=4, dataset=dict(pipeline=train_pipeline))
train_cfg = dict(max_iters=4, val_interval=100)
"""
    config = write_config(tmp_path, SMALL_UPERNET + more)

    def train(work: str, workers: int, *words: object) -> forked.Done:
        kept = 'train_dataloader.persistent_workers=False'
        done = forked.run('train.py', config, '--data-root', scenes.ade20k, '--work-dir',
                          tmp_path / work, '--cfg-options', kept, *words[1:],
                          f'train_dataloader.num_workers={workers}', *words[:1],
                          cwd=tmp_path)  # fmt: skip
        assert done.code == 0, done.err
        return done

    train('whole', 0)
    train('parts', 2)
    (tmp_path / 'parts' / 'iter_4.pth').unlink()
    train('parts', 1, '--resume')
    a, b = (read_checkpoint(tmp_path / work / 'iter_4.pth') for work in ('whole', 'parts'))
    assert_same(a['state_dict'], b['state_dict'])
    assert_same(a['optimizer'], b['optimizer'])
