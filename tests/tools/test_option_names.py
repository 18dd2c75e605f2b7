"""Messages name parameters to Python users, and options to users of the tools."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest
from tool import REPO, main_of

from cb_mm import apis, errors
from cb_mm.apis import evaluate_robustness
from cb_mm.datasets import check
from cb_mm.errors import UserError, exit_code
from cb_mm_cli.options import api_parser, in_options

LIBRARY = sorted((REPO / 'cb_mm').rglob('*.py'))
PARAMETERS = {
    name
    for function in (*(getattr(apis, one) for one in apis.__all__), check)
    if inspect.isfunction(function)
    for name in inspect.signature(function).parameters
}
#: A command for a shell keeps its options.
COMMAND = re.compile(r'torchrun |srun |cb-mm |tools/\w|CONFIG ')


@pytest.fixture
def parser():
    """The parser of some tool, which has read its command line."""
    parser = api_parser('a tool')
    parser.add_argument('checkpoint', metavar='CHECKPOINT')
    parser.add_argument('--data-root')
    parser.add_argument('--corruption', dest='corruptions')
    parser.add_argument('--allow-mismatch', '--allow-broadcast-mismatch', dest='allow_mismatch')
    parser.parse_args(['x.pth'])
    return parser


@pytest.mark.parametrize(
    ('message', 'shown'),
    [
        ('`data_root` x is not a folder', '--data-root x is not a folder'),
        ('`corruptions` x', '--corruption x'),
        ('or pass `allow_mismatch`.', 'or pass --allow-mismatch.'),
        ('`checkpoint` is missing', 'CHECKPOINT is missing'),
        ('`init` is of another tool', '`init` is of another tool'),
        ('a folder `called so`, data_root', 'a folder `called so`, data_root'),
    ],
)
def test_parameters_become_options(message, shown, parser):
    assert in_options(message) == shown


def test_a_notice_is_in_the_words_of_the_running_tool(parser, capsys):
    def job() -> None:
        print(errors.in_users_words('no `data_root`'))
        raise UserError('`data_root` x')

    assert exit_code(job, in_options) == 2
    assert capsys.readouterr() == ('no --data-root\n', 'error: --data-root x\n')
    assert errors.in_users_words('no `data_root`') == 'no `data_root`'
    assert exit_code(job) == 2
    assert capsys.readouterr() == ('no `data_root`\n', 'error: `data_root` x\n')


def test_the_same_mistake_in_python_and_at_the_prompt(tmp_path, capsys):
    config, file = REPO / 'configs' / 'upernet_vit_ti.py', tmp_path / 'x.pth'
    file.touch()
    with pytest.raises(UserError, match=r'^`data_root` /no is not a folder\.$'):
        evaluate_robustness(config, file, data_root='/no')
    assert main_of('test.py')([str(config), str(file), '--data-root', '/no']) == 2
    assert capsys.readouterr().err == 'error: --data-root /no is not a folder.\n'


def texts(file: Path) -> list[str]:
    """Return every text in a module that is not a docstring; f-strings with their gaps."""
    tree = ast.parse(file.read_text())
    found = []
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            for item in value if isinstance(value, list) else [value]:
                if isinstance(node, (ast.JoinedStr, ast.FormattedValue)):
                    continue  # its text is taken as a whole
                if isinstance(node, ast.Expr) and isinstance(item, ast.Constant):
                    continue  # a docstring
                if isinstance(item, ast.JoinedStr):
                    parts = (getattr(part, 'value', '') for part in item.values)
                    found.append(''.join(part if isinstance(part, str) else '{}' for part in parts))
                elif isinstance(item, ast.Constant) and isinstance(item.value, str) and field:
                    found.append(item.value)
    return found


def test_no_text_of_the_library_names_an_option():
    option = re.compile(r'(?<![\w-])--[a-z{][a-z-]*')
    named = {
        (file.name, text)
        for file in LIBRARY
        if file.name not in ('doctor.py', 'mmcv_ops.py')  # they advise commands of pip
        for text in texts(file)
        if option.search(COMMAND.split(text)[0])
    }
    # words for mmengine's parser, and for a compiler
    assert named == {('options.py', '--options'), ('acceleration.py', '--version')}


def test_what_stands_in_backticks_is_a_parameter():
    named = {
        name
        for file in LIBRARY
        for text in texts(file)
        for name in re.findall(r'`([a-z_]+)`', text)
    }
    assert named <= PARAMETERS
    assert {'cfg_options', 'init', 'out', 'safe_config'} <= named


def test_every_tool_puts_messages_into_its_options():
    files = sorted((REPO / 'cb_mm_cli').glob('*.py'))
    calls = [
        [ast.unparse(argument) for argument in node.args]
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == 'exit_code'
    ]
    assert len(calls) >= 10
    assert all(call[1:] == ['in_options'] for call in calls)
