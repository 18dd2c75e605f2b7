"""Records of a sweep written by hand, where every figure is known."""

from __future__ import annotations

REPEATS = 5


def record(name, level=None, severity=None, repeat=0, random=False, miou=40.0, **metrics):
    return {
        'kind': 'cell', 'key': f'{name}={level}_{repeat}', 'corruption': name, 'level': level,
        'severity': severity, 'random': random, 'repeat': repeat, 'seed': 0, 'images': 10,
        'seconds': 2.0, 'metrics': {'aAcc': 80.0, 'mIoU': miou, 'mAcc': 50.0, **metrics},
        'units': dict.fromkeys(('aAcc', 'mIoU', 'mAcc', *metrics), '%'),
        'upstream': {'mIoU': round(miou, 2)},
        'per_class': {'IoU': {'road': miou + 10, 'sky': miou - 10, 'never': None}},
        'per_image': 'scores/x.csv',
    }  # fmt: skip


def table9(shift=0.0, config='mine.py', seed=0, **about):
    """A sweep of Table 9 whose noise is ±0.1 around its mean."""
    cells = ['clean', 'shot_noise=255', 'gaussian_noise=5', 'gaussian_noise=10',
             'gaussian_blur=1', 'gaussian_blur=2']  # fmt: skip
    identity = {
        'data': 'd',
        'annotations': 'a',
        'images': 10,
        'seed': seed,
        'repeats': REPEATS,
        'cells': cells,
    }
    header = {'identity': identity, 'about': {'config': config, 'checkpoint': 'a/b.pth', **about}}
    rows = [record('clean', miou=44 + shift)]
    for name, level, miou in (
        ('shot_noise', 255.0, 40.2), ('gaussian_noise', 5.0, 42.5), ('gaussian_noise', 10.0, 40.0)
    ):  # fmt: skip
        for repeat in range(REPEATS):
            noise = 0.1 * (repeat - 2)
            rows.append(record(name, level, None, repeat, True, miou + noise + shift))
    rows += [record('gaussian_blur', float(s), miou=42 - s + shift) for s in (1, 2)]
    return header, rows
