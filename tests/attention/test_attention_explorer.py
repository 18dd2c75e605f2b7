"""The explorer: what the file holds, and what a real browser makes of it."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from timm.models.vision_transformer import VisionTransformer

from cb_mm.attention import Subject, capture
from cb_mm.attention.explorer import (
    Plan,
    block_middles,
    plan,
    quantise,
    restore,
    write_explorer,
)
from cb_mm.attention.maps import normalise, parse_query, read_maps
from cb_mm.attention.measures import entropy
from cb_mm.attention.overlay import Look
from cb_mm.attention.tokens import Tokens
from cb_mm.attention.visualization import _what_fits
from cb_mm.errors import UserError
from cb_mm.fileio.images import to_tensor

#: layers, heads and bytes that are asked for -> layers and heads that the file names
CHOICES = [
    ([2, 0], [2, 0], 6_000_000, (0, 2), (2, 0)),
    ([-1, 1], [1], 6_000_000, (1, 5), (1,)),
    ([3], None, 6_000_000, (3,), (0, 1, 2)),
    (None, [2], 6_000_000, tuple(range(6)), (2,)),
    (None, None, 4 * 3 * 90 * 88, (1, 2, 3, 5), (0, 1, 2)),
]

BROWSERS = ('chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable', 'chrome')
FLAGS = [
    '--no-sandbox',
    '--disable-gpu',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
    '--no-first-run',
]


def small_vit(seed: int, **options) -> VisionTransformer:
    torch.manual_seed(seed)
    model = VisionTransformer(
        img_size=32, patch_size=8, embed_dim=24, num_heads=3, num_classes=0,
        dynamic_img_size=True, dynamic_img_pad=True, **options,
    ).eval()  # fmt: skip
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.25)
    return model


@pytest.fixture(scope='module')
def subjects() -> list[Subject]:
    grey = (127.5,) * 3
    return [
        Subject('plain', small_vit(0, depth=3), grey, grey),
        Subject('four <registers>', small_vit(1, depth=3, reg_tokens=4), grey, grey),
    ]


@pytest.fixture(scope='module')
def image() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (60, 84, 3), dtype=np.uint8)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 50), st.floats(0.1, 20), st.integers(0, 99))
def test_bytes_are_within_a_255th_of_the_largest(count, sharpness, seed):
    generator = torch.Generator().manual_seed(seed)
    rows = (sharpness * torch.randn(3, count, generator=generator)).softmax(-1).numpy()
    values, largest = quantise(rows)
    assert values.dtype == np.uint8
    assert np.abs(restore(values, largest) - rows).max() <= largest.max() / 255


def test_rows_of_zeros_stay_zero():
    values, largest = quantise(np.zeros((2, 5), np.float32))
    assert not values.any()
    assert (restore(values, largest) == 0).all()


def tokens_of(rows: int, columns: int) -> Tokens:
    return Tokens(('cls',), (rows, columns), (16 * rows, 16 * columns), (16, 16))


@pytest.mark.parametrize(
    ('grid', 'depth', 'heads', 'models'),
    [((14, 14), 12, 6, 2), ((14, 14), 12, 12, 2), ((32, 43), 12, 6, 2), ((64, 64), 24, 16, 1)],
)
def test_what_fits_is_chosen(grid, depth, heads, models):
    described = [(tokens_of(*grid), depth, heads)] * models
    plans = plan(described, max_bytes=6_000_000)
    assert plans[0].layers[-1] == depth - 1
    assert len(plans[0].layers) >= 4
    size = sum(
        len(p.layers) * len(p.heads) * (len(p.queries(described[0][0])) + 2) * grid[0] * grid[1]
        for p in plans
    )
    assert size <= 6_000_000
    if grid == (14, 14) and heads == 6:
        assert plans == [Plan(tuple(range(12)), tuple(range(6)), 1)] * 2


def test_layers_that_are_asked_for_are_all_kept():
    described = [(tokens_of(32, 32), 12, 6)]
    (chosen,) = plan(described, layers=[0, 5, 11, -2], max_bytes=6_000_000)
    assert chosen.layers == (0, 5, 10, 11)
    assert chosen.stride > 1
    with pytest.raises(UserError, match='Choose fewer `layers` or `heads`'):
        plan(described, layers=range(12), max_bytes=20_000)
    with pytest.raises(UserError, match='layer 12 does not exist'):
        plan(described, layers=[12])


@pytest.mark.parametrize(
    ('layers', 'chosen', 'stride', 'words'),
    [
        (None, (0, 1, 2, 3), 1, ''),
        (None, (1, 3), 1, 'the layers 1, 3 of ViT'),
        (None, (1, 3), 2, 'the layers 1, 3 and every 2nd patch in both directions as query of ViT'),
        ([1, 3], (1, 3), 1, ''),  # what was asked for is no surprise
        ([1, 3], (1, 3), 3, 'every 3rd patch in both directions as query of ViT'),
    ],
)
def test_what_was_left_out_is_told(layers, chosen, stride, words):
    options = SimpleNamespace(layers=layers)
    subject = SimpleNamespace(name='ViT', layers=4)
    told = list(_what_fits(Path('x/a.html'), [Plan(chosen, (0,), stride)], [subject], options))
    assert told == ([f'a.html holds {words}, to stay small; choose with `layers`, `heads` and '
                     '`size`.'] if words else [])  # fmt: skip


def test_queries_are_in_the_middle_of_their_blocks():
    assert block_middles(7, 1) == [0, 1, 2, 3, 4, 5, 6]
    assert block_middles(7, 3) == [1, 4, 6]
    assert Plan((), (), 2).queries(tokens_of(3, 4)) == [1 + 5, 1 + 7, 1 + 9, 1 + 11]


def whole_maps(subject: Subject, image: np.ndarray) -> dict[int, torch.Tensor]:
    inputs = to_tensor(image, subject.mean, subject.std)
    with torch.no_grad(), capture(subject.model, keep=True) as maps:
        subject.model(inputs)
    return maps


def unpack(text: str, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(gzip.decompress(base64.b64decode(text)), kind).reshape(shape)


def test_the_file_holds_the_maps(subjects, image, tmp_path):
    path = tmp_path / 'explorer.html'
    title = 'a </script><b>'
    plans = write_explorer(path, title, image, [(s, image) for s in subjects])
    assert plans == [Plan((0, 1, 2), (0, 1, 2), 1)] * 2
    page = path.read_text()
    assert '<b>' not in page.split('<script id="data"')[0].replace('<title>', '')
    assert not re.search(r'(src|href)\s*=\s*["\']?(https?:)?//', page)
    data = json.loads(re.search(r'application/json">(.*?)</script>', page, re.DOTALL)[1])
    assert data['title'] == title
    assert (data['height'], data['width']) == image.shape[:2]
    look = {'threshold': 0.0, 'opacity': 0.85, 'clip': 100.0, 'blend': 'value'}
    assert data['start'] == {'query': {'kind': 'pixel', 'x': 0.5, 'y': 0.5}, **look}
    kind, _, picture = data['picture'].partition(';base64,')
    assert kind == 'data:image/jpeg'
    assert Image.open(BytesIO(base64.b64decode(picture))).size == image.shape[1::-1]
    colours = np.frombuffer(base64.b64decode(data['colours']), np.uint8).reshape(256, 3)
    assert colours[[0, 255]].tolist() == [[0, 0, 4], [252, 255, 164]]  # inferno's ends
    for facts, subject in zip(data['models'], subjects, strict=True):
        assert facts['name'] == subject.name
        assert facts['grid'] == [8, 11]
        assert facts['reach'] == [64 / 60, 88 / 84]
        assert (facts['layers'], facts['heads']) == ([0, 1, 2], [0, 1, 2])
        assert (facts['queryRows'], facts['queryColumns']) == (list(range(8)), list(range(11)))
        assert facts['hasClass'] is True
        assert facts['bound'] == pytest.approx(np.log(88 + len(facts['prefix'])))
        maps = whole_maps(subject, image)
        prefix = len(facts['prefix'])
        values = unpack(facts['maps'], 'u1', (3, 3, 2 + 88, 88))
        largest = unpack(facts['largest'], '<f4', (3, 3, 90))
        restored = restore(values, largest)
        for layer in range(3):
            rows = maps[layer][0]
            expected = torch.cat([rows[:, :1], rows[:, prefix:].mean(1, True), rows[:, prefix:]], 1)
            difference = np.abs(restored[layer] - expected[..., prefix:].numpy())
            assert (difference <= largest[layer][..., None] / 255 + 1e-7).all()
            found = unpack(facts['entropy'], '<f4', (3, 3, 90))[layer]
            np.testing.assert_allclose(found, entropy(expected).numpy(), atol=1e-5)
            found = unpack(facts['prefixMass'], '<f4', (3, 3, 90))[layer]
            np.testing.assert_allclose(found, expected[..., :prefix].sum(-1).numpy(), atol=1e-5)
            received = rows.mean(1)  # by each key
            found = unpack(facts['sinks'], '<f4', (3, 3, 4))[layer]
            np.testing.assert_array_equal(found[:, 0], received.argmax(-1).numpy())
            np.testing.assert_allclose(found[:, 1], received.amax(-1).numpy(), rtol=1e-5)
    again = tmp_path / 'again.html'
    write_explorer(again, title, image, [(s, image) for s in subjects])
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ('query', 'start'),
    [
        ('20,10', {'kind': 'pixel', 'x': 20.5 / 84, 'y': 10.5 / 60}),
        ('cls', {'kind': 'cls', 'x': 0.5, 'y': 0.5}),
        ('mean', {'kind': 'mean', 'x': 0.5, 'y': 0.5}),
    ],
)
def test_the_page_starts_with_the_query_that_was_asked_for(subjects, image, tmp_path, query, start):
    path = tmp_path / 'explorer.html'
    write_explorer(path, 'x', image, [(subjects[0], image)], parse_query(query), look=Look(0.25))
    data = re.search(r'application/json">(.*?)</script>', path.read_text(), re.DOTALL)[1]
    found = json.loads(data)['start']
    assert (found['query'], found['threshold']) == (start, 0.25)


@pytest.mark.parametrize(('layers', 'heads', 'size', 'layer_names', 'head_names'), CHOICES)
def test_layers_and_heads_of_the_file_are_those_it_names(
    image, tmp_path, layers, heads, size, layer_names, head_names
):
    """Asked for in any order, counted from the end, or chosen for want of room."""
    grey = (127.5,) * 3
    subject = Subject('x', small_vit(2, depth=6), grey, grey)
    path = tmp_path / 'explorer.html'
    write_explorer(path, 'x', image, [(subject, image)], None, layers, heads, max_bytes=size)
    page = path.read_text()
    data = json.loads(re.search(r'application/json">(.*?)</script>', page, re.DOTALL)[1])
    (facts,) = data['models']
    assert (tuple(facts['layers']), tuple(facts['heads'])) == (layer_names, head_names)
    shape = (len(layer_names), len(head_names), 90)
    largest = unpack(facts['largest'], '<f4', shape)
    restored = restore(unpack(facts['maps'], 'u1', (*shape, 88)), largest)
    found = unpack(facts['entropy'], '<f4', shape)
    maps = whole_maps(subject, image)
    for i, layer in enumerate(layer_names):
        for j, head in enumerate(head_names):
            rows = maps[layer][0, head]
            expected = torch.cat([rows[:1], rows[1:].mean(0, True), rows[1:]])
            difference = np.abs(restored[i, j] - expected[:, 1:].numpy())
            assert (difference <= largest[i, j][:, None] / 255 + 1e-7).all(), (layer, head)
            np.testing.assert_allclose(found[i, j], entropy(expected).numpy(), atol=1e-5)


@pytest.fixture(scope='module')
def browser():
    driver = pytest.importorskip('playwright.sync_api', reason='needs playwright')
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip('needs a browser: apt-get install chromium')
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser, subjects, image, tmp_path):
    """The explorer of two models, from the disk, in a window; asks nothing of the network."""
    path = tmp_path / 'explorer.html'
    models = [(subject, image) for subject in subjects]
    write_explorer(path, 'picture.jpg', image, models, parse_query('10,50'), look=Look(0.1))
    page = browser.new_page(viewport={'width': 1200, 'height': 900})
    asked, wrong = [], []
    page.on('request', lambda request: asked.append(request.url))
    page.on('pageerror', lambda error: wrong.append(str(error)))
    page.on('console', lambda message: wrong.append(message.text))
    page.goto(path.as_uri())
    page.wait_for_selector('html[data-ready]')
    yield page
    page.close()
    assert [url for url in asked if not url.startswith(('file:', 'data:', 'blob:'))] == []
    assert wrong == []


def shown(page, model: int) -> np.ndarray:
    """The map that the page shows, as numbers."""
    return np.array(page.evaluate(f'Array.from(explorer.models[{model}].map())')).reshape(8, 11)


def assert_shows(page, subjects, image, query: str, layer: int, head: int | None) -> None:
    """Map and entropy on the page are those that Python computes, for both models."""
    for number, subject in enumerate(subjects):
        maps = read_maps(subject, image, parse_query(query), image.shape[:2], [layer])[0]
        heads = slice(None) if head is None else slice(head, head + 1)
        expected = maps.maps[heads].mean(0)
        error = maps.maps[heads].max() / 255
        np.testing.assert_allclose(shown(page, number), expected, atol=error + 1e-7)
        text = page.locator('.facts').nth(number).inner_text()
        assert (
            f'H = {maps.entropy[heads].mean():.2f} of {np.log(maps.tokens.count):.2f} nats' in text
        )
        assert f'layer {layer}, {"mean of heads" if head is None else f"head {head}"}' in text


def click(page, x: float, y: float, model: int = 0) -> None:
    """Click on the middle of a pixel of the image."""
    box = page.locator('.view canvas').nth(model).bounding_box()
    page.mouse.click(
        box['x'] + (x + 0.5) / 84 * box['width'], box['y'] + (y + 0.5) / 60 * box['height']
    )


def test_clicking_a_patch_shows_its_map(page, subjects, image):
    assert_shows(page, subjects, image, '10,50', 2, None)
    for x, y, model in ((36, 28, 0), (83, 59, 0), (0, 0, 1), (44, 12, 1)):
        before = shown(page, 0)
        click(page, x, y, model)
        assert_shows(page, subjects, image, f'{x},{y}', 2, None)
        assert np.abs(shown(page, 0) - before).max() > 0


def test_dragging(page, subjects, image):
    box = page.locator('.view canvas').first.bounding_box()
    page.mouse.move(box['x'] + 5, box['y'] + 5)
    page.mouse.down()
    page.mouse.move(
        box['x'] + box['width'] * 40.5 / 84, box['y'] + box['height'] * 20.5 / 60, steps=4
    )
    assert_shows(page, subjects, image, '40,20', 2, None)
    page.mouse.up()
    page.mouse.move(box['x'] + 5, box['y'] + 5)
    assert_shows(page, subjects, image, '40,20', 2, None)


def test_colours_on_the_canvas_are_the_map(page, subjects, image):
    """What is painted, pixel by pixel, is the map by the same colours and threshold."""
    import matplotlib

    page.fill('#opacity', '1')
    page.keyboard.press('c')  # the class token: no frame is drawn

    def painted() -> np.ndarray:
        pixels = page.evaluate(
            """() => { const { small } = explorer.views[0];
            const data = small.getContext('2d').getImageData(0, 0, small.width, small.height).data;
            return Array.from(data) }"""
        )
        return np.array(pixels, np.uint8).reshape(8, 11, 4)

    # At first the opacity follows the value, here up to the 90th percentile.
    page.fill('#clip', '90')
    clipped = normalise(shown(page, 0), 0.1, 90)
    assert np.abs(painted()[..., 3] - 255 * np.nan_to_num(clipped)).max() <= 1
    page.fill('#clip', '100')
    page.uncheck('#blend')
    pixels = painted()
    scaled = normalise(shown(page, 0), 0.1)
    np.testing.assert_array_equal(pixels[..., 3] > 0, np.isfinite(scaled))
    expected = 255 * matplotlib.colormaps['inferno'](np.nan_to_num(scaled))[..., :3]
    drawn = np.isfinite(scaled)
    assert np.abs(pixels[..., :3][drawn].astype(float) - expected[drawn]).max() <= 6
    # The visible canvas shows these cells, each over its patch.
    cell = page.evaluate(
        """() => { const { canvas, model } = explorer.views[0];
        const x = 2.5 / model.grid[1] * model.reach[1] * canvas.width;
        const y = 4.5 / model.grid[0] * model.reach[0] * canvas.height;
        return Array.from(canvas.getContext('2d').getImageData(x, y, 1, 1).data) }"""
    )
    assert cell == pixels[4, 2].tolist()


def test_the_strongest_key_is_named_and_marked(page, subjects, image):
    page.fill('#layer', '1')
    page.fill('#head', '2')
    rows = whole_maps(subjects[0], image)[1][0, 2]
    place, mass = int(rows.mean(0).argmax()), float(rows.mean(0).max())
    name = 'cls' if place == 0 else f'row {(place - 1) // 11}, column {(place - 1) % 11}'
    text = page.locator('.sinks').first.text_content()
    assert text.startswith(f'Strongest key ({name}): {100 * mass:.1f} % of all attention, value ')
    assert '% of the output is the same for all queries' in text
    if place:
        before = page.evaluate('() => explorer.views[0].canvas.toDataURL()')
        page.check('#sink')
        assert page.evaluate('() => explorer.views[0].canvas.toDataURL()') != before


def test_sliders_and_choices(page, subjects, image):
    page.fill('#layer', '1')
    page.fill('#head', '2')
    assert_shows(page, subjects, image, '10,50', 1, 2)
    page.check('input[value=mean]')
    assert_shows(page, subjects, image, 'mean', 1, 2)
    page.check('input[value=cls]')
    assert_shows(page, subjects, image, 'cls', 1, 2)
    page.fill('#threshold', '0.9')
    assert page.locator('#thresholdText').inner_text() == '0.90'
    visible = page.evaluate(
        """() => { const { small } = explorer.views[0];
        const data = small.getContext('2d').getImageData(0, 0, small.width, small.height).data;
        return data.filter((v, i) => i % 4 === 3 && v > 0).length }"""
    )
    assert visible == np.isfinite(normalise(shown(page, 0), 0.9)).sum()


def test_the_page_names_layers_and_heads_as_the_model_counts_them(browser, image, tmp_path):
    """A file with some of them: a place in the file is not the number of a head."""
    grey = (127.5,) * 3
    subject = Subject('x', small_vit(2, depth=6), grey, grey)
    path = tmp_path / 'some.html'
    write_explorer(path, 'x', image, [(subject, image)], None, [1, 4], [2, 0])
    page = browser.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector('html[data-ready]')
    for place, head in enumerate((2, 0)):
        page.fill('#layer', '1')
        page.fill('#head', str(place))
        assert f'layer 4, head {head}' in page.locator('.facts').inner_text()
        shown = [page.locator(name).inner_text() for name in ('#layerText', '#headText')]
        assert shown == ['4', str(head)]
        assert page.locator('#head').get_attribute('aria-valuetext') == str(head)
        assert page.locator('#layer').get_attribute('aria-valuetext') == 'layer 4'
    page.close()


def test_the_table_of_entropies_chooses_layer_and_head(page, subjects, image):
    page.locator('.heads').nth(1).scroll_into_view_if_needed()
    box = page.locator('.heads').nth(1).bounding_box()
    page.mouse.click(box['x'] + box['width'] * 0.1, box['y'] + box['height'] * 0.5)
    assert_shows(page, subjects, image, '10,50', 0, 1)


def test_keyboard_alone(page, subjects, image):
    page.locator('.view canvas').first.focus()
    for key in ('ArrowRight', 'ArrowRight', 'ArrowUp'):
        page.keyboard.press(key)
    assert_shows(page, subjects, image, '28,44', 2, None)  # from patch (1, 6) to (3, 5)
    for key in ('[', '.', '.'):
        page.keyboard.press(key)
    assert_shows(page, subjects, image, '28,44', 1, 1)
    page.keyboard.press('m')
    assert_shows(page, subjects, image, 'mean', 1, 1)
    page.keyboard.press('p')
    assert_shows(page, subjects, image, '28,44', 1, 1)
    for _ in range(20):
        page.keyboard.press('ArrowDown')
        page.keyboard.press('ArrowRight')
    assert_shows(page, subjects, image, '83,59', 1, 1)
    page.locator('#layer').focus()
    page.keyboard.press('ArrowLeft')
    assert_shows(page, subjects, image, '83,59', 0, 1)


def test_light_and_dark(page):
    def background() -> str:
        return page.evaluate('getComputedStyle(document.body).backgroundColor')

    page.emulate_media(color_scheme='dark')
    assert background() == 'rgb(21, 23, 26)'
    page.emulate_media(color_scheme='light')
    assert background() == 'rgb(251, 251, 250)'
    page.click('#theme')
    assert background() == 'rgb(21, 23, 26)'
    assert page.locator('#theme').inner_text() == 'Light'


def test_a_narrow_window_does_not_scroll_sideways(page):
    page.set_viewport_size({'width': 360, 'height': 700})
    assert page.evaluate('document.documentElement.scrollWidth') <= 360


def test_touch(browser, subjects, image, tmp_path):
    path = tmp_path / 'explorer.html'
    write_explorer(path, 'picture.jpg', image, [(subject, image) for subject in subjects])
    context = browser.new_context(has_touch=True, viewport={'width': 390, 'height': 1400})
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector('html[data-ready]')
    box = page.locator('.view canvas').first.bounding_box()
    page.touchscreen.tap(box['x'] + 70.5 / 84 * box['width'], box['y'] + 12.5 / 60 * box['height'])
    assert_shows(page, subjects, image, '70,12', 2, None)
    context.close()


def test_a_large_image_with_fewer_queries(browser, subjects, tmp_path):
    """Only some patches are in the file: the nearest one is taken, and it is a real row."""
    image = np.random.default_rng(1).integers(0, 256, (128, 160, 3), dtype=np.uint8)
    path = tmp_path / 'large.html'
    (chosen,) = write_explorer(path, 'large', image, [(subjects[0], image)], max_bytes=120_000)
    assert chosen.stride > 1
    page = browser.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector('html[data-ready]')
    assert 'nearest patch' in page.locator('#hint').inner_text()
    row, column = (block_middles(cells, chosen.stride)[1] for cells in (16, 20))
    query = parse_query(f'{column * 8 + 4},{row * 8 + 4}')
    box = page.locator('.view canvas').bounding_box()
    page.mouse.click(
        box['x'] + (query.x + 7) / 160 * box['width'],
        box['y'] + (query.y + 3) / 128 * box['height'],
    )
    maps = read_maps(subjects[0], image, query, (128, 160), [2])[0].maps
    found = np.array(page.evaluate('Array.from(explorer.models[0].map())')).reshape(16, 20)
    np.testing.assert_allclose(found, maps.mean(0), atol=maps.max() / 255 + 1e-7)
    page.close()
