"""Named sets of corruptions, and the words of the command line."""

from __future__ import annotations

import pytest

from cb_mm.corruption import CORRUPTIONS, SUITES, Cell, cells_for, parse_corruption
from cb_mm.corruption.transform import ImageCorruption
from cb_mm.errors import UserError


def test_table9_is_the_table_of_the_paper():
    assert [cell.key for cell in SUITES['table9']] == [
        'clean',
        'shot_noise=255',
        'gaussian_noise=5',
        'gaussian_noise=10',
        'gaussian_blur=1',
        'gaussian_blur=2',
    ]
    assert [cell.random for cell in SUITES['table9']] == [False, True, True, True, False, False]


def test_the_levels_of_the_paper_are_those_of_the_table_of_corruptions():
    paper = {(name, level) for name, entry in CORRUPTIONS.items() for level in entry.paper}
    assert paper == {(cell.name, cell.level) for cell in SUITES['table9'][1:]}


def test_imagenet_c_is_fifteen_corruptions_at_five_severities():
    cells = SUITES['imagenet-c']
    assert cells[0] == Cell('clean')
    assert len(cells) == 1 + 15 * 5
    assert {cell.severity for cell in cells[1:]} == {1, 2, 3, 4, 5}
    assert len({cell.key for cell in cells}) == len(cells)


def test_cityscapes_c_has_three_severities_of_noise_and_five_of_the_rest():
    """As SegFormer tests: "3 severities for 4 kinds of Noise and 5 for the rest 12 kinds"."""
    cells = SUITES['cityscapes-c']
    assert cells[0] == Cell('clean')
    measured: dict[str, list] = {}
    for cell in cells[1:]:
        measured.setdefault(cell.name, []).append(cell.severity)
    noises = {name for name in measured if name.endswith('_noise')}
    assert (len(noises), len(measured)) == (4, 16)
    for name, severities in measured.items():
        assert severities == ([1, 2, 3] if name in noises else [1, 2, 3, 4, 5])
    extra = {name for name in measured if CORRUPTIONS[name].imagenet_c == 'extra'}
    assert extra == {'speckle_noise', 'gaussian_blur', 'spatter', 'saturate'}
    common = {name for name, entry in CORRUPTIONS.items() if entry.imagenet_c == 'common'}
    assert common - set(measured) == {'zoom_blur', 'elastic_transform', 'pixelate'}


def test_coco_c_is_imagenet_c_with_the_elastic_transform_of_imagecorruptions():
    other = {'elastic_transform': 'elastic_displacement'}
    expected = [(other.get(c.name, c.name), c.severity) for c in SUITES['imagenet-c']]
    assert [(cell.name, cell.severity) for cell in SUITES['coco-c']] == expected


@pytest.mark.parametrize(
    ('text', 'severity', 'keys'),
    [
        ('gaussian_noise=5', None, ['gaussian_noise=5']),
        ('gaussian_noise=5,10.5', None, ['gaussian_noise=5', 'gaussian_noise=10.5']),
        ('shot_noise', 3, ['shot_noise=12']),
        ('gaussian_blur', None, [f'gaussian_blur={sigma}' for sigma in (1, 2, 3, 4, 6)]),
        ('jpeg_compression=1e1', None, ['jpeg_compression=10']),
    ],
)
def test_names_and_levels(text, severity, keys):
    assert [cell.key for cell in parse_corruption(text, severity)] == keys


def test_keys_name_the_same_cell_again():
    for suite in SUITES.values():
        for cell in suite[1:]:
            (again,) = parse_corruption(cell.key)
            assert (again.name, again.level) == (cell.name, cell.level)


def test_labels():
    assert parse_corruption('snow', 3)[0].label == 'snow, severity 3'
    assert parse_corruption('gaussian_noise=5')[0].label == 'gaussian_noise=5'
    assert Cell('clean').label == 'clean'


@pytest.mark.parametrize(
    ('text', 'severity', 'words'),
    [
        ('gaussian_noice=5', None, 'Did you mean "gaussian_noise"'),
        ('gaussian_noise=', None, 'a number'),
        ('gaussian_noise=five', None, 'a number'),
        ('gaussian_noise=5=6', None, 'a number'),
        ('gaussian_noise=-5', None, 'out of range'),
        ('gaussian_noise=nan', None, 'out of range'),
        ('snow=2.5', None, 'whole number'),
        ('snow', 6, 'must be 1, 2, 3, 4 or 5'),
        ('', None, 'unknown corruption'),
    ],
)
def test_what_cannot_be_read_is_answered(text, severity, words):
    with pytest.raises(UserError, match=words):
        parse_corruption(text, severity)


def test_cells_begin_with_clean_and_are_not_measured_twice():
    cells = cells_for('table9', ['gaussian_noise=5', 'snow'], severity=2)
    assert [cell.key for cell in cells] == [cell.key for cell in SUITES['table9']] + ['snow=2']
    assert cells_for() == [Cell('clean')]
    assert cells_for('clean') == [Cell('clean')]


def test_a_severity_without_use_is_refused():
    with pytest.raises(UserError, match='nothing to set'):
        cells_for(None, ['gaussian_noise=5'], severity=3)
    with pytest.raises(UserError, match='nothing to set'):
        cells_for('table9', [], severity=3)


@pytest.mark.parametrize(('name', 'nearest'), [('table_9', 'table9'), ('imagenet_c', 'imagenet-c')])
def test_unknown_suites_are_answered_with_the_nearest(name, nearest):
    with pytest.raises(UserError, match=f'Did you mean "{nearest}"'):
        cells_for(name)


def test_a_cell_makes_its_transform():
    assert Cell('clean').transform_cfg() is None
    cfg = parse_corruption('gaussian_noise=5')[0].transform_cfg(seed=7, repeat=2)
    assert cfg.pop('type') == 'ImageCorruption'
    transform = ImageCorruption(**cfg)
    assert (transform.name, transform.level) == ('gaussian_noise', 5.0)
    assert (transform.seed, transform.repeat) == (7, 2)
