"""Reading checkpoint files: safe by default, and an error that names what is wrong.

A ``.pth`` file is a pickle, and unpickling can run any code. Everything here reads with torch's
``weights_only=True`` and a short allow-list of what real mmengine checkpoints hold. `install`
makes mmengine's own loading (``Runner.resume``, ``load_from``, ``init_cfg``) go through it too:
upstream 0.10 cannot resume with torch >= 2.6, and the maintained distribution falls back to
unsafe unpickling when the safe way fails.
"""

from __future__ import annotations

import argparse
import pickletools
import re
import warnings
import zipfile
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from mmengine.logging import HistoryBuffer
from mmengine.runner import checkpoint as mmengine_checkpoint
from numpy._core import multiarray
from torch.serialization import safe_globals

from .errors import UserError, require_name

_HISTORY_METHODS = ('min', 'max', 'mean', 'current')
_trusted: set[Path] = set()


def _history_method(owner: object, name: str) -> Any:
    """`getattr` for the one thing that mmengine's pickled histories use it for.

    A HistoryBuffer refers to its own statistics methods; a free `getattr` would be a way to run
    code.
    """
    if owner is HistoryBuffer and name in _HISTORY_METHODS:
        return getattr(HistoryBuffer, name)
    raise UnpicklingError(f'Unsupported global: GLOBAL builtins.getattr({owner!r}, {name!r})')


#: What may stand in a checkpoint beside tensors and plain containers.
ALLOWED: list[Any] = [
    HistoryBuffer,
    (_history_method, 'builtins.getattr'),
    slice,
    argparse.Namespace,  # the training options in DeiT's, MAE's and DINO's files
    np.ndarray,
    np.dtype,
    *(type(np.dtype(code)) for code in '?bBhHiIlLqQefdFDU'),
    # numpy 1 and numpy 2 name the same two functions differently.
    *((getattr(multiarray, name), f'numpy.{core}.multiarray.{name}')
      for name in ('_reconstruct', 'scalar') for core in ('core', '_core')),
]  # fmt: skip


def trust(path: str | Path) -> None:
    """Let this one file be unpickled without limits: it may then run any code it holds."""
    _trusted.add(_resolved(path))


def _resolved(path: str | Path) -> Path:
    return Path(path).expanduser().resolve()


def read_checkpoint(
    path: str | Path, map_location: Any = 'cpu', trust: bool = False
) -> dict[str, Any]:
    """Read a local ``.pth``, ``.pt`` or ``.safetensors`` file.

    Args:
        path: The file; a leading ``~`` is the home folder.
        map_location: As in ``torch.load``.
        trust: Unpickle without limits. Only for files whose maker you trust.

    Returns:
        What the file holds: a state dict, or a dict around one.

    Raises:
        UserError: The file is missing, empty, cut off, not a checkpoint, or holds anything but
            weights and plain data, or is damaged. (Files in torch's old format and .safetensors
            have no checksums: there, changed numbers are not noticed.)
    """
    require_name(path, 'checkpoint')
    file = _resolved(path)
    if not file.is_file():
        kind = 'is a folder, not a file' if file.is_dir() else 'does not exist'
        raise UserError(f'checkpoint {path} {kind}.')
    if file.stat().st_size == 0:
        raise UserError(f'checkpoint {path} is empty (0 bytes). Take an earlier one.')
    if file.suffix == '.safetensors':
        return _read_safetensors(file, map_location)
    try:
        if trust or file in _trusted:
            content = torch.load(file, map_location=map_location, weights_only=False)
        else:
            _require_intact(file, path)
            with safe_globals(ALLOWED), warnings.catch_warnings():
                warnings.simplefilter('ignore', UserWarning)  # of an odd pickle protocol
                content = torch.load(file, map_location=map_location, weights_only=True)
            # mmengine would run this text as a Python config when it resumes.
            if isinstance(content, dict) and isinstance(content.get('meta'), dict):
                content['meta'].pop('config', None)
    except UserError:
        raise
    except Exception as error:  # torch reports a broken file in a dozen types
        raise UserError(_explain(path, file, error)) from error
    if not isinstance(content, dict):
        raise UserError(
            f'checkpoint {path} holds a {type(content).__name__}, not a dictionary of tensors. '
            'Save the state dict of the model instead.'
        )
    return content


def _read_safetensors(file: Path, map_location: Any) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    device = map_location if isinstance(map_location, (str, torch.device)) else 'cpu'
    try:
        return load_file(file, device=str(device))
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(
            f'checkpoint {file} is not a whole safetensors file ({error}). Download it again.'
        ) from error


def _require_intact(file: Path, path: str | Path) -> None:
    """Compare every part of a torch archive with its checksum: torch itself does not.

    torch stores the parts as they are. Packed ones could be a bomb that unpacks to any size.
    """
    if not zipfile.is_zipfile(file):
        return  # torch's older format, which has no checksums, or no checkpoint
    with zipfile.ZipFile(file) as archive:
        parts = archive.infolist()
        # A part that is marked as a folder torch does not read: its numbers would be any.
        odd = any(
            part.compress_type != zipfile.ZIP_STORED or part.external_attr & 0x10 or part.is_dir()
            for part in parts
        )
        if odd or sum(part.file_size for part in parts) > file.stat().st_size:
            raise UserError(
                f'checkpoint {path} is packed, damaged, or claims more than it holds: refused.'
            )
        broken = archive.testzip()
    if broken:
        raise UserError(
            f'checkpoint {path} is damaged: its part {broken} does not have its checksum. Take '
            'another checkpoint, or download it again.'
        )


def _explain(path: str | Path, file: Path, error: Exception) -> str:
    text = str(error)
    found = re.search(r'GLOBAL (\S+(?:\(.*\))?)', text)
    foreign = found[1].rstrip('.') if found else _first_name_in_bare_pickle(file)
    if foreign:
        return (
            f'checkpoint {path} holds "{foreign}", which is not weights or plain '
            'data; reading it could run code, so it was refused. Ask its maker for a file of '
            'tensors only, or, if you trust the maker, pass --trust-checkpoint.'
        )
    if isinstance(error, UnpicklingError) and 'Unsupported operand' not in text:
        reason = text.strip().splitlines()[-1] if text.strip() else type(error).__name__
        return (
            f'checkpoint {path} cannot be read safely ({reason}). If you trust its maker, pass '
            '--trust-checkpoint.'
        )
    if isinstance(error, MemoryError):
        return f'checkpoint {path} does not fit into memory.'
    if isinstance(error, PermissionError):
        return f'checkpoint {path} cannot be opened: permission denied.'
    return (
        f'checkpoint {path} is cut off or is not a torch checkpoint. If it was being written when '
        'the run was killed, take the one before; otherwise download it again.'
    )


def _first_name_in_bare_pickle(file: Path) -> str | None:
    """The first class or function that a plain pickle (not made by torch.save) refers to.

    The file is taken apart, never executed.
    """
    with file.open('rb') as stream:
        if stream.read(1) != b'\x80':
            return None
        stream.seek(0)
        words: list[str] = []
        try:
            for opcode, argument, _ in pickletools.genops(stream):
                if opcode.name in ('GLOBAL', 'INST'):
                    return argument.replace(' ', '.')
                if opcode.name == 'STACK_GLOBAL':
                    return '.'.join(words[-2:])
                if isinstance(argument, str):
                    words.append(argument)
        except Exception:  # a broken pickle: the caller says so
            return None
    return None


def _load_from_local(filename: str, map_location: Any = None) -> dict[str, Any]:
    return read_checkpoint(filename, map_location)


def _load_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    **_: Any,
) -> dict[str, Any]:
    """torch.hub's `load_state_dict_from_url`, which unpickles without limits, made safe."""
    folder = Path(model_dir or Path(torch.hub.get_dir()) / 'checkpoints')
    folder.mkdir(parents=True, exist_ok=True)
    name = file_name or url.split('?')[0].rstrip('/').rsplit('/', 1)[-1]
    file = folder / name
    if not file.exists():
        expected = re.search(r'-([a-f0-9]{8,})\.', name) if check_hash else None
        torch.hub.download_url_to_file(
            url, str(file), hash_prefix=expected[1] if expected else None, progress=progress
        )
    return read_checkpoint(file, map_location)


def install() -> None:
    """Make mmengine read every checkpoint through `read_checkpoint`."""
    mmengine_checkpoint.CheckpointLoader.register_scheme('', _load_from_local, force=True)
    mmengine_checkpoint.load_url = _load_url
    # Only the maintained distribution has this one; it serves the rarer file backends.
    if hasattr(mmengine_checkpoint, '_safe_torch_load'):
        mmengine_checkpoint._safe_torch_load = _load_stream


def _load_stream(file: Any, map_location: Any = None, weights_only: bool | None = None) -> Any:
    if isinstance(file, (str, Path)):
        return read_checkpoint(file, map_location)
    with safe_globals(ALLOWED):
        return torch.load(file, map_location=map_location, weights_only=True)
