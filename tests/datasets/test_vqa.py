"""VQAv2: answers are compared as the public evaluation does, and its files are read."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import tiny_vqa

from cb_mm.datasets.checks.registry import check
from cb_mm.datasets.vqa.answers import (
    answer_accuracy,
    build_vocabulary,
    normalize_answer,
    read_vocabulary,
    soft_score,
    soft_targets,
)
from cb_mm.datasets.vqa.dataset import VQAv2Dataset
from cb_mm.datasets.vqa.transforms import PackVQAInputs, ViltRandAugment, ViltResize
from cb_mm.errors import UserError
from cb_mm.evaluation.vqa_accuracy import VQAv2Accuracy


@pytest.mark.parametrize(
    ('answer', 'normal'),
    [
        ('Yes.', 'yes'),
        ('the two dogs', '2 dogs'),
        ('none', '0'),
        ('1,000', '1000'),  # a comma in a number removes signs,
        ('red/white', 'red white'),  # otherwise they become spaces
        ('black, white', 'black white'),
        ('3.5', '3.5'),
        ('U.S.A', 'usa'),
        ("dont't know", "dont't know"),
        ('dont know', "don't know"),
        ("couldn'tve", "couldn't've"),
        ("somebody'd", 'somebodyd'),
        ('\tan  apple\n', 'apple'),
    ],
)
def test_answers_are_normalised(answer, normal):
    assert normalize_answer(answer) == normal


def test_normalisation_is_that_of_the_public_evaluation():
    """mmpretrain carries it: every contraction, and random strings of signs and words."""
    pytest.importorskip('mmpretrain')
    from cb_mm.compat.mmpretrain import open_mmpretrain

    open_mmpretrain()
    import inspect
    import re

    from mmpretrain.evaluation.metrics import vqa

    theirs = vqa.VQAAcc()._process_answer
    table = re.findall(r"""['"]([\w']+)['"]: ['"]""", inspect.getsource(vqa._process_digit_article))
    assert len(table) > 120
    pieces = [*' ;/[]"{}()=+\\_-><@`,?!.', '1,5', '2.5', 'a', 'the', 'Ten', 'Dog', *table]
    rng = random.Random(0)
    texts = table + [''.join(rng.choices([*pieces, ' '], k=6)) for _ in range(3000)]
    assert [one for one in texts if normalize_answer(one) != theirs(one)] == []


@pytest.mark.parametrize(('count', 'score'), [(0, 0), (1, 0.3), (2, 0.6), (3, 0.9), (4, 1), (9, 1)])
def test_accuracy_is_the_mean_over_nine_of_ten(count, score):
    given = ['red'] * count + ['blue'] * (10 - count)
    by_hand = np.mean([min((given[:i] + given[i + 1 :]).count('red') / 3, 1) for i in range(10)])
    assert answer_accuracy('Red.', given) == pytest.approx(by_hand) == pytest.approx(score)
    assert soft_score(count) == pytest.approx(score)  # ViLT's targets are the same numbers


def test_unanimous_answers_are_compared_as_they_are():
    assert answer_accuracy('two', ['two'] * 10) == 1
    assert answer_accuracy('2', ['two'] * 10) == 0  # as in the public evaluation
    assert answer_accuracy('2', ['two'] * 9 + ['three']) == 1


def test_vocabulary(tmp_path):
    assert build_vocabulary(['No', 'yes', 'yes.', 'blue', 'no', 'yes'], 2) == ['yes', 'no']
    number_of = {'yes': 0, 'no': 1}
    # As ViLT: the vocabulary is normalised, the answers are not.
    given = ['yes', 'yes', 'Yes.', 'no', 'maybe']
    assert soft_targets(given, number_of) == {0: 0.6, 1: 0.3}
    # As in ViLT, one answer of its 3,129 is what is left of "A".
    assert build_vocabulary(['A', 'a', 'yes', 'the'], 2) == ['']
    for name, text in (
        ('a.txt', 'yes\nno\n'),
        ('a.json', '["yes", "no"]'),
        ('b.json', '{"no": 1, "yes": 0}'),
    ):
        (tmp_path / name).write_text(text)
        assert read_vocabulary(tmp_path / name) == ['yes', 'no']
    (tmp_path / 'c.json').write_text('{"no": 7}')
    for name in ('d.json', 'd.txt'):
        (tmp_path / name).write_bytes(b'\xff\xfe\x00')
    for name, message in (
        ('c.json', 'numbers 0 to'),
        ('none.json', 'does not exist'),
        ('d.json', r'd\.json is not JSON'),
        ('d.txt', r'd\.txt is not text in UTF-8'),
    ):
        with pytest.raises(UserError, match=message):
            read_vocabulary(tmp_path / name)


def test_the_release_is_read(tmp_path):
    root = tiny_vqa.write_vqa(tmp_path / 'vqa')
    train = VQAv2Dataset(str(root), min_count=1)
    assert train.metainfo['classes'] == tiny_vqa.ANSWERS
    first, second = train.get_data_info(0), train.get_data_info(1)
    assert first['img_path'].endswith('train2014/COCO_train2014_000000000010.jpg')
    assert dict(zip(first['answer_labels'], first['answer_scores'], strict=True)) == {0: 1, 2: 0.3}
    assert (second['question'], second['answer_type']) == ('How many is this?', 'number')
    assert second['answer_labels'][0] == tiny_vqa.ANSWERS.index('2')
    both = VQAv2Dataset(str(root), split=['train2014', 'val2014'], min_count=1)
    assert len(both) == 7
    hidden = VQAv2Dataset(str(root), split='test-dev2015', min_count=1)
    assert 'test2015/COCO_test2015' in hidden.get_data_info(0)['img_path']
    assert hidden.get_data_info(0)['answers'] == []
    # Only one answer is that of three questions; the rest cannot be learned.
    (root / 'answers.txt').write_text('2\n')
    few = VQAv2Dataset(str(root), answers=str(root / 'answers.txt'), answerable_only=True)
    assert [few.get_data_info(i)['question_id'] for i in range(len(few))] == [901]
    for options, message in (
        (dict(split='val'), 'VQAv2 has train2014'),
        (dict(min_count=9), 'no answer of'),
    ):
        with pytest.raises(UserError, match=message):
            VQAv2Dataset(str(root), **options)
    (root / 'v2_mscoco_val2014_annotations.json').unlink()
    with pytest.raises(UserError, match=r'annotations\.json does not exist\. Get the questions'):
        VQAv2Dataset(str(root), min_count=1)


@pytest.mark.parametrize(
    ('part', 'key', 'value'),
    [('questions', 'image_id', '10'), ('questions', 'question', 7),
     ('annotations', 'answers', ['yes']), ('annotations', 'multiple_choice_answer', None)],
)  # fmt: skip
def test_records_of_another_kind_are_named(tmp_path, part, key, value):
    root = tiny_vqa.write_vqa(tmp_path / 'vqa')
    name = {'questions': 'v2_OpenEnded_mscoco_val2014_questions.json'}.get(part)
    file = root / (name or 'v2_mscoco_val2014_annotations.json')
    records = json.loads(file.read_text())[part]
    records[1][key] = value
    tiny_vqa.write(file, **{part: records})
    with pytest.raises(UserError, match=rf'record 1 of "{part}" has something else as its "{key}"'):
        VQAv2Dataset(str(root), split='val2014', min_count=1)


def test_check_data_names_what_is_wrong(tmp_path):
    root = tiny_vqa.write_vqa(tmp_path / 'vqa')
    for quick in (True, False):
        report = check('vqav2', root, quick=quick)
        assert report.ok, report.text()
        assert report.counts['train2014 questions'] == 4
    (root / 'train2014/COCO_train2014_000000000011.jpg').unlink()
    file = root / 'v2_mscoco_val2014_annotations.json'
    content = json.loads(file.read_text())
    tiny_vqa.write(file, annotations=content['annotations'][1:])
    found = {(one.kind, one.file) for one in check('vqav2', root, quick=True).errors}
    assert found == {
        ('image-missing', 'train2014/COCO_train2014_000000000011.jpg'),
        ('answer-missing', 'v2_mscoco_val2014_annotations.json'),
    }
    file.write_text('[')
    (root / 'v2_OpenEnded_mscoco_train2014_questions.json').unlink()
    found = {one.kind for one in check('vqav2', root, quick=True).errors}
    assert found == {'json', 'missing-file'}


@pytest.mark.parametrize(
    ('size', 'expected'),
    [((480, 640), (384, 512)), ((640, 427), (576, 384)), ((100, 1000), (64, 608))],
)
def test_resizing_is_vilts(size, expected):
    image = np.zeros((*size, 3), np.uint8)
    assert ViltResize()(dict(img=image))['img'].shape[:2] == expected


def test_augmentation_has_vilts_strengths():
    """9 of 30: what one operation makes of grey 100, and how far it moves a column."""
    rng = random.Random(0)
    grey, moved = set(), set()
    for _ in range(300):
        image = np.full((64, 200, 3), 100, np.uint8)
        image[:, 100] = 250
        random.seed(rng.random())
        changed = ViltRandAugment(operations=1)(dict(img=image))['img']
        grey.add(int(changed[32, 80, 0]))
        if int(changed[32, 80, 0]) == 100:
            moved |= set(np.flatnonzero(changed[32, :, 0] > 200).tolist())
    # As it was, brightness × 0.64, inverted above 76.8, one bit left, 33 more and inverted above
    # 128; equalize and autocontrast leave nothing between their ends.
    assert grey == {100, 64, 155, 0, 122}
    assert {70, 100, 130} <= moved  # shifts are by 30 pixels
    assert moved <= {*range(96, 105), 70, 130}  # shears by 0.09, rotations by 9 degrees


def test_augmentation_changes_colour_images_and_packing_keeps_order():
    image = np.zeros((32, 64, 3), np.uint8)
    image[:, :16, 0] = 200
    random.seed(0)
    changed = [ViltRandAugment()(dict(img=image.copy()))['img'] for _ in range(8)]
    assert all(one.shape == image.shape and one.dtype == np.uint8 for one in changed)
    assert any((one != image).any() for one in changed)
    keys = dict.fromkeys(PackVQAInputs._KEYS)
    packed = PackVQAInputs()(dict(img=image, **{**keys, 'question': 'why?'}))
    assert packed['inputs'].shape == (3, 32, 64)
    assert packed['inputs'][0, 0, 0] == 200
    assert packed['data_samples'].question == 'why?'


def test_metric_by_type_of_answer(tmp_path):
    metric = VQAv2Accuracy(out_file=str(tmp_path / 'answers.json'))
    metric.dataset_meta = dict(classes=tiny_vqa.ANSWERS)
    given = [one['answer'] for one in tiny_vqa.annotation(0, 1)['answers']]
    samples = [
        dict(question_id=1, answers=given, answer_type='number', pred_label=1),  # 7 of 10
        dict(question_id=2, answers=given, answer_type='other', pred_label=2),  # 2 of 10
        # No answer, which is not the empty one that articles become.
        dict(question_id=3, answers=['a'] * 7 + ['the'] * 3, answer_type='other', pred_label=7),
    ]
    metric.process({}, samples)
    found = metric.compute_metrics(metric.results)
    assert found == pytest.approx(dict(accuracy=160 / 3, number=100.0, other=30.0))
    assert json.loads((tmp_path / 'answers.json').read_text())[:2] == [
        dict(question_id=1, answer='2'),
        dict(question_id=2, answer='red'),
    ]
    metric.results = []
    metric.process({}, [dict(question_id=4, answers=[], answer_type='', pred_label=0)])
    assert metric.compute_metrics(metric.results) == dict(questions=1)
