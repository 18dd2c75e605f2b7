"""The twenty-one corruptions: statistics, references, shapes, determinism, and messages."""

from __future__ import annotations

import inspect
from collections import Counter
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_picture import damage, rng, scene
from matplotlib.colors import hsv_to_rgb, rgb_to_hsv
from PIL import Image
from scipy import ndimage, stats

from cb_mm.corruption import CORRUPTIONS, SEVERITIES, corrupt, find_corruption, functional
from cb_mm.corruption.frost_pictures import FrostPictures
from cb_mm.corruption.functional import blur, digital
from cb_mm.corruption.functional.weather import cloud
from cb_mm.datasets.scenes.painter import paint_scene
from cb_mm.errors import UserError

SHARED = Path(__file__).resolve().parents[3] / 'shared'
NAMES = list(CORRUPTIONS)
RANDOM = [name for name in NAMES if CORRUPTIONS[name].random]
CASES = [(name, severity) for name in NAMES for severity in SEVERITIES]

# Steps at which the parameters of ImageNet-C do no more damage in PSNR than those before: weaker
# displacement (glass), as much fog and ice but less image, and from too pale to too colourful.
# The affine map of elastic_transform is strongest at severities 1 and 2.
NOT_RISING = {
    ('glass_blur', 2), ('glass_blur', 4), ('fog', 4), ('frost', 4), ('saturate', 3),
    ('elastic_transform', 3),
}  # fmt: skip


def ramp(rows: int = 4096) -> np.ndarray:
    """Every grey level ``3 * rows`` times: rows x 256 x 3."""
    return np.broadcast_to(np.arange(256, dtype=np.uint8)[None, :, None], (rows, 256, 3)).copy()


def psnr(squared_errors: list[float]) -> float:
    return 10 * np.log10(255**2 / np.mean(squared_errors))


@pytest.fixture(scope='module')
def photo() -> np.ndarray:
    """A photograph, or a drawn scene where the folder of real images is absent."""
    if not SHARED.is_dir():
        return paint_scene('val', 0, (150, 200)).image
    image = cv2.imread(str(SHARED / 'data/ade20k_mini/images/validation/ADE_val_00001996.jpg'))
    return cv2.resize(image[..., ::-1], (200, 150), interpolation=cv2.INTER_AREA)


def test_the_table_is_complete():
    assert len(CORRUPTIONS) == 21
    assert sum(entry.imagenet_c == 'common' for entry in CORRUPTIONS.values()) == 15
    assert sum(entry.imagenet_c == 'extra' for entry in CORRUPTIONS.values()) == 4
    assert set(functional.__all__) == set(CORRUPTIONS)
    for name, entry in CORRUPTIONS.items():
        assert entry.function is getattr(functional, name)
        assert len(entry.levels) == 5
        assert all(entry.check_level(level) == level for level in (*entry.levels, *entry.paper))


@pytest.mark.parametrize(('name', 'severity'), CASES)
def test_every_severity_changes_the_image_and_nothing_else(name, severity):
    image = scene()
    before = image.copy()
    changed = corrupt(image, name, rng(), severity=severity)
    assert (changed.dtype, changed.shape) == (np.uint8, image.shape)
    assert np.array_equal(image, before)
    assert not np.shares_memory(changed, image)
    assert not np.array_equal(changed, image)
    assert np.array_equal(changed, corrupt(image, name, rng(), severity=severity))
    another = corrupt(image, name, rng(1), severity=severity)
    assert np.array_equal(changed, another) != CORRUPTIONS[name].random


@pytest.mark.parametrize('name', NAMES)
def test_damage_rises_with_severity(name, photo):
    draws = 40 if name in RANDOM else 1
    values = [
        psnr([damage(photo, corrupt(photo, name, rng(d), severity=s)) for d in range(draws)])
        for s in SEVERITIES
    ]
    for severity in SEVERITIES[1:]:
        if (name, severity) not in NOT_RISING:
            assert values[severity - 1] < values[severity - 2], (severity, values)


@pytest.fixture
def global_state():
    """Give the global generator, from which imagecorruptions draws, its state back."""
    state = np.random.get_state()  # noqa: NPY002
    yield
    np.random.set_state(state)  # noqa: NPY002


def peer_seeds(name: str, draws: int) -> list[int]:
    """Seeds for imagecorruptions; for frost such that each of its six photographs comes equally."""
    if name != 'frost':
        return list(range(draws))
    photographs = [np.random.RandomState(seed).randint(6) for seed in range(400)]
    picked = [np.flatnonzero(np.equal(photographs, one))[: draws // 6] for one in range(6)]
    return np.concatenate(picked).tolist()


@pytest.mark.parametrize(
    'name',
    [
        pytest.param(name, marks=[pytest.mark.slow] if name == 'frost' else [])
        for name in NAMES
        # These two are ImageNet-C's own, which imagecorruptions changed; see their tests.
        if CORRUPTIONS[name].imagenet_c and name not in ('elastic_transform', 'pixelate')
    ]
    + ['elastic_displacement'],
)
@pytest.mark.usefixtures('global_state')
def test_psnr_agrees_with_imagecorruptions(name, photo):
    peer = pytest.importorskip('imagecorruptions')
    # Sheets of ice and fields of fog differ much from draw to draw.
    draws = {'fog': 100, 'frost': 120, 'spatter': 60}.get(name, 12 if name in RANDOM else 1)
    for severity in SEVERITIES:
        theirs = []
        for seed in peer_seeds(name, min(draws, 36 if name == 'frost' else 60)):
            np.random.seed(seed)  # noqa: NPY002
            extra = {'seed': seed} if name in ('glass_blur', 'impulse_noise') else {}
            theirs_name = name.replace('displacement', 'transform')
            changed = peer.corrupt(photo, severity=severity, corruption_name=theirs_name, **extra)
            theirs.append(damage(photo, changed))
        ours = [
            damage(photo, corrupt(photo, name, rng(draw), severity=severity))
            for draw in range(draws)
        ]
        assert abs(psnr(ours) - psnr(theirs)) < 1, (severity, psnr(ours), psnr(theirs))


def test_coding_gives_the_very_image_of_imagecorruptions(photo):
    peer = pytest.importorskip('imagecorruptions')
    for severity in SEVERITIES:
        theirs = peer.corrupt(photo, severity=severity, corruption_name='jpeg_compression')
        assert np.array_equal(corrupt(photo, 'jpeg_compression', severity=severity), theirs)


def test_pixelate_shrinks_and_enlarges_with_the_box_filter(photo):
    """As ImageNet-C does; imagecorruptions takes the nearest pixel on the way back."""
    for severity, share in zip(SEVERITIES, (0.6, 0.5, 0.4, 0.3, 0.25), strict=True):
        height, width = photo.shape[:2]
        small = Image.fromarray(photo).resize((int(width * share), int(height * share)), Image.BOX)
        expected = np.array(small.resize((width, height), Image.BOX))
        assert np.array_equal(corrupt(photo, 'pixelate', severity=severity), expected)


@pytest.mark.parametrize('level', [0.01, 0.12, 0.25, 0.3, 0.4, 0.45, 0.5, 0.6, 0.77, 1])
def test_pixelate_equals_pillow_at_any_size(level):
    """Averages of 1 to 200 pixels; Pillow starts with the other axis in tall images."""
    draws = rng(11)
    for height, width in [(1, 1), (1, 90), (2, 1), (57, 57), (26, 57), (100, 200), (200, 199)]:
        image = draws.integers(0, 256, (height, width, 3), dtype=np.uint8)
        size = max(int(width * level), 1), max(int(height * level), 1)
        picture = Image.fromarray(image)
        # One axis at a time, so that the order is ours whatever Pillow's is.
        narrow = picture.resize((size[0], height), Image.BOX)
        small = narrow.resize(size, Image.BOX)
        expected = np.array(small.resize((width, height), Image.BOX))
        assert np.array_equal(functional.pixelate(image, level), expected), (height, width)


#: PSNR of ImageNet-C's own elastic_transform on six images of COCO at 224².
ELASTIC_PSNR = (12.4, 11.1, 16.5, 16.4, 16.0)


def test_elastic_transform_has_the_psnr_of_imagenet_c(shared):
    errors: dict[int, list[float]] = {severity: [] for severity in SEVERITIES}
    for file in sorted((shared / 'data/coco_mini/train2017').glob('*.jpg'))[:6]:
        image = cv2.imread(str(file))[..., ::-1]
        scale = 256 / min(image.shape[:2])
        image = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        top, left = ((side - 224) // 2 for side in image.shape[:2])
        image = np.ascontiguousarray(image[top : top + 224, left : left + 224])
        for severity in SEVERITIES:
            for draw in range(4):
                changed = corrupt(image, 'elastic_transform', rng(draw), severity=severity)
                errors[severity].append(damage(image, changed))
    found = [psnr(errors[severity]) for severity in SEVERITIES]
    assert found == pytest.approx(ELASTIC_PSNR, abs=0.6)


def test_elastic_transform_maps_then_displaces():
    """The same random numbers by other means: an affine map of a ramp is exact arithmetic."""
    y, x = np.mgrid[:224, :224].astype(np.uint8)
    image = np.dstack([y, x, x])
    draws = rng(3)
    corners = np.array([[186, 186], [186, 38], [38, 38]], float)
    moved = corners + draws.uniform(-24.4, 24.4, (3, 2))
    # x, y of the source for each pixel: the inverse of the map.
    known = np.hstack([moved, np.ones((3, 1))])
    back = np.linalg.solve(known, corners)
    pixels = np.dstack([x, y, np.ones_like(x)]).astype(float) @ back
    changed = functional.elastic_transform(image, 1, rng(3)).astype(float)
    middle = np.s_[80:144, 80:144]
    # Severity 1 displaces all pixels alike, by a few pixels: the mean of very wide waves.
    for channel, coordinate in ((1, 0), (0, 1)):
        shift = (changed[..., channel] - pixels[..., coordinate])[middle]
        assert abs(shift.mean()) < 6
        assert shift.std() < 1


@pytest.mark.parametrize('severity', [1, 2])
@pytest.mark.parametrize('shape', [(224, 224), (300, 411), (120, 60), (1, 50), (33, 1), (1, 1)])
def test_wide_displacements_equal_a_float64_reference(severity, shape):
    """Within the 1/32 of a pixel to which OpenCV rounds positions (twice that in a single line)."""
    largest, sigma, _ = digital._ELASTIC[severity - 1]
    noise = (rng(4).random((2, *shape), dtype=np.float32) * 2 - 1) * largest
    found = blur.smooth_widely(noise, sigma, truncate=3)
    for ours, field in zip(found, noise.astype(float), strict=True):
        error = ours - ndimage.gaussian_filter(field, sigma, mode='reflect', truncate=3)
        assert np.sqrt((error**2).mean()) < (1 / 32 if min(shape) > 1 else 1 / 8)
    # Summed in another order, as other threads would: far below what a position is rounded to.
    turned = blur.smooth_widely(noise[:, ::-1, ::-1], sigma, truncate=3)[:, ::-1, ::-1]
    assert np.abs(turned - found).max() < 1e-9


def test_a_crystal_is_drawn_there_and_back():
    ice = inspect.getmodule(functional.frost.__wrapped__)
    stretches = Counter(frozenset(pair) for pair in pairwise(ice._tour()))
    # 12 of the stem; 24 branches, each in three between its two forks; 4 twigs on each.
    assert len(stretches) == 12 + 24 * 3 + 24 * 4
    assert set(stretches.values()) == {2}


def test_frost_draws_the_lines_of_its_crystals_once():
    """The tour draws a line twice; what the look-up table makes of it is the line drawn once."""
    ice = inspect.getmodule(functional.frost.__wrapped__)
    once, twice = np.zeros((2, 224, 300), np.uint8)
    for tour in ice._grow(224, 300, rng())[0]:
        cv2.polylines(twice, [tour], False, 255, 1, cv2.LINE_AA, ice._SUBPIXEL_BITS)
        lines = {frozenset(pair): pair for pair in pairwise(ice._TOUR.tolist())}.values()
        places = dict(zip(ice._TOUR.tolist(), tour, strict=True))
        segments = [np.array([places[a], places[b]]) for a, b in lines]
        cv2.polylines(once, segments, False, 255, 1, cv2.LINE_AA, ice._SUBPIXEL_BITS)
    found = 255 * (1 - cv2.LUT(twice, ice._FREE))
    assert np.abs(found - once).mean() < 1
    assert np.corrcoef(found.ravel(), once.ravel())[0, 1] > 0.999


def test_frost_takes_photographs(tmp_path):
    image = scene()
    photographs = [np.full((20, 300, 3), value, np.uint8) for value in (40, 200)]
    for number, picture in enumerate(photographs):
        cv2.imwrite(str(tmp_path / f'frost{number}.png'), picture)
    pictures = FrostPictures(tmp_path)
    kinds = set()
    for seed in range(8):
        changed = functional.frost(image, 3, rng(seed), pictures=pictures)
        expected = [np.rint(0.7 * image.astype(float) + 0.7 * v).clip(0, 255) for v in (40, 200)]
        fits = [np.abs(changed - one).max() <= 1 for one in expected]
        assert sum(fits) == 1
        kinds.add(fits.index(True))
        assert np.array_equal(changed, functional.frost(image, 3, rng(seed), pictures=pictures))
    assert kinds == {0, 1}
    before = pictures.digest
    (tmp_path / 'frost0.png').write_bytes((tmp_path / 'frost1.png').read_bytes())
    assert FrostPictures(tmp_path).digest != before
    for folder in (tmp_path / 'absent', tmp_path / 'frost0.png'):
        with pytest.raises(UserError, match='not a folder of photographs'):
            FrostPictures(folder)


def test_notes_say_what_differs_from_imagenet_c():
    assert 'drawn' in CORRUPTIONS['frost'].note
    assert 'drawn' in CORRUPTIONS['frost'].unit
    assert 'imagecorruptions' in CORRUPTIONS['elastic_displacement'].note


# ----- statistics of the noise


def assert_moments(values, mean, deviation):
    """Mean and standard deviation within five standard errors."""
    count = len(values)
    assert abs(values.mean() - mean) < 5 * deviation / count**0.5
    # The error of a variance: kurtosis 3 is taken, which is right or near for all of them.
    assert abs(values.std() - deviation) < 5 * deviation / (2 * count) ** 0.5


@pytest.mark.parametrize('sigma', [5, 10, 20.4])
def test_gaussian_noise_has_its_mean_and_sigma_on_a_ramp(sigma):
    noisy = functional.gaussian_noise(ramp(), sigma, rng()).astype(float)
    for value in (110, 128, 145):  # more than five sigmas from black and white
        assert_moments(noisy[:, value].ravel(), value, (sigma**2 + 1 / 12) ** 0.5)
    # At black half of the noise is clipped: the mean of what is left is sigma / sqrt(2 pi).
    black = noisy[:, 0].ravel()
    assert abs(black.mean() - sigma / (2 * np.pi) ** 0.5) < 5 * sigma / len(black) ** 0.5


@pytest.mark.parametrize('value', [0, 3, 100, 250, 255])
@pytest.mark.parametrize('sigma', [0.7, 10, 96.9])
def test_gaussian_noise_has_the_right_distribution(value, sigma):
    image = np.full((400, 500, 3), value, np.uint8)
    counts = np.bincount(functional.gaussian_noise(image, sigma, rng(1)).ravel(), minlength=256)
    edges = np.concatenate([[-np.inf], np.arange(255) + 0.5, [np.inf]])
    expected = np.diff(stats.norm.cdf(edges, value, sigma)) * image.size
    assert_counts(counts, expected)


@pytest.mark.parametrize('value', [1, 40, 200, 255])
@pytest.mark.parametrize('white', [255, 60, 3, 1000])
def test_shot_noise_has_the_right_distribution(value, white):
    image = np.full((400, 500, 3), value, np.uint8)
    counts = np.bincount(functional.shot_noise(image, white, rng(2)).ravel(), minlength=256)
    photons = np.arange(5 * white + 60)
    shown = np.minimum(np.floor(photons * 255 / white + 0.5), 255).astype(int)
    chances = stats.poisson.pmf(photons, value * white / 255)
    assert_counts(counts, np.bincount(shown, chances, minlength=256) * image.size)


def assert_counts(counts, expected):
    """Chi-square test; outcomes that are too rare for it are taken together."""
    rare = expected < 10
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    if expected[-1] < 10:
        assert observed[-1] <= expected[-1] + 5 * expected[-1] ** 0.5 + 5
        observed, expected = observed[:-1], expected[:-1]
    if len(expected) == 1:
        assert observed[0] >= expected[0] - 10
        return
    expected = expected * observed.sum() / expected.sum()
    assert stats.chisquare(observed, expected).pvalue > 1e-5


def test_shot_noise_has_the_variance_of_poisson_on_a_ramp():
    noisy = functional.shot_noise(ramp(), 255, rng()).astype(float)
    for value in (20, 50, 100, 150):
        assert_moments(noisy[:, value].ravel(), value, value**0.5)
    assert not noisy[:, 0].any()  # where there is no light there is no noise
    noisy = functional.shot_noise(ramp(), 60, rng()).astype(float)
    assert_moments(noisy[:, 100].ravel(), 100, (100 * 255 / 60) ** 0.5)


def test_speckle_and_impulse_noise_on_a_ramp():
    noisy = functional.speckle_noise(ramp(), 0.15, rng()).astype(float)
    for value in (40, 80, 120):
        assert_moments(noisy[:, value].ravel(), value, ((0.15 * value) ** 2 + 1 / 12) ** 0.5)
    noisy = functional.impulse_noise(ramp(), 0.1, rng())[:, 1:255].astype(int)
    size, error = noisy.size, 5 * (0.05 / noisy.size) ** 0.5
    assert abs((noisy == 0).sum() / size - 0.05) < error
    assert abs((noisy == 255).sum() / size - 0.05) < error
    kept = (noisy == np.arange(1, 255)[None, :, None]).sum() / size
    assert abs(kept - 0.9) < 2 * error


def test_noise_is_independent_between_pixels_and_channels():
    grey = np.full((512, 512, 3), 128, np.uint8)
    noise = functional.gaussian_noise(grey, 20, rng(3)).astype(float) - 128
    limit = 5 / 512
    for a, b in (
        (noise[:, 1:], noise[:, :-1]),
        (noise[1:], noise[:-1]),
        (noise[..., 0], noise[..., 1]),
        (noise[..., 0], noise[..., 2]),
    ):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < limit


# ----- references


@pytest.mark.parametrize('shape', [(71, 90, 3), (32, 33, 3)])
@pytest.mark.parametrize('sigma', [0.4, 1, 2, 3, 3.5, 4, 6, 8.5, 25, 100])
def test_gaussian_blur_equals_a_float64_reference(sigma, shape):
    image = rng(4).integers(0, 256, shape, dtype=np.uint8)
    image[:20] = np.where(image[:20] > 127, 255, 0)
    image[:, 8:20], image[:, 20:30], image[:, 0], image[0], image[1] = 0, 255, 255, 0, 255
    reference = ndimage.gaussian_filter(
        image.astype(np.float64), (sigma, sigma, 0), mode='nearest', truncate=4
    )
    assert np.abs(functional.gaussian_blur(image, sigma) - reference).max() < 0.75


@pytest.mark.parametrize('radius', [1, 3, 4.5, 8, 10, 25])
def test_defocus_blur_equals_a_disk_kernel(radius):
    image = rng(5).integers(0, 256, (60, 75, 3), dtype=np.uint8)
    image[10:40, :30] = 255  # the largest sums
    y, x = np.mgrid[-27:28, -27:28]
    disk = (x**2 + y**2 <= radius**2).astype(float)
    disk /= disk.sum()
    if radius > 3:
        disk = ndimage.gaussian_filter(disk, 0.5, radius=1)
    reference = ndimage.convolve(image.astype(float), disk[..., None], mode='mirror')
    assert np.abs(functional.defocus_blur(image, radius) - reference).max() < 0.51


@pytest.mark.parametrize('radius', [2, 3.5, 10, 40])
def test_defocus_blur_in_strips_equals_that_of_the_whole(radius, monkeypatch):
    image = rng(5).integers(0, 256, (61, 45, 3), dtype=np.uint8)
    image[:20] = 255  # the largest sums
    whole = functional.defocus_blur(image, radius)
    monkeypatch.setattr(blur, '_STRIP', 7 * 45 * 3)
    assert np.array_equal(functional.defocus_blur(image, radius), whole)


def test_motion_blur_draws_a_line():
    image = np.zeros((101, 101, 3), np.uint8)
    image[50, 50] = 255
    streak = functional.motion_blur(image, 8, rng(6))[..., 0]
    y, x = np.nonzero(streak)
    assert streak.max() == streak[50, 50] > 20  # it starts at the pixel and fades
    assert 15 <= np.hypot(y - 50, x - 50).max() <= 31
    assert 0.9 * 255 < streak.sum() < 1.1 * 255
    direction = np.angle((x - 50) + 1j * (y - 50))[np.hypot(y - 50, x - 50) > 8]
    assert np.ptp(direction) < 0.15


def test_motion_blur_keeps_a_flat_image_and_its_borders():
    image = np.full((40, 50, 3), 200, np.uint8)
    assert np.array_equal(functional.motion_blur(image, 15, rng()), image)


@pytest.mark.parametrize('reach', [1, 2, 3, 4])
@pytest.mark.parametrize(('height', 'width'), [(23, 31), (9, 12), (11, 9), (40, 4), (1, 50)])
def test_glass_takes_pixels_as_the_walk_of_imagenet_c_does(height, width, reach):
    pixels = np.arange(height * width).reshape(height, width)
    ours, draws = pixels.copy(), rng(7)
    blur._jumble(ours, reach, draws)
    rows, columns = max(height - 2 * reach, 0), max(width - 2 * reach, 0)
    known = rng(7)
    if rows and columns:
        drawn = known.integers(4 * reach * reach, size=(rows, columns), dtype=np.uint8)
        moves = np.stack(np.divmod(drawn, 2 * reach)).astype(int) - reach
        for y in range(height - reach, reach, -1):
            for x in range(width - reach, reach, -1):
                down, right = moves[:, y - reach - 1, x - reach - 1]
                pixels[y, x] = pixels[y + down, x + right]
    assert np.array_equal(ours, pixels)
    assert draws.random() == known.random()  # the next round begins at the same place


def test_contrast_draws_to_the_mean():
    image = scene()
    means = image.reshape(-1, 3).mean(0)
    reference = (image - means) * 0.3 + means
    assert np.abs(functional.contrast(image, 0.3) - reference).max() < 0.51


@pytest.mark.parametrize('level', [0.1, 0.5])
def test_brightness_equals_hsv_in_float64(level):
    hsv = rgb_to_hsv(scene() / 255)
    hsv[..., 2] = np.minimum(hsv[..., 2] + level, 1)
    assert np.abs(functional.brightness(scene(), level) - 255 * hsv_to_rgb(hsv)).max() < 0.51


@pytest.mark.parametrize(('level', 'added'), [(0, 0), (0.3, 0), (2, 0), (5, 0.1), (20, 0.2)])
def test_saturate_equals_hsv_in_float64(level, added):
    image = scene()
    image[40:50, 40:50] = 128  # greys, whose hue counts as red
    hsv = rgb_to_hsv(image / 255)
    hsv[..., 1] = np.minimum(hsv[..., 1] * level + added, 1)
    assert np.abs(functional.saturate(image, level) - 255 * hsv_to_rgb(hsv)).max() < 0.51


def test_occlusion_is_the_central_square():
    image = np.full((224, 224, 3), 9, np.uint8)
    covered = functional.occlusion(image, 0.5)
    assert not covered[56:168, 56:168].any()
    assert (covered == 0).all(axis=2).sum() == 112**2
    assert (functional.occlusion(np.ones((40, 90, 3), np.uint8), 0.5) == 0).sum() == 20 * 20 * 3


@pytest.mark.parametrize('fading', [1.4, 2.0])
def test_waves_of_a_cloud_fade_with_their_length(fading):
    octaves = 9
    rough = {step: [] for step in (8, 16, 32)}
    for draw in range(20):
        heights = cloud(2**octaves, 2**octaves, fading, rng(draw))
        assert heights.min() >= 0
        assert heights.max() <= 1
        for step, found in rough.items():
            part = heights[::step, ::step]
            found.append(np.abs(2 * part[:, 1:-1:2] - part[:, :-2:2] - part[:, 2::2]).mean())
    ratios = [np.mean(rough[16]) / np.mean(rough[8]), np.mean(rough[32]) / np.mean(rough[16])]
    assert np.allclose(ratios, fading**2, rtol=0.2)


def test_elastic_displacement_moves_pixels_by_about_what_it_says():
    y, x = np.mgrid[:256, :256].astype(np.uint8)
    image = np.dstack([y, x, x])
    moved = functional.elastic_displacement(image, 25, rng(8)).astype(float)[20:-20, 20:-20]
    for channel in (0, 1):
        shift = moved[..., channel] - image[20:-20, 20:-20, channel]
        assert 0.7 < (shift**2).mean() ** 0.5 / (0.0814 * 25) < 1.3


def test_fog_keeps_the_brightest_value_in_range_and_frost_and_snow_brighten():
    image = scene() // 2
    for name in ('snow', 'frost'):
        assert corrupt(image, name, rng(), severity=3).mean() > image.mean() + 20
    assert corrupt(image, 'fog', rng(), severity=5).max() <= image.max() + 1


@pytest.mark.parametrize(
    ('name', 'level'),
    [
        ('gaussian_noise', 0),
        ('impulse_noise', 0),
        ('speckle_noise', 0),
        ('gaussian_blur', 0),
        ('defocus_blur', 0),
        ('motion_blur', 0),
        ('zoom_blur', 1),
        ('brightness', 0),
        ('contrast', 1),
        ('saturate', 1),
        ('pixelate', 1),
        ('elastic_displacement', 0),
        ('occlusion', 0),
    ],
)
def test_the_level_of_no_corruption_returns_a_copy(name, level):
    image = scene()
    same = corrupt(image, name, rng(), level=level)
    assert np.array_equal(same, image)
    assert not np.shares_memory(same, image)


# ----- any image


@settings(max_examples=80, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    height=st.integers(1, 70),
    width=st.integers(1, 70),
    share=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_any_size_and_any_valid_level(name, height, width, share, seed):
    entry = CORRUPTIONS[name]
    level = entry.low + share * (entry.high - entry.low)
    level = round(level) if entry.whole else level
    image = rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    changed = entry.function(image, level, rng(seed))
    assert (changed.dtype, changed.shape) == (np.uint8, image.shape)


@pytest.mark.parametrize('value', [0, 255])
@pytest.mark.parametrize('name', NAMES)
def test_black_and_white_images(name, value):
    for severity in SEVERITIES:
        image = np.full((33, 47, 3), value, np.uint8)
        assert corrupt(image, name, rng(), severity=severity).shape == image.shape


@pytest.mark.parametrize('name', NAMES)
def test_a_view_gives_what_its_copy_gives(name):
    view = scene()[::2, ::-1, ::-1]
    expected = corrupt(view.copy(), name, rng(), severity=3)
    assert np.array_equal(corrupt(view, name, rng(), severity=3), expected)


@pytest.mark.parametrize('name', NAMES)
def test_grey_images_keep_their_shape(name):
    grey = scene()[..., 0].copy()
    changed = corrupt(grey, name, rng(), severity=2)
    assert (changed.shape, changed.dtype) == (grey.shape, np.uint8)
    # Grey has no saturation to take away.
    assert np.array_equal(changed, grey) == (name == 'saturate')
    deep = corrupt(grey[..., None], name, rng(), severity=2)
    assert np.array_equal(deep[..., 0], changed)


def test_noise_on_a_grey_image_is_as_strong_as_on_a_colour_image():
    grey = np.full((300, 300), 128, np.uint8)
    assert abs(corrupt(grey, 'gaussian_noise', rng(), level=10).std() - 10) < 0.2


@pytest.mark.parametrize('name', NAMES)
def test_the_number_of_threads_does_not_matter(name):
    image = np.tile(scene(), (3, 3, 1))
    threads = cv2.getNumThreads()
    try:
        results = []
        for count in (1, 4):
            cv2.setNumThreads(count)
            results.append(corrupt(image, name, rng(), severity=5))
    finally:
        cv2.setNumThreads(threads)
    assert np.array_equal(*results)


def test_the_global_generator_is_neither_used_nor_seeded():
    def state() -> np.ndarray:
        return np.random.get_state()[1].copy()  # noqa: NPY002

    before = state()
    for name in NAMES:
        corrupt(scene(), name, rng(), severity=4)
    assert np.array_equal(before, state())


def test_functional_needs_no_framework():
    for name in NAMES:
        source = inspect.getsource(inspect.getmodule(getattr(functional, name)))
        words = ('mmengine', 'mmcv', 'torch', 'import imagecorruptions')
        assert not any(word in source for word in words)


# ----- messages


@pytest.mark.parametrize(
    ('name', 'nearest'),
    [('gausian_noise', 'gaussian_noise'), ('Gaussian-Blur', 'gaussian_blur'), ('jpeg', None)],
)
def test_unknown_names_are_answered_with_the_nearest(name, nearest):
    with pytest.raises(UserError, match='unknown corruption') as error:
        find_corruption(name)
    assert nearest is None or f'Did you mean "{nearest}"?' in str(error.value)


@pytest.mark.parametrize('level', [-1, 256, float('nan'), float('inf'), True, '5', None, [5]])
def test_levels_out_of_range_are_refused(level):
    with pytest.raises(UserError, match='gaussian_noise'):
        functional.gaussian_noise(scene(), level, rng())


def test_parts_of_a_severity_are_refused_where_there_are_none():
    with pytest.raises(UserError, match='whole number'):
        functional.snow(scene(), 2.5, rng())


@pytest.mark.parametrize('severity', [0, 6, 2.5, True, '3'])
def test_severities_other_than_one_to_five_are_refused(severity):
    with pytest.raises(UserError, match='must be 1, 2, 3, 4 or 5'):
        corrupt(scene(), 'snow', rng(), severity=severity)


@pytest.mark.parametrize(
    ('options', 'words'), [({}, 'neither'), ({'severity': 1, 'level': 5}, 'both')]
)
def test_exactly_one_of_severity_and_level(options, words):
    with pytest.raises(UserError, match=words):
        corrupt(scene(), 'gaussian_noise', rng(), **options)


@pytest.mark.parametrize(
    ('image', 'words'),
    [
        (scene().astype(np.float32), 'uint8'),
        (np.zeros((40, 40, 4), np.uint8), r'\(40, 40, 4\)'),
        (np.zeros((0, 40, 3), np.uint8), 'empty'),
        ([[1, 2, 3]], 'list'),
    ],
)
@pytest.mark.parametrize('name', ['gaussian_noise', 'fog'])
def test_images_of_another_kind_are_refused(image, words, name):
    with pytest.raises(UserError, match=words):
        CORRUPTIONS[name].function(image, 1, rng())


@pytest.mark.parametrize('name', RANDOM)
def test_random_corruptions_ask_for_a_generator(name):
    with pytest.raises(UserError, match='Generator'):
        CORRUPTIONS[name].function(scene(), CORRUPTIONS[name].levels[0])


def test_colours_on_a_grey_image_have_the_luma_of_itu_r_601():
    grey = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    mud = {'severity': 5}
    colour = corrupt(np.repeat(grey[..., None], 3, 2), 'spatter', np.random.default_rng(1), **mud)
    assert (colour[..., 1] != colour[..., 2]).any()
    expected = colour @ np.array([0.299, 0.587, 0.114])
    found = corrupt(grey, 'spatter', np.random.default_rng(1), **mud)
    assert np.abs(found - expected).max() <= 0.5 + 1e-9
