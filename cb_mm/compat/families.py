"""Which OpenMMLab family is installed: the maintained `onedl-*` distributions or the originals.

Both carry the same import names (mmengine, mmcv, mmseg, mmdet), so only the installed
distributions tell them apart. This module imports nothing but the standard library.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata

from ..version import __version__

#: family -> import name -> distributions that provide it (the first one is the one to install)
FAMILIES: dict[str, dict[str, tuple[str, ...]]] = {
    'onedl': {
        'mmengine': ('onedl-mmengine',),
        'mmcv': ('onedl-mmcv',),
        'mmseg': ('onedl-mmsegmentation',),
        'mmdet': ('onedl-mmdetection',),
    },
    'openmmlab': {
        'mmengine': ('mmengine', 'mmengine-lite'),
        'mmcv': ('mmcv-lite', 'mmcv'),
        'mmseg': ('mmsegmentation',),
        'mmdet': ('mmdet',),
    },
}

#: Distributions beside the families whose version may change a figure.
LIBRARIES = ('torch', 'timm', 'numpy', 'opencv-python', 'opencv-python-headless',
             'onedl-mmpretrain', 'mmpretrain')  # fmt: skip

INSTALL = {
    'onedl': 'pip install "cb_mm[onedl]"',
    'openmmlab': 'pip install "cb_mm[openmmlab]"',
}

NO_FAMILY = (
    'cb_mm needs mmengine, mmcv, mmsegmentation and mmdetection, but found none of them.\n'
    f'Install the maintained distributions:  {INSTALL["onedl"]}\n'
    f'or the original OpenMMLab releases:    {INSTALL["openmmlab"]}'
)


def installed_versions() -> dict[str, str]:
    """Return the version of every installed distribution, by its normalised name."""
    return {
        (dist.metadata['Name'] or '').lower().replace('_', '-'): dist.version
        for dist in metadata.distributions()
    }


def _versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of those distributions that are installed, without reading all others."""
    found = {}
    for name in names:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _families_here() -> dict[str, dict[str, str]]:
    return families_found(
        _versions(name for parts in FAMILIES.values() for names in parts.values() for name in names)
    )


def software_versions() -> dict[str, str]:
    """Return the versions of cb_mm, the installed family and libraries that affect figures."""
    found = _versions(LIBRARIES)
    for parts in _families_here().values():
        found |= parts
    return {'cb_mm': __version__, **dict(sorted(found.items()))}


def families_found(installed: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return, for each family that is at least partly installed, its distributions and versions."""
    found = {
        family: {
            name: installed[name] for names in parts.values() for name in names if name in installed
        }
        for family, parts in FAMILIES.items()
    }
    return {family: parts for family, parts in found.items() if parts}


def current_family() -> str | None:
    """Return the name of the installed family; None without one, 'both' if they overlap."""
    found = list(_families_here())
    return 'both' if len(found) > 1 else (found[0] if found else None)
