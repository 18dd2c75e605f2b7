"""Safe reading and atomic writing for all of mmengine, in the process that imports this module.

``import cb_mm`` alone leaves mmengine as it is. Our tools, `cb_mm.apis` and the configs of cb_mm
import this module too, and anyone else may. From then on

- every checkpoint (``Runner.resume``, ``load_from``, ``init_cfg``) goes through `read_checkpoint`,
  which runs no code: the original mmengine cannot resume with torch >= 2.6, and the maintained one
  falls back to unsafe unpickling when safe unpickling fails;
- every local file that mmengine writes is written atomically;
- mmengine prints no debug messages.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mmengine.fileio import LocalBackend, register_backend
from mmengine.fileio import io as mmengine_io
from mmengine.runner import checkpoint as mmengine_checkpoint

from .checkpoints.downloads import download
from .checkpoints.read import is_trusted, read_checkpoint, read_stream
from .compat import debug_prints
from .fileio.backend import AtomicBackend

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


def _use(load: Any, backend: type[LocalBackend]) -> None:
    mmengine_checkpoint.CheckpointLoader.register_scheme('', load, force=True)
    register_backend('local', backend, prefixes='', force=True)
    # mmengine keeps the backends that it has used: after reading a config there is one.
    used = mmengine_io.backend_instances
    for key in [key for key, one in used.items() if isinstance(one, LocalBackend)]:
        del used[key]


def _load_from_local(filename: str, map_location: Any = None) -> dict[str, Any]:
    return read_checkpoint(filename)


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


def _load_stream(file: Any, map_location: Any = None, weights_only: bool | None = None) -> Any:
    """Read a checkpoint that a file backend has fetched into memory."""
    if isinstance(file, (str, Path)):
        return read_checkpoint(file)
    return read_stream(file)


install()
