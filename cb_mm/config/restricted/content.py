"""Checks of a config's data: its keys, and what its values would import, open and write.

The rules hold for every dict in the config, wherever it is. A key of a schedule or test set such
as ``model.backbone.type`` is taken by its last part.
"""

from __future__ import annotations

import keyword
import os
import re
import unicodedata
from collections.abc import Callable
from typing import Any

from ...errors import UserError
from .base_values import is_refilled
from .limits import TooLarge, count_values, show
from .readers import is_plain
from .types import ALLOWED, OPTIONS, REFUSED

#: Packages whose parts a safe config may use.
PACKAGES = ('cb_mm', 'mmcv', 'mmdet', 'mmengine', 'mmpretrain', 'mmseg')
#: mmengine dumps a config as a program, with each key between single quotes as it is.
_KEY = re.compile(r'[\w.\-/ ]{1,200}')
#: mmengine reads files of these kinds in ways that can run code.
_CODE_FILE = re.compile(r'(.*[./])?(pkl|pickle|ya?ml)', re.IGNORECASE | re.DOTALL)
_MODULE = re.compile(rf'({"|".join(PACKAGES)})(\.[A-Za-z_]\w*)*')
_HUB_NAME = re.compile(r'[\w-][\w.-]*(/[\w-][\w.-]*)?')
_FILE_TEMPLATE = re.compile(r'[\w-]*\{(:0?\d{0,2}d?)?\}[\w.-]*')
_BACKENDS = (
    'cv2', 'disk', 'gloo', 'inductor', 'local', 'mpi', 'nccl', 'pillow', 'tifffile', 'turbojpeg',
)  # fmt: skip
_COMPILE = {'backend', 'dynamic', 'fullgraph', 'mode'}
_RUN_NAMES = {'group', 'job_type', 'name', 'notes', 'project', 'tags'}


class _Wrong(Exception):
    """What is wrong with the value of a key."""


def check_content(content: Any, what: str) -> None:
    """Check the data of a config.

    Raises:
        UserError: A key or value is refused; it is named. ``what`` says whose it is.
    """
    try:
        count_values(content)
        _check(content, '', [])
    except (TooLarge, _Wrong) as error:
        raise UserError(f'`safe_config`: {what}: {error}') from None


def _check(value: Any, key: str, place: list[str]) -> None:
    """Check a value and all that it holds; the items of a list have the key of the list."""
    if isinstance(value, dict):
        for name, item in value.items():
            _check_key(name, place)
            here = [*place, str(name)]
            last = str(name).rpartition('.')[2]
            rule = _RULES.get(last)
            if rule is None and last.endswith('backend_args'):
                rule = _check_file_backend
            try:
                if rule is not None and item is not None:
                    rule(item)
                _check(item, last, here)
            except _Wrong as error:
                raise error if error.args[0].startswith('its ') else _named(here, error) from None
        _check_options(value, place)
        _check_files(value, place)
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            _check(item, key, [*place, str(number)])
    elif isinstance(value, str):
        _check_text(value, key)
    elif value is not None and not isinstance(value, (bool, int, float)):
        raise _Wrong(f'holds a {type(value).__name__}')


def _named(place: list[str], error: _Wrong) -> _Wrong:
    return _Wrong(f'its {".".join(place)[-150:]} {error}')


def _check_key(name: Any, place: list[str]) -> None:
    if isinstance(name, int) and not isinstance(name, bool):
        return
    if not isinstance(name, str) or not _KEY.fullmatch(name) or not _stays_itself(name):
        where = '.'.join(place)[-150:] or 'top level'
        raise _Wrong(f'its {where} has the key {ascii(name)[:80]}, which is not a plain name')


def _stays_itself(name: str) -> bool:
    """Return whether Python reads a name in a dumped config as it was: not "ｔype" as "type"."""
    reserved = keyword.iskeyword(name) or name == '__debug__'
    return not reserved and unicodedata.is_normalized('NFKC', name)


def _check_text(value: str, key: str) -> None:
    if '\0' in value or any('\ud800' <= letter <= '\udfff' for letter in value):
        raise _Wrong('is not text')
    if is_refilled(value):
        raise _Wrong('has a {{...}} that mmengine would fill in')
    # mmdet's data sets read proposals as mmengine's reader does, which refuses pickles (`readers`),
    # and the models of these configs are useful without them.
    if _CODE_FILE.fullmatch(value) and key != 'proposal_file':
        raise _Wrong(f'names {show(value[-80:])}; reading such a file can run code.')


def _check_type(value: Any) -> None:
    if not isinstance(value, str):
        raise _Wrong('is not the name of a registered class')
    scope, dot, name = value.rpartition('.')
    if dot and scope not in PACKAGES:
        # "mmdet.FPN" is a name in a registry, "os.system" would be imported and called.
        raise _Wrong(f'is "{show(value)}", an import path. Only registered names are allowed.')
    if name in REFUSED:
        raise _Wrong(f'is "{show(value)}", which is refused: {REFUSED[name]}.')
    if name not in ALLOWED:
        raise _Wrong(
            f'is "{show(value)}", which is not on the list of reviewed types: those in the configs '
            'of cb_mm, mmseg, mmdet and mmpretrain.'
        )


def _check_options(node: dict, place: list[str]) -> None:
    """Refuse options of single classes that would be evaluated, run or deleted."""
    name = str(node.get('type')).rpartition('.')[2]
    for option, allowed in OPTIONS.get(name, {}).items():
        given = {key for key in node if option in ('*', key)}
        if option == '*':
            given -= {*OPTIONS[name], 'type', '_scope_', '_delete_'}
        for key in sorted(given, key=str):
            value = node[key]
            if value is not None and (
                allowed is None or not re.fullmatch(allowed, str(value), re.ASCII)
            ):
                raise _named([*place, str(key)], _Wrong(f'is refused for the type {name}.'))


def _check_files(node: dict, place: list[str]) -> None:
    """Refuse names of pipes and devices: some classes open what they name by themselves."""
    root = node.get('data_root')
    for key, value in node.items():
        if isinstance(value, str) and not is_plain(
            os.path.join(root, value) if isinstance(root, str) else value
        ):
            raise _named(
                [*place, str(key)], _Wrong(f'names {show(value)}, which is no plain file.')
            )


def _check_scope(value: Any) -> None:
    if value not in PACKAGES:
        raise _Wrong(f'names the package "{show(value)}"; allowed are {", ".join(PACKAGES)}.')


def _check_imports(value: Any) -> None:
    given = value.get('imports') if isinstance(value, dict) else value
    if not isinstance(value, dict) or not {*value} <= {'imports', 'allow_failed_imports'}:
        raise _Wrong('is not dict(imports=[...])')
    for module in given if isinstance(given, (list, tuple)) else [given or 'mmengine']:
        if not _MODULE.fullmatch(str(module)):
            raise _Wrong(f'imports "{show(module)}"; allowed are {", ".join(PACKAGES)}.')


def _check_file_backend(value: Any) -> None:
    if not isinstance(value, dict) or value not in ({'backend': 'local'}, {'backend': 'disk'}):
        raise _Wrong("is more than dict(backend='local'); other backends import and connect.")


def _check_backend(value: Any) -> None:
    if value not in _BACKENDS:
        raise _Wrong(f'is "{show(value)}"; allowed are {", ".join(_BACKENDS)}.')


def _check_process_group(value: Any) -> None:
    if not isinstance(value, dict) or not {*value} <= {'backend'}:
        raise _Wrong("is more than dict(backend=...); the launcher's variables set the rest.")


def _check_compile(value: Any) -> None:
    """Refuse what torch.compile hands on: its ``options`` name the compiler that is started."""
    if not isinstance(value, (bool, dict)) or (isinstance(value, dict) and {*value} - _COMPILE):
        raise _Wrong(f'may have {", ".join(sorted(_COMPILE))}; other options run programs.')


def _check_account(value: Any) -> None:
    if not isinstance(value, dict) or {*value} - _RUN_NAMES:
        raise _Wrong(f'may have {", ".join(sorted(_RUN_NAMES))}; the rest is for your account.')


def _check_inside(value: Any) -> None:
    """Refuse an output folder or file outside the folder where the tool was started."""
    text = str(value) if isinstance(value, (str, int, float)) else '/'  # a list is no folder
    if re.match(r'[/\\~]|[A-Za-z]:|\w+://', text) or '..' in re.split(r'[/\\]', text):
        raise _Wrong(f'is "{show(text)}"; a safe config writes below the current folder only.')


def _pattern(pattern: re.Pattern[str], what: str) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if not pattern.fullmatch(str(value)):
            raise _Wrong(f'is "{show(value)}", which is not {what}.')

    return check


def _at_most(most: int) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if not isinstance(value, int) or value > most:
            raise _Wrong(f'is "{show(value)}"; a safe config may have {most}.')

    return check


def _refused(reason: str) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if value not in (False, '', [], {}):
            raise _Wrong(f'is refused: {reason}.')

    return check


_ELSEWHERE = _refused('it puts a file into a folder of its choice')
_CODE = _refused('it can run code')
_hub_name = _pattern(_HUB_NAME, 'the name of a model on the Hugging Face Hub')

#: key -> what raises `_Wrong` for a wrong value; the value None always passes
_RULES: dict[str, Callable[[Any], None]] = {
    **dict.fromkeys(('type', 'constructor', 'ema_type', 'runner_type'), _check_type),
    **dict.fromkeys(('default_scope', '_scope_'), _check_scope),
    'custom_imports': _check_imports,
    'file_client_args': _check_file_backend,
    **dict.fromkeys(('backend', 'decode_backend', 'imdecode_backend'), _check_backend),
    'dist_cfg': _check_process_group,
    **dict.fromkeys(('work_dir', 'save_dir', 'output_dir', 'outfile_path', 'outfile_prefix',
                     'out_file', 'log_dir', 'show_dir', 'format_dir', 'test_out_dir', 'save_to',
                     'out'),
                    _check_inside),
    **dict.fromkeys(('config_save_file', 'scalar_save_file', 'img_save_dir', 'out_dir',
                     'out_file_path', 'cache_dir', 'artifact_location',
                     'dir_name'), _ELSEWHERE),
    **dict.fromkeys(('collect_dir', 'tmpdir'), _refused('the folder is deleted afterwards')),
    **dict.fromkeys(('sys_path', 'strategy', 'trust_remote_code', 'on_trace_ready'), _CODE),
    'compile': _check_compile,
    'init_kwargs': _check_account,  # of wandb.init, which sends your key where they say
    'log_code_name': _refused('it uploads the files of the current folder'),
    **dict.fromkeys(('checkpoint_path', 'pretrained_cfg', 'pretrained_cfg_overlay'),
                    _refused('timm unpickles what it names; take init_cfg')),
    'trust': _refused('a config cannot vouch for a file; `trust_checkpoint` does'),
    'mean_pattern': _refused('a pattern can take forever'),
    # mmpretrain evaluates it, for every transform of torchvision.
    'dtype': _pattern(re.compile(r'(torch\.)?[a-z]+\d*'), 'a type of numbers'),
    'num_workers': _at_most(128),  # processes, which would take the machine down
    'prefetch_factor': _at_most(64),  # batches that wait in memory
    'filename_tmpl': _pattern(_FILE_TEMPLATE, 'a name with one number in it'),
    **dict.fromkeys(('name_or_path', 'pretrained_model_name_or_path', 'tokenizer_name',
                     'lang_model_name', 'model_style'), _hub_name),
}  # fmt: skip
