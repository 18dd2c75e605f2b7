"""The page of a test: what it holds, and what a real browser makes of it."""

from __future__ import annotations

import itertools
import re
import shutil

import numpy as np
import pytest
from robustness_models import SmallModel
from tool import main_of

from cb_mm.fileio.result_files import read_json, write_json
from cb_mm.robustness.image_scores import write_image_scores
from cb_mm.robustness.metrics import Scores
from cb_mm.robustness.page import _images, write_page
from cb_mm.robustness.results_file import read_compared
from cb_mm.robustness.worst_images import read_worst_images

BROWSERS = ('chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable', 'chrome')
HOSTILE = '</script><img src=x onerror="window.hacked=1"><b>&amp;'
DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.S)


@pytest.fixture(scope='module')
def tested(tmp_path_factory, scenes):
    """Two models on the same images, both with a page; the first is compared with the second."""
    folder = tmp_path_factory.mktemp('page')
    model = SmallModel(folder, 'seg', scenes.ade20k)
    second = SmallModel(folder, 'seg', scenes.ade20k, seed=1, own_labels=False).checkpoint
    tool = main_of('test.py')
    quick = ['--cfg-options', 'test_dataloader.num_workers=0',
             'test_dataloader.persistent_workers=False']  # fmt: skip
    more = ['--corruption', 'fog', '--severity', '3', '--html', '--repeats', '2',
            '--metrics', 'calibration', *quick]  # fmt: skip
    other = ['--compare', folder / 'second']
    assert tool(model.words('--out', folder / 'second', *more, checkpoint=second)) == 0
    assert tool(model.words('--out', folder / 'first', *more, *other)) == 0
    return folder / 'first', folder / 'second'


@pytest.fixture(scope='module')
def detected(tmp_path_factory, scenes):
    folder = tmp_path_factory.mktemp('page')
    model = SmallModel(folder, 'det', scenes.coco)
    words = model.words('--out', folder / 'out', '--html', '--cfg-options',
                        'test_dataloader.num_workers=0',
                        'test_dataloader.persistent_workers=False')  # fmt: skip
    assert main_of('test.py')(words) == 0
    return folder / 'out'


@pytest.fixture(scope='module')
def browser():
    driver = pytest.importorskip('playwright.sync_api', reason='needs playwright')
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip('needs a browser: apt-get install chromium')
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, args=['--no-sandbox', '--disable-gpu']
        )
        yield browser
        browser.close()


@pytest.fixture
def opened(browser):
    pages = []

    def open_page(path):
        page = browser.new_page(viewport={'width': 1200, 'height': 900})
        page.said = []
        page.on('console', lambda message: page.said.append(message.text))
        page.on('pageerror', lambda error: page.said.append(str(error)))
        page.on('request', lambda request: page.said.append(request.url)
                if not request.url.startswith(('file:', 'data:')) else None)  # fmt: skip
        page.goto(path.as_uri())
        page.wait_for_selector('html[data-ready]')
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        assert page.said == [], 'no errors, and nothing from elsewhere'
        page.close()


def test_one_file_with_everything(tested):
    text = (tested[0] / 'report.html').read_text()
    assert not re.search(r'(?:src|href)="(?!#|data:)', text)
    assert "default-src 'none'" in text
    assert len(DATA.findall(text)) == 1
    worst = read_worst_images(tested[0])
    assert set(worst) == {f'ADE_val_0000000{k}.jpg' for k in range(1, 5)}
    one = next(iter(worst.values()))
    assert set(one['clean']['pictures']) == {'image', 'truth', 'prediction'}
    assert set(one['corrupted']['pictures']) == {'image', 'prediction'}
    assert one['legend']


def rows(page, section: str) -> list[list[str]]:
    return page.evaluate(
        'id => [...document.querySelectorAll(`#${id} tbody tr`)].map(row => '
        '[...row.children].map(cell => cell.innerText))',
        section,
    )


def test_tables_say_what_the_results_say(tested, opened):
    page = opened(tested[0] / 'report.html')
    results = read_json(tested[0] / 'results.json')
    shown = rows(page, 'scores')
    assert len(shown) == len(results['cells']) == 2
    for row, cell in zip(shown, results['cells'], strict=True):
        assert row[0] == cell['title']
        assert row[2].startswith(f'{cell["metrics"]["mIoU"]["mean"]:.2f}')
        assert 'images ' in row[2]
    gap = results['comparison']['rows'][0]
    assert f'{abs(gap["difference"]["mean"]):.2f}' in shown[0][4]
    assert f'images {gap["over_images"]["low"]:+.2f}'.replace('-', '−') in shown[0][4]
    classes = [row[1] for row in rows(page, 'classes') if row[1] != '–']
    assert [float(value) for value in classes] == sorted(map(float, classes)), 'the worst first'
    assert len(rows(page, 'images')) == 4
    assert page.locator('#curves svg').count() >= 1


def test_calibration_and_what_a_suite_says(tested, opened):
    page = opened(tested[0] / 'report.html')
    results = read_json(tested[0] / 'results.json')
    shown = rows(page, 'calibration')
    for row, cell in zip(shown, results['cells'], strict=True):
        assert row[1] == f'{cell["metrics"]["ECE"]["mean"]:.2f}'
    assert page.locator('#calibration svg').count() == 2, 'clean, and one corruption'
    dots = page.locator('#calibration svg').first.locator('circle.s1').count()
    assert dots == sum(count > 0 for count in results['cells'][0]['curves']['reliability']['count'])
    said = page.locator('#scores').inner_text()
    sides = (results['comparison']['this'], tested[0]), (results['comparison']['other'], tested[1])
    for name, folder in sides:
        one = read_json(folder / 'results.json')
        assert f'{name}, mIoU (%): mPC {one["summary"]["mIoU"]["mpc"]:.2f}' in said
        worst = one['worst']['mIoU']
        assert f'{name}, mIoU (%): worst case {worst["mean"]:.2f}, by {worst["title"]}' in said
    gap = results['comparison']['rows'][0]
    assert 'p (Holm)' in rows(page, 'scores')[0][4]
    by_class = [row for row in rows(page, 'classes') if row[3] != '–']
    one = next(iter(by_class))
    assert gap['per_class'][one[0]]['low'] is None or 'images' in one[3]


def test_sorting_by_mouse_and_by_keyboard(tested, opened):
    page = opened(tested[0] / 'report.html')
    before = [row[0] for row in rows(page, 'classes')]
    page.locator('#classes th button').first.click()
    names = [row[0] for row in rows(page, 'classes')]
    assert names == sorted(before, key=str.lower)
    assert page.locator('#classes th').first.get_attribute('aria-sort') == 'ascending'
    page.locator('#classes th button').first.focus()
    page.keyboard.press('Enter')
    assert [row[0] for row in rows(page, 'classes')] == names[::-1]
    page.select_option('#class-cell', index=1)
    assert 'against clean' in page.locator('#classes thead').inner_text()
    page.fill('#search', '00003')
    assert [row[0] for row in rows(page, 'images')] == ['ADE_val_00000003.jpg']
    page.keyboard.press('Tab')  # everything can be reached
    assert page.evaluate('document.activeElement.tagName') != 'BODY'


def test_worst_images_of_both_models(tested, opened):
    page = opened(tested[0] / 'report.html')
    first = page.locator('.shot').first
    captions = first.locator('figcaption').all_inner_texts()
    assert captions[:2] == ['image', 'truth']
    assert sum(text.startswith('prediction of seg (demo), seg_0.pth') for text in captions) == 2
    assert sum(text.startswith('prediction of seg (demo), seg_1.pth') for text in captions) == 2
    assert 'another corruption' not in ' '.join(captions)
    loaded = page.evaluate('[...document.images].every(i => i.complete && i.naturalWidth > 0)')
    assert loaded
    page.select_option('#worst-order', 'name')
    titles = page.locator('.shot h3').all_inner_texts()
    assert titles == sorted(titles)


def test_axes_have_round_numbers_and_stay_readable_on_a_phone(detected, opened):
    page = opened(detected / 'report.html')
    bars = page.locator('#curves .bars svg')
    shown = bars.locator('text:not(.label)').all_text_contents()
    steps = {round(float(b) - float(a), 6) for a, b in itertools.pairwise(shown)}
    assert shown[0] == '0'
    assert len(steps) == 1
    assert f'{steps.pop():e}'[:3] in ('1.0', '2.0', '2.5', '5.0')
    page.set_viewport_size({'width': 380, 'height': 800})
    page.wait_for_selector('#curves .bars svg[viewBox^="0 0 330 "]')  # drawn again, for a phone
    # All of it is there without scrolling, and its letters are not shrunk.
    edges = bars.evaluate(
        'svg => [svg, ...svg.querySelectorAll("text")].map(one => one.getBoundingClientRect())'
        '.map(box => [box.left, box.right, box.height])'
    )
    assert all(0 <= left < right <= 380 for left, right, _ in edges)
    assert min(height for *_, height in edges) > 10


def test_light_and_dark_and_narrow(tested, opened):
    page = opened(tested[0] / 'report.html')

    def background() -> str:
        return page.evaluate('getComputedStyle(document.body).backgroundColor')

    page.emulate_media(color_scheme='dark')
    assert background() == 'rgb(21, 23, 26)'
    page.emulate_media(color_scheme='light')
    assert background() == 'rgb(251, 251, 250)'
    page.click('#theme')
    assert background() == 'rgb(21, 23, 26)'
    page.set_viewport_size({'width': 380, 'height': 700})
    assert page.evaluate('document.documentElement.scrollWidth') <= 380


def test_a_detector_has_a_page_without_intervals_over_images(detected, opened):
    page = opened(detected / 'report.html')
    assert 'no interval over images' in page.locator('#notes').inner_text()
    assert 'images ' not in rows(page, 'scores')[0][2]
    assert page.locator('.shot').count() == len(read_worst_images(detected)) > 0


def test_hostile_names_are_only_text(tested, opened, tmp_path):
    results, other = read_json(tested[0] / 'results.json'), read_compared(tested[1])
    results['model'] = results['comparison']['this'] = HOSTILE
    results['cells'][0]['title'] = HOSTILE
    results['about']['checkpoint'] = HOSTILE
    per_class = results['cells'][0]['per_class']['IoU']
    per_class[HOSTILE] = 1.0
    worst = list(read_worst_images(tested[0]).values())
    worst[0]['image'] = worst[0]['legend'][0]['name'] = worst[0]['legend'][0]['colour'] = HOSTILE
    shutil.copytree(tested[0] / 'scores', tmp_path / 'scores')
    page = opened(write_page(tmp_path, results, worst, other))
    assert page.evaluate('window.hacked') is None
    assert page.locator('img[src=x]').count() == 0
    assert HOSTILE in page.locator('h1').inner_text()
    assert rows(page, 'scores')[0][0] == HOSTILE


def test_the_page_lists_the_lowest_scores(tmp_path):
    values = np.random.default_rng(0).permutation(602).astype(float)
    values[7] = np.nan
    names = [f'{number}.jpg' for number in range(602)]
    write_image_scores(tmp_path, 'clean', names, Scores(per_image={'mIoU': values.tolist()}))
    results = {'cells': [{'key': 'clean', 'random': False}]}
    found = _images(tmp_path, results, None, 'mIoU')
    assert found['total'] == 602
    assert [row['name'] for row in found['rows']] == [names[n] for n in np.argsort(values)[:500]]
    assert _images(tmp_path, results, None, 'bbox_mAP') == {'rows': [], 'total': 0}


def test_pictures_of_another_model_are_checked(tested, tmp_path):
    content = read_json(tested[1] / 'worst_images.json')
    write_json(tmp_path / 'worst_images.json', content)
    assert read_worst_images(tmp_path)
    content[0]['clean']['pictures']['image'] = 'https://example.org/spy.png'
    write_json(tmp_path / 'worst_images.json', content)
    assert read_worst_images(tmp_path) == {}
    (tmp_path / 'worst_images.json').write_text('[1]')
    assert read_worst_images(tmp_path) == {}
    assert read_worst_images(None) == {}
