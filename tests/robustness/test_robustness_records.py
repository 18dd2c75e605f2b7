"""The files of records: nothing is lost, nothing is mixed, nothing counts twice."""

from __future__ import annotations

import json
import os

import pytest

from cb_mm.corruption import Cell
from cb_mm.errors import UserError
from cb_mm.fileio import json_lines
from cb_mm.fileio.json_lines import RecordFile
from cb_mm.robustness.jobs import Job, plan_jobs
from cb_mm.robustness.records import SweepRecords, job_facts

IDENTITY = {'checkpoint': 'abc', 'seed': 0, 'cells': ['clean', 'fog=1']}


def make(path, *keys):
    with RecordFile(path, IDENTITY, {'config': 'a.py'}) as records:
        for key in keys:
            records.append({'key': key, 'metrics': {'mIoU': 1.25}})
    return path.read_bytes()


def read(path, identity=IDENTITY):
    """Keys of the records, and what was dropped."""
    taken = []
    with RecordFile(path, identity, take=lambda record: taken.append(record['key'])) as records:
        assert len(records) == len(taken)
        assert all(key in records for key in taken)
        return taken, records.dropped


def test_what_was_written_is_read(tmp_path):
    file = tmp_path / 'new' / 'results.jsonl'
    make(file, 'clean', 'fog=1')
    header = json.loads(file.read_text().splitlines()[0])
    assert (header['identity'], header['about']) == (IDENTITY, {'config': 'a.py'})
    assert read(file) == (['clean', 'fog=1'], '')


def test_a_record_is_on_disk_when_append_returns(tmp_path, monkeypatch):
    file, synced = tmp_path / 'results.jsonl', []
    sync = os.fsync

    def seen(handle):
        if os.path.samestat(os.fstat(handle), file.stat()):
            synced.append(len(file.read_text().splitlines()))
        sync(handle)

    monkeypatch.setattr(os, 'fsync', seen)
    with RecordFile(file, IDENTITY) as records:
        for number in range(3):
            records.append({'key': str(number)})
            assert len(file.read_text().splitlines()) == number + 2
            assert synced[-1] == number + 2, 'not only in the memory of the system'


def test_torn_at_any_byte(tmp_path):
    """However much of the last line was written: the earlier ones stay, and writing resumes."""
    file = tmp_path / 'results.jsonl'
    whole = make(file, 'clean', 'fog=1')
    last = whole.rindex(b'\n', 0, -1) + 1
    for cut in range(last, len(whole)):
        file.write_bytes(whole[:cut])
        with RecordFile(file, IDENTITY) as records:
            assert len(records) == 1
            assert ('the last line of results.jsonl was cut off' in records.dropped) == (cut > last)
            records.append({'key': 'fog=1', 'metrics': {'mIoU': 1.25}})
        assert file.read_bytes() == whole


def test_torn_header_and_empty_file(tmp_path):
    file = tmp_path / 'results.jsonl'
    whole = make(file)
    for cut in (0, 1, 10, 40, len(whole) - 1):
        file.write_bytes(whole[:cut])
        make(file, 'clean')
        assert read(file)[0] == ['clean']


def test_last_line_of_zeros_after_a_power_cut(tmp_path):
    file = tmp_path / 'results.jsonl'
    whole = make(file, 'clean')
    file.write_bytes(whole + b'\0' * 30 + b'\n')
    make(file, 'fog=1')
    assert read(file)[0] == ['clean', 'fog=1']


DAMAGED = {
    'half an object': b'{"kind": "re',
    'words': b'hello',
    'a list': b'[1]',
    'not a number': b'{"kind": "record", "key": "x", "metrics": {"mIoU": NaN}}',
    'depth': b'[' * 100_000,
    'no UTF-8': b'{"kind": "record", "key": "\xff"}',
}


@pytest.mark.parametrize('name', DAMAGED)
@pytest.mark.parametrize('last', [False, True], ids=['in the middle', 'at the end'])
def test_damage_is_an_error_that_names_the_line(tmp_path, name, last):
    file = tmp_path / 'results.jsonl'
    lines = make(file, 'clean').splitlines(keepends=True)
    lines.insert(2 if last else 1, DAMAGED[name] + b'\n')
    file.write_bytes(b''.join(lines))
    with pytest.raises(UserError, match=f'damaged in line {3 if last else 2} .*`out`'):
        RecordFile(file, IDENTITY)
    assert file.read_bytes() == b''.join(lines), 'a refused file is left as it is'


def test_a_line_too_long_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, 'LONGEST_LINE', 1000)
    file = tmp_path / 'results.jsonl'
    whole = make(file, 'clean')
    for tail in (b'x' * 1001, b'{"kind": "record", "key": "' + b'x' * 2000 + b'"}\n'):
        file.write_bytes(whole + tail)
        with pytest.raises(UserError, match='line 3 is longer than'):
            RecordFile(file, IDENTITY)


def test_a_repeated_record_is_refused(tmp_path):
    """Counted twice, a pass would shrink the interval."""
    file = tmp_path / 'results.jsonl'
    lines = make(file, 'clean', 'fog=1').splitlines(keepends=True)
    file.write_bytes(b''.join(lines) + lines[1])
    with pytest.raises(UserError, match=r'line 4: it repeats line 2 \(clean\)\. Remove that line'):
        RecordFile(file, IDENTITY)
    file.write_bytes(b''.join(lines))
    with RecordFile(file, IDENTITY) as records, pytest.raises(ValueError, match='before'):
        records.append({'key': 'clean'})


def test_foreign_records_are_refused(tmp_path):
    file = tmp_path / 'results.jsonl'
    whole = make(file, 'clean')
    foreign = {'kind': 'cell', 'key': 'x'}, {'kind': 'record'}, {'kind': 'record', 'key': 3}, {}
    for line in foreign:
        file.write_bytes(whole + json.dumps(line).encode() + b'\n')
        with pytest.raises(UserError, match='line 3: it is not a record of this kind'):
            RecordFile(file, IDENTITY)


JOBS = plan_jobs([Cell('clean'), Cell('gaussian_noise', 10.0)], 2)
SWEEP = {'seed': 0, 'images': 4, 'cells': ['clean', 'gaussian_noise=10']}


def finished(job: Job) -> dict:
    return {
        **job_facts(job), 'seed': 0, 'images': 4, 'seconds': 1.5, 'metrics': {'mIoU': 40.0},
        'units': {'mIoU': '%'}, 'upstream': {'mIoU': 40.0}, 'per_class': {'IoU': {'road': None}},
        'per_image': 'scores/x.csv',
    }  # fmt: skip


def sweep_file(path) -> list[dict]:
    with SweepRecords(path, SWEEP, {}, JOBS) as records:
        for job in JOBS:
            records.append(finished(job))
        assert len(records.cells) == 3
    with SweepRecords(path, SWEEP, {}, JOBS) as records:
        assert [record['key'] for record in records.cells] == [job.key for job in JOBS]
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_pass_that_is_not_what_its_key_says_is_refused(tmp_path):
    file = tmp_path / 'results.jsonl'
    lines = sweep_file(file)
    changes = {
        'key': 'fog=1', 'corruption': 'fog', 'level': 9.0, 'severity': 1, 'random': False,
        'repeat': 0, 'seed': 1, 'images': 5,
    }  # fmt: skip
    for name, value in changes.items():
        changed = [*lines[:3], {**lines[3], name: value}]
        file.write_text('\n'.join(map(json.dumps, changed)) + '\n')
        with pytest.raises(UserError, match=r'line 4: .*(is not that of|is not a pass of)'):
            SweepRecords(file, SWEEP, {}, JOBS)
    other = {**lines[3], 'metrics': {'mAP': 1.0}, 'units': {'mAP': '%'}}
    file.write_text('\n'.join(map(json.dumps, [*lines[:3], other])) + '\n')
    with pytest.raises(UserError, match='line 4: it has different metrics'):
        SweepRecords(file, SWEEP, {}, JOBS)


def test_every_field_of_a_pass_is_looked_at(tmp_path):
    file = tmp_path / 'results.jsonl'
    lines = sweep_file(file)
    for name in lines[3]:
        for value in ('gone', None, [], {'a': 'b'}, 'x', 1e300, True):
            changed = {**lines[3], name: value}
            if value == 'gone':
                del changed[name]
            if changed == lines[3] or (name == 'per_image' and isinstance(value, str)):
                continue
            if (name, value) == ('severity', None):
                continue
            file.write_text('\n'.join(map(json.dumps, [*lines[:3], changed])) + '\n')
            with pytest.raises(UserError, match=r'results\.jsonl, line 4: '):
                SweepRecords(file, SWEEP, {}, JOBS)


def test_another_run_is_refused_and_told_apart(tmp_path):
    file = tmp_path / 'results.jsonl'
    before = make(file, 'clean')
    with pytest.raises(UserError, match=r'seed \(0 there, 1 here\).*`out`'):
        RecordFile(file, {**IDENTITY, 'seed': 1})
    with pytest.raises(UserError, match=r'checkpoint \(abc there, abd here\)'):
        RecordFile(file, {**IDENTITY, 'checkpoint': 'abd'})
    with pytest.raises(UserError, match=r'different: torch \(not recorded there, 2\.9 here\)\.'):
        RecordFile(file, {**IDENTITY, 'software': {'torch': '2.9'}})
    assert file.read_bytes() == before
    make(file, 'fog=1')  # the refusal has let go of the file


def test_another_run_that_finished_nothing_is_overwritten(tmp_path):
    file = tmp_path / 'results.jsonl'
    make(file)
    other = {**IDENTITY, 'seed': 1}
    with RecordFile(file, other) as records:
        records.append({'key': 'clean'})
    assert read(file, other)[0] == ['clean']


def test_overwriting_on_demand(tmp_path):
    file = tmp_path / 'results.jsonl'
    file.write_text('hello\nworld\n')
    with RecordFile(file, IDENTITY, overwrite=True) as records:
        records.append({'key': 'clean'})
    assert read(file)[0] == ['clean']


def test_other_files_are_refused(tmp_path):
    file = tmp_path / 'results.jsonl'
    header = make(file).decode()
    for text in ('hello', '[1]\n', '{"a": 1}\n', '{"kind": "header", "version": 99}\n',
                 header.replace(': "abc"', ': "ab') + '{}\n'):  # fmt: skip
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
