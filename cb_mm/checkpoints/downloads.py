"""Weights from addresses: each has its own place in the cache, which holds only weights."""

from __future__ import annotations

import hashlib
import http.client
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

import torch

from ..errors import UserError
from ..fileio.atomic import draft_of

#: Seconds without a byte.
_PATIENCE = 60


def is_address(text: str) -> bool:
    """Return whether weights are to be downloaded from here."""
    return re.match(r'https?://', text) is not None


def download(address: str, folder: str | Path | None = None, check_hash: bool = False) -> Path:
    """Return the local copy of a file of weights, which is downloaded the first time.

    Args:
        address: Of http or https.
        folder: Of the cache; by default that of torch.hub.
        check_hash: Whether the name has the start of the SHA-256 of the file in it, as in
            ``vit-a1b2c3d4.pth``.

    Raises:
        UserError: The address cannot be reached, or returns no weights. Nothing is kept then.
    """
    try:
        name = Path(unquote(urlsplit(address).path)).name
    except ValueError as error:
        raise UserError(f'{address} is not an address ({error}).') from error
    if not re.fullmatch(r'[\w.\-+=@ ]{1,200}', name) or name.startswith('.'):
        name = 'weights.pth'
    # Two files of one name at two addresses are two files.
    own = hashlib.sha256(address.encode()).hexdigest()[:16]
    file = Path(folder or Path(torch.hub.get_dir()) / 'checkpoints').expanduser() / own / name
    if not file.exists():
        with draft_of(file) as draft:
            _fetch(address, draft)
            _require_weights(address, draft)
            expected = re.search(r'-([a-f0-9]{8,})\.', name) if check_hash else None
            if expected and not _sha256(draft).startswith(expected[1]):
                raise UserError(f'{address} is damaged: its SHA-256 is not the one in its name.')
    return file


def _fetch(address: str, draft: Path) -> None:
    request = _or_explained(address, lambda: Request(address, headers={'User-Agent': 'cb_mm'}))
    with (
        _or_explained(address, lambda: urlopen(request, timeout=_PATIENCE)) as answer,
        draft.open('wb') as stream,
    ):
        while chunk := _or_explained(address, lambda: answer.read(1 << 20)):
            stream.write(chunk)
        promised = answer.headers.get('Content-Length', '')
    came = draft.stat().st_size
    if promised.isdigit() and int(promised) != came:
        raise UserError(
            f'{address} could not be downloaded: only {came} of {promised} bytes '
            'arrived. Try again.'
        )


def _or_explained(address: str, step: Callable[[], Any]) -> Any:
    """Return what a step of a download gives; its errors as ones of the address."""
    try:
        return step()
    except HTTPError as error:
        raise UserError(
            f'{address} could not be downloaded (HTTP {error.code}: {error.reason}). Check it in a '
            'browser.'
        ) from error
    # urllib's errors are OSErrors; a bad address is a ValueError.
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise UserError(
            f'{address} could not be downloaded ({error}). Without a network, fetch it elsewhere '
            'and give the path of the file.'
        ) from error


def _require_weights(address: str, file: Path) -> None:
    """Refuse what a server returns instead of a file, such as a login page."""
    with file.open('rb') as stream:
        start = stream.read(512)
    if start.lstrip(b'\xef\xbb\xbf \t\r\n')[:1] == b'<':
        raise UserError(
            f'{address} returned a web page instead of weights, such as a login page. Download '
            'the file in a browser and give its path.'
        )
    zip_or_pickle = start.startswith((b'PK\x03\x04', b'\x80'))
    safetensors = start[8:9] == b'{'
    if not zip_or_pickle and not safetensors:
        raise UserError(
            f'{address} returned no weights: the response starts with {start[:20]!r}, as no '
            '.pth, .npz or .safetensors file does.'
        )


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open('rb') as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
