"""ImageCorruption in real pipelines: the same noise however the images are loaded."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
import shutil
from pathlib import Path

import cv2
import forked
import mmdet.datasets
import mmseg.datasets
import numpy as np
import pytest
from mmcv.transforms import LoadImageFromFile
from mmengine.config import ConfigDict
from mmengine.dataset import pseudo_collate, worker_init_fn
from mmengine.registry import TRANSFORMS
from torch.utils.data import DataLoader

from cb_mm.corruption import (
    CORRUPTIONS,
    ImageCorruption,
    corrupt,
    corrupt_dataset,
    corrupt_dataset_cfg,
    image_identity,
    insert_corruption,
    noise_generator,
)
from cb_mm.errors import UserError

NOISE = {'type': 'ImageCorruption', 'name': 'gaussian_noise', 'level': 10}
SEG_PIPELINE = [
    {'type': 'LoadImageFromFile'},
    {'type': 'Resize', 'scale': (64, 64), 'keep_ratio': True},
    {'type': 'PackSegInputs', 'meta_keys': ('img_path',)},
]
DET_PIPELINE = [
    {'type': 'LoadImageFromFile', 'backend_args': None},
    {'type': 'Resize', 'scale': (64, 64), 'keep_ratio': True},
    {'type': 'PackDetInputs', 'meta_keys': ('img_path', 'img_id')},
]


def picture(height: int = 40, width: int = 56, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def apply(image: np.ndarray, path: str | None = 'a/b.png', results=None, **options) -> np.ndarray:
    options = {'name': 'gaussian_noise', 'level': 10, **options}
    return ImageCorruption(**options)({'img': image, 'img_path': path, **(results or {})})['img']


def digest(array) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


@pytest.fixture
def folder(tmp_path) -> Path:
    """Six pictures in two folders; two have the same name."""
    for number, name in enumerate(('x/0', 'x/1', 'x/2', 'y/0', 'y/3', 'y/4')):
        file = tmp_path / 'set' / 'images' / f'{name}.png'
        file.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(file), picture(seed=number))
    return tmp_path / 'set'


def seg_cfg(folder: Path, images: str = 'images', suffix: str = '.png', **options) -> dict:
    return {
        'type': 'mmseg.BaseSegDataset',
        'data_root': str(folder),
        'data_prefix': {'img_path': images},
        'img_suffix': suffix,
        'metainfo': {'classes': ('a',), 'palette': [[0, 0, 0]]},
        'test_mode': True,
        'pipeline': [{**step, 'type': f'mmseg.{step["type"]}'} for step in SEG_PIPELINE],
        **options,
    }


def digests(cfg, indices=None, **loader) -> dict[str, str]:
    """The pictures that a data loader gives, by their path below the folder of images."""
    from mmengine.registry import DATASETS

    dataset = DATASETS.build(copy.deepcopy(cfg)) if isinstance(cfg, dict) else cfg
    loader = {'batch_size': 1, 'num_workers': 0, 'sampler': indices, **loader}
    found = {}
    for batch in DataLoader(dataset, collate_fn=pseudo_collate, **loader):
        for inputs, sample in zip(batch['inputs'], batch['data_samples'], strict=True):
            path = Path(sample.metainfo['img_path'])
            found[f'{path.parent.name}/{path.name}'] = digest(inputs.numpy())
    return found


WAYS = {
    'batch 4': {'batch_size': 4},
    '2 workers': {'num_workers': 2},
    '2 workers, batch 4': {'num_workers': 2, 'batch_size': 4},
    'backwards': {'indices': [5, 4, 3, 2, 1, 0]},
    'shuffled': {'indices': [3, 0, 5, 1, 4, 2], 'batch_size': 2},
    'a part': {'indices': [4, 1]},
}


@pytest.mark.parametrize('way', WAYS)
def test_noise_does_not_depend_on_how_a_folder_is_loaded(folder, way):
    cfg = corrupt_dataset_cfg(seg_cfg(folder), NOISE)
    expected = digests(cfg)
    assert len(set(expected.values())) == 6
    got = digests(cfg, **WAYS[way])
    assert got == {name: expected[name] for name in got}
    assert len(got) == len(WAYS[way].get('indices', range(6)))


def test_workers_do_not_wait_for_threads_that_the_fork_left_behind(folder):
    for file in (folder / 'images').glob('*/*'):
        cv2.imwrite(str(file), np.full((600, 800, 3), 99, np.uint8))  # worth working in parallel
    cfg = corrupt_dataset_cfg(seg_cfg(folder), NOISE)
    threads = cv2.getNumThreads()
    try:
        expected = digests(cfg)
        cv2.setNumThreads(4)
        cv2.GaussianBlur(picture(2000, 2000), (5, 5), 2)  # starts the threads of OpenCV
        cv2.setNumThreads(2)  # its next work in parallel ends some of them
        assert digests(cfg, num_workers=2, timeout=30) == expected
    finally:
        cv2.setNumThreads(threads)


def test_noise_does_not_depend_on_where_the_data_set_lies(folder, tmp_path):
    expected = digests(corrupt_dataset_cfg(seg_cfg(folder), NOISE))
    moved = tmp_path / 'elsewhere' / 'deeper'
    shutil.copytree(folder, moved)
    assert digests(corrupt_dataset_cfg(seg_cfg(moved), NOISE)) == expected
    # The same folder, written another way in the config.
    cfg = seg_cfg(moved / 'images', images='')
    cfg['data_prefix'] = {'img_path': ''}
    assert digests(corrupt_dataset_cfg(cfg, NOISE)) == expected


def test_a_built_data_set_gets_the_noise_of_its_config(folder):
    from mmengine.registry import DATASETS

    built = DATASETS.build(seg_cfg(folder))
    clean = digests(built)
    assert digests(corrupt_dataset(built, NOISE)) == digests(
        corrupt_dataset_cfg(seg_cfg(folder), NOISE)
    )
    assert digests(built) == clean, 'the data set itself stays as it was'


@pytest.mark.parametrize(
    ('prefix', 'folders'),
    [
        ({'img_path': 'data/val', 'seg_map_path': 'labels'}, ['data/val', 'data']),
        ({'img': 'data/val2017/'}, ['data/val2017/', 'data']),
        ('data/val', ['data/val', 'data']),  # mmpretrain's
        (None, ['data']),
    ],
)
def test_the_root_of_a_built_data_sets_noise(folder, prefix, folders):
    from mmengine.registry import DATASETS

    built = DATASETS.build(seg_cfg(folder))
    built.data_root, built.data_prefix = 'data', prefix
    steps = corrupt_dataset(built, NOISE).pipeline.transforms
    (noise,) = [step for step in steps if isinstance(step, ImageCorruption)]
    assert list(noise.root) == folders


@pytest.mark.parametrize(
    ('prefix', 'folders'),
    [
        ({'img_path': 'images/val', 'seg_map_path': 'labels'}, ['data/images/val', 'data']),
        ({'img': 'val2017/'}, ['data/val2017/', 'data']),
        ('val', ['data/val', 'data']),  # mmpretrain's
        ('', ['data']),
        (None, ['data']),
    ],
)
def test_the_root_of_the_noise_is_where_the_images_begin(prefix, folders):
    cfg = {'data_root': 'data', 'data_prefix': prefix, 'pipeline': SEG_PIPELINE}
    assert corrupt_dataset_cfg(cfg, NOISE)['pipeline'][1]['root'] == folders
    assert corrupt_dataset_cfg({**cfg, 'data_root': None}, NOISE)['pipeline'][1]['root'] == [
        folder.removeprefix('data/') for folder in folders[:-1]
    ]


def test_images_of_the_same_name_in_two_folders_have_noise_of_their_own(folder):
    for name in ('x/0.png', 'y/0.png'):
        cv2.imwrite(str(folder / 'images' / name), np.full((40, 56, 3), 128, np.uint8))
    found = digests(corrupt_dataset_cfg(seg_cfg(folder), NOISE))
    assert found['x/0.png'] != found['y/0.png']


def test_repeats_and_seeds_differ_and_deterministic_corruptions_do_not(folder):
    def with_(**options) -> dict[str, str]:
        return digests(corrupt_dataset_cfg(seg_cfg(folder), {**NOISE, **options}))

    runs = [with_(), with_(repeat=1), with_(seed=1), with_(level=5)]
    for name in runs[0]:
        assert len({run[name] for run in runs}) == len(runs)
    blur = {'name': 'gaussian_blur', 'level': 1}
    assert with_(**blur) == with_(**blur, repeat=1, seed=5)


@pytest.mark.parametrize('way', [WAYS['2 workers, batch 4'], {'indices': [3, 2, 1, 0]}])
def test_noise_on_ade20k(images, way):
    cfg = seg_cfg(images[0], 'images/validation', '.jpg')
    cfg = corrupt_dataset_cfg(cfg, {**NOISE, 'name': 'shot_noise', 'level': 255})
    expected = digests(cfg)
    got = digests(cfg, **way)
    assert got == {name: expected[name] for name in got}
    assert len(got) == len(way.get('indices', expected))


def test_noise_on_coco(images):
    cfg = {
        'type': 'mmdet.CocoDataset',
        'data_root': str(images[1]),
        'ann_file': 'annotations/instances_val2017.json',
        'data_prefix': {'img': 'val2017/'},
        'test_mode': True,
        'indices': 4,
        'pipeline': [{**step, 'type': f'mmdet.{step["type"]}'} for step in DET_PIPELINE],
    }
    noisy = corrupt_dataset_cfg(cfg, NOISE)
    expected = digests(noisy)
    assert digests(noisy, num_workers=2, batch_size=4) == expected
    clean = digests(cfg)
    assert clean.keys() == expected.keys()
    assert all(clean[name] != expected[name] for name in clean)


PROCESS = """
import ast, hashlib, json, sys
from pathlib import Path
import cb_mm.corruption
import torch.distributed as dist
from mmengine.dataset import DefaultSampler, pseudo_collate
from mmengine.registry import DATASETS
from torch.utils.data import DataLoader

cfg, meeting, rank = ast.literal_eval(sys.argv[1]), sys.argv[2], int(sys.argv[3])
dist.init_process_group('gloo', init_method=f'file://{meeting}', rank=rank, world_size=2)
dataset = DATASETS.build(cfg)
found = {}
sampler = DefaultSampler(dataset, shuffle=True, seed=3)
for batch in DataLoader(dataset, sampler=sampler, batch_size=2, collate_fn=pseudo_collate):
    for inputs, sample in zip(batch['inputs'], batch['data_samples']):
        path = Path(sample.metainfo['img_path'])
        value = hashlib.sha256(inputs.contiguous().numpy().tobytes()).hexdigest()
        found[f'{path.parent.name}/{path.name}'] = value
print(json.dumps(found))
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_make_the_noise_of_one(folder, tmp_path):
    cfg = corrupt_dataset_cfg(seg_cfg(folder), NOISE)
    words = [repr(cfg), str(tmp_path / 'meeting')]
    processes = [forked.Forked('-c', PROCESS, *words, rank, cwd=tmp_path) for rank in range(2)]
    # The libraries may print lines of their own before.
    printed = [process.wait().out.splitlines() for process in processes]
    parts = [json.loads(lines[-1]) for lines in printed]
    assert [len(part) for part in parts] == [3, 3]
    assert parts[0] | parts[1] == digests(cfg)


# ----- what the noise depends on


def test_whole_levels_and_severities_name_the_same_noise():
    image = picture()
    assert np.array_equal(apply(image, level=5), apply(image, level=5.0))
    assert np.array_equal(apply(image, level=20.4), apply(image, level=None, severity=1))


def test_identity_is_the_path_below_the_root_or_the_name_or_the_id_or_the_content():
    def identity(root=(), **results) -> str:
        return image_identity(results, root)

    assert identity(img_path='/data/ade/images/a.jpg') == 'a.jpg'
    assert identity(['/data/ade/images'], img_path='/data/ade/images/x/a.jpg') == 'x/a.jpg'
    assert identity(['data/./ade/'], img_path='data/ade/x/a.jpg') == 'x/a.jpg'
    assert identity(['/d', '/d/images'], img_path='/d/images/x/a.jpg') == 'x/a.jpg'
    assert identity(['/data/ad'], img_path='/data/ade/a.jpg') == 'a.jpg'
    assert identity(['s3://b/set'], img_path='s3://b/set/x/a.jpg') == 'x/a.jpg'
    assert identity(img_path=Path('/data/a.jpg'), img_id=4) == 'a.jpg'
    assert identity(img_path=['/d/r.tif', '/d/g.tif']) == 'r.tif|g.tif'
    assert identity(img_path=None, img_id=4) == 'id 4'
    assert identity(img=picture()) == identity(img=picture().copy())
    assert identity(img=picture()) != identity(img=picture(seed=1))


def test_the_generator_is_pinned():
    """The noise of a seed is part of every published result: it must never change."""
    numbers = noise_generator(0, 0, 'a.jpg', 'gaussian_noise', 5).integers(0, 1000, 4)
    assert numbers.tolist() == PINNED
    assert noise_generator(0, 0, 'a.jpg', 'gaussian_noise', 5.0).integers(0, 1000) == PINNED[0]


PINNED = [324, 950, 15, 875]


def test_the_image_of_the_loader_is_left_as_it_was():
    image = picture()
    before = image.copy()
    assert not np.array_equal(apply(image), before)
    assert np.array_equal(image, before)


# ----- colour order and kinds of images


@pytest.mark.parametrize('name', CORRUPTIONS)
def test_bgr_images_get_the_corruption_of_rgb_ones(name):
    rgb = picture()
    options = {'name': name, 'level': None, 'severity': 4}
    from_bgr = apply(rgb[..., ::-1].copy(), **options)
    from_rgb = apply(rgb, channel_order='rgb', **options)
    assert np.array_equal(from_bgr[..., ::-1], from_rgb)
    rng = noise_generator(0, 0, 'b.png', name, CORRUPTIONS[name].levels[3])
    assert np.array_equal(from_rgb, corrupt(rgb, name, rng, severity=4))


def test_the_results_can_name_the_colour_order():
    rgb = picture()
    options = {'name': 'jpeg_compression', 'level': 10}  # codes luma, so it knows colours apart
    told = apply(rgb, results={'channel_order': 'rgb'}, **options)
    assert np.array_equal(told, apply(rgb, channel_order='rgb', **options))
    assert not np.array_equal(told, apply(rgb, **options))


def test_mud_is_brown_in_a_bgr_pipeline():
    white = np.full((200, 200, 3), 255, np.uint8)
    muddy = apply(white, name='spatter', level=None, severity=5)
    assert muddy[..., 0].min() < muddy[..., 1].min() < muddy[..., 2].min()  # blue < green < red


def test_float_images_of_a_loader_keep_their_type():
    image = picture()
    changed = apply(image.astype(np.float32))
    assert changed.dtype == np.float32
    assert np.array_equal(changed, apply(image))


@pytest.mark.parametrize('shape', [(40, 56), (40, 56, 1)])
def test_grey_images_keep_their_shape(shape):
    image = picture()[..., 0].reshape(shape)
    changed = apply(image)
    assert (changed.shape, changed.dtype) == (shape, np.uint8)
    assert not np.array_equal(changed, image)


@pytest.mark.parametrize(
    ('image', 'words'),
    [
        (np.zeros((40, 40, 4), np.uint8), 'color_type="color"'),
        (np.zeros((40, 40, 3), np.uint16), 'whole numbers from 0 to 255'),
        (np.full((40, 40, 3), 0.5, np.float32), 'whole numbers from 0 to 255'),
        (np.full((40, 40, 3), -1, np.float32), 'whole numbers from 0 to 255'),
        (np.full((40, 40, 3), np.nan, np.float32), 'whole numbers from 0 to 255'),
        (None, 'right after the image loader'),
    ],
)
def test_other_images_are_refused_with_their_path(image, words):
    with pytest.raises(UserError, match=words) as error:
        apply(image, path='some/image.png')
    assert 'some/image.png' in str(error.value)


@pytest.mark.parametrize(
    ('channels', 'options'), [(1, {}), (1, {'color_type': 'grayscale'}), (4, {})]
)
def test_files_with_one_and_four_channels(tmp_path, channels, options):
    image = np.concatenate([picture(), picture(seed=1)], axis=2)[..., :channels]
    cv2.imwrite(str(tmp_path / 'image.png'), image)
    steps = insert_corruption([{'type': 'LoadImageFromFile', **options}], NOISE)
    results = {'img_path': str(tmp_path / 'image.png')}
    for step in steps:
        results = TRANSFORMS.build(step)(results)
    assert results['img'].shape[:2] == image.shape[:2]
    assert results['img'].ndim == (2 if options else 3)


# ----- options


@pytest.mark.parametrize(
    ('options', 'words'),
    [
        ({'name': 'gausian_noise'}, 'Did you mean "gaussian_noise"'),
        ({'level': None}, 'neither'),
        ({'severity': 1}, 'both'),
        ({'level': None, 'severity': 6}, '1, 2, 3, 4 or 5'),
        ({'level': 300}, 'out of range'),
        ({'prob': 1.5}, 'between 0 and 1'),
        ({'channel_order': 'gbr'}, 'auto, bgr, rgb'),
        ({'seed': 'one'}, 'whole number'),
        ({'repeat': None}, 'whole number'),
    ],
)
def test_wrong_options_are_refused_when_the_pipeline_is_built(options, words):
    with pytest.raises(UserError, match=words):
        ImageCorruption(**{'name': 'gaussian_noise', 'level': 5, **options})


def test_mmseg_and_mmdet_find_the_transform():
    for registry in (mmseg.registry.TRANSFORMS, mmdet.registry.TRANSFORMS):
        transform = registry.build(dict(NOISE))
        assert isinstance(transform, ImageCorruption)
        again = pickle.loads(pickle.dumps(transform))
        assert repr(again) == repr(transform)


def test_training_draws_fresh_noise_that_follows_the_seed_of_the_worker():
    image = picture()
    transform = ImageCorruption('gaussian_noise', level=10, seed=None)

    def two() -> list[str]:
        return [digest(transform({'img': image, 'img_path': 'a.png'})['img']) for _ in range(2)]

    worker_init_fn(worker_id=1, num_workers=2, rank=0, seed=5)
    first = two()
    assert first[0] != first[1]
    worker_init_fn(worker_id=1, num_workers=2, rank=0, seed=5)
    assert two() == first
    worker_init_fn(worker_id=0, num_workers=2, rank=0, seed=5)
    assert not set(two()) & set(first)


def test_prob_leaves_a_share_of_the_images_as_they_are():
    image = picture()
    kept = [np.array_equal(apply(image, f'{n}.png', prob=0.3), image) for n in range(400)]
    assert abs(np.mean(kept) - 0.7) < 0.1
    again = [np.array_equal(apply(image, f'{n}.png', prob=0.3), image) for n in range(400)]
    assert again == kept
    assert np.array_equal(apply(image, prob=0), image)


# ----- finding the place


def types(steps) -> list:
    return [step['type'] if isinstance(step, dict) else step for step in steps]


@pytest.mark.parametrize(
    'loader',
    [
        'LoadImageFromFile',
        'mmdet.LoadImageFromFile',
        'mmcv.transforms.LoadImageFromFile',
        'mmseg.LoadImageFromNDArray',
        'mmdet.LoadMultiChannelImageFromFiles',
        'mmseg.LoadSingleRSImageFromFile',
        'mmseg.InferencerLoader',
        LoadImageFromFile,
    ],
)
def test_the_place_is_found_by_the_type_of_the_loader(loader):
    steps = [{'type': 'LoadAnnotations'}, {'type': loader}, {'type': 'LoadProposals'}]
    before = copy.deepcopy(steps)
    result = insert_corruption(steps, NOISE)
    assert types(result) == ['LoadAnnotations', loader, 'ImageCorruption', 'LoadProposals']
    assert steps == before


def test_the_place_is_found_in_the_pipelines_of_both_families():
    for pipeline in (SEG_PIPELINE, DET_PIPELINE):
        assert types(insert_corruption(pipeline, NOISE))[:2] == [
            'LoadImageFromFile',
            'ImageCorruption',
        ]
    built = insert_corruption([LoadImageFromFile(), *SEG_PIPELINE[1:]], NOISE)
    assert built[1]['type'] == 'ImageCorruption'


def test_the_place_is_found_inside_transforms_that_hold_transforms():
    steps = [
        {'type': 'TransformBroadcaster', 'transforms': [{'type': 'LoadImageFromFile'}]},
        {'type': 'TestTimeAug', 'transforms': [[{'type': 'Resize'}], [{'type': 'RandomFlip'}]]},
    ]
    result = insert_corruption(steps, NOISE)
    assert types(result[0]['transforms']) == ['LoadImageFromFile', 'ImageCorruption']
    assert result[1] == steps[1]
    either = [{'type': 'RandomChoice', 'transforms': [[{'type': 'LoadImageFromFile'}], []]}]
    inner = insert_corruption(either, NOISE)[0]['transforms']
    assert types(inner[0]) == ['LoadImageFromFile', 'ImageCorruption']


def test_a_pipeline_without_loader_is_refused():
    with pytest.raises(UserError, match='Resize, PackSegInputs'):
        insert_corruption(SEG_PIPELINE[1:], NOISE)


@pytest.mark.parametrize(
    ('loader', 'order'),
    [
        ({}, 'bgr'),
        ({'imdecode_backend': 'pillow'}, 'bgr'),
        ({'imdecode_backend': 'tifffile'}, 'rgb'),
        ({'channel_order': 'rgb'}, 'rgb'),
        ({'to_rgb': True}, 'rgb'),
    ],
)
def test_the_colour_order_is_read_off_the_loader(loader, order):
    steps = [{'type': 'LoadImageFromFile', **loader}]
    assert insert_corruption(steps, NOISE)[1]['channel_order'] == order
    told = insert_corruption(steps, {**NOISE, 'channel_order': 'rgb'})
    assert told[1]['channel_order'] == 'rgb'


@pytest.mark.parametrize('backend', ['cv2', 'pillow'])
def test_loaders_give_bgr_with_every_backend(tmp_path, backend):
    red = np.zeros((40, 40, 3), np.uint8)
    red[..., 2] = 255
    cv2.imwrite(str(tmp_path / 'red.png'), red)
    loader = LoadImageFromFile(imdecode_backend=backend)
    assert loader({'img_path': str(tmp_path / 'red.png')})['img'][0, 0].tolist() == [0, 0, 255]


def test_wrapped_datasets_are_entered(folder):
    plain = seg_cfg(folder)
    wrapped = {
        'type': 'ConcatDataset',
        'datasets': [
            {'type': 'RepeatDataset', 'times': 2, 'dataset': plain},
            {'type': 'ClassBalancedDataset', 'oversample_thr': 0.1, 'dataset': plain},
            {
                'type': 'MultiImageMixDataset',
                'dataset': plain,
                'pipeline': [{'type': 'RandomMosaic', 'prob': 1}],
            },
        ],
    }
    before = copy.deepcopy(wrapped)
    result = corrupt_dataset_cfg(ConfigDict(wrapped), NOISE)
    for outer in result['datasets']:
        assert types(outer['dataset']['pipeline'])[1] == 'ImageCorruption'
        assert outer['dataset']['pipeline'][1]['root'] == [str(folder / 'images'), str(folder)]
    assert types(result['datasets'][2]['pipeline']) == ['RandomMosaic']
    assert wrapped == before


def test_a_wrapped_dataset_loads(folder):
    cfg = {'type': 'RepeatDataset', 'times': 2, 'dataset': seg_cfg(folder)}
    assert digests(corrupt_dataset_cfg(cfg, NOISE)) == digests(
        corrupt_dataset_cfg(seg_cfg(folder), NOISE)
    )


def test_a_dataset_without_loader_is_refused(folder):
    with pytest.raises(UserError, match='no pipeline that loads an image'):
        corrupt_dataset_cfg(seg_cfg(folder, pipeline=SEG_PIPELINE[1:]), NOISE)
