"""docs/benchmarks.md: its tables are those of the stored results."""

from __future__ import annotations

import json
import sys

from tool import REPO

sys.path.insert(0, str(REPO / 'benchmarks'))
import page

TEXT = page.PAGE.read_text()


def test_the_page_has_the_stored_results():
    assert page.page(TEXT, page.RESULTS) == TEXT, 'run: python benchmarks/page.py'


def test_every_table_is_on_the_page_once():
    assert sorted(found[1] for found in page.MARKED.finditer(TEXT)) == sorted(
        [*page.TABLES, 'targets']
    )
    assert TEXT.count('<!-- end -->') == len(page.TABLES) + 1


def test_an_aim_that_is_missed_is_said(tmp_path):
    for folder, ratio in ((tmp_path, 0.44), (tmp_path / 'before', 0.5)):
        folder.mkdir(exist_ok=True)
        row = {'forward': {'ours_to_this': {'ratio': ratio}}}
        content = {'rows': {'mmseg, our pyramid': row}}
        (folder / 'upernet_speed_small.json').write_text(json.dumps(content))
    lines = page.targets(tmp_path).splitlines()
    assert lines[2:] == [
        '| UperNet ViT-S, forward, of mmseg | `upernet_speed.py` | 0.50 | 0.44 | ≤ 0.42 | no |'
    ]


def test_a_table_names_all_its_commits(tmp_path):
    def run(code: str) -> dict:
        return {'machine': {'processor': 'P', 'cores': 2, 'code': code}, 'rows': {}}

    file = tmp_path / 'upernet_peers.json'
    file.write_text(json.dumps({'settings': {}, 'runs': {'a': run('1 aaa'), 'b': run('1 bbb')}}))
    file.with_suffix('.md').write_text('| x |\n')
    found = page.section('upernet_peers', tmp_path)
    assert found == '| x |\n\n*1 aaa, P, 2 cores; 1 bbb, P, 2 cores*'
    assert page.section('growth', tmp_path) == 'Not measured yet.'
