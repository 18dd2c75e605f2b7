"""Reading checkpoint files: safe by default, and an error that names what is wrong.

A ``.pth`` file is a pickle, and unpickling can run any code. Here it is read by a machine that
knows only tensors and plain data (`plain_pickle`), from an archive as torch writes it (`archive`).
`cb_mm.safe_io` makes mmengine's own loading go through it too.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import torch

from ..errors import MissingFile, UserError, require_name
from ..fileio.result_files import parse_json
from .archive import read_archive
from .content import require_plain
from .downloads import is_address
from .plain_pickle import Foreign, Refused
from .record_shape import require_sound_record

#: In the header of a .safetensors file: the ``meta`` of a checkpoint, as JSON.
SAFETENSORS_META = 'cb_mm_meta'
#: Bytes of the header of a .safetensors file; a tensor takes about a hundred.
_LONGEST_HEADER = 10_000_000
#: Files and addresses that the command line, and nothing else, has vouched for.
_trusted: set[str] = set()
#: What was read from a file, or received from another machine that has it, until it is taken.
_held: dict[str, dict[str, Any]] = {}


def trust(source: str | Path) -> None:
    """Let this one file be unpickled without limits: it may then run any code it holds."""
    _trusted.add(_identity(source))


def is_trusted(source: str | Path) -> bool:
    """Return whether `trust` was called for this file or address."""
    return _identity(source) in _trusted


@contextlib.contextmanager
def holding(path: str | Path, content: dict[str, Any]) -> Iterator[None]:
    """Let readers of this file get its content from memory within the block, until one takes it."""
    _held[_identity(path)] = content
    del content  # its memory is free when it was taken and used
    try:
        yield
    finally:
        _held.pop(_identity(path), None)


def take(path: str | Path) -> dict[str, Any]:
    """Read a file for the last time: what was held of it is given away."""
    content = read_checkpoint(path)
    _held.pop(_identity(path), None)
    return content


def _identity(source: str | Path) -> str:
    return str(source) if is_address(str(source)) else str(_resolved(source))


def _resolved(path: str | Path) -> Path:
    try:
        return Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a name with a null
        raise UserError(f'checkpoint {path!s} cannot be found: {error}.') from error


def read_checkpoint(path: str | Path, trust: bool = False) -> dict[str, Any]:
    """Read a local ``.pth``, ``.pt`` or ``.safetensors`` file; its tensors are on the CPU.

    Args:
        path: The file; a leading ``~`` is the home folder.
        trust: Unpickle without limits. Only for files from a source you trust.

    Returns:
        What the file holds: a state dict, or a dict around one.

    Raises:
        MissingFile: There is no such file.
        UserError: The file is empty, cut off, not a checkpoint, or holds anything but
            weights and plain data, or is damaged. (Files in torch's old format and .safetensors
            have no checksums: there, changed numbers are not noticed.)
    """
    require_name(path, 'checkpoint')
    file = _resolved(path)
    if str(file) in _held:
        return _held[str(file)]
    try:
        if not file.is_file():
            if file.is_dir():
                raise UserError(f'checkpoint {path} is a folder, not a file.')
            raise MissingFile(f'checkpoint {path} does not exist.')
        if file.stat().st_size == 0:
            raise UserError(f'checkpoint {path} is empty (0 bytes). Take an earlier one.')
    except UserError:
        raise
    except OSError as error:
        raise UserError(f'checkpoint {path} cannot be found: {error.strerror}.') from error
    try:
        if file.suffix == '.safetensors':
            content = _without_config(_read_safetensors(file))
        elif trust or str(file) in _trusted:
            content = torch.load(file, map_location='cpu', weights_only=False)
        else:
            content = _without_config(read_archive(file))
        require_plain(content)
        require_sound_record(content)
    except UserError:
        raise
    except Exception as error:  # a broken file raises a dozen types
        raise UserError(f'checkpoint {path} {_explain(error)}') from error
    if not isinstance(content, dict):
        raise UserError(
            f'checkpoint {path} holds a {type(content).__name__}, not a dictionary of tensors. '
            'Save the state dict of the model instead.'
        )
    return content


def _without_config(content: Any) -> Any:
    """Drop the text that mmengine would run as a Python config when it resumes."""
    if isinstance(content, dict) and isinstance(content.get('meta'), dict):
        content['meta'].pop('config', None)
    return content


def _read_safetensors(file: Path) -> dict[str, Any]:
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_file

    with file.open('rb') as stream:
        header = int.from_bytes(stream.read(8), 'little')
    if _LONGEST_HEADER < header < file.stat().st_size:  # what is longer than the file is cut off
        raise Refused(f'has a header of {header:,} bytes, which no weights need')
    try:
        with safe_open(file, 'pt') as opened:
            about = (opened.metadata() or {}).get(SAFETENSORS_META)
        weights = load_file(file)
        # Files of `cb_mm.apis.push_to_hub` say what was trained with what, as .pth files do.
        return weights if about is None else {'state_dict': weights, 'meta': parse_json(about)}
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError) as error:
        raise UserError(
            f'checkpoint {file} is not a complete safetensors file ({error}). Download it again.'
        ) from error


def _explain(error: Exception) -> str:
    """Return the rest of a sentence that starts with the name of the checkpoint."""
    if isinstance(error, Foreign):
        return (
            f'holds "{error}", which is not weights or plain data; reading it could run code, so '
            'it was refused. Ask its author for a file of tensors only, or, if you trust the '
            'author, pass `trust_checkpoint`.'
        )
    if isinstance(error, Refused):
        advice = (
            '' if 'Save' in str(error) else ' It was refused: download it again, or take another.'
        )
        return f'{error}.{advice}'
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return 'cannot be read: out of memory.'
    if isinstance(error, PermissionError):
        return 'cannot be opened: permission denied.'
    checksum = re.search(r"Bad CRC-32 for file '(.*)'", str(error))
    if checksum:
        return (
            f'is damaged: the checksum of its part {checksum[1]} is wrong. Take another '
            'checkpoint, or download it again.'
        )
    return (
        'is cut off or is not a torch checkpoint. If it was being written when the run was killed, '
        'take the one before; otherwise download it again.'
    )


def read_stream(stream: BinaryIO) -> Any:
    """Read a checkpoint from memory as `read_checkpoint` reads a file."""
    try:
        content = _without_config(read_archive(stream))
        require_plain(content)
        require_sound_record(content)
    except Exception as error:  # a broken file raises a dozen types
        raise UserError(f'the fetched checkpoint {_explain(error)}') from error
    return content
