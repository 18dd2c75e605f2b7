"""Result files: JSON and CSV that every program can read, whatever is in them."""

import json
import re

import numpy as np
import pytest

from cb_mm.fileio.result_files import parse_json, plain, read_json, write_csv, write_json

VALUE = {'x': np.float32(1 / 3), 'y': [np.nan, np.int64(2)]}


def test_json(tmp_path):
    path = write_json(tmp_path / 'new' / 'a.json', VALUE, digits=7)
    assert re.sub(r'\s', '', path.read_text()) == '{"x":0.3333333,"y":[null,2]}'
    assert read_json(write_json(path, VALUE)) == {'x': float(np.float32(1 / 3)), 'y': [None, 2]}


def test_csv(tmp_path):
    path = write_csv(tmp_path / 'a.csv', ['p', 'q'], [(1, np.inf), ('a,b', 0.5)])
    assert path.read_text() == 'p,q\n1,\n"a,b",0.5\n'
    path = write_csv(path, ['p'], [(1 / 3,)], digits=2)
    assert path.read_text() == 'p\n0.33\n'


@pytest.mark.parametrize('text', ['NaN', '[Infinity]', '{', '[' * 100_000])
def test_json_that_is_not_standard_is_refused(text):
    with pytest.raises(ValueError, match=r'\w'):
        parse_json(text)


def test_plain_values():
    value = {'a': np.float32(1.5), 'b': [np.nan, np.inf, np.int64(3)], 'c': np.arange(2), 4: None}
    assert plain(value) == {'a': 1.5, 'b': [None, None, 3], 'c': [0, 1], '4': None}
    json.dumps(plain(value), allow_nan=False)
    assert plain('caf\udce9') == 'caf\\udce9', 'a name that is no UTF-8 can be written'
