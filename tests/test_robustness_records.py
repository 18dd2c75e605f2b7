"""The file of results: nothing is lost, nothing is mixed, a torn line is dropped."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cb_mm.errors import UserError
from cb_mm.robustness.records import RecordFile, plain, read_records

IDENTITY = {'checkpoint': 'abc', 'seed': 0, 'cells': ['clean', 'fog=1']}


def make(path, *keys):
    with RecordFile(path, IDENTITY, {'config': 'a.py'}) as records:
        for key in keys:
            records.append({'key': key, 'metrics': {'mIoU': 1.25}})
    return path.read_bytes()


def test_what_was_written_is_read(tmp_path):
    make(tmp_path / 'new' / 'results.jsonl', 'clean', 'fog=1')
    header, cells, _ = read_records(tmp_path / 'new' / 'results.jsonl')
    assert header['identity'] == IDENTITY
    assert header['about'] == {'config': 'a.py'}
    assert [cell['key'] for cell in cells] == ['clean', 'fog=1']


def test_a_record_is_on_disk_when_append_returns(tmp_path):
    file = tmp_path / 'results.jsonl'
    with RecordFile(file, IDENTITY) as records:
        for number in range(3):
            records.append({'key': str(number)})
            assert len(file.read_text().splitlines()) == number + 2


def test_torn_at_any_byte(tmp_path):
    """However much of the last line was written: the earlier ones stay, and writing goes on."""
    file = tmp_path / 'results.jsonl'
    whole = make(file, 'clean', 'fog=1')
    last = whole.rindex(b'\n', 0, -1) + 1
    for cut in range(last, len(whole)):
        file.write_bytes(whole[:cut])
        with RecordFile(file, IDENTITY) as records:
            assert [cell['key'] for cell in records.cells] == ['clean']
            records.append({'key': 'fog=1', 'metrics': {'mIoU': 1.25}})
        assert file.read_bytes() == whole


def test_torn_header_and_empty_file(tmp_path):
    file = tmp_path / 'results.jsonl'
    whole = make(file)
    for cut in (0, 1, 10, 40, len(whole) - 1):
        file.write_bytes(whole[:cut])
        make(file, 'clean')
        assert [cell['key'] for cell in read_records(file)[1]] == ['clean']


def test_last_line_of_zeros_after_a_power_cut(tmp_path):
    file = tmp_path / 'results.jsonl'
    whole = make(file, 'clean')
    file.write_bytes(whole + b'\0' * 30 + b'\n')
    make(file, 'fog=1')
    assert [cell['key'] for cell in read_records(file)[1]] == ['clean', 'fog=1']


def test_damage_in_the_middle_is_an_error_that_names_the_line(tmp_path):
    file = tmp_path / 'results.jsonl'
    lines = make(file, 'clean', 'fog=1').splitlines(keepends=True)
    file.write_bytes(lines[0] + b'{"kind": "ce\n' + lines[2])
    with pytest.raises(UserError, match='damaged in line 2'):
        RecordFile(file, IDENTITY)


def test_another_test_is_refused_and_told_apart(tmp_path):
    file = tmp_path / 'results.jsonl'
    before = make(file, 'clean')
    with pytest.raises(UserError, match=r'seed \(0 there, 1 here\).*--out'):
        RecordFile(file, {**IDENTITY, 'seed': 1})
    with pytest.raises(UserError, match=r'checkpoint \(abc there, abd here\)'):
        RecordFile(file, {**IDENTITY, 'checkpoint': 'abd'})
    assert file.read_bytes() == before
    make(file, 'fog=1')  # the refusal has let go of the file


def test_another_test_that_finished_nothing_is_overwritten(tmp_path):
    make(tmp_path / 'results.jsonl')
    with RecordFile(tmp_path / 'results.jsonl', {**IDENTITY, 'seed': 1}) as records:
        records.append({'key': 'clean'})
    header, cells, _ = read_records(tmp_path / 'results.jsonl')
    assert (header['identity']['seed'], len(cells)) == (1, 1)


def test_other_files_are_refused(tmp_path):
    for text in ('hello', '[1]\n', '{"a": 1}\n', '{"kind": "header", "version": 99}\n'):
        file = tmp_path / 'results.jsonl'
        file.write_text(text)
        with pytest.raises(UserError, match=r'results\.jsonl'):
            RecordFile(file, IDENTITY)
        assert file.read_text() == text


def test_two_runs_at_once(tmp_path):
    with RecordFile(tmp_path / 'results.jsonl', IDENTITY), pytest.raises(UserError, match='anothe'):
        RecordFile(tmp_path / 'results.jsonl', IDENTITY)


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / 'file').write_text('')
    with pytest.raises(UserError, match='cannot write'):
        RecordFile(tmp_path / 'file' / 'results.jsonl', IDENTITY)


def test_plain_values():
    value = {'a': np.float32(1.5), 'b': [np.nan, np.inf, np.int64(3)], 'c': np.arange(2), 4: None}
    assert plain(value) == {'a': 1.5, 'b': [None, None, 3], 'c': [0, 1], '4': None}
    json.dumps(plain(value), allow_nan=False)
