"""The images of a sweep: the same bytes whoever loads them, decoded once, bounded in memory."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from cb_mm.corruption import Cell
from cb_mm.errors import UserError
from cb_mm.robustness.console_log import quiet_console
from cb_mm.robustness.data import JobBatches, JobLoader, SweepDataset
from cb_mm.robustness.image_store import ImageStore, StoredLoader, step_lists
from cb_mm.robustness.jobs import Job, plan_cells, plan_jobs, title

NOISE = Cell('gaussian_noise', 10.0)
BLUR = Cell('gaussian_blur', 2.0)


def build(model, memory=1 << 26, limit=None, save_to=None, seed=0):
    with quiet_console():
        config = model.prepared()
        from mmengine.registry import init_default_scope

        init_default_scope('mmseg')
        store = ImageStore(memory)
        return SweepDataset(config.test_dataloader.dataset, seed, limit, store, save_to), store


def load(dataset, job, rank=0, processes=1, **options) -> dict[int, np.ndarray]:
    """Image number -> what the model gets."""
    loader = JobLoader(dataset, options, rank, processes)
    return {
        number: image.numpy()
        for numbers, batch in loader.load(job)
        for number, image in zip(numbers, batch['inputs'], strict=True)
    }


def same(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize('cell', [NOISE, Cell('shot_noise', 255.0)], ids=lambda c: c.name)
def test_same_bytes_whoever_loads_them(seg, cell):
    """0 and 2 workers, batch 1 and 4, one and two processes, with and without memory."""
    job = Job(cell, 1)
    dataset, reference = build(seg)[0], load(build(seg, memory=0)[0], job)
    assert len(reference) == 4
    for batch_size, workers in ((1, 0), (1, 2), (4, 0), (4, 1), (3, 2)):
        options = dict(batch_size=batch_size, num_workers=workers)
        assert same(load(dataset, job, **options), reference)
        halves = [load(dataset, job, rank, 2, **options) for rank in (0, 1)]
        assert not halves[0].keys() & halves[1].keys()
        assert same(halves[0] | halves[1], reference)


def test_jobs_in_any_order_and_again(seg):
    """The workers of a sweep live on: a job does not depend on those before it."""
    dataset, _ = build(seg)
    loader = JobLoader(dataset, dict(num_workers=2), 0, 1)

    def one(job):
        return {n[0]: batch['inputs'][0].numpy() for n, batch in loader.load(job)}

    first = {job: one(job) for job in (Job(Cell('clean')), Job(NOISE, 0), Job(NOISE, 1), Job(BLUR))}
    again = {job: one(job) for job in reversed(first)}
    assert all(same(first[job], again[job]) for job in first)
    assert not same(first[Job(NOISE, 0)], first[Job(NOISE, 1)])
    assert not same(first[Job(Cell('clean'))], first[Job(BLUR)])


def test_seeds_and_repeats_differ(seg):
    a = load(build(seg, seed=0)[0], Job(NOISE))
    assert not same(a, load(build(seg, seed=1)[0], Job(NOISE)))
    assert same(a, load(build(seg, seed=0)[0], Job(NOISE)))


def test_files_are_decoded_once(seg, monkeypatch):
    dataset, store = build(seg)
    decoded = []
    for steps in step_lists(dataset.dataset):
        for step in steps:
            if isinstance(step, StoredLoader):
                original = step.loader
                monkeypatch.setattr(
                    step, 'loader', lambda r, f=original: decoded.append(r['img_path']) or f(r)
                )
    for job in (Job(Cell('clean')), Job(NOISE, 0), Job(NOISE, 1)):
        load(dataset, job)
    assert len(decoded) == 2 * 4, 'four images and four label maps'
    assert len(store) == 8
    assert store.used == sum(a.nbytes for a in store._arrays.values()) <= store.limit


def test_memory_is_bounded_and_what_is_kept_cannot_be_changed(seg):
    image_bytes = 64 * 96 * 3
    dataset, store = build(seg, memory=2 * image_bytes + 64 * 96)
    clean = Job(Cell('clean'))
    before = load(dataset, clean)
    assert 0 < store.used <= store.limit
    assert len(store) < 8
    for array in (dataset[(0, clean)]['inputs'],):
        array.fill_(0)
    dataset.dataset.pipeline.transforms.insert(1, _paint_black)
    assert all(not image.any() for image in load(dataset, clean).values())
    dataset.dataset.pipeline.transforms.remove(_paint_black)
    assert same(load(dataset, clean), before)


def _paint_black(results):
    results['img'][...] = 0
    return results


def test_labels_come_with_the_image_from_memory_too(seg):
    dataset, _ = build(seg)
    for _ in range(2):
        samples = [dataset[(i, Job(NOISE))]['data_samples'] for i in range(4)]
        labels = [s.gt_sem_seg.data.numpy() for s in samples]
    fresh, _ = build(seg, memory=0)
    for i, label in enumerate(labels):
        assert np.array_equal(label, fresh[(i, Job(BLUR))]['data_samples'].gt_sem_seg.data.numpy())


def test_saved_images_are_the_corrupted_ones_before_resizing(seg, tmp_path, scenes):
    from cb_mm.corruption import ImageCorruption

    dataset, _ = build(seg, save_to=str(tmp_path / 'saved'))
    for job in (Job(Cell('clean')), Job(NOISE, 0), Job(NOISE, 1)):
        load(dataset, job)
    folder = scenes.ade20k / 'images' / 'validation'
    saved = sorted((tmp_path / 'saved').rglob('*.png'))
    assert [f.parent.name for f in saved] == ['gaussian_noise=10'] * 4, 'once, and nothing clean'
    for file in saved:
        source = folder / f'{file.stem}.jpg'
        results = dict(img=cv2.imread(str(source)), img_path=str(source))
        step = ImageCorruption('gaussian_noise', level=10, seed=0, repeat=0, root=str(folder))
        assert np.array_equal(cv2.imread(str(file)), step(results)['img'])


def test_limit_takes_the_first(seg):
    whole, limited = build(seg)[0], build(seg, limit=2)[0]
    assert len(limited) == 2
    assert limited.names == whole.names[:2]
    assert limited.digest != whole.digest
    assert len(build(seg, limit=99)[0]) == 4


def test_whole_batches_go_to_processes():
    """Five images in batches of two: the batches are those of one process."""
    parts = [JobBatches(5, 2, rank, 2).batches for rank in (0, 1)]
    assert parts == [[[0, 1], [4]], [[2, 3]]]
    assert [JobBatches(1, 2, rank, 2).batches for rank in (0, 1)] == [[[0]], []]


@pytest.mark.parametrize('workers', [0, 1])
def test_a_missing_image_is_named_without_a_traceback(seg, workers):
    dataset, _ = build(seg)
    for step in dataset.dataset.pipeline.transforms:
        if isinstance(step, StoredLoader) and step.loads_image:
            step.loader = _fail
    with pytest.raises(UserError, match=r'^image .*\.jpg of the test data does not exist\.$'):
        load(dataset, Job(NOISE), num_workers=workers)


def _fail(results):
    raise FileNotFoundError(2, 'No such file', results['img_path'])


def test_plan():
    cells = plan_cells('table9', [], None, [2.0])
    assert cells[0].key == 'clean'
    assert cells[-1].key == 'fgsm=2'
    assert len(plan_jobs(cells, 5)) == 1 + 3 * 5 + 2 + 1
    keys = [job.key for job in plan_jobs(cells, 3)]
    assert len(set(keys)) == len(keys)
    for epsilon in (-1, 256, float('nan')):
        with pytest.raises(UserError, match='grey levels'):
            plan_cells(None, [], None, [epsilon])
    with pytest.raises(UserError, match='`repeats` 0'):
        plan_jobs(cells, 0)


def test_titles():
    assert title('clean', None) == 'clean'
    assert title('gaussian_noise', 5.0) == 'Gaussian noise σ=5'
    assert title('motion_blur', 12.0, 3) == 'motion blur, severity 3'
    assert title('fog', 2.5) == 'fog, severity 2.5'  # its level is a severity
    assert title('jpeg_compression', 25.0).startswith('JPEG compression 25 (')
