"""The pictures of the hardest images: as they are stored, and as they are read again."""

from __future__ import annotations

import base64
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

from cb_mm.fileio.result_files import write_json
from cb_mm.prediction.colours import ClassStyle
from cb_mm.prediction.results import Ranking
from cb_mm.robustness.worst_images import (
    EACH,
    FILE,
    _encode,
    _ranked,
    draw_worst_images,
    read_worst_images,
)


@pytest.mark.parametrize(
    ('size', 'stored'),
    [
        ((30, 50), (30, 50)),
        ((920, 230), (460, 115)),
        ((115, 920), (58, 460)),
        ((2, 4600), (1, 460)),
    ],
)
def test_a_picture_keeps_its_shape_and_its_colours(size, stored):
    image = np.full((*size, 3), (200, 100, 20), dtype=np.uint8)
    kind, code = _encode(image).split(',')
    assert kind == 'data:image/jpeg;base64'
    found = cv2.imdecode(np.frombuffer(base64.b64decode(code), np.uint8), cv2.IMREAD_COLOR)
    assert found.shape[:2] == stored
    np.testing.assert_allclose(found.mean((0, 1)), (20, 100, 200), atol=4)


def test_scores_are_told_of_predictions_alone():
    style = ClassStyle(('cat', 'dog'))
    ranking = Ranking(np.array([1, 0]), np.array([0.75, 0.25]))
    assert _ranked(ranking, style, scored=True) == 'dog 75.0 %; cat 25.0 %'
    assert _ranked(ranking, style, scored=False) == 'dog; cat'


def test_a_file_of_another_shape_or_length_is_not_used(tmp_path):
    view = {'pictures': {'image': 'data:image/jpeg;base64,AAAA'}, 'texts': {}, 'score': None}
    one = {'why': '', 'key': None, 'cell': None, 'clean': view, 'corrupted': None, 'legend': []}
    entries = [{'image': str(number), **one} for number in range(10 * EACH + 1)]

    def read(content: object) -> list[str]:
        write_json(tmp_path / FILE, content)
        return list(read_worst_images(tmp_path))

    assert len(read(entries[:-1])) == 10 * EACH
    assert read(entries) == []
    assert read([{**entries[0], 'why': 3}]) == []
    assert read([{**entries[0], 'clean': {}}]) == []
    assert read_worst_images(tmp_path / 'nowhere') == {}


def test_scores_of_another_number_of_images_are_not_used(tmp_path):
    (tmp_path / 'scores').mkdir()
    (tmp_path / 'scores' / 'clean.csv').write_text('image,mIoU\na,3\nb,2\nc,1\n')
    cell = {'key': 'clean', 'corruption': 'clean', 'random': False}
    data = SimpleNamespace(dataset=_Names(['a', 'b']))
    assert draw_worst_images(data, {'headline': ['mIoU'], 'cells': [cell]}, tmp_path) == []


class _Names(list):
    names = property(list)
