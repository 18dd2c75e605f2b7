"""mmengine's own reading and writing of files, made safe; `cb_mm.safe_io` says how."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmengine.fileio import LocalBackend, register_backend
from mmengine.fileio import io as mmengine_io
from mmengine.runner import checkpoint as mmengine_checkpoint

from ..compat import debug_prints
from ..fileio.backend import AtomicBackend
from .downloads import download
from .provenance import Provenance, differs, normalization_text
from .read import is_trusted, read_checkpoint, read_stream, take

#: What mmengine had before, by name; empty while the switch is off.
_before: dict[str, Any] = {}


def install() -> None:
    """Switch safe reading and atomic writing on. Calling it again changes nothing."""
    if _before:
        return
    _before['load_url'] = mmengine_checkpoint.load_url
    mmengine_checkpoint.load_url = _load_url
    # Only the maintained distribution has this one; it serves the rarer file backends.
    if hasattr(mmengine_checkpoint, '_safe_torch_load'):
        _before['_safe_torch_load'] = mmengine_checkpoint._safe_torch_load
        mmengine_checkpoint._safe_torch_load = _load_stream
    _before['_load_checkpoint_to_model'] = mmengine_checkpoint._load_checkpoint_to_model
    mmengine_checkpoint._load_checkpoint_to_model = _load_to_model
    _use(_load_from_local, AtomicBackend)
    debug_prints.install()


def uninstall() -> None:
    """Restore mmengine's own reading and writing of files."""
    if not _before:
        return
    for name, original in _before.items():
        setattr(mmengine_checkpoint, name, original)
    _before.clear()
    _use(mmengine_checkpoint.load_from_local, LocalBackend)
    debug_prints.uninstall()


@contextlib.contextmanager
def safe_files() -> Iterator[None]:
    """Switch both on within the block, and then leave mmengine as it was before."""
    if _before:
        yield
        return
    install()
    try:
        yield
    finally:
        uninstall()
        # A config may have imported this module, which switches on where it is imported for the
        # first time: whoever imports it later must get what it promises.
        if sys.modules.pop('cb_mm.safe_io', None) is not None:
            vars(sys.modules['cb_mm']).pop('safe_io', None)


def _use(load: Any, backend: type[LocalBackend]) -> None:
    mmengine_checkpoint.CheckpointLoader.register_scheme('', load, force=True)
    register_backend('local', backend, prefixes='', force=True)
    # mmengine keeps the backends that it has used: after reading a config there is one.
    used = mmengine_io.backend_instances
    for key in [key for key, one in used.items() if isinstance(one, LocalBackend)]:
        del used[key]


def _load_from_local(filename: str, map_location: Any = None) -> dict[str, Any]:
    return take(filename)


def _load_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    **_: Any,
) -> dict[str, Any]:
    """Load as torch.hub's `load_state_dict_from_url`, but with safe unpickling."""
    return read_checkpoint(download(url, model_dir, check_hash), is_trusted(url))


def _load_to_model(model: Any, checkpoint: Any, *args: Any, **kwargs: Any) -> Any:
    """Load as mmengine does, after a look at how the images were normalised in training."""
    trained, own = Provenance.of_checkpoint(checkpoint), Provenance.of_model(model)
    if trained is not None and differs(trained, own):
        warnings.warn(
            f'the checkpoint was trained with images of {normalization_text(trained)}; the model '
            f'normalises with {normalization_text(own)}, and its results will be wrong. Set mean '
            "and std of the config's data_preprocessor to those of the training.",
            stacklevel=3,
        )
    return _before['_load_checkpoint_to_model'](model, checkpoint, *args, **kwargs)


def _load_stream(file: Any, map_location: Any = None, weights_only: bool | None = None) -> Any:
    """Read a checkpoint that a file backend has fetched into memory."""
    if isinstance(file, (str, Path)):
        return read_checkpoint(file)
    return read_stream(file)
