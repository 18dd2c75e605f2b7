"""Where weights come from: a file, an address, an original .npz, timm's hub, the package itself."""

from __future__ import annotations

import contextlib
import math
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import getproxies

import timm
import torch
from huggingface_hub import constants
from timm.models.vision_transformer import VisionTransformer

from ..errors import MissingFile, UserError, did_you_mean, require_name
from ..fileio.digests import content_digest
from .downloads import download, is_address
from .match import tensors_digest
from .npz import npz_shapes
from .read import is_trusted, read_checkpoint
from .shipped import WEIGHTS, is_shipped_name, shipped_folder

#: How timm marks a name of the hub's.
_HUB = ('hf-hub:', 'hf_hub:')
SUFFIXES = ('.pth', '.pt', '.bin', '.ckpt', '.tar', '.pkl', '.safetensors', '.npz')


#: Within `read_once`: what was read for its record, until the model takes it.
_kept: dict[str, tuple[Any, str | None]] | None = None


@contextlib.contextmanager
def read_once() -> Iterator[None]:
    """Read weights whose record is looked at first only once, within the block."""
    global _kept
    before, _kept = _kept, {}
    try:
        yield
    finally:
        _kept = before


def read_weights(
    source: str | Path, trust: bool = False, keep: bool = False
) -> tuple[Any, str | None]:
    """Return the content of a file, an address or a hub model, and its layout if known.

    Args:
        source: The file, address or name.
        trust: Let the file be unpickled without limits.
        keep: The same weights are read again soon; see `read_once`.
    """
    text = str(source)
    content = _kept.pop(text, None) if _kept else None
    content = content or _read(text, trust)
    if keep and _kept is not None:
        _kept[text] = content
    return content


def _read(text: str, trust: bool) -> tuple[Any, str | None]:
    if is_address(text):
        return _read_file(download(text), trust or is_trusted(text))
    if is_shipped_name(text):
        return _read_file(shipped_folder(text) / WEIGHTS, False)
    if is_hub_name(text):
        return _from_hub(text), 'timm'
    if Path(text).suffix in SUFFIXES or _exists(text):
        return _read_file(Path(text), trust)
    raise UserError(
        f'{text!r} is neither a file ({", ".join(SUFFIXES)}), nor an address, nor the name of a '
        f'timm model.{did_you_mean(text.split(".")[0], timm.list_models(), most=3)}'
    )


def is_hub_name(source: str | Path) -> bool:
    """Return whether weights are named as on the hub: a timm model, or a model of anyone's."""
    text = str(source)
    return text.startswith(_HUB) or (timm_name(text) is not None and not _exists(text))


def timm_name(source: str | Path) -> str | None:
    """Return the name in timm, with its tag, of `vit_…`, `timm/vit_…` or `hf-hub:timm/vit_…`."""
    text = str(source)
    for start in _HUB:
        text = text.removeprefix(start)
    text = text.removeprefix('timm/')
    return text if '/' not in text and timm.is_model(text) else None


def source_digest(source: str | Path | None) -> str:
    """Return 16 digits that tell weights apart by their content, wherever they come from.

    Raises:
        UserError: They cannot be read.
    """
    require_name(source, 'checkpoint')
    text = str(source)
    if is_hub_name(text):
        return tensors_digest(read_weights(text)[0])
    if is_shipped_name(text):
        text = str(shipped_folder(text) / WEIGHTS)
    path = download(text) if is_address(text) else Path(text).expanduser()
    if path.is_dir():
        raise UserError(f'checkpoint {path} is a folder, not a file.')
    if not path.is_file():  # nor is it a pipe, which would be waited for
        raise MissingFile(f'checkpoint {path} does not exist.')
    return content_digest(path)


def _exists(text: str) -> bool:
    try:
        return Path(text).expanduser().exists()
    except (OSError, RuntimeError, ValueError):  # a loop of links, no such user, a null
        return True  # reading it says what is wrong


def _read_file(path: Path, trust: bool) -> tuple[Any, str | None]:
    if path.suffix == '.npz':
        return read_npz(path.expanduser()), 'npz'
    return read_checkpoint(path, trust=trust), None


def _from_hub(name: str) -> dict[str, torch.Tensor]:
    """Return the state dict of a pretrained timm model, with its classifier if it has one."""
    try:
        with cache_alone_without_network():
            return timm.create_model(timm_name(name) or name, pretrained=True).state_dict()
    except Exception as error:  # each of the hub's clients has its own errors
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f'the weights of the timm model {name!r} could not be fetched from the hub ({reason}). '
            'Without a network, fetch them elsewhere and give the path of the file, or copy the '
            f'cache ({constants.HF_HUB_CACHE}).'
        ) from error


@contextlib.contextmanager
def cache_alone_without_network() -> Iterator[None]:
    """Use only the hub's cache if the hub cannot be reached: its client retries for a minute."""
    hub = urlparse(constants.ENDPOINT)
    reachable = bool(getproxies())
    if not reachable:
        with contextlib.suppress(OSError):
            port = hub.port or (80 if hub.scheme == 'http' else 443)
            socket.create_connection((hub.hostname, port), timeout=5).close()
            reachable = True
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not reachable
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def read_npz(path: Path) -> dict[str, torch.Tensor]:
    """Return the original JAX weights as timm's state dict, at the size they were trained at.

    timm's own loader copies such a file into a model; the model is built here to the size of the
    file.
    """
    shapes = npz_shapes(path)
    try:
        measures = _measures(shapes)
        _require_filled(measures, shapes)
        model = VisionTransformer(**measures)
        model.load_pretrained(str(path))
    except UserError:
        raise
    except Exception as error:  # timm's loader fails on foreign files in many ways
        raise UserError(
            f'checkpoint {path} is not the .npz of a plain Vision Transformer ({error!r}). It '
            f'holds e.g. {", ".join(sorted(shapes)[:3])}.'
        ) from error
    # Only their names matter: the report says that they were left out.
    left = () if measures['num_classes'] else ('head',)
    heads = (re.search(r'(?:^|/)((head|pre_logits|MAPHead_0)/.*)', key) for key in shapes)
    found = [head for head in heads if head and head[2] in (*left, *_BEFORE_THE_HEAD)]
    return {**model.state_dict(), **{head[1]: torch.empty(0) for head in found}}


#: Layers between the class token and the classifier, which timm's plain ViT does not have.
_BEFORE_THE_HEAD = ('pre_logits', 'MAPHead_0')


def _require_filled(measures: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> None:
    """Refuse a model much larger than the arrays for it, before it takes any memory."""
    if not 1 <= measures['depth'] <= 200 or not 1 <= measures['num_heads'] <= measures['embed_dim']:
        raise ValueError(f'{measures["depth"]} blocks of {measures["num_heads"]} heads')
    with torch.device('meta'):
        wanted = sum(p.numel() for p in VisionTransformer(**measures).parameters())
    held = sum(math.prod(shape) for shape in shapes.values())
    if wanted > held + 10_000:
        raise ValueError(f'a model of {wanted:,} weights, of which it holds {held:,}')


def _measures(shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return the arguments of timm's VisionTransformer for the arrays of an .npz file."""
    patches = next(key for key in shapes if re.search(r'(^|/)embedding/kernel$', key))
    root = patches.removesuffix('embedding/kernel')
    height, _, channels, width = shapes[patches]

    def of_block(end: str) -> tuple[int, ...]:
        return next(shapes[key] for key in shapes if 'encoderblock' in key and key.endswith(end))

    blocks = {m[1] for key in shapes if (m := re.search(r'encoderblock_(\d+)/', key))}
    stacked = shapes.get(f'{root}Transformer/encoderblock/LayerNorm_0/scale')
    positions = next(shapes[key] for key in shapes if key.endswith('pos_embedding'))
    class_token = f'{root}cls' in shapes
    # Later files have no position for the class token.
    cells = positions[1]
    no_embed_class = class_token and round(cells**0.5) ** 2 == cells
    kernel = next((shapes[key] for key in shapes if re.search(r'(^|/)head/kernel$', key)), None)
    between = any(part in key.split('/') for key in shapes for part in _BEFORE_THE_HEAD)
    grid = round((cells - int(class_token and not no_embed_class)) ** 0.5)
    return {
        'img_size': grid * height,
        'patch_size': height,
        'in_chans': channels,
        'num_classes': 0 if kernel is None or between else kernel[-1],
        'global_pool': 'token' if class_token else 'avg',
        'fc_norm': False,
        'embed_dim': width,
        'depth': stacked[0] if stacked else len(blocks),
        'num_heads': of_block('query/kernel')[-2],
        'mlp_ratio': (of_block('Dense_0/kernel')[-1] + 0.5) / width,  # timm rounds down
        'class_token': class_token,
        'no_embed_class': no_embed_class,
    }
