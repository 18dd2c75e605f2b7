"""Figures: what is on them, where maps lie on images, and that files are whole."""

from __future__ import annotations

import itertools
from io import BytesIO
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image
from timm.models.vision_transformer import VisionTransformer

from cb_mm.attention import ScaleStatistics, Subject
from cb_mm.attention.figures import (
    class_and_distance_figure,
    entropy_figure,
    save,
    scales_figure,
    sink_figure,
    sparsity_figure,
)
from cb_mm.attention.layer_statistics import measure
from cb_mm.attention.map_figures import Panel, grid_figure, heads_figure, panels_figure
from cb_mm.attention.maps import LayerMaps, at_image, map_range, normalise, parse_query, read_maps
from cb_mm.attention.overlay import Look, encode, grey, ordinal, overlay
from cb_mm.attention.records import identity_of
from cb_mm.attention.sheet import picture
from cb_mm.attention.summary import ModelSummary, record_of
from cb_mm.attention.tokens import Tokens
from cb_mm.errors import UserError
from cb_mm.fileio.images import find_images, read_image, resize, to_tensor


@pytest.fixture(scope='module')
def subject() -> Subject:
    torch.manual_seed(0)
    model = VisionTransformer(
        img_size=32, patch_size=8, embed_dim=24, depth=3, num_heads=3, num_classes=0,
        dynamic_img_size=True, dynamic_img_pad=True,
    ).eval()  # fmt: skip
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return Subject('small ViT', model, (127.5,) * 3, (127.5,) * 3)


@pytest.fixture(scope='module')
def image() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)


def summary_of(subject: Subject, image: np.ndarray, name: str = 'small ViT') -> ModelSummary:
    summary = ModelSummary(name)
    for turn in range(3):
        found = []
        subject.run(np.roll(image, turn, 0), lambda layer, f=found: f.append(measure(layer)))
        summary.add(record_of(found))
    return summary


def svg(figure, folder) -> str:
    (path,) = save(figure, folder / 'figure', ['svg'])
    return path.read_text()


def test_depth_figures_say_what_they_show(subject, image, tmp_path):
    models = [summary_of(subject, image), summary_of(subject, 255 - image, 'other')]
    models[1].scales = [ScaleStatistics(2, 'blocks.2', 0.1, 0.3, 0.4)]
    text = svg(entropy_figure(models, references=[(3.0, 'from elsewhere')]), tmp_path)
    for words in (
        'Entropy of attention (nats)',
        'Layer',
        'small ViT, mean',
        'other, 15th percentile',
        'bound, log 41 = 3.71',
        'from elsewhere',
        '(3 images)',
    ):
        assert words in text, words
    text = svg(class_and_distance_figure(models), tmp_path)
    assert 'Entropy of the class token' in text
    assert 'Distance (10⁻³ image sides)' in text
    text = svg(sparsity_figure(models), tmp_path)
    assert 'Share of keys (%)' in text
    assert 'single heads' in text
    text = svg(sink_figure(models), tmp_path)
    for words in ('Mass on the strongest key', 'Norm over the mean norm', 'Broadcast share'):
        assert words in text
    text = svg(scales_figure(models), tmp_path)
    for words in ('Mean of λ', '(a) Average of the scales', '(b) Ratio of quantiles'):
        assert words in text
    assert scales_figure(models[:1]) is None


def test_curves_are_the_numbers(subject, image):
    model = summary_of(subject, image)
    axes = entropy_figure([model]).axes[0]
    lines = {line.get_label(): line for line in axes.get_lines()}
    expected, half = model.by_depth('entropy')
    np.testing.assert_allclose(lines['small ViT, mean'].get_ydata(), expected)
    band = axes.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx((expected + half).max(), abs=1e-6)


def test_formats_are_whole_and_repeatable(subject, image, tmp_path):
    model = summary_of(subject, image)
    for turn in ('a', 'b'):
        png, vector, pdf = save(entropy_figure([model]), tmp_path / turn, ['png', 'svg', 'pdf'])
        assert Image.open(png).convert('RGB').size == (1120, 720)
        assert vector.read_text().rstrip().endswith('</svg>')
        assert pdf.read_bytes().startswith(b'%PDF')
    for kind in ('png', 'svg', 'pdf'):
        first, second = ((tmp_path / f'{turn}.{kind}').read_bytes() for turn in 'ab')
        assert first == second, kind
    assert not list(tmp_path.glob('.*'))  # no drafts are left


def test_heads_figure_has_a_row_a_model_and_a_column_a_head(subject, image, tmp_path):
    query = parse_query('30,20')
    maps = read_maps(subject, image, query, image.shape[:2])
    assert [layer.index for layer in maps] == [0, 1, 2]
    figure = heads_figure(
        image, [('first', maps[-1]), ('second', maps[0])], query, Look(0.2, clip=99)
    )
    assert len(figure.axes) == 2 * (1 + 3) + 1  # pictures, heads, one colour bar
    text = svg(figure, tmp_path)
    for words in (
        'head 2, H = ', 'first', 'layer 0', 'patch at x = 30, y = 20', 'input',
        'Each map is scaled separately: 0 is its smallest value, 1 is its 99th percentile.',
        'Values below 0.2 are not drawn.', 'attention, clipped',
    ):  # fmt: skip
        assert words in ' '.join(text.split()), words
    widths = {tuple(np.round(axes.get_position().size, 4)) for axes in figure.axes[:-1]}
    assert len(widths) == 1
    assert f'H = {maps[-1].entropy[1]:.2f}' in text
    note = ' '.join(line.get_text() for line in reversed(figure.texts))
    assert 'H: entropy, in nats.' in note


def test_grid_figure_shows_every_layer_and_head(subject, image):
    maps = read_maps(subject, image, parse_query('mean'), image.shape[:2])
    figure = grid_figure('small ViT', maps, parse_query('mean'), image=image)
    shown = [axes.get_images()[0].get_array() for axes in figure.axes if axes.get_images()]
    assert len(shown) == 1 + 3 * 3
    np.testing.assert_allclose(shown[1 + 4], normalise(maps[1].maps[1]))
    # The input, in the shape of the grid: 5 × 8 patches of 8 are 64 pixels wide, the image 60.
    np.testing.assert_array_equal(shown[0][:, :60], image)
    assert (shown[0][:, 60:] == 255).all()
    assert shown[0].shape == (40, 64, 3)
    assert len(grid_figure('small ViT', maps, parse_query('mean')).axes) == 3 * 3 + 1


def test_maps_are_rows_of_the_attention(subject, image):
    """Class token, mean and a patch, against the whole map."""
    whole = {}
    subject.run(image, lambda layer: whole.__setitem__(layer.index, layer.full()[0].numpy()))
    tokens = Tokens(('cls',), (5, 8), (40, 60), (8, 8))
    rows = {
        'cls': whole[1][:, 0],
        'mean': whole[1][:, 1:].mean(1),
        '59,39': whole[1][:, -1],
        '9, 17': whole[1][:, 1 + 2 * 8 + 1],
    }
    for text, expected in rows.items():
        maps = read_maps(subject, image, parse_query(text), (40, 60), [1])[0]
        assert maps.tokens == tokens
        np.testing.assert_allclose(maps.maps, expected[:, 1:].reshape(3, 5, 8), atol=1e-6)
        np.testing.assert_allclose(maps.prefix[:, 0], expected[:, 0], atol=1e-6)
    # The pixel is one of the file, whatever size the model sees.
    twice = read_maps(subject, image, parse_query('118,78'), (80, 120), [1])[0]
    np.testing.assert_allclose(twice.maps, rows['59,39'][:, 1:].reshape(3, 5, 8), atol=1e-6)
    some = read_maps(subject, image, parse_query('cls'), (40, 60), [1], heads=[2, -3])[0]
    assert some.heads == (2, 0)
    np.testing.assert_allclose(some.maps[1], rows['cls'][0, 1:].reshape(5, 8), atol=1e-6)


@pytest.mark.parametrize(
    ('query', 'words'),
    [
        ('60,0', 'outside the image: x goes from 0 to 59, y from 0 to 39'),
        ('-1,3', 'outside the image'),
        ('5', 'neither cls, nor mean, nor the X,Y'),
        ('a,b', 'neither cls, nor mean'),
    ],
)
def test_bad_queries(subject, image, query, words):
    with pytest.raises(UserError, match=words):
        read_maps(subject, image, parse_query(query), image.shape[:2])


def test_layers_and_heads_that_do_not_exist(subject, image):
    query = parse_query('cls')
    with pytest.raises(UserError, match='layer 3 does not exist: the model has the 3 attention'):
        read_maps(subject, image, query, (40, 60), layers=[3])
    with pytest.raises(UserError, match='head 3 does not exist: the model has the 3 heads 0 to 2'):
        read_maps(subject, image, query, (40, 60), heads=[3])


def test_no_class_token_to_ask(image):
    model = VisionTransformer(
        img_size=32, patch_size=8, embed_dim=24, depth=1, num_heads=3, num_classes=0,
        class_token=False, global_pool='avg', dynamic_img_size=True, dynamic_img_pad=True,
    ).eval()  # fmt: skip
    subject = Subject('no class token', model, (0.0,) * 3, (1.0,) * 3)
    with pytest.raises(UserError, match='the model has no class token'):
        read_maps(subject, image, parse_query('cls'), (40, 60))


def test_normalisation_and_threshold():
    values = np.array([[1.0, 3.0], [2.0, 5.0]])
    np.testing.assert_allclose(normalise(values), [[0, 0.5], [0.25, 1]])
    np.testing.assert_array_equal(np.isnan(normalise(values, 0.4)), [[True, False], [True, False]])
    assert (normalise(np.full((2, 2), 0.3)) == 0).all()


def test_a_map_lies_where_its_patches_are():
    """At the middle of every patch the value is the patch's, also in a padded, resized image."""
    tokens = Tokens(('cls',), (5, 8), (40, 60), (8, 8))
    values = np.random.default_rng(0).random((5, 8))
    large = at_image(values, tokens, (400, 600))
    assert large.shape == (400, 600)
    for row in range(5):
        for column in range(7):
            y, x = row * 80 + 40, column * 80 + 40
            around = large[y - 1 : y + 1, x - 1 : x + 1].mean()
            assert around == pytest.approx(values[row, column], abs=0.02)
    # The last column of patches reaches from 560 over the edge at 600: 4 of its 8 pixels show.
    assert large[40, -1] == pytest.approx(values[0, 7], abs=0.02)


@pytest.mark.parametrize(
    ('number', 'word'),
    [(1, '1st'), (2, '2nd'), (3, '3rd'), (4, '4th'), (11, '11th'), (12, '12th'), (13, '13th'),
     (22, '22nd'), (85, '85th'), (2.5, '2.5th')],
)  # fmt: skip
def test_ordinals(number, word):
    assert ordinal(number) == word


@pytest.mark.parametrize(
    ('size', 'shown'), [((300, 90), (300, 90)), ((900, 300), (450, 150)), ((100, 2001), (20, 401))]
)
def test_panels_hold_no_more_pixels_than_they_can_show(size, shown):
    axes = Figure().subplots()
    picture(axes, np.zeros((*size, 3), np.uint8))
    (drawn,) = axes.images
    assert drawn.get_array().shape[:2] == shown
    assert drawn.get_extent() == [-0.5, size[1] - 0.5, size[0] - 0.5, -0.5]


def test_overlay_keeps_the_size_and_hides_what_is_below_the_threshold(image):
    tokens = Tokens(('cls',), (5, 8), (40, 60), (8, 8))
    values = np.zeros((5, 8))
    values[1, 2] = 1
    bare = overlay(image, values, tokens, Look(opacity=0))
    picture = overlay(image, values, tokens, Look(threshold=0.5, opacity=1))
    assert picture.shape == image.shape
    changed = (picture != bare).any(-1)
    assert changed[8:16, 16:24].mean() > 0.5
    changed[6:18, 14:26] = False
    assert not changed.any()
    np.testing.assert_array_equal(np.array(Image.open(BytesIO(encode(picture)))), picture)
    # A flat overlay: the same share of the colour everywhere.
    mixed = overlay(image, values, tokens, Look(opacity=0.7, blend='flat'))
    full = overlay(image, values, tokens, Look(opacity=1, blend='flat'))
    assert np.abs(mixed - (0.3 * bare.astype(float) + 0.7 * full)).max() < 1.01
    luma = image @ np.array([0.299, 0.587, 0.114])
    assert np.abs(bare - (0.35 * image + 0.65 * luma[..., None])).max() < 0.51


def test_opacity_follows_the_value(image):
    """No attention leaves the photograph as it is; by hand for every pixel."""
    tokens = Tokens(('cls',), (5, 8), (40, 60), (8, 8))
    values = np.random.default_rng(1).random((5, 8))
    values[:, 4:] = 0
    picture = overlay(image, values, tokens, Look(opacity=0.8))
    np.testing.assert_array_equal(picture[:, 40:], grey(image).round()[:, 40:].astype(np.uint8))
    scaled = at_image(values, tokens, (40, 60)) / values.max()
    colours = 255 * matplotlib.colormaps['inferno'](scaled)[..., :3]
    weight = 0.8 * scaled[..., None]
    expected = grey(image) * (1 - weight) + colours * weight
    assert np.abs(picture - expected).max() <= 1


def test_clipping_keeps_an_outlier_from_hiding_the_rest():
    values = np.linspace(0, 1, 100).reshape(10, 10)
    values[3, 3] = 50
    assert normalise(values).flatten()[-1] < 0.03
    clipped = normalise(values, clip=98)
    low, high = map_range(values, 98)
    assert (low, high) == (0, pytest.approx(np.percentile(values, 98)))
    np.testing.assert_allclose(clipped, np.minimum(values / high, 1))
    assert clipped[3, 3] == 1
    # A map with a single cell above the rest still shows it.
    single = np.zeros((10, 10))
    single[2, 2] = 1
    np.testing.assert_array_equal(normalise(single, clip=90), single)


@pytest.mark.parametrize(
    ('look', 'message'),
    [
        (Look(threshold=2), '`threshold` 2 is not between 0 and 1'),
        (Look(opacity=-1), '`opacity` -1 is not'),
        (Look(clip=10), '`clip` 10 is not a percentile between 50 and 100'),
        (Look(blend='x'), '`blend` x is not one of value, flat'),
    ],
)
def test_looks_that_cannot_be_drawn(look, message):
    with pytest.raises(UserError, match=message):
        look.check()


def test_a_grid_far_from_the_trained_one_is_said(subject):
    """Positions for 4 × 4 patches: 94 × 63 are far, twice as many per side are not."""
    assert subject.grid_warning([(8, 8), (4, 12)]) is None
    text = subject.grid_warning([(5, 5), (94, 63), (40, 40)])
    assert 'sees 94 × 63 patches, but its positions are for 4 × 4: a factor of 23.5' in text
    assert text.endswith('at `size` 32x32.')
    assert subject.grid_warning([(1, 4)]) is not None


def test_images_are_found_and_read(tmp_path, image):
    (tmp_path / 'deep' / 'er').mkdir(parents=True)
    files = [tmp_path / 'b.png', tmp_path / 'deep' / 'er' / 'a.JPG', tmp_path / 'deep' / 'grey.png']
    Image.fromarray(image).save(files[0])
    Image.fromarray(image).save(files[1], 'jpeg')
    Image.fromarray(image[..., 0]).save(files[2])
    (tmp_path / 'notes.txt').write_text('no image')
    assert find_images([tmp_path]) == sorted(files)
    assert find_images([files[2], tmp_path], limit=2) == [files[2], sorted(files)[0]]
    np.testing.assert_array_equal(read_image(files[0]), image)
    assert read_image(files[2]).shape == (40, 60, 3)
    turned = Image.fromarray(image)
    exif = turned.getexif()
    exif[0x0112] = 6  # the camera was held upright
    turned.save(tmp_path / 'turned.png', exif=exif)
    np.testing.assert_array_equal(read_image(tmp_path / 'turned.png'), np.rot90(image, -1))


def test_images_that_cannot_be_read(tmp_path, image):
    whole = encode(image, 'jpeg')
    contents = {'cut.jpg': whole[: len(whole) // 2], 'empty.png': b'', 'text.png': b'hello'}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=name):
            read_image(tmp_path / name)
    with pytest.raises(UserError, match='does not exist'):
        read_image(tmp_path / 'none.png')
    with pytest.raises(UserError, match='does not exist'):
        find_images([tmp_path / 'none.png'])
    (tmp_path / 'bare').mkdir()
    with pytest.raises(UserError, match='holds no images'):
        find_images([tmp_path / 'bare'])


def test_images_as_the_model_sees_them(image):
    mean, std = (10.0, 20.0, 30.0), (2.0, 4.0, 8.0)
    rgb = to_tensor(image, mean, std)
    assert rgb.shape == (1, 3, 40, 60)
    assert rgb[0, 2, 5, 7].item() == pytest.approx((float(image[5, 7, 2]) - 30) / 8)
    bgr = to_tensor(image, mean, std, to_rgb=False)
    assert bgr[0, 2, 5, 7].item() == pytest.approx((float(image[5, 7, 0]) - 30) / 8)
    assert resize(image, (16, 8)).shape == (16, 8, 3)
    assert resize(image, None) is image
    assert resize(image, image.shape[:2]) is image  # not resampled


def test_records_are_of_these_models_sizes_and_percentiles():
    facts = dict(name='A', mean=(1, 2, 3), std=(4, 5, 6), to_rgb=True, size=None)

    def identity(config='vit_x', size=(8, 8), percentiles=(15, 85), weight=1.0, **changed) -> str:
        model = torch.nn.Linear(2, 2, bias=False)
        torch.nn.init.constant_(model.weight, weight)
        subject = SimpleNamespace(model=model, **{**facts, **changed})
        return str(identity_of([config], [subject], size, percentiles))

    expected = identity()
    assert identity() == expected
    others = [
        identity(config='vit_y'), identity(size=None), identity(size=(8, 9)),
        identity(percentiles=(15,)), identity(percentiles=(85, 15)), identity(weight=1.5),
        identity(name='B'), identity(mean=(1, 2, 4)), identity(std=(4, 5, 7)),
        identity(to_rgb=False),
    ]  # fmt: skip
    assert len({expected, *others}) == 1 + len(others)


def words_on(figure: Figure) -> dict[str, tuple[float, float, float, float]]:
    """Return where each text of a figure is drawn: left, bottom, right, top, in shares of it."""
    figure.canvas.draw()
    renderer, whole = figure.canvas.get_renderer(), figure.bbox
    found = {}
    for number, text in enumerate(figure.findobj(matplotlib.text.Text)):
        if text.get_visible() and text.get_text().strip():
            box = text.get_window_extent(renderer)
            place = (box.x0 / whole.x1, box.y0 / whole.y1, box.x1 / whole.x1, box.y1 / whole.y1)
            found[f'{number} {text.get_text()}'] = place
    return found


@pytest.mark.parametrize('shape', [(60, 480), (375, 1242), (480, 60)])
@pytest.mark.parametrize(
    ('name', 'layers'), [('ViT', 6), ('cityscapes_upernet_vit_s_cb, iter_160000.pth', 1)]
)
def test_words_of_maps_neither_overlap_nor_leave_the_figure(shape, name, layers):
    image = np.zeros((*shape, 3), np.uint8)
    grid = tuple(max(side // 16, 1) for side in shape)
    tokens = Tokens(('cls',), grid, tuple(16 * side for side in grid), (16, 16))
    maps = np.random.default_rng(0).random((3, *grid))
    found = [
        LayerMaps(number, 'attention', tokens, (0, 1, 2), maps, np.zeros((3, 1)), np.ones(3))
        for number in range(layers)
    ]
    query = parse_query('cls')
    panels = [Panel('input', None, tokens), Panel('rollout', maps[0], tokens)]
    for figure in (
        grid_figure(name, found, query, image=image),
        heads_figure(image, [(name, found[0]), (f'{name}, other', found[0])], query),
        panels_figure(image, [(name, panels)], 'Attention rollout of the class token', 'A note.'),
    ):
        words = words_on(figure)
        assert all(min(box) >= 0 and max(box) <= 1 for box in words.values()), words
        for (one, a), (other, b) in itertools.combinations(words.items(), 2):
            apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
            assert apart, (one, a, other, b)
