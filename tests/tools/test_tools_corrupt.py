"""tools/corrupt.py end to end, and the contact sheet it draws."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from tool import TOOLS, main_of

from cb_mm.corruption import CORRUPTIONS, Cell, corrupt, noise_generator, parse_corruption
from cb_mm.corruption.contact_sheet import draw_contact_sheet

main = main_of('corrupt.py')


@pytest.fixture
def image(tmp_path) -> Path:
    y, x = np.mgrid[:60, :80]
    pixels = np.dstack([2 * y, x, 200 - x - y]).astype(np.uint8)
    cv2.imwrite(str(tmp_path / 'street.png'), pixels)
    return tmp_path / 'street.png'


def test_all_corruptions_of_one_image(image, tmp_path, capsys):
    out = tmp_path / 'new' / 'sheet.png'
    assert main([str(image), '--out', str(out), '--width', '40']) == 0
    assert capsys.readouterr().out.strip() == str(out)
    sheet = cv2.imread(str(out))
    rows = len(CORRUPTIONS)
    assert sheet.shape[0] % rows == 0
    # No row is alike: every corruption did something of its own.
    assert len({row.tobytes() for row in np.split(sheet, rows)}) == rows
    assert sorted(file.name for file in out.parent.iterdir()) == ['sheet.png']


def test_one_sheet_for_each_of_several_images(image, tmp_path):
    other = tmp_path / 'grey.png'
    cv2.imwrite(str(other), np.full((33, 47), 90, np.uint8))
    out = tmp_path / 'sheets'
    words = ['--corruption', 'frost', '--severity', '3', '--out', str(out), '--seed', '4']
    assert main([str(image), str(other), *words]) == 0
    names = sorted(file.name for file in out.iterdir())
    assert names == ['grey_corruptions.png', 'street_corruptions.png']
    assert main([str(image), str(other), *words, '--format', 'pdf']) == 0
    assert (out / 'grey_corruptions.pdf').read_bytes().startswith(b'%PDF')
    with pytest.raises(SystemExit):
        main([str(image), '--out', str(out / 'a.svg'), '--format', 'pdf'])


def test_frost_is_said_to_be_drawn_or_takes_photographs(image, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(['--help'])
    assert 'The ice of frost is drawn' in capsys.readouterr().out
    ice = tmp_path / 'ice'
    ice.mkdir()
    cv2.imwrite(str(ice / 'frost1.png'), np.full((90, 90, 3), 77, np.uint8))
    words = [str(image), '--corruption', 'frost=3', '--width', '80', '--out']
    sheets = [tmp_path / 'drawn.png', tmp_path / 'photographed.png']
    assert main([*words, str(sheets[0])]) == 0
    assert main([*words, str(sheets[1]), '--frost-pictures', str(ice)]) == 0
    drawn, photographed = (cv2.imread(str(sheet)) for sheet in sheets)
    expected = np.rint(0.7 * cv2.imread(str(image)).astype(float) + 0.7 * 77).clip(0, 255)
    top, left = 18, 170 + 84
    assert np.abs(photographed[top : top + 60, left : left + 80] - expected).max() <= 1
    assert not np.array_equal(drawn, photographed)
    assert main([*words, str(sheets[1]), '--frost-pictures', str(tmp_path / 'none')]) == 2
    assert '--frost-pictures' in capsys.readouterr().err


def test_a_sheet_of_nothing_but_clean_shows_the_image():
    pixels = np.arange(60 * 80 * 3, dtype=np.uint8).reshape(60, 80, 3)
    sheet = draw_contact_sheet(pixels, [Cell('clean')], 'a.png', width=80)
    assert sheet.shape == (60 + 22, 170 + 84, 3)
    assert np.array_equal(sheet[18:78, 170:250], pixels)
    assert (sheet[:, :170] < 128).any()  # the name of the row


def test_the_sheet_shows_the_noise_of_testing(image):
    pixels = cv2.cvtColor(cv2.imread(str(image)), cv2.COLOR_BGR2RGB)
    cells = parse_corruption('gaussian_noise=5,10')
    sheet = draw_contact_sheet(pixels, cells, 'street.png', seed=3, width=80)
    for column, level in enumerate((5, 10), start=1):
        rng = noise_generator(3, 0, 'street.png', 'gaussian_noise', level)
        expected = corrupt(pixels, 'gaussian_noise', rng, level=level)
        left = sheet.shape[1] - (3 - column) * 84
        assert np.array_equal(sheet[18:78, left : left + 80], expected)


def test_names_and_units_as_people_write_them(image, tmp_path):
    """In SVG and PDF, too, where words stay words."""
    for kind in ('svg', 'pdf'):
        out = tmp_path / f'sheet.{kind}'
        names = ['gaussian_noise=5', 'jpeg_compression', 'gaussian_blur', 'fog']
        words = ['--corruption', *names, '--severity', '3']
        assert main([str(image), '--out', str(out), '--width', '120', *words]) == 0
    text = (tmp_path / 'sheet.svg').read_text()
    for expected in ('Gaussian noise', 'standard deviation in', 'JPEG compression', 'JPEG quality',
                     'severity 3: 15', '>5<', 'clean',
                     'severity 3: 3<',  # of 3 pixels, by chance
                     'severity 3<'):  # fmt: skip
        assert expected in text, expected
    assert 'gaussian_noise' not in text
    assert (tmp_path / 'sheet.pdf').read_bytes().startswith(b'%PDF')


def test_detail_shows_the_middle_pixel_by_pixel(image):
    pixels = cv2.cvtColor(cv2.imread(str(image)), cv2.COLOR_BGR2RGB)
    sheet = draw_contact_sheet(pixels, parse_corruption('frost', 1), 'a', width=40, detail=True)
    left = sheet.shape[1] - 2 * 44
    assert np.array_equal(sheet[18:48, left : left + 40], pixels[15:45, 20:60])


def test_a_suite_in_the_current_folder(image, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(['street.png', '--suite', 'table9']) == 0
    assert (tmp_path / 'street_corruptions.png').stat().st_size > 1000


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        (['--corruption', 'fros'], 'Did you mean "frost"'),
        (['--corruption', 'gaussian_noise=999'], 'out of range'),
        (['--severity', '9'], '1, 2, 3, 4 or 5'),
        (['--suite', 'table8'], 'Did you mean "table9"'),
        (['--out', 'street.png/inside'], 'cannot write'),
    ],
)
def test_mistakes_are_answered_with_one_line(image, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert main([str(image), *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith('error: ')
    assert message in error
    assert error.count('\n') == 1


@pytest.mark.parametrize('content', [None, b'', b'no image'])
def test_missing_and_broken_images(tmp_path, capsys, content):
    file = tmp_path / 'broken.jpg'
    if content is not None:
        file.write_bytes(content)
    assert main([str(file)]) == 2
    assert str(file) in capsys.readouterr().err


@pytest.mark.parametrize('words', [['--width', '1'], ['b.png', '--out', 'c.png'], ['--sever', '1']])
def test_wrong_options(words):
    with pytest.raises(SystemExit) as stop:
        main(['a.png', *words])
    assert stop.value.code == 2


def test_help_needs_no_library():
    code = 'import sys; sys.modules["cb_mm"] = None; sys.argv = ["x", "--help"]; import corrupt'
    code += '; corrupt.main()'
    done = subprocess.run(
        [sys.executable, '-c', code], cwd=TOOLS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert 'python tools/corrupt.py street.jpg' in done.stdout
